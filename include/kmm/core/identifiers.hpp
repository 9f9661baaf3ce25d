// The names of devices, memories, resources and events. Plain literal values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <type_traits>

#include "kmm/detail/panic.hpp"
#include "kmm/utils/checked_compare.hpp"
#include "kmm/utils/hash_utils.hpp"
#include "kmm/utils/macros.hpp"
#include "kmm/utils/small_vector.hpp"

namespace kmm {

/// DeviceId(0) ... DeviceId(MAX_DEVICES - 1) can be named.
inline constexpr std::size_t MAX_DEVICES = 64;

/// The kind of hardware behind a runtime. `Auto` stands for the first usable of cuda, hip, host.
enum struct DriverKind : std::uint8_t { Auto, CUDA, HIP, Host };

/// Where a function runs.
enum struct ExecutionSpace : std::uint8_t { Host, Device };

/// How a task uses data; `Exclusive`: the previous content is not needed.
enum struct AccessMode : std::uint8_t { Read, ReadWrite, Exclusive };

/// Number of a device within a runtime. A number out of range throws InvalidArgument.
class DeviceId {
  public:
    constexpr DeviceId() noexcept = default;
    template<typename I, typename = std::enable_if_t<std::is_integral<I>::value>>
    KMM_HOST_DEVICE explicit constexpr DeviceId(I value) : value_(static_cast<std::uint8_t>(value)) {
        if (is_less(value, 0) || !is_less(value, std::size_t{MAX_DEVICES})) {
            refuse(static_cast<std::int64_t>(value));
        }
    }

    KMM_HOST_DEVICE constexpr std::uint8_t get() const noexcept { return value_; }
    KMM_HOST_DEVICE constexpr operator std::uint8_t() const noexcept { return value_; }

  private:
    KMM_HOST_DEVICE static void refuse(std::int64_t value) {
#if KMM_IS_DEVICE
        (void)value;
        detail::panic("device number out of range", __FILE__, __LINE__);
#else
        detail::throw_not_in_range("device number", value, 0, std::int64_t(MAX_DEVICES) - 1,
                                   "device numbers count the runtime's devices from 0");
#endif
    }

    std::uint8_t value_ = 0;
};

/// The memory of the host or of one device. All host memories are equal, whatever their affinity; host < device 0 < 1.
class MemoryId {
  public:
    enum struct Type : std::uint8_t { Host, Device };

    constexpr MemoryId(DeviceId device) noexcept : type_(Type::Device), device_(device) {}
    constexpr MemoryId(Type type, std::uint8_t device) : type_(type), device_(DeviceId(device)) {}

    /// Host memory; `affinity` is the device that it is near to.
    static constexpr MemoryId host(DeviceId affinity = DeviceId(0)) noexcept { return MemoryId(Type::Host, affinity); }
    constexpr bool is_host() const noexcept { return type_ == Type::Host; }
    constexpr bool is_device() const noexcept { return type_ == Type::Device; }
    /// The device; InvalidArgument for host memory.
    constexpr DeviceId as_device() const {
        if (is_host()) {
            detail::throw_invalid_argument("MemoryId::as_device: this is host memory; ask is_device() first");
        }
        return device_;
    }
    constexpr DeviceId device_affinity() const noexcept { return device_; }

  private:
    constexpr MemoryId(Type type, DeviceId device) noexcept : type_(type), device_(device) {}

    Type type_;
    DeviceId device_;
};

/// A set of compute streams, by their numbers 0..63 within a device. Numbers from 64 on are ignored.
class DeviceStreamSet {
  public:
    static constexpr std::size_t MAX_STREAMS = 64;
    static constexpr std::size_t MAX_SIZE = MAX_STREAMS;

    constexpr DeviceStreamSet() noexcept = default;
    /// The stream of this number.
    template<typename I, typename = std::enable_if_t<std::is_integral<I>::value>>
    constexpr DeviceStreamSet(I stream) noexcept : bits_(stream < I(0) ? 0 : bit(static_cast<std::size_t>(stream))) {}
    /// Bit i of `mask` is stream i: from_mask(5) has the streams 0 and 2.
    static constexpr DeviceStreamSet from_mask(std::uint64_t mask) noexcept {
        DeviceStreamSet result;
        result.bits_ = mask;
        return result;
    }
    constexpr DeviceStreamSet(std::initializer_list<std::size_t> streams) noexcept {
        for (std::size_t stream : streams) {
            bits_ |= bit(stream);
        }
    }
    /// begin, begin + 1, ..., end - 1
    static constexpr DeviceStreamSet range(std::size_t begin, std::size_t end) noexcept {
        DeviceStreamSet result;
        for (std::size_t stream = begin; stream < end && stream < MAX_STREAMS; stream++) {
            result.bits_ |= bit(stream);
        }
        return result;
    }
    static constexpr DeviceStreamSet all() noexcept { return range(0, MAX_STREAMS); }
    constexpr bool contains(std::size_t stream) const noexcept { return (bits_ & bit(stream)) != 0; }
    /// Whether every stream of `that` is in this set.
    constexpr bool contains(const DeviceStreamSet& that) const noexcept { return (that.bits_ & ~bits_) == 0; }
    constexpr bool is_empty() const noexcept { return bits_ == 0; }
    /// Bit i is stream i.
    constexpr std::uint64_t bits() const noexcept { return bits_; }
    constexpr DeviceStreamSet& operator&=(const DeviceStreamSet& that) noexcept {
        bits_ &= that.bits_;
        return *this;
    }
    constexpr DeviceStreamSet& operator|=(const DeviceStreamSet& that) noexcept {
        bits_ |= that.bits_;
        return *this;
    }
    friend constexpr DeviceStreamSet operator&(DeviceStreamSet a, const DeviceStreamSet& b) noexcept { return a &= b; }
    friend constexpr DeviceStreamSet operator|(DeviceStreamSet a, const DeviceStreamSet& b) noexcept { return a |= b; }
    friend constexpr bool operator==(const DeviceStreamSet& a, const DeviceStreamSet& b) noexcept {
        return a.bits_ == b.bits_;
    }
    friend constexpr bool operator!=(const DeviceStreamSet& a, const DeviceStreamSet& b) noexcept {
        return a.bits_ != b.bits_;
    }

  private:
    static constexpr std::uint64_t bit(std::size_t stream) noexcept {
        return stream < MAX_STREAMS ? std::uint64_t(1) << stream : 0;
    }

    std::uint64_t bits_ = 0;
};

/// What runs a task: the host, or a device, perhaps on some of its streams only.
class ResourceId {
  public:
    /// The host.
    constexpr ResourceId() noexcept = default;
    /// A device; an empty stream set means all streams.
    constexpr ResourceId(DeviceId device, DeviceStreamSet streams = DeviceStreamSet::all()) noexcept
        : is_device_(true), device_(device), streams_(streams.is_empty() ? DeviceStreamSet::all() : streams) {}

    /// The host; `affinity` is the device whose memory it is near to.
    static constexpr ResourceId host(DeviceId affinity = DeviceId(0)) noexcept {
        ResourceId result;
        result.device_ = affinity;
        return result;
    }
    constexpr bool is_host() const noexcept { return !is_device_; }
    constexpr bool is_device() const noexcept { return is_device_; }
    /// The device; InvalidArgument for the host.
    constexpr DeviceId as_device() const {
        if (is_host()) {
            detail::throw_invalid_argument("ResourceId::as_device: this is the host; ask is_device() first");
        }
        return device_;
    }
    constexpr DeviceId device_affinity() const noexcept { return device_; }
    constexpr DeviceStreamSet stream_affinity() const noexcept { return streams_; }
    /// The memory that its tasks use.
    constexpr MemoryId as_memory() const noexcept { return is_device_ ? MemoryId(device_) : MemoryId::host(device_); }
    /// Same kind and device, and no stream of `that` is missing here.
    constexpr bool contains(const ResourceId& that) const noexcept {
        if (is_device_ != that.is_device_) {
            return false;
        }
        return !is_device_ || (device_.get() == that.device_.get() && (streams_ & that.streams_) == that.streams_);
    }
    /// Same kind, device and stream set; the affinity of the host does not count.
    friend constexpr bool operator==(const ResourceId& a, const ResourceId& b) noexcept {
        return a.is_device_ == b.is_device_ &&
               (!a.is_device_ || (a.device_.get() == b.device_.get() && a.streams_ == b.streams_));
    }
    friend constexpr bool operator!=(const ResourceId& a, const ResourceId& b) noexcept { return !(a == b); }

  private:
    bool is_device_ = false;
    DeviceId device_;
    DeviceStreamSet streams_ = DeviceStreamSet::all();
};

/// The end of a task, a submit, a copy. The default (0) is done already. The upper 16 bits number the runtime.
class EventId {
  public:
    constexpr EventId() noexcept = default;
    explicit constexpr EventId(std::uint64_t value) noexcept : value_(value) {}
    constexpr std::uint64_t get() const noexcept { return value_; }
    explicit constexpr operator std::uint64_t() const noexcept { return value_; }
    constexpr std::uint16_t runtime_number() const noexcept { return static_cast<std::uint16_t>(value_ >> 48); }

  private:
    std::uint64_t value_ = 0;
};

/// Opaque numbers.
class BufferId {
  public:
    constexpr BufferId() noexcept = default;
    explicit constexpr BufferId(std::uint64_t value) noexcept : value_(value) {}
    constexpr std::uint64_t get() const noexcept { return value_; }
    explicit constexpr operator std::uint64_t() const noexcept { return value_; }

  private:
    std::uint64_t value_ = 0;
};

/// Opaque; number of a process.
class NodeId {
  public:
    constexpr NodeId() noexcept = default;
    explicit constexpr NodeId(std::uint8_t value) noexcept : value_(value) {}
    constexpr std::uint8_t get() const noexcept { return value_; }
    explicit constexpr operator std::uint8_t() const noexcept { return value_; }

  private:
    std::uint8_t value_ = 0;
};

using EventList = small_vector<EventId, 2>;

namespace detail {

// The number that orders, compares and hashes an identifier.
constexpr std::uint64_t rank_of(DeviceId id) noexcept { return id.get(); }
constexpr std::uint64_t rank_of(MemoryId id) noexcept {
    return id.is_host() ? 0u : std::uint64_t(1) + id.device_affinity().get();
}
constexpr std::uint64_t rank_of(EventId id) noexcept { return id.get(); }
constexpr std::uint64_t rank_of(BufferId id) noexcept { return id.get(); }
constexpr std::uint64_t rank_of(NodeId id) noexcept { return id.get(); }

template<typename T>
inline constexpr bool is_ranked_id_v =
    std::is_same<T, DeviceId>::value || std::is_same<T, MemoryId>::value || std::is_same<T, EventId>::value ||
    std::is_same<T, BufferId>::value || std::is_same<T, NodeId>::value;

template<typename T>
using enable_ranked_t = std::enable_if_t<is_ranked_id_v<T>, bool>;

}  // namespace detail

template<typename T>
constexpr detail::enable_ranked_t<T> operator==(const T& a, const T& b) noexcept {
    return detail::rank_of(a) == detail::rank_of(b);
}
template<typename T>
constexpr detail::enable_ranked_t<T> operator!=(const T& a, const T& b) noexcept {
    return detail::rank_of(a) != detail::rank_of(b);
}
template<typename T>
constexpr detail::enable_ranked_t<T> operator<(const T& a, const T& b) noexcept {
    return detail::rank_of(a) < detail::rank_of(b);
}
template<typename T>
constexpr detail::enable_ranked_t<T> operator<=(const T& a, const T& b) noexcept {
    return detail::rank_of(a) <= detail::rank_of(b);
}
template<typename T>
constexpr detail::enable_ranked_t<T> operator>(const T& a, const T& b) noexcept {
    return detail::rank_of(a) > detail::rank_of(b);
}
template<typename T>
constexpr detail::enable_ranked_t<T> operator>=(const T& a, const T& b) noexcept {
    return detail::rank_of(a) >= detail::rank_of(b);
}

// A device stands for its memory.
constexpr bool operator==(const MemoryId& a, const DeviceId& b) noexcept { return a == MemoryId(b); }
constexpr bool operator!=(const MemoryId& a, const DeviceId& b) noexcept { return a != MemoryId(b); }
constexpr bool operator==(const DeviceId& a, const MemoryId& b) noexcept { return MemoryId(a) == b; }
constexpr bool operator!=(const DeviceId& a, const MemoryId& b) noexcept { return MemoryId(a) != b; }

// As in messages: "GPU 1", "host"; a device's stream set is shown if it is not all: "GPU 1 {0, 2}".
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const DeviceId& id) {
    return stream << "GPU " << unsigned(id.get());
}
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const MemoryId& id) {
    return id.is_host() ? stream << "host" : stream << id.device_affinity();
}
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const DeviceStreamSet& set) {
    stream << "{";
    bool first = true;
    for (std::size_t i = 0; i < DeviceStreamSet::MAX_STREAMS; i++) {
        if (set.contains(i)) {
            stream << (first ? "" : ", ") << i;
            first = false;
        }
    }
    return stream << "}";
}
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const ResourceId& id) {
    if (id.is_host()) {
        return stream << "host";
    }
    stream << id.device_affinity();
    return id.stream_affinity() == DeviceStreamSet::all() ? stream : stream << " " << id.stream_affinity();
}
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const EventId& id) {
    return stream << id.get();
}
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const BufferId& id) {
    return stream << id.get();
}
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const NodeId& id) {
    return stream << unsigned(id.get());
}
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const ExecutionSpace& space) {
    return stream << (space == ExecutionSpace::Host ? "Host" : "Device");
}
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const AccessMode& mode) {
    return stream << (mode == AccessMode::Read ? "Read" : mode == AccessMode::ReadWrite ? "ReadWrite" : "Exclusive");
}
template<typename C, typename Traits>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const DriverKind& kind) {
    return stream << (kind == DriverKind::Auto   ? "auto"
                      : kind == DriverKind::CUDA ? "cuda"
                      : kind == DriverKind::HIP  ? "hip"
                                                 : "host");
}

}  // namespace kmm

template<>
struct std::hash<kmm::DeviceId> {
    std::size_t operator()(const kmm::DeviceId& id) const noexcept {
        return kmm::hash_fields(kmm::detail::rank_of(id));
    }
};
template<>
struct std::hash<kmm::MemoryId> {
    std::size_t operator()(const kmm::MemoryId& id) const noexcept {
        return kmm::hash_fields(kmm::detail::rank_of(id));
    }
};
template<>
struct std::hash<kmm::EventId> {
    std::size_t operator()(const kmm::EventId& id) const noexcept { return kmm::hash_fields(kmm::detail::rank_of(id)); }
};
template<>
struct std::hash<kmm::BufferId> {
    std::size_t operator()(const kmm::BufferId& id) const noexcept {
        return kmm::hash_fields(kmm::detail::rank_of(id));
    }
};
template<>
struct std::hash<kmm::NodeId> {
    std::size_t operator()(const kmm::NodeId& id) const noexcept { return kmm::hash_fields(kmm::detail::rank_of(id)); }
};
template<>
struct std::hash<kmm::DeviceStreamSet> {
    std::size_t operator()(const kmm::DeviceStreamSet& set) const noexcept { return kmm::hash_fields(set.bits()); }
};
template<>
struct std::hash<kmm::ResourceId> {
    std::size_t operator()(const kmm::ResourceId& id) const noexcept {
        return kmm::hash_fields(kmm::detail::rank_of(id.as_memory()), id.is_device() ? id.stream_affinity().bits() : 0);
    }
};
