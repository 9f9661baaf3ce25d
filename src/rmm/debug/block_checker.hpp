// Puts red zones around blocks, fills them with patterns, holds freed ones back, and finds what a program did wrong.
//
// A block comes from below with its zones around it. A free queues, on its stream, copies of the zones into page-locked
// memory, the pattern for freed memory, and an event. Each free also checks some earlier frees whose events have
// passed. A block that leaves the quarantine is copied to the host on a stream of the checker and compared. The stream
// of a free is not touched after the call that brought it: it may be destroyed.
//
// Where a tool watches the memory (memory_registration), it finds writes itself and would take ours for errors: then
// the zones are left alone, and only new memory is filled.
//
// Owns: the histories of blocks, events, page-locked memory, one stream. Must not know: pools, adaptors, the
// environment. Any thread. No lock is held over a call of the driver, of what is below, or of the report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver/locks.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/debug/block_history.hpp"
#include "rmm/debug/memory_registration.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// Where the checker's memory comes from.
class memory_below {
  public:
    virtual ~memory_below() = default;
    virtual void* allocate(std::size_t bytes, cuda_stream_view stream) = 0;
    virtual void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept = 0;
    /// Of a block that no stream uses any more; `own` is a stream that lives.
    virtual void deallocate_unused(void* ptr, std::size_t bytes, cuda_stream_view own) noexcept = 0;
};

class block_checker {
  public:
    static constexpr unsigned char zone_pattern = 0xFB;
    static constexpr unsigned char new_pattern = 0xC5;
    static constexpr unsigned char freed_pattern = 0xD7;

    /// `registration` may be null.
    block_checker(memory_below& below, memory_registration* registration, const debug_options& options,
                  checked_resource of);
    /// Waits for the device, checks all blocks, reports leaks. Leaked blocks are not given back.
    ~block_checker();
    block_checker(const block_checker&) = delete;
    block_checker& operator=(const block_checker&) = delete;

    void* allocate(std::size_t bytes, cuda_stream_view stream);
    void deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept;
    /// Waits for the device and checks all blocks. Returns the number of findings.
    std::size_t check();
    debug_counts counts() const;
    std::size_t quarantined_bytes() const;
    /// Bytes that each block takes below beyond its own size.
    static std::size_t overhead_bytes(const debug_options& options) noexcept;

  private:
    struct live_block {
        block_history history;
        bool has_zones = false;
        std::uint64_t serial = 0;  // later blocks have larger ones
    };
    struct freed_block {
        block_history history;
        driver::EventHandle event;       // null once it is known to have passed
        unsigned char* zones = nullptr;  // the copies: a slot
        bool filled = false;             // has the pattern of freed memory
        bool held = false;               // in the quarantine; else below has it already
    };
    using freed_ptr = std::unique_ptr<freed_block>;
    class tending;

    std::size_t size_below(std::size_t bytes) const noexcept { return front_bytes_ + bytes + back_bytes_; }
    void* base_of(std::uintptr_t block) const noexcept { return reinterpret_cast<void*>(block - front_bytes_); }
    void* allocate_below(std::size_t bytes, cuda_stream_view stream);
    bool fill(std::uintptr_t address, unsigned char pattern, std::size_t bytes, cuda_stream_view stream) noexcept;
    bool copy(void* to, std::uintptr_t from, std::size_t bytes, cuda_stream_view stream) noexcept;
    std::shared_ptr<const rmm::detail::stack_trace> stack_here() const;
    void report(const debug_finding& finding) noexcept;

    // ---- frees
    using live_map = std::unordered_map<std::uintptr_t, live_block>;
    void take_back(const live_block& was, std::size_t bytes, cuda_stream_view stream, bool* is_noted);
    live_map::node_type take_live(std::uintptr_t address);
    void report_unknown(const block_history& freed, std::size_t bytes, cuda_stream_view stream);
    void queue_checks(freed_block& b, bool has_zones, cuda_stream_view stream);
    void remember(const block_history& history) noexcept KMM_REQUIRES(mutex_);

    // ---- looking at frees: by the one thread that is tending
    void tend();
    void empty_quarantine();
    void look_at_frees(std::size_t most, bool wait);
    void shrink_quarantine(std::size_t most_bytes, std::size_t most_blocks);
    void expel_unfinished(std::size_t most_bytes);
    bool check_zones(const block_history& history, const unsigned char* zones);
    void check_contents(const std::vector<freed_block*>& blocks);
    std::optional<std::uint64_t> wait_for_device();
    void check_live(std::uint64_t end_serial);
    void report_leaks();

    driver::EventHandle take_event() noexcept;
    unsigned char* take_slot();
    unsigned char* staging() noexcept;
    void* allocate_pinned(std::size_t bytes) noexcept;

    memory_below& below_;
    memory_registration* const registration_;
    const debug_options options_;
    const checked_resource of_;
    driver::Driver& driver_;
    const int device_;
    const std::size_t front_bytes_;
    const std::size_t back_bytes_;
    const std::size_t staging_bytes_;
    const bool writes_patterns_;  // no tool would take it for an error
    const cuda_stream own_;

    mutable kmm::locks::Mutex mutex_;
    kmm::locks::Condition tended_;
    bool tending_ KMM_GUARDED_BY(mutex_) = false;
    bool reading_live_ KMM_GUARDED_BY(mutex_) = false;  // zones of blocks in use: frees wait for the end of it
    std::uint64_t next_serial_ KMM_GUARDED_BY(mutex_) = 0;
    std::size_t leaks_printed_ KMM_GUARDED_BY(mutex_) = 0;
    debug_counts counts_ KMM_GUARDED_BY(mutex_);
    live_map live_ KMM_GUARDED_BY(mutex_);
    std::list<freed_ptr> unfinished_ KMM_GUARDED_BY(mutex_);  // freed, not looked at: the oldest first
    std::list<freed_ptr> quarantine_ KMM_GUARDED_BY(mutex_);  // looked at, held back
    std::unordered_map<std::uintptr_t, freed_block*> held_ KMM_GUARDED_BY(mutex_);  // of both, what is held back
    std::size_t held_bytes_ KMM_GUARDED_BY(mutex_) = 0;
    std::unordered_map<std::uintptr_t, block_history> recent_ KMM_GUARDED_BY(mutex_);  // what below has again
    std::deque<std::uintptr_t> recent_order_ KMM_GUARDED_BY(mutex_);
    std::vector<driver::EventHandle> spare_events_ KMM_GUARDED_BY(mutex_);
    std::vector<unsigned char*> spare_slots_ KMM_GUARDED_BY(mutex_);
    std::vector<void*> pinned_ KMM_GUARDED_BY(mutex_);
    unsigned char* staging_ = nullptr;  // of the one thread that is tending
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
