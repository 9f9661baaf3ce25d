// What the tasks of one submit need of the chunks of their arrays, and why a submit is refused.
//
// Owns: the decisions that follow from regions, layouts and histories alone. Pure: must not know where the bytes are,
// who runs a task, threads or locks. Used on the submitting thread under the runtime's order lock, because histories
// are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kmm/graph/history.hpp"
#include "kmm/plan/layout.hpp"

namespace kmm::plan {

using detail::AccessKind;

constexpr bool writes(AccessKind kind) noexcept { return kind != AccessKind::read; }

/// One access of one task of a submit. The requests of a submit are in the order of its tasks, those of a task in the
/// order of its accesses.
struct Request {
    Box region;                                      ///< inside the array
    const Layout* layout = nullptr;                  ///< not looked at by `first_write`
    const graph::ChunkHistory* histories = nullptr;  ///< one for each chunk; not looked at by `first_write`
    AccessKind kind = AccessKind::read;
    bool empty = false;          ///< the region has no elements
    std::uint32_t task = 0;      ///< position in the submit
    std::uint32_t argument = 0;  ///< for messages
    memory::MemoryIndex memory;  ///< that the task runs in
};

/// How a need is met. Where one has several forms (gathered from chunks, a snapshot, a private copy that is reduced
/// later), they are decided between when the task is issued, because only then is free space known.
enum class Form : std::uint8_t {
    nothing,   ///< an empty region
    in_place,  ///< the region lies in one chunk, and the task works on that chunk
};

/// What one access needs.
struct Need {
    std::size_t offset = 0;   ///< in_place: of the region's first element from the chunk's, in elements
    std::uint32_t chunk = 0;  ///< in_place: which one
    Form form = Form::nothing;
    bool whole_chunk = false;     ///< the region is the chunk
    bool first_of_chunk = false;  ///< no earlier access of the task needs the same chunk
    // Valid where first_of_chunk, and then for all accesses of the task to the chunk:
    bool needs_content = false;   ///< what the chunk holds must be there before the task runs
    bool writes_chunk = false;    ///< some access writes the chunk
    bool replaces_chunk = false;  ///< some access writes all of it, so that whatever used it came before
};

/// Why a submit cannot be planned.
struct Refusal {
    enum class Reason : std::uint8_t {
        none,
        crosses_chunks,    ///< `region` of request `first` lies in no single chunk
        conflict,          ///< requests `first` and `second` both write `region`
        reads_own_write,   ///< request `first` reads `region`, which request `second` writes
        several_memories,  ///< `first` and `second` write parts of one chunk from different memories
        unwritten,         ///< request `first` reads `region`, which was never written
        gap,               ///< no request writes `region` of an array whose first write this is
    };
    Reason reason = Reason::none;
    std::uint32_t first = 0;  ///< positions in the list of requests
    std::uint32_t second = 0;
    Box region;
};

/// Plans one submit at a time. Keeps the memory of its lists, so that planning costs no allocation once they have grown
/// to what a program's submits need. Not thread-safe.
class SubmitPlan {
  public:
    /// The chunks that the first write gives to `array`: one for each region that is written, at home in the memory it
    /// is written from. `positions`: where in `requests` the array is used, in order; at least one. False: see
    /// `refusal`.
    bool first_write(const Box& array, const std::vector<Request>& requests,
                     const std::vector<std::uint32_t>& positions, std::vector<ChunkGeometry>& chunks);
    /// Decides the need of every request. False: see `refusal`; of several reasons the one that is first in the order
    /// of `Refusal::Reason` (a pair's reasons count as one), and of these the one with the lowest positions.
    /// O(n log n) for n requests where few regions of one chunk lie across a cut; naming a pair is O(n^2) for those of
    /// one chunk.
    bool make(const std::vector<Request>& requests);

    /// One for each request, in the same order; valid after `make` returned true and until it is called again.
    const std::vector<Need>& needs() const noexcept { return needs_; }
    /// Valid after a call returned false and until the next one.
    const Refusal& refusal() const noexcept { return refusal_; }
    /// How many pairs of regions were compared so far, for tests.
    std::size_t num_compared() const noexcept { return num_compared_; }

  private:
    bool find_chunks(const std::vector<Request>& requests);
    bool check_pairs(const std::vector<Request>& requests);
    bool check_many_pairs(const std::vector<Request>& requests);
    bool is_free_of_conflicts(const std::vector<Request>& requests, std::size_t begin, std::size_t end);
    bool check_pair(const std::vector<Request>& requests, std::size_t first, std::size_t second);
    bool describe(const std::vector<Request>& requests);
    bool refuse(Refusal::Reason reason, std::size_t first, std::size_t second = 0) noexcept {
        refusal_.reason = reason;
        refusal_.first = static_cast<std::uint32_t>(first);
        refusal_.second = static_cast<std::uint32_t>(second);
        return false;
    }

    std::vector<Need> needs_;
    std::vector<const graph::ChunkHistory*> used_;  ///< of each request's chunk, null for none: tells chunks apart
    std::vector<std::uint32_t> order_;
    bool any_write_ = false;
    std::size_t num_compared_ = 0;
    Refusal refusal_;
};

}  // namespace kmm::plan
