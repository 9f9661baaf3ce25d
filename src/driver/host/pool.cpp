// Owns: the blocks of stream-ordered pools (pool.hpp). Any thread.
#include "driver/host/pool.hpp"

#include <algorithm>
#include <vector>

#include "driver/host/limits.hpp"

namespace kmm::driver::host {
namespace {

// How many blocks of a fitting size are looked at before new memory is taken: bounds the time of an allocation.
constexpr int max_looks = 32;

/// A block may be larger than needed by a quarter, so that slightly different sizes use each other's blocks.
std::size_t largest_fit(std::size_t size) { return size + size / 4; }

}  // namespace

Pools::Pools(Memory& memory, std::uint32_t driver_number) : memory_(memory), slots_(driver_number) {}

Pool& Pools::create(int device, std::size_t maximum_bytes, MemoryKind kind) {
    Pool& pool = slots_.take();
    const locks::Guard lock(pool.mutex);
    pool.device = device;
    pool.kind = kind;
    pool.maximum_bytes = maximum_bytes;
    pool.keep_bytes = 0;
    pool.destroyed = false;
    Slots<Pool>::revive(pool);
    return pool;
}

void Pools::destroy(Pool& pool) noexcept {
    bool gone = false;
    {
        const locks::Guard lock(pool.mutex);
        Slots<Pool>::retire(pool);
        pool.destroyed = true;
        trim_locked(pool, 0);
        gone = ends_locked(pool);
    }
    if (gone) slots_.recycle(pool);
}

int Pools::device_of(Pool& pool) const noexcept {
    const locks::Guard lock(pool.mutex);
    return pool.device;
}

/// True once: when the last block of a destroyed pool has gone, and its slot is free for another pool.
bool Pools::ends_locked(Pool& pool) noexcept {
    if (!pool.destroyed || pool.num_held != 0 || !pool.free.empty()) return false;
    pool.destroyed = false;
    pool.device = -1;
    return true;
}

void Pools::hold(Pool& pool, std::multimap<std::size_t, Pool::Free>::iterator block, void** out) {
    *out = block->second.pointer;
    auto& place = pool.held[reinterpret_cast<std::uintptr_t>(*out)];
    ++pool.num_held;
    pool.kept_bytes -= block->first;
    place = pool.free.extract(block);
}

bool Pools::take_kept(Pool& pool, std::size_t size, Stream& stream, void** out) {
    int looks = 0;
    for (auto at = pool.free.lower_bound(size);
         at != pool.free.end() && at->first <= largest_fit(size) && looks < max_looks; ++at, ++looks) {
        if (at->second.stream != &stream && !at->second.stream->reached(at->second.position)) continue;
        hold(pool, at, out);
        return true;
    }
    return false;
}

Code Pools::take_new(Pool& pool, std::size_t size, void** out) {
    if (pool.maximum_bytes != 0 && (size > pool.maximum_bytes || pool.reserved_bytes > pool.maximum_bytes - size))
        return Code::out_of_memory;
    void* pointer = nullptr;
    const Code code = memory_.allocate(size, pool.kind, Origin::pool, pool.device, &pool, &pointer);
    if (code != Code::ok) return code;
    try {
        std::multimap<std::size_t, Pool::Free> one;
        one.emplace(size, Pool::Free{pointer});
        pool.held.emplace(reinterpret_cast<std::uintptr_t>(pointer), one.extract(one.begin()));
    } catch (...) {
        memory_.release(*memory_.find_exactly(pointer, Origin::pool));
        throw;
    }
    pool.reserved_bytes += size;
    ++pool.num_held;
    *out = pointer;
    return Code::ok;
}

bool Pools::take_busy(Pool& pool, std::size_t size, const std::function<void(Stream&, std::uint64_t)>& add_wait,
                      void** out) {
    const auto at = pool.free.lower_bound(size);
    if (at == pool.free.end()) return false;
    add_wait(*at->second.stream, at->second.position);
    hold(pool, at, out);
    return true;
}

Code Pools::allocate(Pool& pool, std::size_t bytes, Stream& stream, bool spin,
                     const std::function<void(Stream&, std::uint64_t)>& add_wait, void** out) {
    if (bytes > memory_.capacity_bytes()) return Code::out_of_memory;
    const std::size_t size = (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
    int device = -1;
    {
        const locks::Guard lock(pool.mutex);
        device = pool.device;
        if (take_kept(pool, size, stream, out)) return Code::ok;
        if (take_new(pool, size, out) == Code::ok) return Code::ok;
        trim_locked(pool, 0);
        if (take_new(pool, size, out) == Code::ok) return Code::ok;
        if (take_busy(pool, size, add_wait, out)) return Code::ok;
    }
    for (const bool wait : {false, true}) {
        reclaim(device, wait, spin);
        const locks::Guard lock(pool.mutex);
        if (take_new(pool, size, out) == Code::ok) return Code::ok;
    }
    return Code::out_of_memory;
}

Code Pools::free(Pool& pool, void* pointer, Stream& stream, std::uint64_t position) {
    bool gone = false;
    {
        const locks::Guard lock(pool.mutex);
        const auto at = pool.held.find(reinterpret_cast<std::uintptr_t>(pointer));
        if (at == pool.held.end()) return Code::invalid_argument;
        auto place = std::move(at->second);
        pool.held.erase(at);
        place.mapped() = {pointer, &stream, position};
        pool.kept_bytes += place.key();
        pool.free.insert(std::move(place));
        --pool.num_held;
        if (pool.kept_bytes > pool.keep_bytes) trim_due_.store(true, std::memory_order_relaxed);
        if (pool.destroyed) trim_locked(pool, 0);
        gone = ends_locked(pool);
    }
    if (gone) slots_.recycle(pool);
    return Code::ok;
}

void Pools::give_back(Pool& pool, std::multimap<std::size_t, Pool::Free>::iterator block) noexcept {
    if (const auto allocation = memory_.find_exactly(block->second.pointer, Origin::pool)) memory_.release(*allocation);
    pool.kept_bytes -= block->first;
    pool.reserved_bytes -= block->first;
    pool.free.erase(block);
}

void Pools::trim_locked(Pool& pool, std::size_t keep_bytes) noexcept {
    for (auto at = pool.free.begin(); at != pool.free.end() && pool.kept_bytes > keep_bytes;) {
        auto block = at++;
        if (block->second.stream->reached(block->second.position)) give_back(pool, block);
    }
}

void Pools::trim(Pool& pool, std::size_t keep_bytes) noexcept {
    const locks::Guard lock(pool.mutex);
    trim_locked(pool, keep_bytes);
}

void Pools::reclaim(int device, bool wait, bool spin) {
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
        Pool& pool = slots_[i];
        std::vector<std::pair<Stream*, std::uint64_t>> busy;
        {
            const locks::Guard lock(pool.mutex);
            if (pool.device != device) continue;
            trim_locked(pool, 0);
            if (wait)
                for (const auto& [size, block] : pool.free) busy.emplace_back(block.stream, block.position);
        }
        for (const auto& [stream, position] : busy) stream->wait_until(position, spin);
        bool gone = false;
        {
            const locks::Guard lock(pool.mutex);
            if (pool.device != device) continue;
            trim_locked(pool, 0);
            gone = ends_locked(pool);
        }
        if (gone) slots_.recycle(pool);
    }
}

void Pools::after_synchronization() noexcept {
    if (!trim_due_.load(std::memory_order_relaxed)) return;
    trim_due_.store(false, std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
        Pool& pool = slots_[i];
        bool gone = false;
        {
            const locks::Guard lock(pool.mutex);
            if (pool.free.empty()) continue;
            trim_locked(pool, pool.destroyed ? 0 : pool.keep_bytes);
            if (pool.kept_bytes > pool.keep_bytes) trim_due_.store(true, std::memory_order_relaxed);
            gone = ends_locked(pool);
        }
        if (gone) slots_.recycle(pool);
    }
}

}  // namespace kmm::driver::host
