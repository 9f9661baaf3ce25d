#include "kmm/api/chunk_batch.hpp"

#include <algorithm>
#include <utility>

#include "driver/format.hpp"
#include "kmm/api/chunk_groups.hpp"

namespace kmm::detail {

void ChunkBatch::make_tasks(const std::vector<std::size_t>& chunks, std::string name, bool may_be_one) {
    auto info = std::make_unique<graph::SubmitInfo>();
    info->name = std::move(name);
    info->launcher = LauncherInfo::Kind::host;
    info->num_chunks = static_cast<std::uint32_t>(binding_.layout->num_chunks());
    graph::SubmitInfoSource infos;
    infos.reset(std::move(info));
    chunks_.reserve(chunks.size());
    auto groups = memory::PerMemory<Group>::of_devices(core_.platform().num_devices());
    for (const std::size_t chunk : chunks) {
        const std::size_t bytes = binding_.block_bytes(chunk);
        const memory::MemoryIndex place = place_of(chunk, bytes);
        if (writes_ != nullptr && bytes > core_.platform().limit_bytes(place)) throw_too_large(bytes);
        const std::size_t most = most_bytes(chunks.size(), place);
        Group& g = groups[place];
        const bool alone = is_alone(chunk);
        if (!g.chunks.empty() && (g.bytes + bytes > most || alone)) make_task(g, place, infos);
        g.chunks.push_back(chunk);
        g.bytes += bytes;
        if (alone || most == 0 || g.chunks.size() == most_parts) make_task(g, place, infos);
    }
    for (const memory::MemoryIndex m : groups.memories())
        if (!groups[m].chunks.empty()) make_task(groups[m], m, infos);
    if (const std::size_t count = ends_.size(); count > 1 || !may_be_one)
        add_task({.num_edges = count}).predecessors.reserve(count);
}

void ChunkBatch::make_task(Group& group, memory::MemoryIndex place, graph::SubmitInfoSource& infos) {
    const std::size_t count = group.chunks.size(), first = chunks_.size();
    chunks_.insert(chunks_.end(), group.chunks.begin(), group.chunks.end());
    ends_.push_back(chunks_.size());
    group.chunks.clear();
    group.bytes = 0;
    Task& t = add_task({count, payload_bytes(count)});
    t.make_room(count, true);
    t.kind = place.is_host() ? graph::TaskKind::host : graph::TaskKind::device_function;
    t.memory = place;
    t.where = SystemInfo::affinity_processor(place.id());
    t.chunk_index = static_cast<std::uint32_t>(chunks_[first]);
    infos.give_to(t.info);
    describe_task(t, first, count);
}

std::size_t ChunkBatch::most_bytes(std::size_t num_chunks, memory::MemoryIndex place) const noexcept {
    if (num_chunks < fewest_chunks_for_groups) return 0;
    return std::min(most_group_bytes, core_.platform().limit_bytes(place) / group_share_of_limit);
}

memory::MemoryIndex ChunkBatch::place_of(std::size_t chunk, std::size_t bytes) const {
    const auto host = memory::MemoryIndex::host();
    const auto home = is_at_home_ ? memory::MemoryIndex::of(binding_.layout->home(chunk)) : host;
    return bytes <= core_.platform().limit_bytes(home) ? home : host;
}

void ChunkBatch::throw_too_large(std::size_t bytes) const {
    const auto host = memory::MemoryIndex::host();
    const std::size_t limit = core_.platform().limit_bytes(host);
    throw OutOfMemory(
        host.id(), bytes, 0, limit,
        driver::format("{} {} needs a chunk of {} bytes on the host, where at most {} can be used; try {}", writes_,
                       array_.name(), bytes, limit, core_.shortage_words().memory_remedy(host, bytes)));
}

void ChunkBatch::touch_chunks() {
    std::size_t next = 0;
    for (Task* const t : tasks())
        for (graph::Use& use : t->uses) use.chunk = &binding_.touch(chunks_[next++]);
}

void ChunkBatch::connect_tasks(TaskNumber gate) {
    graph::Predecessors all, of_chunk;
    Task& end = *tasks().back();
    for (std::size_t i = 0, c = 0; i < ends_.size(); ++i) {
        Task& t = *tasks()[i];
        connects(t.number);
        t.held_bytes = books().held().now();
        // Those of each chunk by itself: comparing all of a task's with each other would take their square.
        all.clear();
        const bool is_several = ends_[i] - c > 1;
        for (; c < ends_[i]; ++c) {
            of_chunk.clear();
            enter(chunks_[c], t, of_chunk);
            graph::drop_duplicates(of_chunk);
            all.insert(all.end(), of_chunk.begin(), of_chunk.end());
        }
        if (gate != 0) all.push_back({gate, true});
        if (is_several) graph::make_unique(all);
        t.predecessors.append(all.data(), all.size());
        if (&end != &t) end.predecessors.push_back({t.number, true});
    }
}

}  // namespace kmm::detail
