// Makes the plan of a submit from regions, layouts and what was written before, or says why it is refused.
//
// Owns: scratch lists, which it keeps for the next submit. Pure: changes nothing of arrays. Must not know: where the
// bytes are, who runs a task, threads or locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kmm/boxes/box_index.hpp"
#include "kmm/plan/layout.hpp"
#include "kmm/plan/submit_plan.hpp"

namespace kmm::plan {

/// What was written of the chunks of one array before a submit.
class Written {
  public:
    struct State {
        void* record = nullptr;  ///< of the implementation: see Planner::record_of
        bool any = false;        ///< some element was written
        bool all = false;        ///< every element was
    };
    virtual State state_of(std::uint32_t chunk) const noexcept = 0;
    /// Whether every element of `region`, which lies in the chunk, was written; if not, `*missing` is a box without a
    /// written element, which has some of the region.
    virtual bool covers(std::uint32_t chunk, const Box& region, Box* missing) const = 0;

  protected:
    ~Written() = default;
};

/// An array as plans see it. Constant.
struct PlannedArray {
    const Layout* layout = nullptr;
    const Written* written = nullptr;
    std::size_t element_bytes = 0;
    std::size_t alignment = 0;  ///< of chunks
    bool is_stack = false;      ///< blocks of its chunks may follow each other without gaps
};

using Arrays = std::span<const PlannedArray* const>;  ///< of a submit, by number
using Limits = memory::PerMemory<std::size_t>;        ///< bytes that a task can have in each memory

/// Why a submit cannot be planned.
struct Refusal {
    enum class Reason : std::uint8_t {
        none,
        conflict,   ///< requests `first` and `second` both write `region`
        unwritten,  ///< request `first` reads `region`, which was never written
        gap,        ///< no request writes `region` of an array whose first write this is
        too_large,  ///< the task of request `first` needs `bytes` in its memory, more than it can have
    };
    Reason reason = Reason::none;
    std::uint32_t first = 0;  ///< positions in the list of requests
    std::uint32_t second = 0;
    Box region;
    std::size_t bytes = 0;
};

/// Plans one submit at a time. Not thread-safe.
class Planner {
  public:
    /// The chunks that the first write gives to `array`: one for each region that is written, at home in the memory it
    /// is written from. `positions`: where in `requests` the array is used, in order; at least one. False: see
    /// `refusal`.
    bool first_write(const Box& array, const std::vector<Request>& requests,
                     const std::vector<std::uint32_t>& positions, std::vector<ChunkGeometry>& chunks);
    /// Decides everything that `plan` says. False: see `refusal`; of several reasons the one that is first in the order
    /// of `Refusal::Reason`, and of these the one with the lowest positions. O(n log n) for n requests and pieces where
    /// few regions of one array lie across a cut; a region that several requests read has its pieces once for each
    /// memory. Throws std::bad_alloc.
    bool make(const std::vector<Request>& requests, Arrays arrays, const Limits& limits);

    /// Valid after `make` returned true, or refused for `too_large`, and until it is called again.
    const SubmitPlan& plan() const noexcept { return plan_; }
    /// Of a request that is met in place: Written::State::record, so that who applies the plan to these arrays need not
    /// look it up again. Likewise.
    void* record_of(std::size_t request) const noexcept { return used_[request].record; }
    /// Bytes of the block of what a request uses, which has a region with elements. Likewise.
    std::size_t bytes_of(const std::vector<Request>& requests, Arrays arrays, std::size_t request) const noexcept;
    /// Valid after a call returned false and until the next one.
    const Refusal& refusal() const noexcept { return refusal_; }
    /// How many pairs of regions were compared so far, for tests.
    std::size_t num_compared() const noexcept { return num_compared_; }
    /// Entries of the lists of the latest call of `make`, for tests.
    std::size_t num_listed() const noexcept { return plan_.pieces.size() + plan_.temporaries.size(); }

  private:
    /// A request that writes a chunk.
    struct Write {
        std::uint32_t array = 0;
        std::uint32_t chunk = 0;
        std::uint32_t request = 0;
        std::uint32_t piece = none;  ///< of a region that crosses chunks
    };
    struct Used {
        std::uint64_t use = 0;   ///< its chunk and array, or its temporary, as one number
        void* record = nullptr;  ///< of the chunk
    };
    static constexpr std::uint32_t none = ~std::uint32_t{0};
    /// The one request that writes a chunk.
    struct ChunkWriter {
        std::uint32_t chunk = 0;
        std::uint32_t request = 0;
    };

    bool decide();
    void find_chunks();
    bool check_pairs();
    bool check_each_with_each();
    bool check_many_pairs();
    bool find_conflicts();
    template<typename F> void each_written_array(F&& f);
    void group_by_array();
    bool write_chunks_of_their_own(std::size_t begin, std::size_t end);
    bool is_written_in(std::uint32_t chunk, const Box& region);
    void look_at_readers_of(std::size_t begin, std::size_t readers, std::size_t end, const boxes::BoxIndex& written);
    template<typename F>
    void look_at_readers(std::size_t begin, std::size_t end, F&& is_written);
    void name_conflict(std::size_t begin, const boxes::BoxIndex& written);
    void use_temporary(std::uint32_t request);
    std::uint32_t shared_temporary(std::uint32_t request, std::uint32_t number);
    bool list_pieces();
    bool is_late(const Need& need) const noexcept {
        return need.form == Form::temporary && plan_.temporaries[need.temporary].chosen_late;
    }
    void choose_late();
    void write_each_chunk_in_one_memory();
    void number_temporaries();
    memory::MemoryIndex memory_for(const PlannedArray& array, const Piece& piece) const noexcept;
    void list_transfers();
    bool check_content(std::uint32_t request);
    static std::size_t block_bytes(const PlannedArray& array, std::size_t elements) noexcept;
    void check_size(std::size_t task_begin, std::size_t bytes) noexcept;
    bool describe();
    const Layout& layout_of(const Request& r) const noexcept { return *arrays_[r.array]->layout; }
    std::size_t first_in_table(std::size_t request, std::size_t few);
    Need& note_use(std::size_t task_begin, std::size_t request, std::uint64_t use);
    bool refuse(Refusal::Reason reason, std::size_t first, std::size_t second = 0) noexcept {
        refusal_.reason = reason;
        refusal_.first = static_cast<std::uint32_t>(first);
        refusal_.second = static_cast<std::uint32_t>(second);
        return false;
    }

    // Of the latest `make`, valid while it runs:
    std::span<const Request> requests_;
    Arrays arrays_;
    const Limits* limits_ = nullptr;

    SubmitPlan plan_;
    std::vector<Used> used_;  ///< by request
    std::vector<std::uint32_t> order_;
    std::vector<std::uint32_t> ends_;     ///< by array: of those that write it in `order_`, and of those that read it
    std::vector<ChunkWriter> writer_of_;  ///< of one array, by chunk
    std::vector<Write> writes_;
    std::vector<std::size_t> found_;
    std::vector<std::uint32_t> first_uses_;  ///< hash table of requests of one task, by what they use
    std::vector<std::uint32_t> shared_;      ///< hash table of temporaries that are only read, by region and memory
    std::vector<boxes::BoxIndex> written_;   ///< of arrays that requests write, several in one chunk, and read
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
