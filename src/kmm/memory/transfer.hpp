// A transfer: content that lanes copy between memories or within one, as residency or a task of the library's own wants
// it. (Within the host's memory content moves by Requests::move_on_host.)
//
// Owns: values. Must not know: lanes, which task is next. Under the scheduler's baton.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "driver/driver.hpp"
#include "kmm/graph/host_reserve.hpp"
#include "kmm/graph/position.hpp"
#include "kmm/memory/moved_boxes.hpp"
#include "kmm/memory/tiers.hpp"

namespace kmm::memory {

using driver::BoxMove;
using Boxes = graph::Vector<BoxMove>;

/// What goes over each link, by Link.
struct LinkCounts {
    std::uint64_t copies[num_links] = {};
    std::uint64_t bytes[num_links] = {};

    /// Within one memory no link is used.
    void add(MemoryIndex from, MemoryIndex to, std::size_t count) noexcept {
        if (from == to) return;
        const auto link = static_cast<std::size_t>(Tiers::link(from, to));
        ++copies[link];
        bytes[link] += count;
    }
    LinkCounts& operator+=(const LinkCounts& other) noexcept {
        for (std::size_t i = 0; i < num_links; ++i) copies[i] += other.copies[i], bytes[i] += other.bytes[i];
        return *this;
    }
};

struct Transfer {
    enum class What : std::uint8_t {
        chunk,   ///< the whole chunk, from `source` to `destination`
        parts,   ///< of a chunk that leaves its memory: what waiting tasks read of it
        ghost,   ///< the part of a chunk that one task reads, to its place in a replica without the rest
        gather,  ///< the parts of a region, to its temporary
        task,    ///< what a task of TaskKind::transfer does
    };
    What what = What::chunk;
    MemoryIndex from{};  ///< of several memories the one whose link takes longest
    MemoryIndex to{};
    Chunk* chunk = nullptr;       ///< whose replica it fills; null: it is the work of `task`
    graph::Task* task = nullptr;  ///< that needs it; null: content makes room for others
    std::uintptr_t source = 0;    ///< of a whole chunk
    std::uintptr_t destination = 0;
    std::span<const BoxMove> boxes{};  ///< of all others; a box without a source moves nothing
    std::size_t bytes = 0;
    LinkCounts over_links{};  ///< of `bytes` those that leave their memory
};

/// The whole chunk, for the task if there is one.
inline Transfer chunk_transfer(Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source,
                               std::uintptr_t destination, graph::Task* task = nullptr) noexcept {
    Transfer t{.from = from, .to = to, .chunk = &chunk, .task = task, .source = source, .destination = destination};
    t.bytes = chunk.size_bytes;
    t.over_links.add(from, to, t.bytes);
    return t;
}

// Transfers of boxes point to `boxes`, which these calls overwrite. All throw std::bad_alloc.

/// A box of the chunk, between two of its replicas.
Transfer ghost_transfer(Chunk& chunk, const boxes::Box& box, const Replica& from, const Replica& to, graph::Task& task,
                        Boxes& boxes);
/// What these tasks read of the chunk, each box once, between two of its replicas. O(boxes^2), and there are few.
Transfer parts_transfer(Chunk& chunk, const Replica& from, const Replica& to,
                        std::span<const graph::Task* const> readers, Boxes& boxes);
/// Between the replicas in which the placed task uses the chunks. O(boxes).
Transfer gather_transfer(graph::Task& task, const graph::Across& across, Boxes& boxes);
Transfer task_transfer(graph::Task& task, Boxes& boxes);

/// A box between the replicas of its two chunks; without a source where nothing was ever there.
BoxMove move_of(const graph::BoxTransfer& box, const void* source, void* destination) noexcept;

}  // namespace kmm::memory
