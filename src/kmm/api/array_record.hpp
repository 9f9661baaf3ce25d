// What all copies of one array share, and what binding adds to it.
//
// Owns: ArrayRecord (shape, type, name) and Binding (runtime, layout, histories of the chunks). A binding is made and
// its histories are changed under the runtime's order lock only; everything else is constant or has its own lock.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/graph/compact_history.hpp"
#include "kmm/memory/chunk.hpp"
#include "kmm/plan/planner.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm::detail {

struct Binding final : plan::Written {
    std::shared_ptr<RuntimeCore> runtime;
    LayoutRef layout;
    graph::ChunkHistories histories;      ///< of the chunks that were used; order lock
    std::uint32_t number_in_submit = 0;   ///< valid if that of the submit names this one; order lock
    std::unique_ptr<memory::Array> data;  ///< given to the runtime when the array ends
    const plan::PlannedArray planned;

    /// Chunks that cover the array exactly. O(1).
    Binding(std::shared_ptr<RuntimeCore> core, const ArrayRecord& array, LayoutRef chunks);

    /// What a chunk takes in a memory: its record says so too, but the cache line of that belongs to the scheduler.
    std::size_t block_bytes(std::size_t chunk) const noexcept { return block_bytes_of(layout->num_elements(chunk)); }
    std::size_t block_bytes_of(std::size_t elements) const noexcept {
        return memory::rounded(memory::block_bytes_of(elements * planned.element_bytes, planned.alignment));
    }

    /// Of a chunk, for its history: called where that is needed.
    auto box_of(std::size_t chunk) const noexcept {
        return [this, chunk] { return layout->box(chunk); };
    }
    // ---- plan::Written. Order lock. `record`: the chunk's history.
    State state_of(std::uint32_t chunk) const noexcept override {
        const graph::CompactHistory* const h = histories.find(chunk);
        if (h == nullptr) return {};
        return {const_cast<graph::CompactHistory*>(h), h->any_content(), h->is_whole()};
    }
    bool covers(std::uint32_t chunk, const Box& region, Box* missing) const override {
        const graph::CompactHistory* const h = histories.find(chunk);
        if (h != nullptr) return h->covers(region, missing);
        *missing = region;
        return false;
    }
    /// A task reads a piece of a region; its chunk was touched: see graph::CompactHistory. Order lock.
    template<typename Edges>
    void read(const plan::Piece& piece, graph::TaskNumber task, Edges& predecessors, graph::Past& past) {
        histories[piece.chunk].read(piece.box, piece.whole_chunk, box_of(piece.chunk), task, predecessors, past);
    }
    /// A task is about to use the chunk: it has a history and a record from now on. Order lock. Throws std::bad_alloc,
    /// and nothing that counts has changed.
    memory::Chunk& touch(std::size_t chunk) {
        if (memory::Chunk* const c = data->chunks.find(chunk); c != nullptr) [[likely]]
            return *c;
        return make_records(chunk);
    }

    /// A task makes the first content of a chunk with that number of elements. Order lock.
    void count_made(std::size_t elements) noexcept {
        const std::size_t bytes = block_bytes_of(elements);
        data->held_bytes += bytes;
        runtime->books().held().add(bytes);
    }

  private:
    memory::Chunk& make_records(std::size_t chunk);

    static std::unique_ptr<memory::Array> make_data(RuntimeCore& core, const ArrayRecord& array, LayoutRef chunks);
};

class ArrayRecord {
  public:
    /// Of a shape that `check_shape` found good.
    ArrayRecord(std::size_t rank, const std::int64_t* shape, DataType type, std::size_t element_bytes,
                std::size_t element_alignment);
    ~ArrayRecord();
    ArrayRecord(const ArrayRecord&) = delete;
    ArrayRecord& operator=(const ArrayRecord&) = delete;

    std::size_t rank() const noexcept { return rank_; }
    const std::int64_t* shape() const noexcept { return box_.end; }
    const Box& box() const noexcept { return box_; }
    std::size_t element_bytes() const noexcept { return element_bytes_; }
    std::size_t element_alignment() const noexcept { return element_alignment_; }
    const DataType& type() const noexcept { return type_; }
    std::string name() const;  ///< "array" and a number unless the program named it
    void set_name(std::string name);
    bool is_named() const {
        const locks::Guard guard(name_mutex_);
        return is_named_;
    }

    Binding* binding() const noexcept { return binding_.load(std::memory_order_acquire); }
    /// Under the order lock of the binding's runtime. False, and nothing changes, if another runtime was first.
    bool bind(std::unique_ptr<Binding>& binding) noexcept;

  private:
    std::size_t rank_;
    Box box_;
    DataType type_;
    std::size_t element_bytes_;
    std::size_t element_alignment_;
    mutable locks::Mutex name_mutex_;
    mutable std::string name_ KMM_GUARDED_BY(name_mutex_);
    bool is_named_ KMM_GUARDED_BY(name_mutex_) = false;
    std::atomic<Binding*> binding_{nullptr};
};

using boxes::row_major_strides;

/// How far the beginning of `region` is from that of the packed row-major box that holds it, in elements.
std::size_t offset_in(const Box& box, const Box& region, std::size_t rank) noexcept;

/// Copies `sizes` elements between two strided host boxes; rows that are contiguous on both sides go as one.
void copy_box_on_host(void* destination, const std::int64_t* destination_strides, const void* source,
                      const std::int64_t* source_strides, const std::int64_t* sizes,
                      std::size_t element_bytes) noexcept;

}  // namespace kmm::detail
