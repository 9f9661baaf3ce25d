// What the tasks of one submit share.
//
// Owns: SubmitInfo, and how it is counted. Must not know: tasks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "kmm/detail/runtime_core.hpp"

namespace kmm::graph {

/// Everything that two tasks of one submit share and that only messages need.
struct SubmitInfo {
    std::string name;
    SourceLocation location;
    std::uint32_t num_chunks = 0;
    detail::LauncherInfo::Kind launcher = detail::LauncherInfo::Kind::host;
    mutable std::atomic<std::int64_t> references{0};

    void release(std::int64_t count) const noexcept {
        if (references.fetch_sub(count, std::memory_order_acq_rel) == count) delete this;
    }
};

/// One task's share of a SubmitInfo.
class SubmitInfoRef {
  public:
    SubmitInfoRef() = default;
    ~SubmitInfoRef() { reset(); }
    SubmitInfoRef(const SubmitInfoRef&) = delete;
    SubmitInfoRef& operator=(const SubmitInfoRef&) = delete;
    void reset() noexcept {
        if (info_ != nullptr) info_->release(1);
        info_ = nullptr;
    }
    /// Adds a reference to that of `other`, which must stay alive during the call.
    void share(const SubmitInfoRef& other) noexcept {
        if (other.info_ != nullptr) other.info_->references.fetch_add(1, std::memory_order_relaxed);
        adopt(other.info_);
    }
    /// Takes over one counted reference.
    void adopt(const SubmitInfo* info) noexcept {
        reset();
        info_ = info;
    }
    const SubmitInfo* get() const noexcept { return info_; }
    const SubmitInfo* operator->() const noexcept { return info_; }
    const SubmitInfo& operator*() const noexcept { return *info_; }
    explicit operator bool() const noexcept { return info_ != nullptr; }

  private:
    const SubmitInfo* info_ = nullptr;
};

/// Hands out a SubmitInfo to tasks. Counts many references at once: the count's cache line goes between the thread that
/// submits and the one that settles. Not thread-safe.
class SubmitInfoSource {
  public:
    SubmitInfoSource() = default;
    ~SubmitInfoSource() { reset(nullptr); }
    SubmitInfoSource(const SubmitInfoSource&) = delete;
    SubmitInfoSource& operator=(const SubmitInfoSource&) = delete;
    void reset(std::unique_ptr<SubmitInfo> info) noexcept {
        if (info_ != nullptr) info_->release(counted_);
        info_ = info.release();
        counted_ = 0;
        if (info_ != nullptr) count_more();
    }
    const SubmitInfo* get() const noexcept { return info_; }
    void give_to(SubmitInfoRef& ref) noexcept {
        if (counted_ == 1) count_more();
        --counted_;
        ref.adopt(info_);
    }

  private:
    void count_more() noexcept {
        info_->references.fetch_add(counted_at_once, std::memory_order_relaxed);
        counted_ += counted_at_once;
    }
    static constexpr std::int64_t counted_at_once = 1024;
    const SubmitInfo* info_ = nullptr;
    std::int64_t counted_ = 0;  ///< references that are counted and not given away; at least one while there is an info
};

}  // namespace kmm::graph
