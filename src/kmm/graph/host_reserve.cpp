#include "kmm/graph/host_reserve.hpp"

#include <bit>
#include <cstdint>
#include <cstdlib>

#include "driver/locks.hpp"

namespace kmm::graph {

namespace {

constexpr std::size_t smallest_block = 32;  // a node of a set takes 64
constexpr std::size_t num_sizes = 18;       // powers of two up to the whole reserve
static_assert(smallest_block << (num_sizes - 1) == HostReserve::size_bytes);
// Parts of one that was drawn on may be in use for as long as a chunk lives; then another one takes its place.
constexpr std::size_t most_arenas = 16;

struct FreeBlock {
    FreeBlock* next;
};

/// Blocks of powers of two, cut from the front and kept by size; whole again when the last one has come back.
struct Arena {
    std::atomic<std::uintptr_t> begin{0};  ///< 0: none
    std::size_t cut_bytes = 0;
    std::atomic<std::size_t> used_bytes{0};
    FreeBlock* free[num_sizes] = {};
};

struct Arenas {
    locks::TinyLock lock;
    Arena all[most_arenas];  // of what is in it all but `begin` and `used_bytes` is under the lock
    std::atomic<std::size_t> current{0};
    std::atomic<std::size_t> num{0};
};

constinit Arenas the_arenas;  // trivially destructible: books may outlive every static object

Arenas& arenas() noexcept { return the_arenas; }

std::size_t index_of(std::size_t bytes) noexcept {
    const std::size_t block = std::bit_ceil(bytes < smallest_block ? smallest_block : bytes);
    return static_cast<std::size_t>(std::countr_zero(block) - std::countr_zero(smallest_block));
}

/// Under the lock.
void* cut(Arena& a, std::size_t bytes) noexcept {
    if (a.begin.load(std::memory_order_relaxed) == 0 || bytes > HostReserve::size_bytes) return nullptr;
    const std::size_t index = index_of(bytes);
    const std::size_t block = smallest_block << index;
    void* memory = nullptr;
    if (a.free[index] != nullptr) {
        memory = a.free[index];
        a.free[index] = a.free[index]->next;
    } else if (HostReserve::size_bytes - a.cut_bytes >= block) {
        memory = reinterpret_cast<void*>(a.begin.load(std::memory_order_relaxed) + a.cut_bytes);
        a.cut_bytes += block;
    } else {
        return nullptr;
    }
    a.used_bytes += block;
    return memory;
}

/// Makes one that is whole the current one. Under no lock: asks the system.
void add_arena(std::atomic<bool>& is_whole) {
    Arenas& r = arenas();
    void* const memory = ::operator new(HostReserve::size_bytes);
    {
        const locks::Guard guard(r.lock);
        for (std::size_t i = 0; i < most_arenas; ++i) {
            Arena& a = r.all[i];
            if (a.begin.load(std::memory_order_relaxed) != 0) continue;
            a.begin.store(reinterpret_cast<std::uintptr_t>(memory), std::memory_order_release);
            a.cut_bytes = 0;
            a.used_bytes = 0;
            for (FreeBlock*& f : a.free) f = nullptr;
            r.current = i;
            is_whole.store(true, std::memory_order_relaxed);
            if (r.num.load(std::memory_order_relaxed) <= i) r.num.store(i + 1, std::memory_order_release);
            return;
        }
    }
    ::operator delete(memory);
    throw std::bad_alloc();
}

bool is_whole_enough(std::atomic<bool>& is_whole) noexcept {
    Arenas& r = arenas();
    const locks::Guard guard(r.lock);
    const Arena& current = r.all[r.current];
    if (current.begin.load(std::memory_order_relaxed) != 0 && current.used_bytes == 0) {
        is_whole.store(true, std::memory_order_relaxed);
        return true;
    }
    for (std::size_t i = 0; i < r.num.load(std::memory_order_relaxed); ++i) {
        Arena& a = r.all[i];
        if (a.begin.load(std::memory_order_relaxed) == 0 || a.cut_bytes > HostReserve::size_bytes / 4) continue;
        r.current = i;
        is_whole.store(a.used_bytes == 0, std::memory_order_relaxed);
        return true;
    }
    return false;
}

}  // namespace

void HostReserve::prepare() { require(); }

constinit std::atomic<bool> HostReserve::is_whole_{false};

void HostReserve::make_whole() {
    if (!is_whole_enough(is_whole_)) add_arena(is_whole_);
}

std::size_t HostReserve::used_bytes() noexcept {
    Arenas& r = arenas();
    const locks::Guard guard(r.lock);
    std::size_t bytes = 0;
    for (const Arena& a : r.all) bytes += a.used_bytes;
    return bytes;
}

void* HostReserve::take(std::size_t bytes) {
    Arenas& r = arenas();
    const locks::Guard guard(r.lock);
    is_whole_.store(false, std::memory_order_relaxed);
    if (void* const memory = cut(r.all[r.current], bytes)) return memory;
    for (std::size_t i = 0; i < r.num.load(std::memory_order_relaxed); ++i)
        if (void* const memory = cut(r.all[i], bytes)) return memory;
    throw std::bad_alloc();
}

bool HostReserve::give(void* memory, std::size_t bytes) noexcept {
    Arenas& r = arenas();
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const std::size_t num = r.num.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < num; ++i) {
        Arena& a = r.all[i];
        // Arenas are never freed, so that the owner of a block finds its arena without the lock.
        if (address - a.begin.load(std::memory_order_relaxed) >= size_bytes) continue;
        const locks::Guard guard(r.lock);
        const std::size_t index = index_of(bytes);
        a.used_bytes -= smallest_block << index;
        auto* const block = static_cast<FreeBlock*>(memory);
        block->next = a.free[index];
        a.free[index] = block;
        if (a.used_bytes != 0) return true;
        a.cut_bytes = 0;
        for (FreeBlock*& f : a.free) f = nullptr;
        return true;
    }
    return false;
}

}  // namespace kmm::graph
