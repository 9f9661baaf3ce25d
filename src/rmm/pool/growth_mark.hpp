// The mark of the thread that grows or shrinks a pool.
//
// Owns: the mark, for a scope. Must not know: where memory comes from. Made and dropped under the engine's lock.
#pragma once

#include <thread>

#include "rmm/pool/engine.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// One thread grows, or shrinks, a pool at a time. An upstream that calls back into the pool is the same thread growing
/// again; it leaves the marks to the outer call.
class growth_mark {
  public:
    explicit growth_mark(pool_engine& pool) : pool_(pool), transit_(pool.facts_.device), outermost_(!pool.growing_) {
        if (!outermost_) return;
        pool.growing_ = true;
        pool.grower_ = std::this_thread::get_id();
    }
    ~growth_mark() {
        if (!outermost_) return;
        pool_.growing_ = false;
        ++pool_.num_growths_;
        pool_.grower_ = {};
        pool_.grown_.notify_all();
    }
    growth_mark(const growth_mark&) = delete;
    growth_mark& operator=(const growth_mark&) = delete;

  private:
    pool_engine& pool_;
    const rmm::detail::transit_scope transit_;
    bool outermost_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
