// Opt-in: formatting of the library's value types with the fmt library, and KMM_PANIC_FMT. The only header that needs
// fmt.
#pragma once

// fmt 9 mixes constexpr and plain functions under nvcc in C++20, which does not compile.
#if defined(__NVCC__) && __cplusplus >= 202002L && !defined(FMT_USE_CONSTEXPR)
#define FMT_USE_CONSTEXPR 1
#endif
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <ostream>

#include "kmm/core/data_type.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/reduction.hpp"
#include "kmm/utils/geometry.hpp"
#include "kmm/utils/key_value.hpp"
#include "kmm/utils/panic.hpp"
#include "kmm/utils/small_vector.hpp"

/// KMM_PANIC with a text made by fmt::format. Host code only.
#define KMM_PANIC_FMT(...) KMM_PANIC(::fmt::format(__VA_ARGS__).c_str())

#define KMM_DETAIL_DEFINE_FORMATTER(...) \
    struct fmt::formatter<__VA_ARGS__> : fmt::ostream_formatter {};

template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::DeviceId)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::MemoryId)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::ResourceId)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::DeviceStreamSet)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::EventId)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::BufferId)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::NodeId)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::ExecutionSpace)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::AccessMode)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::DriverKind)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::Reduction)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::ScalarType)
template<>
KMM_DETAIL_DEFINE_FORMATTER(kmm::DataType)
template<typename T>
KMM_DETAIL_DEFINE_FORMATTER(kmm::Range<T>)
template<typename T, std::size_t N>
KMM_DETAIL_DEFINE_FORMATTER(kmm::fixed_vector<T, N>)
template<std::size_t N, typename T>
KMM_DETAIL_DEFINE_FORMATTER(kmm::Point<N, T>)
template<std::size_t N, typename T>
KMM_DETAIL_DEFINE_FORMATTER(kmm::Dim<N, T>)
template<std::size_t N, typename T>
KMM_DETAIL_DEFINE_FORMATTER(kmm::Bounds<N, T>)
template<typename T, std::size_t K>
KMM_DETAIL_DEFINE_FORMATTER(kmm::small_vector<T, K>)
template<typename V>
KMM_DETAIL_DEFINE_FORMATTER(kmm::KeyValue<V>)

#undef KMM_DETAIL_DEFINE_FORMATTER
