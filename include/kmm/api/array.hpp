// `Array` and `Scalar`: N-dimensional values of the program, cut into chunks by a distribution, and their copies from
// and to the program's memory.
//
// Owns: a share of the array's state (detail::ArrayRecord). Must not know: where the chunks are. Concurrent const calls
// on one object are fine; assignment and `reset` need exclusion. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "kmm/api/access.hpp"
#include "kmm/api/array_instance.hpp"
#include "kmm/api/mapper.hpp"
#include "kmm/core/data_type.hpp"
#include "kmm/core/distribution.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/view.hpp"
#include "kmm/detail/array_checks.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/detail/strided_box.hpp"

namespace kmm {

class Runtime;

/// An array of any element type and rank.
class ArrayBase {
  public:
    virtual ~ArrayBase();
    virtual const std::type_info& type_info() const = 0;
    virtual std::size_t rank() const = 0;
    /// 1 beyond the rank.
    virtual default_index_type size(std::size_t axis) const = 0;
    /// IA when unbound.
    virtual Runtime& runtime() const = 0;
    /// Waits for all work on the array. TE DL.
    virtual void synchronize() const = 0;
    /// All elements, row-major. IA if `num_bytes` is not their size. TE UR DL.
    KMM_INLINE void copy_bytes_to(void* output, std::size_t num_bytes) const {
        copy_bytes_out(output, num_bytes, detail::default_stream());
    }

  protected:
    ArrayBase() = default;
    ArrayBase(const ArrayBase&) = default;
    ArrayBase& operator=(const ArrayBase&) = default;

  private:
    virtual void copy_bytes_out(void* output, std::size_t num_bytes, detail::DefaultStream stream) const = 0;
};

/// A handle of an array: copies share its elements, whenever they were made. It is unbound (a shape only) until the
/// first submit that writes it, or made bound by `RuntimeHandle::array` and `allocate`. The data goes when the last
/// handle is gone and its tasks are done.
template<typename T, std::size_t N = 1>
class Array : public ArrayBase, private ArrayInstance<N> {
    using ArrayInstance<N>::record_;
    using ArrayInstance<N>::shape_;
    static_assert(std::is_trivially_copyable_v<T>, "the elements of an array must be trivially copyable");
    static_assert(!std::is_const_v<T>, "the elements of an array must not be const");
    static_assert(N <= detail::max_rank, "arrays have at most 8 axes");
    static_assert(alignof(T) <= detail::max_element_alignment,
                  "the elements of an array must not be aligned to more than 4096 bytes");

  public:
    using value_type = T;
    static constexpr std::size_t num_axes = N;

    /// Unbound; the default shape is all ones. IA if a size is negative, or the elements have more bytes than 63 bits
    /// count.
    Array(Dim<N> shape = {})
        : ArrayInstance<N>(detail::make_array(N, detail::checked_shape(shape, sizeof(T)).values, DataType::of<T>(),
                                              sizeof(T), alignof(T)),
                           shape, DataType::of<T>()) {}
    /// Of the same state as `instance`. IA if its elements are of another type.
    template<std::size_t M, typename = std::enable_if_t<M == N>>
    explicit Array(const ArrayInstance<M>& instance) : ArrayInstance<N>(instance) {
        if (instance.data_type() != DataType::of<T>()) detail::throw_wrong_type(*record_, DataType::of<T>());
    }
    template<std::size_t M, typename = std::enable_if_t<M == N>>
    explicit Array(const std::shared_ptr<ArrayInstance<M>>& instance) : Array(*instance) {}
    /// Bound, without content. See RuntimeHandle::array.
    static Array bound(detail::RuntimeCore& runtime, const Dim<N>& shape, const Distribution<N>& distribution) {
        const detail::ShapeArray<N> sizes = detail::checked_shape(shape, sizeof(T));
        detail::check_distribution(N, sizes.values, detail::ShapeArray<N>(distribution.array_size()).values);
        return Array(Bound(),
                     detail::make_bound_array(runtime, N, sizes.values, DataType::of<T>(), sizeof(T), alignof(T),
                                              detail::DistributionLayout::of(distribution)),
                     shape);
    }

    /// The shape itself; IA as from the constructor.
    static const Dim<N>& checked(const Dim<N>& shape) {
        static_cast<void>(detail::checked_shape(shape, sizeof(T)));
        return shape;
    }

    // ---- shape and type
    Dim<N> size() const noexcept { return shape_; }
    default_index_type size(std::size_t axis) const override { return shape_.get_or_default(axis); }
    default_index_type volume() const { return shape_.volume(); }
    bool is_empty() const noexcept { return shape_.is_empty(); }
    std::size_t rank() const noexcept override { return N; }
    const std::type_info& type_info() const noexcept override { return typeid(T); }
    DataType dtype() const noexcept { return DataType::of<T>(); }
    /// Used in messages.
    std::string name() const { return detail::array_name(*record_); }
    Array& named(std::string name) {
        detail::array_set_name(*record_, std::move(name));
        return *this;
    }

    // ---- binding; all but the first throw IA when unbound
    bool has_instance() const noexcept { return detail::array_is_bound(*record_); }
    Distribution<N> distribution() const {
        require_bound("distribution()");
        return detail::DistributionLayout::distribution<N>(detail::array_layout(*record_));
    }
    /// Size of the chunk at offset zero.
    Dim<N> chunk_size() const { return distribution().chunk_size(); }
    default_index_type chunk_size(std::size_t axis) const { return Dim<N>(chunk_size()).get_or_default(axis); }
    Runtime& runtime() const override { return detail::array_runtime_face(*record_); }
    /// Valid while this handle lives and is not assigned to; a copy of the instance is another handle of the array.
    const ArrayInstance<N>& instance() const {
        require_bound("instance()");
        return *this;
    }

    // ---- access by tasks; write, overwrite, reduce and accumulate need a non-const array
    template<typename M = All>
    Read<const Array, M> access(M mapper = {}) const {
        return {*this, std::move(mapper)};
    }
    template<typename M = All>
    Read<Array, M> access(M mapper = {}) {
        return {*this, std::move(mapper)};
    }
    /// Once for each axis: an axis, an expression, an integer, a range, `_`.
    template<typename I, typename = std::enable_if_t<detail::is_index_v<I> && (N > 0)>>
    auto operator[](const I& index) const {
        return detail::index_access<N>(*this, index);
    }
    template<typename I, typename = std::enable_if_t<detail::is_index_v<I> && (N > 0)>>
    auto operator[](const I& index) {
        return detail::index_access<N>(*this, index);
    }
    /// One index for each axis; none for rank 0.
    template<typename... Is, typename = std::enable_if_t<sizeof...(Is) == N && (detail::is_index_v<Is> && ...)>>
    Read<const Array, MultiIndexMap<N>> operator()(const Is&... indices) const {
        return {*this, MultiIndexMap<N>(indices...)};
    }
    template<typename... Is, typename = std::enable_if_t<sizeof...(Is) == N && (detail::is_index_v<Is> && ...)>>
    Read<Array, MultiIndexMap<N>> operator()(const Is&... indices) {
        return {*this, MultiIndexMap<N>(indices...)};
    }

    /// Waits for all work on this array; nothing when unbound. TE DL.
    void synchronize() const override { detail::array_synchronize(*record_); }
    /// Gives this handle a new, unbound state of the same shape; other copies keep the data.
    void reset() { *this = Array(shape_); }
    /// Replaces every element. IA when unbound.
    EventId fill(T value) const {
        require_bound("fill()");
        return detail::array_fill(record_, &value);
    }
    /// The value of a scalar. Blocks. TE UR DL.
    template<std::size_t R = N, typename = std::enable_if_t<R == 0>>
    T get() const {
        alignas(T) unsigned char bytes[sizeof(T)];
        copy_out(whole(), bytes, detail::DefaultStream::legacy);
        T value;
        std::memcpy(static_cast<void*>(&value), bytes, sizeof(T));
        return value;
    }

    // ---- copies to the program's memory: host or device, row-major and packed unless it is a view. They block and see
    // all earlier submits. Data is read where it is: no memory of the runtime is needed, however full that is, only
    // buffers of at most 8 MiB on the host, beside the limits, which the call has before it begins (OM). What throws
    // leaves the output untouched: it is written when all that is read is known to be good. The exceptions are a device
    // that is lost, or a driver that fails, while the elements are on their way (DE). With device memory they come
    // after what the calling thread has put on its default stream, as cudaMemcpy does (inside GPU(f): on the task's
    // stream), and before what it puts there later. IA for wrong counts, regions outside, a default stream that is
    // captured. TE UR OM DL DE.
    KMM_INLINE void copy_to(T* output) const { copy_out(whole(), output, detail::default_stream()); }
    template<typename I, typename = std::enable_if_t<std::is_integral_v<I>>>
    KMM_INLINE void copy_to(T* output, I num_elements) const {
        check_count("copy_to", num_elements);
        copy_out(whole(), output, detail::default_stream());
    }
    KMM_INLINE void copy_to(T* output, const Bounds<N>& region) const {
        check_region("copy_to", region);
        copy_out(region, output, detail::default_stream());
    }
    KMM_INLINE void copy_to(T* output, const Point<N>& offset, const Dim<N>& size) const {
        copy_to(output, region_at("copy_to", offset, size));
    }
    /// Resizes `output`.
    void copy_to(std::vector<T>& output) const { output = copy_to_vector(); }
    std::vector<T> copy_to_vector() const {
        static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no elements to copy to: use copy_to(pointer)");
        std::vector<T> result(static_cast<std::size_t>(volume()));
        copy_out(whole(), result.data(), detail::DefaultStream::legacy);
        return result;
    }
    /// Into a view of any layout and of the array's shape.
    template<typename D, typename L, typename A, typename = std::enable_if_t<AbstractView<T, D, L, A>::rank == N>>
    KMM_INLINE void copy_to(const AbstractView<T, D, L, A>& output) const {
        view_out("copy_to", output, detail::default_stream());
    }

    // ---- copies from the program's memory, ordered likewise; they block until it was read. One that fails (TE: a
    // chunk finds no memory) has failed as a whole: all of its region is poisoned, and nothing new can be read beside
    // what is lost, until the region is copied or overwritten again. What is refused before (IA OM DL DE) changes
    // nothing. IA when unbound.
    KMM_INLINE void copy_from(const T* input) const { copy_in(whole(), input, detail::default_stream()); }
    template<typename I, typename = std::enable_if_t<std::is_integral_v<I>>>
    KMM_INLINE void copy_from(const T* input, I num_elements) const {
        check_count("copy_from", num_elements);
        copy_in(whole(), input, detail::default_stream());
    }
    KMM_INLINE void copy_from(const T* input, const Bounds<N>& region) const {
        check_region("copy_from", region);
        copy_in(region, input, detail::default_stream());
    }
    KMM_INLINE void copy_from(const T* input, const Point<N>& offset, const Dim<N>& size) const {
        copy_from(input, region_at("copy_from", offset, size));
    }
    void copy_from(const std::vector<T>& input) const {
        static_assert(!std::is_same_v<T, bool>,
                      "std::vector<bool> has no elements to copy from: use copy_from(pointer)");
        check_count("copy_from", input.size());
        copy_in(whole(), input.data(), detail::DefaultStream::legacy);
    }
    KMM_INLINE void copy_bytes_from(const void* input, std::size_t num_bytes) const {
        check_bytes("copy_bytes_from", num_bytes);
        copy_in(whole(), input, detail::default_stream());
    }
    template<
        typename E, typename D, typename L, typename A,
        typename = std::enable_if_t<AbstractView<E, D, L, A>::rank == N && std::is_same_v<std::remove_const_t<E>, T>>>
    KMM_INLINE void copy_from(const AbstractView<E, D, L, A>& input) const {
        view_in("copy_from", input, detail::default_stream());
    }

    // ---- asynchronous copies, with the arguments and the order of the blocking ones. They wait for room among the
    // pending tasks (RuntimeConfig::max_pending_tasks); with device memory for what the calling thread has put on its
    // stream; the first ones to memory of the host for the buffers. The program's memory must stay until the event is
    // done, and the source as it is. Allowed in a task. What the calling thread puts on its stream later does not come
    // after the copy. A failure is that of the event, and leaves the output untouched as above. IA UR OM DE.
    KMM_INLINE EventId copy_to_async(T* output) const {
        return copy_out(whole(), output, {detail::default_stream(), false});
    }
    template<typename I, typename = std::enable_if_t<std::is_integral_v<I>>>
    KMM_INLINE EventId copy_to_async(T* output, I num_elements) const {
        check_count("copy_to_async", num_elements);
        return copy_out(whole(), output, {detail::default_stream(), false});
    }
    KMM_INLINE EventId copy_to_async(T* output, const Bounds<N>& region) const {
        check_region("copy_to_async", region);
        return copy_out(region, output, {detail::default_stream(), false});
    }
    KMM_INLINE EventId copy_to_async(T* output, const Point<N>& offset, const Dim<N>& size) const {
        return copy_to_async(output, region_at("copy_to_async", offset, size));
    }
    template<typename D, typename L, typename A, typename = std::enable_if_t<AbstractView<T, D, L, A>::rank == N>>
    KMM_INLINE EventId copy_to_async(const AbstractView<T, D, L, A>& output) const {
        return view_out("copy_to_async", output, {detail::default_stream(), false});
    }
    KMM_INLINE EventId copy_from_async(const T* input) const {
        return copy_in(whole(), input, {detail::default_stream(), false});
    }
    template<typename I, typename = std::enable_if_t<std::is_integral_v<I>>>
    KMM_INLINE EventId copy_from_async(const T* input, I num_elements) const {
        check_count("copy_from_async", num_elements);
        return copy_in(whole(), input, {detail::default_stream(), false});
    }
    KMM_INLINE EventId copy_from_async(const T* input, const Bounds<N>& region) const {
        check_region("copy_from_async", region);
        return copy_in(region, input, {detail::default_stream(), false});
    }
    KMM_INLINE EventId copy_from_async(const T* input, const Point<N>& offset, const Dim<N>& size) const {
        return copy_from_async(input, region_at("copy_from_async", offset, size));
    }
    /// Takes the vector over; where it is refused the vector is as it was.
    EventId copy_from_async(std::vector<T>&& input) const {
        static_assert(!std::is_same_v<T, bool>,
                      "std::vector<bool> has no elements to copy from: use copy_from_async(pointer)");
        check_count("copy_from_async", input.size());
        const auto owned = std::make_shared<std::vector<T>>(std::move(input));
        try {
            return copy_in(whole(), owned->data(), {detail::DefaultStream::legacy, false}, owned);
        } catch (...) {
            // A runtime that was lost meanwhile may have tasks of the copy.
            if (owned.use_count() == 1) input = std::move(*owned);
            throw;
        }
    }
    template<
        typename E, typename D, typename L, typename A,
        typename = std::enable_if_t<AbstractView<E, D, L, A>::rank == N && std::is_same_v<std::remove_const_t<E>, T>>>
    KMM_INLINE EventId copy_from_async(const AbstractView<E, D, L, A>& input) const {
        return view_in("copy_from_async", input, {detail::default_stream(), false});
    }

    /// For the library's own headers.
    const detail::ArrayRef& record() const noexcept { return record_; }

  private:
    struct Bound {};
    Array(Bound, detail::ArrayRef record, const Dim<N>& shape)
        : ArrayInstance<N>(std::move(record), shape, DataType::of<T>()) {}

    void copy_bytes_out(void* output, std::size_t num_bytes, detail::DefaultStream stream) const override {
        check_bytes("copy_bytes_to", num_bytes);
        copy_out(whole(), output, stream);
    }
    Bounds<N> whole() const { return Bounds<N>(shape_); }
    void require_bound(const char* what) const {
        if (!has_instance()) detail::throw_unbound(*record_, what);
    }
    template<typename I>
    void check_count(const char* what, I count) const {
        if (!is_equal(count, volume()))
            detail::throw_wrong_count(*record_, what, "elements", detail::printable(count), volume());
    }
    void check_bytes(const char* what, std::size_t num_bytes) const {
        const std::size_t expected = static_cast<std::size_t>(volume()) * sizeof(T);
        if (num_bytes != expected)
            detail::throw_wrong_count(*record_, what, "bytes", detail::printable(num_bytes),
                                      static_cast<std::int64_t>(expected));
    }
    Bounds<N> region_at(const char* what, const Point<N>& offset, const Dim<N>& size) const {
        detail::check_region(*record_, what, detail::ShapeArray<N>(Dim<N>::from(offset)).values,
                             detail::ShapeArray<N>(size).values);
        return Bounds<N>::from_offset_size(offset, size);
    }
    void check_region(const char* what, const Bounds<N>& region) const {
        detail::check_region(*record_, what, detail::to_box(region));
    }
    template<typename V>
    void check_view(const char* what, const V& view) const {
        detail::check_view_shape(*record_, what, detail::ShapeArray<N>(detail::view_shape(view)).values);
    }
    EventId copy_out(const Bounds<N>& region, void* output, detail::CopyCall call) const {
        if (region.is_empty()) return {};
        return detail::array_copy_out(record_, detail::to_box(region), output, detail::PackedStrides<N>(region).values,
                                      call);
    }
    EventId copy_in(const Bounds<N>& region, const void* input, detail::CopyCall call,
                    std::shared_ptr<const void> owned = nullptr) const {
        require_bound(call.waits ? "copy_from" : "copy_from_async");
        if (region.is_empty()) return {};
        return detail::array_copy_in(record_, detail::to_box(region), input, detail::PackedStrides<N>(region).values,
                                     call, std::move(owned));
    }
    template<typename V>
    EventId view_out(const char* what, const V& output, detail::CopyCall call) const {
        check_view(what, output);
        if (is_empty()) return {};
        const detail::StridedBox box = detail::strided_box(output);
        return detail::array_copy_out(record_, detail::to_box(whole()), box.data, box.strides, call);
    }
    template<typename V>
    EventId view_in(const char* what, const V& input, detail::CopyCall call) const {
        check_view(what, input);
        require_bound(what);
        if (is_empty()) return {};
        const detail::StridedBox box = detail::strided_box(input);
        return detail::array_copy_in(record_, detail::to_box(whole()), box.data, box.strides, call);
    }
};

/// One value.
template<typename T>
using Scalar = Array<T, 0>;

}  // namespace kmm
