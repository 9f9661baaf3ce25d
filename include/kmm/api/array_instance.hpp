// `ArrayInstance`: a bound array without its element type, kept for programs that make arrays from distributions by
// hand.
//
// Owns: a share of an array's state. Must not know: element types. Any thread. C++17.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "kmm/core/data_type.hpp"
#include "kmm/core/distribution.hpp"
#include "kmm/detail/array_checks.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/detail/strided_box.hpp"
#include "kmm/utils/dim.hpp"

namespace kmm {

class Runtime;
template<typename T, std::size_t N>
class Array;

/// The state that copies of one array share; programs meet only bound ones. A copy shares it too. `Array(instance)`
/// makes an array of it.
template<std::size_t N>
class ArrayInstance {
  public:
    /// A bound array without content. IA.
    static std::shared_ptr<ArrayInstance> create(Runtime& runtime, const Distribution<N>& distribution, DataType type) {
        const Dim<N> shape = distribution.array_size();
        const detail::ShapeArray<N> sizes = detail::checked_shape(shape, type.size_in_bytes());
        return std::make_shared<ArrayInstance>(detail::make_bound_array(detail::runtime_core(runtime), N, sizes.values,
                                                                        type, type.size_in_bytes(), type.alignment(),
                                                                        detail::DistributionLayout::of(distribution)),
                                               shape, type);
    }

    ArrayInstance(detail::ArrayRef record, const Dim<N>& shape, DataType type)
        : record_(std::move(record)), shape_(shape), type_(type) {}

    const Dim<N>& size() const noexcept { return shape_; }
    DataType data_type() const noexcept { return type_; }
    Distribution<N> distribution() const {
        return detail::DistributionLayout::distribution<N>(detail::array_layout(*record_));
    }
    Runtime& runtime() const { return detail::array_runtime_face(*record_); }
    /// Waits for all work on the array. TE DL.
    void synchronize() const { detail::array_synchronize(*record_); }
    /// All elements, row-major; `output` has room for them. Blocks. As Array::copy_to.
    KMM_INLINE void copy_bytes_into(void* output) const {
        const Bounds<N> whole(shape_);
        if (!whole.is_empty())
            detail::array_copy_out(record_, detail::to_box(whole), output, detail::PackedStrides<N>(whole).values,
                                   detail::default_stream());
    }
    /// Another handle of the array.
    std::shared_ptr<ArrayInstance> shared_from_this() const { return std::make_shared<ArrayInstance>(*this); }
    const detail::ArrayRef& record() const noexcept { return record_; }

  private:
    template<typename T, std::size_t M>
    friend class Array;

    detail::ArrayRef record_;
    Dim<N> shape_;
    DataType type_;
};

}  // namespace kmm
