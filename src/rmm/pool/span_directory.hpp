// Which arena the span around an address belongs to: a two-level table over the address space, read without a lock.
//
// Owns the table. Must not know: what an arena is. Readers: any thread; writers: one at a time. O(1).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct arena;

class span_directory {
  public:
    /// Spans begin and end at multiples of this: the page size of devices, so that large allocations are aligned to it.
    static constexpr std::size_t granule = std::size_t{2} << 20;

    span_directory() = default;
    ~span_directory() {
        top* table = top_.load(std::memory_order_relaxed);
        if (table == nullptr) return;
        for (auto& leaf : *table) delete leaf.load(std::memory_order_relaxed);
        delete table;
    }
    span_directory(const span_directory&) = delete;
    span_directory& operator=(const span_directory&) = delete;

    /// Null where no span is.
    arena* find(std::uintptr_t address) const noexcept {
        const top* table = top_.load(std::memory_order_acquire);
        const std::uintptr_t at = address / granule;
        if (table == nullptr || at >= std::uintptr_t{1} << (top_bits + leaf_bits)) return nullptr;
        const leaf* l = (*table)[at >> leaf_bits].load(std::memory_order_acquire);
        return l == nullptr ? nullptr : (*l)[at & leaf_mask].load(std::memory_order_acquire);
    }
    static bool can_hold(std::uintptr_t address, std::size_t size_bytes) noexcept {
        return (address + size_bytes - 1) / granule < std::uintptr_t{1} << (top_bits + leaf_bits);
    }
    /// Afterwards `set` of this span cannot fail. Throws std::bad_alloc.
    void prepare(std::uintptr_t address, std::size_t size_bytes) {
        top* table = top_.load(std::memory_order_relaxed);
        if (table == nullptr) {
            table = new top{};
            top_.store(table, std::memory_order_release);
        }
        for (std::uintptr_t at = address / granule; at < (address + size_bytes) / granule; ++at) {
            auto& slot = (*table)[at >> leaf_bits];
            if (slot.load(std::memory_order_relaxed) == nullptr) slot.store(new leaf{}, std::memory_order_release);
        }
    }
    void set(std::uintptr_t address, std::size_t size_bytes, arena* owner) noexcept {
        top& table = *top_.load(std::memory_order_relaxed);
        for (std::uintptr_t at = address / granule; at < (address + size_bytes) / granule; ++at)
            (*table[at >> leaf_bits].load(std::memory_order_relaxed))[at & leaf_mask].store(owner,
                                                                                            std::memory_order_release);
    }

  private:
    // 48 bits of address; a leaf covers 32 GiB, so that a pool has few of them.
    static constexpr unsigned leaf_bits = 14;
    static constexpr unsigned top_bits = 48 - 21 - leaf_bits;
    static constexpr std::uintptr_t leaf_mask = (std::uintptr_t{1} << leaf_bits) - 1;
    using leaf = std::array<std::atomic<arena*>, std::size_t{1} << leaf_bits>;
    using top = std::array<std::atomic<leaf*>, std::size_t{1} << top_bits>;

    std::atomic<top*> top_{nullptr};
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
