// A growing vector whose first K elements need no allocation. A value that owns its elements. Growth is host only;
// reading is host and device.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <new>
#include <type_traits>
#include <utility>

#include "kmm/detail/panic.hpp"
#include "kmm/utils/checked_compare.hpp"
#include "kmm/utils/hash_utils.hpp"
#include "kmm/utils/macros.hpp"

namespace kmm {

/// Like std::vector<T>, with room for K elements inside the object. An index out of range throws std::out_of_range on
/// the host and fails the kernel on a device. References and iterators end with the next growth, and with a move of the
/// vector. Strong guarantee for push_back.
template<typename T, std::size_t K = 2>
class small_vector {
    static_assert(std::is_nothrow_move_constructible<T>::value, "elements move when the vector grows");

  public:
    using value_type = T;
    using size_type = std::size_t;
    using iterator = T*;
    using const_iterator = const T*;

    small_vector() noexcept : data_(local()) {}
    small_vector(std::initializer_list<T> values) : small_vector(values.begin(), values.end()) {}
    template<typename Iterator, typename = typename std::iterator_traits<Iterator>::iterator_category>
    small_vector(Iterator first, Iterator last) : small_vector() {
        insert_all(first, last);
    }
    small_vector(const small_vector& that) : small_vector(that.begin(), that.end()) {}
    small_vector(small_vector&& that) noexcept : small_vector() { take(that); }
    /// Of another capacity or element type; each element is converted.
    template<typename U, std::size_t L, typename = std::enable_if_t<std::is_convertible<const U&, T>::value>>
    small_vector(const small_vector<U, L>& that) : small_vector() {
        reserve(that.size());
        for (const U& value : that) {
            push_back(static_cast<T>(value));
        }
    }
    small_vector& operator=(const small_vector& that) {
        if (this != &that) {
            small_vector copy(that);
            *this = std::move(copy);
        }
        return *this;
    }
    small_vector& operator=(small_vector&& that) noexcept {
        if (this != &that) {
            release();
            take(that);
        }
        return *this;
    }
    template<typename U, std::size_t L, typename = std::enable_if_t<std::is_convertible<const U&, T>::value>>
    small_vector& operator=(const small_vector<U, L>& that) {
        return *this = small_vector(that);
    }
    ~small_vector() { release(); }

    KMM_HOST_DEVICE std::size_t size() const noexcept { return size_; }
    KMM_HOST_DEVICE std::size_t capacity() const noexcept { return capacity_; }
    /// Whether the elements have outgrown the room inside the object.
    KMM_HOST_DEVICE bool is_heap_allocated() const noexcept {
        return static_cast<const void*>(data_) != static_cast<const void*>(local_);
    }
    KMM_HOST_DEVICE bool is_empty() const noexcept { return size_ == 0; }
    KMM_HOST_DEVICE bool empty() const noexcept { return size_ == 0; }
    KMM_HOST_DEVICE T* data() noexcept { return data_; }
    KMM_HOST_DEVICE const T* data() const noexcept { return data_; }
    KMM_HOST_DEVICE T* begin() noexcept { return data_; }
    KMM_HOST_DEVICE const T* begin() const noexcept { return data_; }
    KMM_HOST_DEVICE T* end() noexcept { return data_ + size_; }
    KMM_HOST_DEVICE const T* end() const noexcept { return data_ + size_; }
    KMM_HOST_DEVICE T& operator[](std::size_t i) {
        if (KMM_UNLIKELY(i >= size_)) {
            detail::fail_out_of_range(i, size_);
        }
        return data_[i];
    }
    KMM_HOST_DEVICE const T& operator[](std::size_t i) const {
        if (KMM_UNLIKELY(i >= size_)) {
            detail::fail_out_of_range(i, size_);
        }
        return data_[i];
    }
    KMM_HOST_DEVICE T& front() { return (*this)[0]; }
    KMM_HOST_DEVICE const T& front() const { return (*this)[0]; }
    KMM_HOST_DEVICE T& back() { return (*this)[size_ - 1]; }
    KMM_HOST_DEVICE const T& back() const { return (*this)[size_ - 1]; }

    void reserve(std::size_t wanted) {
        if (wanted > capacity_) {
            grow(wanted);
        }
    }
    void push_back(T value) {
        if (size_ == capacity_) {
            grow(capacity_ < 2 ? 4 : capacity_ * 2);
        }
        ::new (static_cast<void*>(data_ + size_)) T(std::move(value));
        size_++;
    }
    /// Appends, unless the memory for it is not there: false, and nothing has changed.
    bool try_push_back(T value) {
        if (size_ == capacity_ && !try_grow_capacity(capacity_ < 2 ? 4 : capacity_ * 2)) {
            return false;
        }
        push_back(std::move(value));
        return true;
    }
    /// As `reserve`; false, and nothing has changed, if the memory for it is not there.
    bool try_grow_capacity(std::size_t wanted) noexcept {
        if (wanted <= capacity_) {
            return true;
        }
        if (wanted > static_cast<std::size_t>(-1) / sizeof(T)) {
            return false;
        }
        void* fresh = ::operator new(wanted * sizeof(T), std::align_val_t(alignof(T)), std::nothrow);
        if (fresh == nullptr) {
            return false;
        }
        move_to(static_cast<T*>(fresh), wanted);
        return true;
    }
    void pop_back() {
        back().~T();
        size_--;
    }
    void resize(std::size_t wanted, const T& value = T()) {
        truncate(wanted);
        if (wanted > capacity_) {
            grow(wanted > 2 * capacity_ ? wanted : 2 * capacity_);
        }
        while (size_ < wanted) {
            ::new (static_cast<void*>(data_ + size_)) T(value);
            size_++;
        }
    }
    /// Removes the elements from number `wanted` on.
    void truncate(std::size_t wanted) noexcept {
        while (size_ > wanted) {
            size_--;
            data_[size_].~T();
        }
    }
    void clear() noexcept { truncate(0); }
    /// Appends [first, last), which must not be part of this vector.
    template<typename Iterator>
    void insert_all(Iterator first, Iterator last) {
        for (; first != last; ++first) {
            push_back(*first);
        }
    }
    template<typename Sequence>
    void insert_all(const Sequence& values) {
        insert_all(values.begin(), values.end());
    }

  private:
    T* local() noexcept { return reinterpret_cast<T*>(local_); }

    void grow(std::size_t wanted) {
        move_to(static_cast<T*>(::operator new(wanted * sizeof(T), std::align_val_t(alignof(T)))), wanted);
    }
    void move_to(T* fresh, std::size_t wanted) noexcept {
        move_elements(fresh);
        free_memory();
        data_ = fresh;
        capacity_ = wanted;
    }
    void move_elements(T* to) noexcept {
        for (std::size_t i = 0; i < size_; i++) {
            ::new (static_cast<void*>(to + i)) T(std::move(data_[i]));
            data_[i].~T();
        }
    }
    void free_memory() noexcept {
        if (data_ != local()) {
            ::operator delete(static_cast<void*>(data_), std::align_val_t(alignof(T)));
        }
    }
    void release() noexcept {
        clear();
        free_memory();
        data_ = local();
        capacity_ = K;
    }
    // Expects this vector to be empty and local.
    void take(small_vector& that) noexcept {
        if (that.data_ == that.local()) {
            that.move_elements(data_);
        } else {
            data_ = that.data_;
            capacity_ = that.capacity_;
            that.data_ = that.local();
            that.capacity_ = K;
        }
        size_ = that.size_;
        that.size_ = 0;
    }

    T* data_;
    std::size_t size_ = 0;
    std::size_t capacity_ = K;
    alignas(T) unsigned char local_[K > 0 ? K * sizeof(T) : 1];
};

/// Bytes that are collected one after the other.
using byte_buffer = small_vector<unsigned char, 64>;

template<typename T, std::size_t K, typename U, std::size_t L>
bool operator==(const small_vector<T, K>& a, const small_vector<U, L>& b) {
    if (a.size() != b.size()) {
        return false;
    }
    for (std::size_t i = 0; i < a.size(); i++) {
        if (!is_equal(a[i], b[i])) {
            return false;
        }
    }
    return true;
}

template<typename T, std::size_t K, typename U, std::size_t L>
bool operator!=(const small_vector<T, K>& a, const small_vector<U, L>& b) {
    return !(a == b);
}

template<typename C, typename Traits, typename T, std::size_t K>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const small_vector<T, K>& that) {
    stream << "{";
    for (std::size_t i = 0; i < that.size(); i++) {
        stream << (i > 0 ? ", " : "") << that[i];
    }
    return stream << "}";
}

}  // namespace kmm

template<typename T, std::size_t K>
struct std::hash<kmm::small_vector<T, K>> {
    std::size_t operator()(const kmm::small_vector<T, K>& that) const {
        return kmm::hash_range(that.begin(), that.end());
    }
};
