// Host memory reserved for the scheduler's books, and containers that fall back on it.
//
// Scheduler, device threads and settling cannot fail half-way, and need a few hundred bytes a task. These containers
// allocate from the system first, then from the reserve. A submit is refused while less than three quarters of it
// are free and the system has no memory for another: the submitted tasks end, and no new ones come.
//
// Owns: the reserve of the process. Must not know: what it is for. Any thread; no lock is taken as long as the system
// has memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace kmm::graph {

class HostReserve {
  public:
    /// Makes the reserve. Throws std::bad_alloc. Costs an address range only until it is used.
    static void prepare();
    /// Makes sure that at least three quarters of the reserve are free, else throws std::bad_alloc. Called before work
    /// that must not fail.
    static void require() {
        if (!is_whole_.load(std::memory_order_relaxed)) [[unlikely]]
            make_whole();
    }
    /// From the system, else from the reserve; throws std::bad_alloc if both are exhausted.
    static void* allocate(std::size_t bytes) {
        try {
            return ::operator new(bytes);
        } catch (const std::bad_alloc&) {
            return take(bytes);
        }
    }
    static void release(void* memory, std::size_t bytes) noexcept {
        if (!give(memory, bytes)) ::operator delete(memory, bytes);
    }
    static std::size_t used_bytes() noexcept;

    static constexpr std::size_t size_bytes = std::size_t{4} << 20;

  private:
    static void make_whole();
    static void* take(std::size_t bytes);
    static bool give(void* memory, std::size_t bytes) noexcept;

    /// Nothing is taken from the reserve: nearly always. Written under the lock; set again by `make_whole` alone.
    static std::atomic<bool> is_whole_;
};

template<typename T>
struct ReservedAllocator {
    using value_type = T;
    ReservedAllocator() noexcept = default;
    template<typename U>
    ReservedAllocator(const ReservedAllocator<U>&) noexcept {}
    T* allocate(std::size_t count) {
        static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
        return static_cast<T*>(HostReserve::allocate(count * sizeof(T)));
    }
    void deallocate(T* memory, std::size_t count) noexcept { HostReserve::release(memory, count * sizeof(T)); }
    template<typename U>
    friend bool operator==(const ReservedAllocator&, const ReservedAllocator<U>&) noexcept {
        return true;
    }
};

template<typename T>
using Vector = std::vector<T, ReservedAllocator<T>>;
template<typename T>
using Deque = std::deque<T, ReservedAllocator<T>>;
template<typename T>
using Set = std::set<T, std::less<T>, ReservedAllocator<T>>;
template<typename K, typename V>
using Map = std::map<K, V, std::less<K>, ReservedAllocator<std::pair<const K, V>>>;
template<typename T>
using UnorderedSet = std::unordered_set<T, std::hash<T>, std::equal_to<T>, ReservedAllocator<T>>;
template<typename K, typename V>
using UnorderedMap = std::unordered_map<K, V, std::hash<K>, std::equal_to<K>, ReservedAllocator<std::pair<const K, V>>>;

}  // namespace kmm::graph
