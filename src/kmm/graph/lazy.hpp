// A part of an object that most objects of its type do without.
//
// Owns: Lazy. Must not know: what the part is. Not thread-safe.
#pragma once

#include <new>
#include <utility>

#include "kmm/graph/host_reserve.hpp"

namespace kmm::graph {

/// A pointer to a value of its own, or null. A copy has a copy of the value. Memory comes from the reserve of the host
/// in need.
template<typename T>
class Lazy {
  public:
    Lazy() noexcept = default;
    Lazy(const Lazy& other) {
        if (other) make(*other);
    }
    Lazy(Lazy&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
    Lazy& operator=(Lazy other) noexcept {
        std::swap(value_, other.value_);
        return *this;
    }
    ~Lazy() { reset(); }

    /// There is none. Throws std::bad_alloc, and what the constructor throws.
    template<typename... Args>
    T& make(Args&&... args) {
        void* const memory = HostReserve::allocate(sizeof(T));
        try {
            value_ = new (memory) T(std::forward<Args>(args)...);
        } catch (...) {
            HostReserve::release(memory, sizeof(T));
            throw;
        }
        return *value_;
    }
    void reset() noexcept {
        if (value_ == nullptr) return;
        T* const value = std::exchange(value_, nullptr);
        value->~T();
        HostReserve::release(value, sizeof(T));
    }
    explicit operator bool() const noexcept { return value_ != nullptr; }
    T& operator*() noexcept { return *value_; }
    const T& operator*() const noexcept { return *value_; }
    T* operator->() noexcept { return value_; }
    const T* operator->() const noexcept { return value_; }

  private:
    T* value_ = nullptr;
};

}  // namespace kmm::graph
