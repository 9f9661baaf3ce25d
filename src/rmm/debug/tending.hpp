// One thread at a time looks at what was freed. Owns: the mark of that thread. Must not know: what it does.
#pragma once

#include "driver/locks.hpp"
#include "rmm/debug/block_checker.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class block_checker::tending {
  public:
    /// `wait`: for the thread that does it now; else this one may find that it is not its turn.
    tending(block_checker& checker, bool wait) : checker_(checker) {
        kmm::locks::Lock lock(checker_.mutex_);
        if (wait) checker_.tended_.wait(lock, [this]() KMM_REQUIRES(checker_.mutex_) { return !checker_.tending_; });
        mine_ = !checker_.tending_;
        checker_.tending_ = true;
    }
    ~tending() {
        if (!mine_) return;
        const kmm::locks::Guard lock(checker_.mutex_);
        checker_.tending_ = false;
        checker_.reading_live_ = false;
        checker_.tended_.notify_all();
    }
    tending(const tending&) = delete;
    tending& operator=(const tending&) = delete;
    explicit operator bool() const noexcept { return mine_; }

  private:
    block_checker& checker_;
    bool mine_ = false;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
