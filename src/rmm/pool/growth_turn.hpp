// Whose turn it is to grow or shrink a pool: one thread at a time has it.
//
// Owns: the turn, and the requests that wait for its end. Must not know: where memory comes from. Under the engine's
// lock, which waits let go.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>

#include "rmm/ledger.hpp"
#include "rmm/pool/engine_mutex.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class growth_turn {
  public:
    explicit growth_turn(int device) : device_(device) {}  // std::condition_variable_any allocates
    bool is_taken() const noexcept KMM_REQUIRES(in_engine) { return taken_; }
    bool is_of_another_thread() const noexcept KMM_REQUIRES(in_engine) {
        return taken_ && thread_ != std::this_thread::get_id();
    }
    /// Until no thread has it.
    void wait_until_free(engine_lock& held) KMM_REQUIRES(in_engine) {
        wait(ended_, held, [this]() KMM_REQUIRES(in_engine) { return !taken_; });
    }
    /// Until no other thread has it.
    void wait_for_others(engine_lock& held) KMM_REQUIRES(in_engine) {
        wait(ended_, held, [this]() KMM_REQUIRES(in_engine) { return !is_of_another_thread(); });
    }
    /// A request for `size` bytes waits for the end of the turn. A thread that grows ahead takes the next one at once:
    /// search again after each.
    void wait_for_end(engine_lock& held, std::size_t size) KMM_REQUIRES(in_engine) {
        largest_missed_ = std::max(largest_missed_, size);
        wait(ended_, held,
             [this, seen = num_ended_]() KMM_REQUIRES(in_engine) { return !taken_ || num_ended_ != seen; });
    }
    /// The largest request that has waited since the last call; 0: none.
    std::size_t take_largest_missed() noexcept KMM_REQUIRES(in_engine) { return std::exchange(largest_missed_, 0); }

  private:
    friend class growth_mark;
    const int device_;
    std::condition_variable_any ended_;
    bool taken_ KMM_GUARDED_BY(in_engine) = false;
    std::thread::id thread_ KMM_GUARDED_BY(in_engine);
    std::uint64_t num_ended_ KMM_GUARDED_BY(in_engine) = 0;
    std::size_t largest_missed_ KMM_GUARDED_BY(in_engine) = 0;
};

/// Has the turn for a scope. An upstream that calls back into the pool is the same thread growing again: the outer mark
/// has the turn.
class growth_mark {
  public:
    explicit growth_mark(growth_turn& turn) KMM_REQUIRES(in_engine)
        : turn_(turn), transit_(turn.device_), outermost_(!turn.taken_) {
        if (!outermost_) return;
        turn.taken_ = true;
        turn.thread_ = std::this_thread::get_id();
    }
    ~growth_mark() {
        expect_in_engine();
        if (!outermost_) return;
        turn_.taken_ = false;
        ++turn_.num_ended_;
        turn_.thread_ = {};
        turn_.ended_.notify_all();
    }
    growth_mark(const growth_mark&) = delete;
    growth_mark& operator=(const growth_mark&) = delete;

  private:
    growth_turn& turn_;
    const rmm::detail::transit_scope transit_;
    bool outermost_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
