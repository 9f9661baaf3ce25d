// Implements fence_set.hpp.
#include "rmm/heap/fence_set.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace heap {

void fence_set::reserve(std::size_t size) {
    if (size <= std::max<std::size_t>(1, capacity_)) return;
    const auto capacity = static_cast<std::uint32_t>(std::max<std::size_t>(size, 2 * std::size_t{capacity_}));
    auto larger = std::make_unique<fence[]>(capacity);
    if (size_ > 1) std::copy(begin(), end(), larger.get());
    several_ = std::move(larger);
    capacity_ = capacity;
}

void fence_set::assign(const fence_set& several) {
    if (this == &several) return;
    if (several.size_ > capacity_) {
        // The old content is overwritten: no copy.
        several_ = std::make_unique<fence[]>(several.size_);
        capacity_ = several.size_;
    }
    std::copy(several.begin(), several.end(), several_.get());
    size_ = several.size_;
}

void fence_set::add(fence f) {
    if (size_ == 0) {
        first_ = f;
        size_ = 1;
        return;
    }
    auto at = static_cast<std::size_t>(
        std::lower_bound(begin(), end(), f.timeline,
                         [](const fence& a, std::uint64_t timeline) { return a.timeline < timeline; }) -
        begin());
    if (at != size_ && data()[at].timeline == f.timeline) {
        data()[at].position = std::max(data()[at].position, f.position);
        return;
    }
    reserve(size_ + 1);
    if (size_ == 1) several_[0] = first_;
    std::copy_backward(several_.get() + at, several_.get() + size_, several_.get() + size_ + 1);
    several_[at] = f;
    ++size_;
}

void fence_set::add(const fence_set& other) {
    if (size_ == 0) {
        *this = other;
        return;
    }
    if (this == &other) return;
    for (const fence& f : other) add(f);
}

}  // namespace heap
}  // namespace kmm_v0
}  // namespace rmm
