// A table from kernels to handles, read at every submit of a kernel.
//
// Owns: the entries, which are never removed. Must not know: what handles are, who launches them. Any thread. C++17.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace kmm {
namespace detail {

/// What a table tells of each entry that it looks at: nothing. Tests count them.
struct UncountedSteps {
    void operator()() const noexcept {}
    static void is_taken() noexcept {}  ///< a place, by `insert`, which has not filled it yet
};

/// Handles by {function, variant}: the variant tells apart what one function has several handles for, such as devices.
///
/// Lock-free. A key has `most_probes` places in each segment, and a segment is four times as large as the one before:
/// where the places of a key are taken in all that there are, the next is added. So a search takes
/// 8 steps for each segment at most: mostly one or two among 1024 kernels, and 8 more for four times as many.
///
/// For static objects: needs no constructor at run time, and keeps its segments for ever.
template<typename OnStep = UncountedSteps>
class KernelHandleTable {
  public:
    /// Null: not there, or on its way by another thread just now.
    const void* find(const void* function, std::uintptr_t variant) const noexcept {
        const std::uint64_t hash = hash_of(function, variant);
        for (std::size_t s = 0; s < num_segments; s++) {
            const Entry* entries = segment(s);
            if (entries == nullptr) return nullptr;
            for (std::size_t probe = 0; probe < most_probes; probe++) {
                const Entry& entry = entries[place_of(hash, s, probe)];
                OnStep()();
                const void* handle = entry.handle.load(std::memory_order_acquire);
                if (handle == nullptr) {
                    // Places are taken in this order, and for good: behind a free one there is nothing. Behind one that
                    // another thread has taken and not filled yet there may be.
                    if (!entry.is_taken.load(std::memory_order_relaxed)) return nullptr;
                    continue;
                }
                if (entry.function == function && entry.variant == variant) return handle;
            }
        }
        return nullptr;
    }

    /// For a key that is not there; of two threads that insert one at the same time, either handle is found. The handle
    /// is not null. False: the host has no memory for more.
    bool insert(const void* function, std::uintptr_t variant, const void* handle) noexcept {
        const std::uint64_t hash = hash_of(function, variant);
        for (std::size_t s = 0; s < num_segments; s++) {
            Entry* entries = grown(s);
            if (entries == nullptr) return false;
            for (std::size_t probe = 0; probe < most_probes; probe++) {
                Entry& entry = entries[place_of(hash, s, probe)];
                OnStep()();
                if (entry.is_taken.load(std::memory_order_relaxed)) continue;
                if (entry.is_taken.exchange(true, std::memory_order_relaxed)) continue;
                OnStep::is_taken();
                entry.function = function;
                entry.variant = variant;
                entry.handle.store(handle, std::memory_order_release);
                return true;
            }
        }
        return false;
    }

  private:
    struct Entry {
        std::atomic<const void*> handle{nullptr};  // published last
        const void* function = nullptr;
        std::uintptr_t variant = 0;
        std::atomic<bool> is_taken{false};
    };
    static constexpr std::size_t most_probes = 8;    // neighbours: 256 bytes
    static constexpr std::size_t first_size = 1024;  // kernels times devices of a large program; 32 KiB
    static constexpr std::size_t num_segments = 12;  // the last would have 128 GiB

    static constexpr std::size_t size_of(std::size_t s) noexcept { return first_size << (2 * s); }
    static std::uint64_t hash_of(const void* function, std::uintptr_t variant) noexcept {
        // Functions are aligned to 16 bytes at least: the low bits are dropped. Multiplying by 2^64 divided by the
        // golden ratio, and by a random odd number, spreads the others over the upper half.
        const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(function) >> 4;
        return (bits * 0x9e3779b97f4a7c15u + variant * std::uint64_t{0xd6e8feb86659fd93u}) >> 32;
    }
    static std::size_t place_of(std::uint64_t hash, std::size_t s, std::size_t probe) noexcept {
        return (static_cast<std::size_t>(hash) + probe) & (size_of(s) - 1);
    }
    const Entry* segment(std::size_t s) const noexcept {
        return s == 0 ? first_ : later_[s - 1].load(std::memory_order_acquire);
    }
    Entry* grown(std::size_t s) noexcept {
        if (s == 0) return first_;
        Entry* known = later_[s - 1].load(std::memory_order_acquire);
        if (known != nullptr) return known;
        Entry* const made = new (std::nothrow) Entry[size_of(s)];
        if (made == nullptr) return nullptr;
        if (later_[s - 1].compare_exchange_strong(known, made, std::memory_order_acq_rel)) return made;
        delete[] made;
        return known;
    }

    Entry first_[first_size];
    std::atomic<Entry*> later_[num_segments - 1] = {};
};

}  // namespace detail
}  // namespace kmm
