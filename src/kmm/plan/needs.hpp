// What the tasks of one submit need of the chunks of their arrays, and why a submit is refused.
//
// Owns: the decisions that follow from regions, layouts and histories alone. Pure: changes nothing of arrays; must not
// know where the bytes are, who runs a task, threads or locks. A plan has numbers of tasks, arrays, chunks and
// temporaries, and no pointer. Made on the submitting thread under the runtime's order lock, because it reads
// histories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kmm/graph/box_index.hpp"
#include "kmm/graph/compact_history.hpp"
#include "kmm/graph/use.hpp"
#include "kmm/plan/layout.hpp"

namespace kmm::plan {

using detail::AccessKind;

constexpr bool writes(AccessKind kind) noexcept { return kind != AccessKind::read; }

/// An array of a submit. Valid while the plan is made.
struct PlannedArray {
    const Layout* layout = nullptr;
    const graph::ChunkHistories* histories = nullptr;  ///< what was written before the submit
};

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

/// How a need is met.
enum class Form : std::uint8_t {
    nothing,    ///< an empty region
    in_place,   ///< the region lies in one chunk, and the task works on that chunk
    temporary,  ///< the task works on a copy of the region, in memory of its own: see Temporary
};

/// What one access needs. ContentNeeds are set for the first access of the task to a chunk or temporary, and cover all
/// its accesses to it.
struct Need : graph::ContentNeeds {
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
        return a.chunk == b.chunk && a.whole_chunk == b.whole_chunk && graph::equal(a.box, b.box) &&
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
    bool may_be_in_place = false;  ///< chosen_late: the pieces are neighbours along the slowest axis
    bool is_filled = false;        ///< with what the pieces hold before the submit
    bool is_written = false;       ///< written back into the pieces after the task
    bool is_snapshot = false;      ///< its region lies in one chunk, which the submit writes

    friend bool operator==(const Temporary&, const Temporary&) = default;
};

/// Why a submit cannot be planned.
struct Refusal {
    enum class Reason : std::uint8_t {
        none,
        conflict,   ///< requests `first` and `second` both write `region`
        unwritten,  ///< request `first` reads `region`, which was never written
        gap,        ///< no request writes `region` of an array whose first write this is
    };
    Reason reason = Reason::none;
    std::uint32_t first = 0;  ///< positions in the list of requests
    std::uint32_t second = 0;
    Box region;
};

/// Plans one submit at a time. Keeps the memory of its lists for the next one. Not thread-safe.
class SubmitPlan {
  public:
    /// The chunks that the first write gives to `array`: one for each region that is written, at home in the memory it
    /// is written from. `positions`: where in `requests` the array is used, in order; at least one. False: see
    /// `refusal`.
    bool first_write(const Box& array, const std::vector<Request>& requests,
                     const std::vector<std::uint32_t>& positions, std::vector<ChunkGeometry>& chunks);
    /// Decides the need of every request. False: see `refusal`; of several reasons the one that is first in the order
    /// of `Refusal::Reason`, and of these the one with the lowest positions. O(n log n) for n requests and pieces where
    /// few regions of one array lie across a cut; a region that several requests read has its pieces once for each
    /// memory. Throws std::bad_alloc.
    bool make(const std::vector<Request>& requests, std::span<const PlannedArray> arrays);

    /// One for each request, in the same order; valid after `make` returned true and until it is called again.
    const std::vector<Need>& needs() const noexcept { return needs_; }
    /// Likewise; in the order of the requests that use them first.
    const std::vector<Temporary>& temporaries() const noexcept { return temporaries_; }
    std::span<const Piece> pieces(const Temporary& t) const noexcept {
        return {pieces_.data() + t.first_piece, t.num_pieces};
    }
    /// Whether both say the same, of whichever arrays. Both valid. O(requests + pieces).
    friend bool operator==(const SubmitPlan& a, const SubmitPlan& b) noexcept {
        return a.needs_ == b.needs_ && a.temporaries_ == b.temporaries_ && a.pieces_ == b.pieces_;
    }
    /// Valid after a call returned false and until the next one.
    const Refusal& refusal() const noexcept { return refusal_; }
    /// How many pairs of regions were compared so far, for tests.
    std::size_t num_compared() const noexcept { return num_compared_; }
    /// Entries of the lists of the latest call of `make`, for tests.
    std::size_t num_listed() const noexcept { return pieces_.size() + temporaries_.size(); }
    /// Of the latest plan: parts of regions in chunks.
    std::size_t num_pieces() const noexcept { return pieces_.size(); }

  private:
    /// A request that writes a chunk.
    struct Write {
        std::uint32_t array = 0;
        std::uint32_t chunk = 0;
        std::uint32_t request = 0;
        std::uint32_t piece = none;  ///< of a region that crosses chunks
    };
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    /// The one request that writes a chunk.
    struct ChunkWriter {
        std::uint32_t chunk = 0;
        std::uint32_t request = 0;
    };

    bool decide(const std::vector<Request>& requests);
    void find_chunks(const std::vector<Request>& requests);
    bool check_pairs(const std::vector<Request>& requests);
    bool check_each_with_each(const std::vector<Request>& requests);
    bool check_many_pairs(const std::vector<Request>& requests);
    bool find_conflicts(const std::vector<Request>& requests);
    template<typename F> void each_written_array(const std::vector<Request>& requests, F&& f);
    void group_by_array(const std::vector<Request>& requests);
    bool write_chunks_of_their_own(std::size_t begin, std::size_t end);
    bool is_written_in(const std::vector<Request>& requests, std::uint32_t chunk, const Box& region);
    void look_at_readers_of(const std::vector<Request>& requests, std::size_t begin, std::size_t readers,
                            std::size_t end, const graph::BoxIndex& written);
    template<typename F>
    void look_at_readers(const std::vector<Request>& requests, std::size_t begin, std::size_t end, F&& is_written);
    void name_conflict(const std::vector<Request>& requests, std::size_t begin, const graph::BoxIndex& written);
    void use_temporary(const std::vector<Request>& requests, std::uint32_t request);
    std::uint32_t shared_temporary(const std::vector<Request>& requests, std::uint32_t request, std::uint32_t number);
    bool list_pieces(const std::vector<Request>& requests);
    bool is_late(const Need& need) const noexcept {
        return need.form == Form::temporary && temporaries_[need.temporary].chosen_late;
    }
    void choose_late(const std::vector<Request>& requests);
    void write_each_chunk_in_one_memory(const std::vector<Request>& requests);
    void number_temporaries(const std::vector<Request>& requests);
    bool check_content(const std::vector<Request>& requests, std::uint32_t request);
    bool describe(const std::vector<Request>& requests);
    const Layout& layout_of(const Request& r) const noexcept { return *arrays_[r.array].layout; }
    const graph::CompactHistory* history_of(const Request& r, std::uint32_t chunk) const noexcept {
        return arrays_[r.array].histories->find(chunk);
    }
    std::size_t first_in_table(std::size_t request, std::size_t few);
    Need& note_use(std::size_t task_begin, std::size_t request, std::uint64_t use);
    bool refuse(Refusal::Reason reason, std::size_t first, std::size_t second = 0) noexcept {
        refusal_.reason = reason;
        refusal_.first = static_cast<std::uint32_t>(first);
        refusal_.second = static_cast<std::uint32_t>(second);
        return false;
    }

    std::span<const PlannedArray> arrays_;  ///< while a plan is made
    std::vector<Need> needs_;
    std::vector<std::uint64_t> used_;  ///< by request: its chunk and array, or its temporary, as one number
    std::vector<Temporary> temporaries_;
    std::vector<Piece> pieces_;
    std::vector<std::uint32_t> order_;
    std::vector<std::uint32_t> ends_;     ///< by array: of those that write it in `order_`, and of those that read it
    std::vector<ChunkWriter> writer_of_;  ///< of one array, by chunk
    std::vector<Write> writes_;
    std::vector<std::size_t> found_;
    std::vector<std::uint32_t> first_uses_;  ///< hash table of requests of one task, by what they use
    std::vector<std::uint32_t> shared_;      ///< hash table of temporaries that are only read, by region and memory
    std::vector<graph::BoxIndex> written_;   ///< of arrays that requests write, several in one chunk, and read
    bool any_write_ = false;
    std::uint32_t last_write_ = 0;   ///< the last request that writes, if one does
    bool any_crossing_ = false;      ///< some region lies in no single chunk
    bool any_out_of_order_ = false;  ///< temporaries are not in the order of the requests that use them first
    bool several_memories_ = false;  ///< requests write from different memories
    std::uint32_t num_uses_ = 0;     ///< of the task that is being described
    std::size_t num_compared_ = 0;
    Refusal refusal_;
};

}  // namespace kmm::plan
