#include "kmm/plan/chunk_homes.hpp"

namespace kmm::plan {

namespace {

// Up to this length a list takes no more memory than a rule.
constexpr std::size_t short_list = 64;
// A run takes the memory of this many list entries: with fewer chunks in a run the list is kept.
constexpr std::size_t least_run = 16;
// The longest deal that is searched for: more than there are memories.
constexpr std::size_t longest_deal = 256;

}  // namespace

ChunkHomes ChunkHomes::of_list(std::vector<MemoryId> list) {
    ChunkHomes homes;
    if (list.empty()) return homes;
    if (list.size() > short_list) {
        if (find_deal(list, homes)) return homes;
        if (find_runs(list, list.size() / least_run, homes)) return homes;
    }
    list.shrink_to_fit();
    return dealt(std::move(list));
}

bool ChunkHomes::find_runs(const std::vector<MemoryId>& list, std::size_t most, ChunkHomes& homes) {
    ChunkHomes found;
    found.memories_.clear();
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (i + 1 < list.size() && list[i + 1] == list[i]) continue;
        if (found.ends_.size() == most) return false;
        found.memories_.push_back(list[i]);
        found.ends_.push_back(i + 1);
    }
    homes = std::move(found);
    return true;
}

/// The shortest deal that the beginning of the list allows; then the rest must follow it.
bool ChunkHomes::find_deal(const std::vector<MemoryId>& list, ChunkHomes& homes) {
    std::size_t run = 1;
    while (run < list.size() && list[run] == list.front()) ++run;
    const std::size_t looked_at = std::min(list.size(), 4 * longest_deal * run);
    const auto is_dealt = [&](std::size_t length, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i)
            if (list[i] != list[i / run % length * run]) return false;
        return true;
    };
    for (std::size_t length = 1; length <= longest_deal && (length - 1) * run < list.size(); ++length) {
        if (!is_dealt(length, looked_at)) continue;
        if (looked_at < list.size() && !is_dealt(length, list.size())) return false;
        std::vector<MemoryId> memories;
        memories.reserve(length);
        for (std::size_t i = 0; i < length; ++i) memories.push_back(list[i * run]);
        homes = dealt(std::move(memories), run);
        return true;
    }
    return false;
}

}  // namespace kmm::plan
