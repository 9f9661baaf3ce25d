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
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
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
    std::uint64_t position = 0;  // epoch of the arena's stream at the last free; 0: ready for every stream
    chain_link<stocked_block> in_stock;
    // The address while the block is in use, else 0: a wrong free takes nothing.
    std::atomic<std::uintptr_t> in_use{0};
    // The stream and the tag of the allocation.
    std::atomic<cudaStream_t> stream{nullptr};
    std::uint32_t term = 0;  // of the arena at the last free; differs from its current term if it was rebound since
    std::atomic<rmm::detail::tag_number> tag{rmm::detail::untagged};
};
static_assert(sizeof(stocked_block) == 64, "one line of the cache for each block");

/// Of one stream, the block that was freed last at the back.
using block_stock = chain<stocked_block, &stocked_block::in_stock>;

class stocked_blocks {
  public:
    /// Blocks of `block_bytes` each, 4096 at least. The page size is the largest power of two that is not larger, at
    /// most a granule, so that at most one block begins in each page.
    explicit stocked_blocks(std::size_t block_bytes)
        : block_bytes_(block_bytes),
          page_bits_(static_cast<unsigned>(std::bit_width(std::min(block_bytes, directory::granule))) - 1) {}

    /// Blocks lie in `bytes` from the address on, side by side. Throws std::bad_alloc, with nothing done.
    void add_region(std::uintptr_t address, std::size_t bytes) {
        const std::size_t num_blocks = bytes / block_bytes_;
        if (num_blocks == 0 || !directory::can_hold(address, bytes)) return;
        prepare_pages(address, num_blocks);
        region& r = take_region(address, num_blocks);
        for (std::size_t i = 0; i < num_blocks; ++i) {
            stocked_block& b = r.blocks[i];
            b.address = address + i * block_bytes_;
            page_of(b.address)->store(&b, std::memory_order_release);
        }
    }
    /// No block of the region may be in use or in a stock.
    void remove_region(std::uintptr_t address) noexcept {
        auto gone = regions_.extract(address);
        if (gone.empty()) return;
        const std::size_t num_blocks = gone.mapped().num_blocks;
        for (std::size_t i = 0; i < num_blocks; ++i)
            page_of(address + i * block_bytes_)->store(nullptr, std::memory_order_relaxed);
        gone.key() = num_blocks;
        unused_.insert(std::move(gone));
    }
    /// The block that begins there; null if none does. O(1). Only for the block's holder or the thread that changes
    /// regions.
    stocked_block* find(std::uintptr_t address) const noexcept {
        stocked_block* const b = at(address);
        return b != nullptr && b->address == address ? b : nullptr;
    }
    /// Whether a block in use begins there. O(1), any thread.
    bool is_in_use(std::uintptr_t address) const noexcept {
        const stocked_block* const b = at(address);
        return b != nullptr && b->in_use.load(std::memory_order_acquire) == address;
    }
    /// The block that is in use there, which from now on is the caller's; null if there is none. O(1), any thread.
    stocked_block* take_back(std::uintptr_t address) const noexcept {
        stocked_block* const b = at(address);
        if (b == nullptr) return nullptr;
        // A record that serves another address by now is not in use under this one.
        std::uintptr_t expected = address;
        return b->in_use.compare_exchange_strong(expected, 0, std::memory_order_acq_rel, std::memory_order_relaxed)
                   ? b
                   : nullptr;
    }
    /// O(blocks).
    template<typename F>
    void for_each_in_use(F&& f) const {
        for (const auto& [address, r] : regions_)
            for (std::size_t i = 0; i < r.num_blocks; ++i)
                if (r.blocks[i].in_use.load(std::memory_order_acquire) != 0) f(r.blocks[i]);
    }

  private:
    using page = std::atomic<stocked_block*>;  // the block that begins in it
    using directory = granule_directory<page>;
    struct region {
        std::size_t num_blocks = 0;
        std::unique_ptr<stocked_block[]> blocks;
    };

    page* page_of(std::uintptr_t address) const noexcept {
        page* const pages = directory_.find(address);
        return pages == nullptr ? nullptr : pages + (address % directory::granule >> page_bits_);
    }
    /// Null, or the block that begins in the same page.
    stocked_block* at(std::uintptr_t address) const noexcept {
        const page* const p = page_of(address);
        return p == nullptr ? nullptr : p->load(std::memory_order_acquire);
    }
    /// Of all granules in which one of the blocks begins.
    void prepare_pages(std::uintptr_t address, std::size_t num_blocks) {
        constexpr std::size_t granule = directory::granule;
        const std::uintptr_t end = address + num_blocks * block_bytes_;
        for (std::uintptr_t begin = address; begin < end;) {
            if (directory_.find(begin) == nullptr) {
                directory_.prepare(align_down(begin, granule), granule);
                pages_.push_back(std::make_unique<page[]>(granule >> page_bits_));
                directory_.set(align_down(begin, granule), granule, pages_.back().get());
            }
            // The first that begins in the next granule, or behind it.
            const std::size_t rest = granule - begin % granule;
            begin += (rest + block_bytes_ - 1) / block_bytes_ * block_bytes_;
        }
    }
    region& take_region(std::uintptr_t address, std::size_t num_blocks) {
        if (auto known = unused_.extract(num_blocks); !known.empty()) {
            known.key() = address;
            return regions_.insert(std::move(known)).position->second;
        }
        region made{num_blocks, std::make_unique<stocked_block[]>(num_blocks)};
        return regions_.emplace(address, std::move(made)).first->second;
    }

    const std::size_t block_bytes_;
    const unsigned page_bits_;
    directory directory_;
    std::vector<std::unique_ptr<page[]>> pages_;  // of a granule each
    std::map<std::uintptr_t, region> regions_;
    std::multimap<std::uintptr_t, region> unused_;  // by the number of blocks
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
