// Which memory of a runtime: the host's, or one device's.
//
// Owns: MemoryIndex, the ranges to go through memories, and PerMemory, a list with an entry for each. The only code
// that knows how memories are numbered. Must not know: what is in a memory, how large it is. Plain values; any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "kmm/core/identifiers.hpp"

namespace kmm::memory {

enum class MemoryKind : std::uint8_t { host, device };
inline constexpr std::size_t num_memory_kinds = 2;

/// A memory within a runtime. Made by name only; the default is the host's.
class MemoryIndex {
  public:
    constexpr MemoryIndex() noexcept = default;
    static constexpr MemoryIndex host() noexcept { return MemoryIndex(0); }
    static constexpr MemoryIndex of_device(std::uint32_t device) noexcept { return MemoryIndex(device + 1); }
    /// The memory of that public name.
    static constexpr MemoryIndex of(MemoryId id) { return id.is_host() ? host() : of_device(id.as_device().get()); }

    constexpr MemoryKind kind() const noexcept { return index_ == 0 ? MemoryKind::host : MemoryKind::device; }
    constexpr bool is_host() const noexcept { return index_ == 0; }
    constexpr bool is_device() const noexcept { return index_ != 0; }
    /// The device whose memory it is. Only of a device's.
    constexpr std::uint32_t device() const noexcept { return index_ - 1u; }
    /// Its name in public interfaces.
    constexpr MemoryId id() const { return is_host() ? MemoryId::host() : MemoryId(DeviceId(device())); }
    /// Its place among all memories of the runtime: the host's comes first, then the devices' in order.
    constexpr std::uint32_t index() const noexcept { return index_; }

    friend constexpr bool operator==(MemoryIndex, MemoryIndex) noexcept = default;
    friend constexpr auto operator<=>(MemoryIndex, MemoryIndex) noexcept = default;

  private:
    friend class MemoryRange;
    explicit constexpr MemoryIndex(std::uint32_t index) noexcept : index_(static_cast<std::uint16_t>(index)) {}
    std::uint16_t index_ = 0;  // records keep many
};

/// Memories of a runtime in the order of their indices, for loops.
class MemoryRange {
  public:
    class Iterator {
      public:
        explicit constexpr Iterator(std::uint32_t index) noexcept : index_(index) {}
        constexpr MemoryIndex operator*() const noexcept { return MemoryRange::at(index_); }
        constexpr Iterator& operator++() noexcept {
            ++index_;
            return *this;
        }
        friend constexpr bool operator==(Iterator, Iterator) noexcept = default;

      private:
        std::uint32_t index_;
    };

    constexpr Iterator begin() const noexcept { return Iterator(begin_); }
    constexpr Iterator end() const noexcept { return Iterator(end_); }

  private:
    friend constexpr MemoryRange memories(std::size_t num_devices) noexcept;
    template<typename T> friend class PerMemory;
    static constexpr MemoryIndex at(std::uint32_t index) noexcept { return MemoryIndex(index); }
    constexpr MemoryRange(std::uint32_t begin, std::size_t end) noexcept
        : begin_(begin), end_(static_cast<std::uint32_t>(end)) {}
    std::uint32_t begin_;
    std::uint32_t end_;
};

/// All memories of a runtime: the host's and those of its devices.
constexpr MemoryRange memories(std::size_t num_devices) noexcept { return {0, num_devices + 1}; }

/// One value for each memory of a runtime. Empty until it is told how many devices there are.
template<typename T> class PerMemory {
  public:
    PerMemory() = default;
    /// The host's value, then those of the devices in order.
    PerMemory(std::vector<T> values) : values_(std::move(values)) {}
    PerMemory(std::initializer_list<T> values) : values_(values) {}
    static PerMemory of_devices(std::size_t num_devices) { return PerMemory(std::vector<T>(num_devices + 1)); }
    /// Those that are new have the value of `T()`.
    void resize_for_devices(std::size_t num_devices) { values_.resize(num_devices + 1); }

    T& operator[](MemoryIndex m) noexcept { return values_[m.index()]; }
    const T& operator[](MemoryIndex m) const noexcept { return values_[m.index()]; }
    std::size_t num_devices() const noexcept { return values_.empty() ? 0 : values_.size() - 1; }
    /// To go through all of them, or the devices' alone.
    MemoryRange memories() const noexcept { return {0, values_.size()}; }
    MemoryRange device_memories() const noexcept { return {values_.empty() ? 0u : 1u, values_.size()}; }

    // The values alone, in order.
    auto begin() noexcept { return values_.begin(); }
    auto end() noexcept { return values_.end(); }
    auto begin() const noexcept { return values_.begin(); }
    auto end() const noexcept { return values_.end(); }

  private:
    std::vector<T> values_;
};

}  // namespace kmm::memory
