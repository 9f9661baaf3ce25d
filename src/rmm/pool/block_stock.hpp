// Blocks of a pool in which all have one size: a record for each, found from its address without a lock.
//
// A free block may go to whichever stream freed it, and be used there next without a wait: it is in the stock of that
// stream's arena. Such blocks leave no gaps, so that they need no spans of neighbours, nor a search by size.
//
// Owns: the records, for as long as the table lives, so that a wrong free finds no dead memory. Must not know: arenas,
// timelines, upstream. Records are looked up by any thread; regions are added and removed by one at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "driver/driver.hpp"
#include "rmm/aligned.hpp"
#include "rmm/detail/cuda_types.hpp"
#include "rmm/pool/chain.hpp"
#include "rmm/pool/span_directory.hpp"
#include "rmm/tags.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct alignas(64) stocked_block {
    std::uintptr_t address = 0;
    std::uint64_t position = 0;  // where the arena's stream was with its last free; 0: anybody may use it
    std::uint32_t term = 0;      // of the arena then: it has had another stream since, if that is not its term now
    chain_link<stocked_block> in_stock;
    std::atomic<bool> is_in_use{false};
    std::atomic<rmm::detail::tag_number> tag{rmm::detail::untagged};  // of a block in use
    std::atomic<cudaStream_t> stream{nullptr};                        // which asked for it
};

/// Of one stream, the block that was freed last at the back.
using block_stock = chain<stocked_block, &stocked_block::in_stock>;

class stocked_blocks {
  public:
    /// Blocks of `block_bytes` lie in `bytes` from the address on. Regions that have no place in the table (several that
    /// begin within one granule) are left out. Throws std::bad_alloc, with nothing done.
    void add_region(std::uintptr_t address, std::size_t bytes, std::size_t block_bytes) {
        const heads at(address, bytes);
        if (!directory::can_hold(address, bytes)) return;
        if (at.has_beginning && beginning_.find(at.beginning) != nullptr) return;
        covering_.prepare(at.covered, at.covered_bytes);
        if (at.has_beginning) beginning_.prepare(at.beginning, directory::granule);
        region& r = take_region(bytes / block_bytes);
        r.address = address;
        r.block_bytes = block_bytes;
        for (std::size_t i = 0; i < r.num_blocks; ++i) r.blocks[i].address = address + i * block_bytes;
        r.is_used = true;
        covering_.set(at.covered, at.covered_bytes, &r);
        if (at.has_beginning) beginning_.set(at.beginning, directory::granule, &r);
    }
    /// Nothing of it is in use or in a stock.
    void remove_region(std::uintptr_t address, std::size_t bytes) noexcept {
        region* const r = region_of(address);
        if (r == nullptr) return;
        const heads at(address, bytes);
        covering_.set(at.covered, at.covered_bytes, nullptr);
        if (at.has_beginning) beginning_.set(at.beginning, directory::granule, nullptr);
        r->is_used = false;
        unused_.push_back(r);  // has room since the region was made
    }
    /// The block that begins there; null if none does. O(1), any thread.
    stocked_block* find(std::uintptr_t address) const noexcept {
        const region* const r = region_of(address);
        if (r == nullptr) return nullptr;
        stocked_block& b = r->blocks[(address - r->address) / r->block_bytes];
        return b.address == address ? &b : nullptr;
    }
    /// O(blocks).
    template<typename F>
    void for_each_in_use(F&& f) const {
        for (const auto& r : regions_) {
            if (!r->is_used) continue;
            for (std::size_t i = 0; i < r->num_blocks; ++i)
                if (r->blocks[i].is_in_use.load(std::memory_order_acquire)) f(r->blocks[i]);
        }
    }

  private:
    struct region {
        std::uintptr_t address = 0;
        std::size_t block_bytes = 0;
        std::size_t num_blocks = 0;
        std::unique_ptr<stocked_block[]> blocks;
        bool is_used = false;
    };
    using directory = granule_directory<region>;

    /// Where a region stands in the directories: in one at the granules that begin in it, in the other at the granule
    /// in which it begins.
    struct heads {
        heads(std::uintptr_t address, std::size_t bytes)
            : covered(align_up(address, directory::granule)),
              covered_bytes(align_up(address + bytes, directory::granule) - covered),
              beginning(align_down(address, directory::granule)),
              has_beginning(beginning != address) {}
        std::uintptr_t covered;
        std::size_t covered_bytes;
        std::uintptr_t beginning;
        bool has_beginning;
    };

    region* region_of(std::uintptr_t address) const noexcept {
        for (const directory* table : {&covering_, &beginning_}) {
            region* const r = table->find(address);
            if (r != nullptr && address - r->address < r->num_blocks * r->block_bytes) return r;
        }
        return nullptr;
    }
    region& take_region(std::size_t num_blocks) {
        const auto known =
            std::find_if(unused_.begin(), unused_.end(), [=](const region* r) { return r->num_blocks == num_blocks; });
        if (known != unused_.end()) {
            region* const r = *known;
            unused_.erase(known);
            return *r;
        }
        unused_.reserve(regions_.size() + 1);
        auto made = std::make_unique<region>();
        made->blocks = std::make_unique<stocked_block[]>(num_blocks);
        made->num_blocks = num_blocks;
        return *regions_.emplace_back(std::move(made));
    }

    directory covering_;
    directory beginning_;
    std::vector<std::unique_ptr<region>> regions_;
    std::vector<region*> unused_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
