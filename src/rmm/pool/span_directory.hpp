// The owner of the memory at an address: a two-level table over the address space, read without a lock.
//
// Owns the table. Must not know: what its entries are. Readers: any thread; writers: one at a time. O(1).
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

template<typename Owner>
class granule_directory {
  public:
    /// The page size of devices, to which large allocations are aligned. Memory has one owner in each.
    static constexpr std::size_t granule = std::size_t{2} << 20;

    granule_directory() = default;
    ~granule_directory() {
        top* table = top_.load(std::memory_order_relaxed);
        if (table == nullptr) return;
        for (auto& leaf : *table) delete leaf.load(std::memory_order_relaxed);
        delete table;
    }
    granule_directory(const granule_directory&) = delete;
    granule_directory& operator=(const granule_directory&) = delete;

    /// The owner of the granule; null if it has none.
    Owner* find(std::uintptr_t address) const noexcept {
        const top* table = top_.load(std::memory_order_acquire);
        const std::uintptr_t at = address / granule;
        if (table == nullptr || at >= std::uintptr_t{1} << (top_bits + leaf_bits)) return nullptr;
        const leaf* l = (*table)[at >> leaf_bits].load(std::memory_order_acquire);
        return l == nullptr ? nullptr : (*l)[at & leaf_mask].load(std::memory_order_acquire);
    }
    static bool can_hold(std::uintptr_t address, std::size_t size_bytes) noexcept {
        return (address + size_bytes - 1) / granule < std::uintptr_t{1} << (top_bits + leaf_bits);
    }
    /// Afterwards `set` of this memory cannot fail. Throws std::bad_alloc.
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
    void set(std::uintptr_t address, std::size_t size_bytes, Owner* owner) noexcept {
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
    using leaf = std::array<std::atomic<Owner*>, std::size_t{1} << leaf_bits>;
    using top = std::array<std::atomic<leaf*>, std::size_t{1} << top_bits>;

    std::atomic<top*> top_{nullptr};
};

struct arena;
/// Which arena the span around an address belongs to. Spans begin and end at multiples of the granule.
using span_directory = granule_directory<arena>;

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
