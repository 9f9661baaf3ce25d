// A list whose links lie in its elements: entering and leaving cost no allocation and no search.
//
// Owns: nothing; an element leaves before it dies. Must not know: what the elements are. Not thread-safe.
#pragma once

#include <cstddef>

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

template<typename T>
struct chain_link {
    T* before = nullptr;
    T* behind = nullptr;
    bool is_linked = false;
};

/// An element is in a chain once at most, and in as many chains as it has links.
template<typename T, chain_link<T> T::* Link>
class chain {
  public:
    T* front() const noexcept { return first_; }
    T* back() const noexcept { return last_; }
    static T* behind(const T& element) noexcept { return (element.*Link).behind; }
    static bool contains(const T& element) noexcept { return (element.*Link).is_linked; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }

    /// Nothing happens to one that is in it.
    void push_back(T& element) noexcept {
        chain_link<T>& at = element.*Link;
        if (at.is_linked) return;
        at = {last_, nullptr, true};
        (last_ != nullptr ? (last_->*Link).behind : first_) = &element;
        last_ = &element;
        ++size_;
    }
    void push_front(T& element) noexcept {
        chain_link<T>& at = element.*Link;
        if (at.is_linked) return;
        at = {nullptr, first_, true};
        (first_ != nullptr ? (first_->*Link).before : last_) = &element;
        first_ = &element;
        ++size_;
    }
    /// Nothing happens to one that is not in it.
    void erase(T& element) noexcept {
        chain_link<T>& at = element.*Link;
        if (!at.is_linked) return;
        (at.before != nullptr ? (at.before->*Link).behind : first_) = at.behind;
        (at.behind != nullptr ? (at.behind->*Link).before : last_) = at.before;
        at = {};
        --size_;
    }
    T* take_front() noexcept {
        T* const element = first_;
        if (element != nullptr) erase(*element);
        return element;
    }
    T* take_back() noexcept {
        T* const element = last_;
        if (element != nullptr) erase(*element);
        return element;
    }

  private:
    T* first_ = nullptr;
    T* last_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
