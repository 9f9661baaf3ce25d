// What one submit does, as a value: what its tasks need of chunks, the memory beside the chunks, the transfers that
// fill it and write it back.
//
// Owns: numbers of tasks, arrays, chunks and temporaries; no pointer. Must not know: where the bytes are,
// records, who runs a task, threads. Made by plan::Planner, applied by detail::PlanBatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kmm/base/memory_index.hpp"
#include "kmm/boxes/box.hpp"

namespace kmm::plan {

using detail::AccessKind;
using detail::Box;

/// Up to this number of chunks in a region, each task that reads it uses each chunk. Beyond, one gather serves all
/// tasks.
inline constexpr std::uint32_t most_late_pieces = 16;

constexpr bool writes(AccessKind kind) noexcept { return kind != AccessKind::read; }

/// One access of one task of a submit. The requests of a submit are in the order of its tasks, those of a task in the
/// order of its accesses.
struct Request {
    Box region;  ///< inside the array
    AccessKind kind = AccessKind::read;
    bool empty = false;          ///< the region has no elements
    std::uint32_t array = 0;     ///< which one of the submit; not looked at by `first_write`
    std::uint32_t task = 0;      ///< position in the submit
    std::uint32_t argument = 0;  ///< for messages
    memory::MemoryIndex memory;  ///< that the task runs in
};

/// What a task does with the content of a chunk.
struct ContentNeeds {
    bool needs_content : 1 = false;  ///< it must be there before the task runs
    bool writes : 1 = false;         ///< some of it
    bool replaces : 1 = false;       ///< all of it; the task comes after all earlier users

    friend bool operator==(const ContentNeeds&, const ContentNeeds&) = default;
    /// A full overwrite: the new content does not depend on the old.
    bool owes_nothing() const noexcept { return writes && replaces && !needs_content; }
};

/// How a need is met.
enum class Form : std::uint8_t {
    nothing,    ///< an empty region
    in_place,   ///< the region lies in one chunk, and the task works on that chunk
    temporary,  ///< the task works on a copy of the region, in memory of its own: see Temporary
};

/// What one access needs. ContentNeeds are set for the first access of the task to a chunk or temporary, and cover all
/// its accesses to it.
struct Need : ContentNeeds {
    Form form = Form::nothing;
    bool whole_chunk = false;        ///< in_place: the region is the chunk
    bool first_of_chunk = false;     ///< no earlier access of the task has the same `use`
    std::uint32_t use = 0;           ///< number of the chunk or temporary among those that the task needs
    std::uint32_t chunk = 0;         ///< in_place: which one
    std::uint32_t temporary = 0;     ///< temporary: which one
    std::size_t offset = 0;          ///< in_place: of the region's first element from the chunk's, in elements
    std::size_t chunk_elements = 0;  ///< in_place: of the whole chunk

    friend bool operator==(const Need&, const Need&) = default;
};
static_assert(sizeof(Need) == 32);

/// The part of a temporary that lies in one chunk.
struct Piece {
    std::uint32_t chunk = 0;
    bool whole_chunk = false;  ///< it is the chunk
    Box box;
    memory::MemoryIndex memory;  ///< where it is written back; all tasks of a submit write a chunk in one memory

    friend bool operator==(const Piece& a, const Piece& b) noexcept {
        return a.chunk == b.chunk && a.whole_chunk == b.whole_chunk && boxes::equal(a.box, b.box) &&
               a.memory == b.memory;
    }
};

/// Memory for one region beside the chunks. A task reads it where the region crosses chunks (a gather), or where a
/// task of the same submit writes there (a snapshot); it writes it where the region crosses chunks, or where other
/// tasks of the submit write the chunk in another memory. What is read is shared by all tasks of the submit that read
/// the same region in the same memory.
///
/// A gather in the memory of a device is one of two forms, between which residency chooses when a task is placed: where
/// the chunks lie side by side, the task reads them themselves.
struct Temporary {
    std::uint32_t request = 0;  ///< the first one that uses it: its region, array, memory
    std::uint32_t first_piece = 0;
    std::uint32_t num_pieces = 0;
    bool chosen_late = false;      ///< filled when a task is placed, if at all; of few pieces only
    bool may_be_in_place = false;  ///< chosen_late: the chunks are neighbours, and their blocks may be
    bool is_filled = false;        ///< with what the pieces hold before the submit
    bool is_written = false;       ///< written back into the pieces after the task
    bool is_snapshot = false;      ///< its region lies in one chunk, which the submit writes

    friend bool operator==(const Temporary&, const Temporary&) = default;
};

/// A node of the library's own: it moves pieces between their chunks and a temporary.
struct Transfer {
    enum class What : std::uint8_t {
        gather,      ///< all pieces into the temporary, before any task of the submit writes
        write_back,  ///< one piece into its chunk, after the task that wrote the temporary
    };
    What what = What::gather;
    memory::MemoryIndex memory;  ///< that it fills
    std::uint32_t temporary = 0;
    std::uint32_t task = 0;  ///< the first that needs it, or that wrote; a failure of the transfer is its failure
    std::uint32_t first_piece = 0;
    std::uint32_t num_pieces = 0;

    friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// The nodes are the tasks of the submit and the transfers. What follows from the rest is not listed:
/// * The order of the nodes is: gathers, the tasks, write-backs. So a task that uses in place what another one has in a
///   temporary is before or behind the transfer, whichever task runs first.
/// * Edges within the submit: a task comes after the gather of each temporary that it needs, a write-back after the
///   task that wrote the temporary. Where two nodes use elements of one chunk, the later one comes after the earlier
///   one as it comes after nodes of submits before: the histories of chunks tell both.
struct SubmitPlan {
    std::vector<Need> needs;             ///< one for each request, in the same order
    std::vector<Temporary> temporaries;  ///< in the order of the requests that use them first
    std::vector<Piece> pieces;           ///< of temporaries, in no order
    std::vector<Transfer> transfers;     ///< gathers, then write-backs, each in the order of temporaries

    std::span<const Piece> pieces_of(const Temporary& t) const noexcept {
        return {pieces.data() + t.first_piece, t.num_pieces};
    }
    /// For a transfer, the same.
    std::span<const Piece> pieces_of(const Transfer& t) const noexcept {
        return {pieces.data() + t.first_piece, t.num_pieces};
    }
    /// Whether both say the same, of any arrays. O(requests + pieces).
    friend bool operator==(const SubmitPlan&, const SubmitPlan&) = default;
};

}  // namespace kmm::plan
