// Stream-ordered pools.
//
// A freed block belongs to the point in time at which its stream frees it. The same stream may use it again at once,
// another one after that point has passed, or, if memory is short, after a wait for it that is put into its queue.
//
// Owns: the blocks that pools keep. Must not know: handles of streams, contexts of calls. Any thread; lock order: a
// pool, then a stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>

#include "driver/host/memory.hpp"
#include "driver/host/slots.hpp"
#include "driver/host/stream.hpp"
#include "driver/locks.hpp"

namespace kmm::driver::host {

struct Pool {
    std::atomic<std::uint32_t> generation{0};
    std::uint32_t slot = 0;

    /// A free block, usable after `stream` has reached `position`.
    struct Free {
        void* pointer = nullptr;
        Stream* stream = nullptr;
        std::uint64_t position = 0;
    };

    locks::Mutex mutex;
    int device KMM_GUARDED_BY(mutex) = -1;
    MemoryKind kind KMM_GUARDED_BY(mutex) = MemoryKind::device;
    std::size_t maximum_bytes KMM_GUARDED_BY(mutex) = 0;   ///< 0: unlimited
    std::uint64_t keep_bytes KMM_GUARDED_BY(mutex) = 0;    ///< what synchronising leaves to the pool
    std::size_t reserved_bytes KMM_GUARDED_BY(mutex) = 0;  ///< blocks held and kept
    std::size_t kept_bytes KMM_GUARDED_BY(mutex) = 0;
    std::size_t num_held KMM_GUARDED_BY(mutex) = 0;
    bool destroyed KMM_GUARDED_BY(mutex) = false;  ///< goes away with its last block
    std::multimap<std::size_t, Free> free KMM_GUARDED_BY(mutex);
    /// With its size, which may exceed what was asked for, and room in `free`: giving it back needs no memory.
    std::map<std::uintptr_t, std::multimap<std::size_t, Free>::node_type> held KMM_GUARDED_BY(mutex);
};

class Pools {
  public:
    Pools(Memory& memory, std::uint32_t driver_number);
    /// Frees nothing: `Memory` does.
    ~Pools() = default;

    Pool& create(int device, std::size_t maximum_bytes, MemoryKind kind);  ///< throws std::bad_alloc
    void* handle(const Pool& pool) const noexcept { return slots_.handle(pool); }
    Pool* find(const void* handle) const noexcept { return slots_.find(handle); }
    void destroy(Pool& pool) noexcept;
    /// The pool's, or -1 if it has just been destroyed.
    int device_of(Pool& pool) const noexcept;

    /// Memory that `stream` may use in order. `add_wait(target, position)` puts a wait into its queue. Throws
    /// bad_alloc.
    Code allocate(Pool& pool, std::size_t bytes, Stream& stream, bool spin,
                  const std::function<void(Stream&, std::uint64_t)>& add_wait, void** out);
    /// `stream` has reached the free when it reaches `position`. Throws std::bad_alloc.
    Code free(Pool& pool, void* pointer, Stream& stream, std::uint64_t position);
    /// Gives back what has passed, down to `keep_bytes`.
    void trim(Pool& pool, std::size_t keep_bytes) noexcept;
    /// Gives back what the pools of a device keep; waits for what is still in use if `wait`.
    void reclaim(int device, bool wait, bool spin);
    /// After a synchronisation: what exceeds the pools' thresholds goes back.
    void after_synchronization() noexcept;

  private:
    bool take_kept(Pool& pool, std::size_t size, Stream& stream, void** out) KMM_REQUIRES(pool.mutex);
    Code take_new(Pool& pool, std::size_t size, void** out) KMM_REQUIRES(pool.mutex);
    bool take_busy(Pool& pool, std::size_t size, const std::function<void(Stream&, std::uint64_t)>& add_wait,
                   void** out) KMM_REQUIRES(pool.mutex);
    void hold(Pool& pool, std::multimap<std::size_t, Pool::Free>::iterator block, void** out) KMM_REQUIRES(pool.mutex);
    static bool ends_locked(Pool& pool) noexcept KMM_REQUIRES(pool.mutex);
    void trim_locked(Pool& pool, std::size_t keep_bytes) noexcept KMM_REQUIRES(pool.mutex);
    void give_back(Pool& pool, std::multimap<std::size_t, Pool::Free>::iterator block) noexcept
        KMM_REQUIRES(pool.mutex);

    Memory& memory_;
    Slots<Pool> slots_;
    std::atomic<bool> trim_due_{false};
};

}  // namespace kmm::driver::host
