// Handles that can be checked: objects in memory that is never given back, found by number and generation.
//
// A handle of an object that was destroyed is recognised (its generation is over) and never leads to freed memory. The
// values are small odd tokens, never 0, 1 or 2 and never an address.
//
// Owns: the table and the encoding. Must not know: what the objects are. Look-ups take no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "driver/locks.hpp"

namespace kmm::driver::host {

/// `T` is default constructible and has a public `std::atomic<std::uint32_t> generation`, odd while the object is in
/// use, and a public `std::uint32_t slot`.
template<typename T>
class Slots {
  public:
    explicit Slots(std::uint32_t driver_number) : tag_(0x80u | ((driver_number & 0x3fu) << 1) | 1u) {}
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;
    ~Slots() {
        for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
    }

    /// A free object, in use from now on. Throws std::bad_alloc.
    T& take() {
        const locks::Guard lock(mutex_);
        if (free_.empty()) grow();
        T& object = *free_.back();
        free_.pop_back();
        return object;
    }

    /// Makes every handle of the object stale. It may be in use still, until `recycle`.
    static void retire(T& object) noexcept { object.generation.fetch_add(1, std::memory_order_acq_rel); }
    static void revive(T& object) noexcept { object.generation.fetch_add(1, std::memory_order_acq_rel); }

    /// `take` may hand the object out again.
    void recycle(T& object) noexcept {
        const locks::Guard lock(mutex_);
        free_.push_back(&object);  // never reallocates: `grow` reserved room for every object
    }

    void* handle(const T& object) const noexcept {
        const std::uint64_t generation = object.generation.load(std::memory_order_relaxed) & 0x7fffffffu;
        return reinterpret_cast<void*>(
            static_cast<std::uintptr_t>((generation << 32) | (std::uint64_t{object.slot} << 8) | tag_));
    }

    /// The object, or null if the handle is stale or was never one of this table.
    T* find(const void* handle) const noexcept {
        const auto value = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(handle));
        const std::uint32_t slot = static_cast<std::uint32_t>(value >> 8) & 0xffffffu;
        if ((value & 0xffu) != tag_ || slot >= size()) return nullptr;
        T& object = (*this)[slot];
        const std::uint32_t generation = object.generation.load(std::memory_order_acquire);
        return (generation & 1u) != 0 && (generation & 0x7fffffffu) == value >> 32 ? &object : nullptr;
    }

    /// Every object that was ever made, in use or not.
    std::uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }
    T& operator[](std::uint32_t slot) const noexcept {
        return chunks_[slot / chunk_size].load(std::memory_order_acquire)[slot % chunk_size];
    }

  private:
    static constexpr std::uint32_t chunk_size = 64;    // one growth is a few KiB
    static constexpr std::uint32_t max_chunks = 4096;  // 262144 objects in use at once, far beyond any GPU's limits

    void grow() KMM_REQUIRES(mutex_) {
        const std::uint32_t old = size_.load(std::memory_order_relaxed);
        if (old / chunk_size == max_chunks) throw std::bad_alloc();
        auto chunk = std::make_unique<T[]>(chunk_size);
        if (free_.capacity() < old + chunk_size) free_.reserve(2 * (old + chunk_size));
        for (std::uint32_t i = 0; i < chunk_size; ++i) chunk[i].slot = old + i;
        for (std::uint32_t i = chunk_size; i > 0; --i) free_.push_back(&chunk[i - 1]);
        chunks_[old / chunk_size].store(chunk.release(), std::memory_order_release);
        size_.store(old + chunk_size, std::memory_order_release);
    }

    const std::uint64_t tag_;
    locks::Mutex mutex_;
    std::vector<T*> free_ KMM_GUARDED_BY(mutex_);
    std::array<std::atomic<T*>, max_chunks> chunks_{};
    std::atomic<std::uint32_t> size_{0};
};

}  // namespace kmm::driver::host
