// A driver that notes which of its calls come while the calling thread has a lock of a pool's engine.
//
// Knows the pool that it watches. For programs in which one thread at a time is at work.
#pragma once

#include <map>
#include <string>

#include "forwarding_driver.hpp"
#include "rmm/pool/engine.hpp"

namespace rmm_test {

class lock_watch final : public kmm::driver::testing::ForwardingDriver {
  public:
    using ForwardingDriver::ForwardingDriver;

    /// Null: nobody.
    void watch(rmm::mr::detail::pool_engine* pool) noexcept { pool_ = pool; }
    /// Since a pool is watched.
    std::size_t num_calls(const std::string& name) const {
        const auto at = calls_.find(name);
        return at == calls_.end() ? 0 : at->second;
    }
    /// The calls that came under a lock, and how many; empty if none did.
    std::string under_lock() const {
        std::string all;
        for (const auto& [name, count] : under_lock_) all += name + " " + std::to_string(count) + "  ";
        return all;
    }

  protected:
    void called(const char* call) noexcept override {
        if (pool_ == nullptr) return;
        ++calls_[call];
        if (pool_->is_locked()) ++under_lock_[call];
    }

  private:
    rmm::mr::detail::pool_engine* pool_ = nullptr;
    std::map<std::string, std::size_t> calls_;
    std::map<std::string, std::size_t> under_lock_;
};

/// While it lives, the driver watches the pool.
class watching {
  public:
    watching(lock_watch& driver, rmm::mr::detail::pool_engine& pool) : driver_(driver) { driver_.watch(&pool); }
    ~watching() { driver_.watch(nullptr); }
    watching(const watching&) = delete;
    watching& operator=(const watching&) = delete;

  private:
    lock_watch& driver_;
};

}  // namespace rmm_test
