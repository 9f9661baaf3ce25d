// What must have happened before memory may be used again: points of timelines.
//
// Owns: the plain types. Must not know: what a timeline is, who waits. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

/// "Not before `timeline` has reached `position`." A timeline is whatever runs in order: a stream, a lane, a host task.
struct fence {
    std::uint64_t timeline = 0;
    std::uint64_t position = 0;
    friend bool operator==(const fence&, const fence&) = default;
};

/// At most one fence for each timeline (the latest); kept sorted by timeline. One fence, the common case, allocates
/// nothing, nor does a set that takes over the fences of the same timelines, or that becomes smaller.
class fence_set {
  public:
    fence_set() = default;
    explicit fence_set(fence f) noexcept : first_(f), size_(1) {}
    fence_set(const fence_set& other) { *this = other; }
    fence_set& operator=(const fence_set& other) {
        if (other.size_ > 1) {
            assign(other);
        } else {
            first_ = other.first_;
            size_ = other.size_;
        }
        return *this;
    }
    fence_set(fence_set&& other) noexcept { *this = std::move(other); }
    fence_set& operator=(fence_set&& other) noexcept {
        first_ = other.first_;
        size_ = std::exchange(other.size_, 0);
        capacity_ = std::exchange(other.capacity_, 0);
        several_ = std::move(other.several_);
        return *this;
    }
    ~fence_set() = default;
    /// Keeps the later position. O(size). Throws std::bad_alloc, with nothing done, unless there is room (`reserve`).
    void add(fence f);
    /// Adds each fence of `other`. An exception keeps those that were added before.
    void add(const fence_set& other);
    /// Afterwards sets of up to `size` fences need no memory.
    void reserve(std::size_t size);
    /// Whether both name the same timelines, at whatever positions.
    bool same_timelines(const fence_set& other) const noexcept {
        return std::equal(begin(), end(), other.begin(), other.end(),
                          [](const fence& a, const fence& b) { return a.timeline == b.timeline; });
    }
    /// Whether any fence is of one of these timelines. O(size x timelines).
    bool has_any_of(std::span<const std::uint64_t> timelines) const noexcept {
        return std::any_of(begin(), end(), [&](const fence& f) {
            return std::find(timelines.begin(), timelines.end(), f.timeline) != timelines.end();
        });
    }
    /// Drops every fence for which `passed(fence)` is true.
    template<typename P>
    void prune(P&& passed) {
        fence* const all = data();
        std::uint32_t kept = 0;
        for (std::uint32_t i = 0; i < size_; ++i)
            if (!passed(std::as_const(all[i]))) all[kept++] = all[i];
        if (size_ > 1 && kept == 1) first_ = all[0];
        size_ = kept;
    }
    bool empty() const noexcept { return size_ == 0; }
    std::size_t size() const noexcept { return size_; }
    const fence* begin() const noexcept { return size_ > 1 ? several_.get() : &first_; }
    const fence* end() const noexcept { return begin() + size_; }
    void clear() noexcept { size_ = 0; }
    friend bool operator==(const fence_set& a, const fence_set& b) noexcept {
        return a.size_ == b.size_ && std::equal(a.begin(), a.end(), b.begin());
    }

  private:
    fence* data() noexcept { return size_ > 1 ? several_.get() : &first_; }
    void assign(const fence_set& several);

    fence first_;  // of one
    std::uint32_t size_ = 0;
    std::uint32_t capacity_ = 0;
    std::unique_ptr<fence[]> several_;  // of more than one: all of them
};

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
