#include "kmm/runtime/texts/holders.hpp"

#include "driver/format.hpp"

#include <algorithm>
#include <unordered_map>

#include "driver/byte_size.hpp"
#include "kmm/base/text.hpp"

namespace kmm::detail {

namespace {

constexpr std::size_t most_shown = 5;

}  // namespace

Holders holders_of(const memory::Residency& residency, memory::MemoryIndex m) {
    std::unordered_map<const memory::Array*, Holder> by_array;  // null: temporaries
    residency.residents().for_each_resident(m, [&](const memory::Chunk& c) {
        Holder& h = by_array[c.array()];
        h.size_bytes += residency.residents().rounded(c.block_bytes());
        ++h.chunks;
        if (!c.replicas[m].holds_all_of(c.version)) ++h.stale_chunks;
    });
    Holders result;
    for (auto& [array, holder] : by_array) {
        // What it is of may be gone.
        holder.name =
            array == nullptr ? "temporaries (gathered regions, snapshots, regions to be written back)" : array->name();
        if (array != nullptr) holder.refetched_bytes = array->refetched_bytes;
        result.largest.push_back(std::move(holder));
    }
    std::sort(result.largest.begin(), result.largest.end(), [](const Holder& a, const Holder& b) {
        return a.size_bytes != b.size_bytes ? a.size_bytes > b.size_bytes : a.name < b.name;
    });
    if (result.largest.size() > most_shown) {
        result.others = result.largest.size() - most_shown;
        for (std::size_t i = most_shown; i < result.largest.size(); ++i)
            result.others_bytes += result.largest[i].size_bytes;
        result.largest.resize(most_shown);
    }
    return result;
}

std::string text_of(const Holders& holders) {
    std::string text;
    for (const Holder& h : holders.largest) {
        if (!text.empty()) text += " | ";
        text += driver::format("{} {} in {}", h.name, driver::byte_size_text(h.size_bytes),
                               driver::count_text(h.chunks, "chunk"));
        if (h.stale_chunks != 0) text += driver::format(", {} stale", h.stale_chunks);
        if (h.refetched_bytes != 0)
            text += driver::format(", {} fetched again", driver::byte_size_text(h.refetched_bytes));
    }
    if (holders.others != 0)
        text += driver::format(" | {} more {}", holders.others, driver::byte_size_text(holders.others_bytes));
    return text.empty() ? "none" : text;
}

}  // namespace kmm::detail
