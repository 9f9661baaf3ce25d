// Lists of plain values inside a record, in memory that comes with it.
//
// Owns: RecordMemory (the bytes behind a record, and blocks of the host for what does not fit there), List. Must not
// know: what a record is for. Not thread-safe: used by the record's owner alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <type_traits>

#include "kmm/graph/host_reserve.hpp"

namespace kmm::graph {

class RecordMemory {
  public:
    /// Alignment of a record's bytes. `take` with a stricter one gets a block of the host.
    static constexpr std::size_t alignment_bytes = 16;

    RecordMemory() = default;
    RecordMemory(const RecordMemory&) = delete;
    RecordMemory& operator=(const RecordMemory&) = delete;
    ~RecordMemory() { clear(); }

    /// Sets the bytes that come with the record. The caller keeps owning them.
    void adopt(void* begin, std::size_t size_bytes) noexcept {
        begin_ = static_cast<std::byte*>(begin);
        size_bytes_ = static_cast<std::uint32_t>(size_bytes);
    }
    /// Memory until `clear`: behind the record, else from the host, else, if `from_reserve`, from the host's reserve.
    /// Throws std::bad_alloc. O(1).
    void* take(std::size_t bytes, std::size_t alignment, bool from_reserve) {
        const std::size_t at = (used_bytes_ + (alignment - 1)) & ~(alignment - 1);
        if (alignment > alignment_bytes || bytes > size_bytes_ || at > size_bytes_ - bytes) [[unlikely]]
            return take_block(bytes, alignment, from_reserve);
        used_bytes_ = static_cast<std::uint32_t>(at + bytes);
        return begin_ + at;
    }
    /// As `take`, to replace `before` of the given size, whose first `used_bytes` are copied. If `before` is the whole
    /// of the latest block of the host, it is freed.
    void* take_more(void* before, std::size_t bytes_before, std::size_t used_bytes, std::size_t bytes,
                    std::size_t alignment, bool from_reserve);
    /// Frees everything that was taken.
    void clear() noexcept {
        used_bytes_ = 0;
        if (blocks_ != nullptr) release_blocks();
    }

  private:
    struct Block;
    void* take_block(std::size_t bytes, std::size_t alignment, bool from_reserve);
    void release_blocks() noexcept;

    std::byte* begin_ = nullptr;
    Block* blocks_ = nullptr;
    std::uint32_t size_bytes_ = 0;
    std::uint32_t used_bytes_ = 0;
};

/// Whether a list may use the host's reserve (HostReserve): those that the scheduler depends on may.
enum class UseOfReserve : bool { no, yes };

/// A list of a record: as std::vector, but it lies in a RecordMemory of the same object. What it had before it grew
/// goes back when the record is cleared, or at once if it was the latest block of the host. So `reserve` a known size.
template<typename T, UseOfReserve reserve_use = UseOfReserve::yes>
class List {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  public:
    /// `record` lies before the list in the same object, at most 64 KiB away.
    explicit List(RecordMemory& record) noexcept
        : distance_(
              static_cast<std::uint16_t>(reinterpret_cast<std::byte*>(this) - reinterpret_cast<std::byte*>(&record))) {
        assert(reinterpret_cast<std::byte*>(this) - reinterpret_cast<std::byte*>(&record) == distance_);
    }
    List(const List&) = delete;
    List& operator=(const List&) = delete;

    T* begin() noexcept { return data_; }
    T* end() noexcept { return data_ + size_; }
    const T* begin() const noexcept { return data_; }
    const T* end() const noexcept { return data_ + size_; }
    T* data() noexcept { return data_; }
    const T* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    T& operator[](std::size_t i) noexcept { return data_[i]; }
    const T& operator[](std::size_t i) const noexcept { return data_[i]; }
    T& front() noexcept { return *data_; }
    const T& front() const noexcept { return *data_; }
    T& back() noexcept { return data_[size_ - 1]; }
    const T& back() const noexcept { return data_[size_ - 1]; }
    std::size_t capacity() const noexcept { return decoded(capacity_); }

    /// Throws std::bad_alloc, as do those that follow.
    void reserve(std::size_t count) {
        if (count > capacity()) grow(count);
    }
    /// Reserves for `count` values beyond the current size. Amortised O(1) for each.
    void reserve_more(std::size_t count) {
        if (size_ + count > capacity()) grow(std::max(size_ + count, 2 * std::size_t{size_}));
    }
    template<typename... Args>
    T& emplace_back(Args&&... args) {
        if (size_ == capacity()) grow(size_ == 0 ? 1 : 2 * std::size_t{size_});
        return *new (data_ + size_++) T{static_cast<Args&&>(args)...};
    }
    void push_back(const T& value) {
        const T copy = value;  // it may lie in the list
        emplace_back(copy);
    }
    void resize(std::size_t count) {
        reserve(count);
        for (std::size_t i = size_; i < count; ++i) new (data_ + i) T{};
        size_ = static_cast<std::uint32_t>(count);
    }
    /// Gives an empty list a capacity of `count`, at most `most_at_once`, at `memory_of_record`: lists that are made
    /// together share one allocation. Returns the end of the list's memory.
    std::byte* lie_at(std::byte* memory_of_record, std::size_t count) noexcept {
        data_ = reinterpret_cast<T*>(memory_of_record);
        capacity_ = static_cast<std::uint16_t>(count);
        return memory_of_record + count * sizeof(T);
    }
    static constexpr std::size_t most_at_once = 2047;
    /// Appends values, which must not lie in this list.
    void append(const T* first, std::size_t count) {
        reserve_more(count);
        for (T *to = data_ + size_, *end = to + count; to != end; ++to, ++first) new (to) T(*first);
        size_ += static_cast<std::uint32_t>(count);
    }
    List& operator=(std::initializer_list<T> values) {
        clear();
        append(values.begin(), values.size());
        return *this;
    }
    void clear() noexcept { size_ = 0; }
    /// Called when the record is cleared: the list is empty and has no memory.
    void forget() noexcept {
        data_ = nullptr;
        size_ = 0;
        capacity_ = 0;
    }

  private:
    // A capacity takes 16 bits, so that a list takes 16 bytes: 11 bits of a number and by how many bits it is shifted.
    static constexpr std::size_t digits = 11;
    static constexpr std::size_t decoded(std::uint16_t code) noexcept {
        return (std::size_t{code} & ((1u << digits) - 1)) << (code >> digits);
    }
    /// The code of the smallest encodable capacity of at least `count`.
    static constexpr std::uint16_t encoded(std::size_t count) noexcept {
        if (count >> digits == 0) [[likely]]
            return static_cast<std::uint16_t>(count);
        std::size_t shift = static_cast<std::size_t>(std::bit_width(count)) - digits;
        std::size_t number = (count + (std::size_t{1} << shift) - 1) >> shift;
        if (number >> digits != 0) ++shift, number = (number + 1) >> 1;
        return static_cast<std::uint16_t>(shift << digits | number);
    }
    [[gnu::noinline]] void grow(std::size_t count) {
        RecordMemory& record =
            *reinterpret_cast<RecordMemory*>(reinterpret_cast<std::byte*>(this) - std::size_t{distance_});
        const std::uint16_t code = encoded(count);
        const std::size_t bytes = decoded(code) * sizeof(T);
        constexpr bool from_reserve = reserve_use == UseOfReserve::yes;
        void* const to = data_ == nullptr ? record.take(bytes, alignof(T), from_reserve)
                                          : record.take_more(data_, capacity() * sizeof(T), size_ * sizeof(T), bytes,
                                                             alignof(T), from_reserve);
        data_ = static_cast<T*>(to);
        capacity_ = code;
    }

    T* data_ = nullptr;
    std::uint32_t size_ = 0;
    std::uint16_t capacity_ = 0;
    std::uint16_t distance_;
};

}  // namespace kmm::graph
