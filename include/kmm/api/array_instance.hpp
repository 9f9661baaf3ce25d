// `ArrayInstance`: a bound array without its element type, kept for programs that make arrays from distributions by
// hand.
//
// Owns: a share of an array's state. Must not know: element types. Any thread. C++17.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kmm/core/data_type.hpp"
#include "kmm/core/distribution.hpp"
#include "kmm/detail/array_checks.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/utils/dim.hpp"

namespace kmm {

class Runtime;
template<typename T, std::size_t N>
class Array;

namespace detail {

template<std::size_t N>
std::vector<ChunkGeometry> chunk_geometry(const Distribution<N>& distribution) {
    std::vector<ChunkGeometry> result(distribution.num_chunks());
    for (std::size_t i = 0; i < result.size(); i++) {
        const ArrayChunk<N> chunk = distribution.chunk(i);
        result[i].home = chunk.owner_id;
        for (std::size_t axis = 0; axis + 1 <= N; axis++) {
            result[i].box.begin[axis] = chunk.offset.get_or_default(axis);
            result[i].box.end[axis] = chunk.offset.get_or_default(axis) + chunk.size.get_or_default(axis);
        }
    }
    return result;
}

template<std::size_t N>
Distribution<N> distribution_of(const ArrayRecord& record, const Dim<N>& shape) {
    std::vector<ArrayChunk<N>> chunks;
    for (const ChunkGeometry& geometry : array_chunks(record)) {
        ArrayChunk<N> chunk;
        chunk.owner_id = geometry.home;
        for (std::size_t axis = 0; axis + 1 <= N; axis++) {
            chunk.offset[axis] = geometry.box.begin[axis];
            chunk.size[axis] = geometry.box.end[axis] - geometry.box.begin[axis];
        }
        chunks.push_back(chunk);
    }
    return Distribution<N>::from_chunks(shape, std::move(chunks));
}

}  // namespace detail

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
                                                                        detail::chunk_geometry(distribution)),
                                               shape, type);
    }

    ArrayInstance(detail::ArrayRef record, const Dim<N>& shape, DataType type)
        : record_(std::move(record)), shape_(shape), type_(type) {}

    const Dim<N>& size() const noexcept { return shape_; }
    DataType data_type() const noexcept { return type_; }
    Distribution<N> distribution() const { return detail::distribution_of<N>(*record_, shape_); }
    Runtime& runtime() const { return detail::array_runtime_face(*record_); }
    /// Waits for all work on the array. TE DL.
    void synchronize() const { detail::array_synchronize(*record_); }
    const detail::ArrayRef& record() const noexcept { return record_; }

  private:
    template<typename T, std::size_t M>
    friend class Array;

    detail::ArrayRef record_;
    Dim<N> shape_;
    DataType type_;
};

}  // namespace kmm
