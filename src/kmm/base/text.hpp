// Texts of the value types for messages: the same forms as operator<<, without streams. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kmm/core/identifiers.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/error.hpp"
#include "kmm/utils/geometry.hpp"

namespace kmm::detail {

std::string text_of(DeviceId id);           ///< "GPU 1"
std::string text_of(MemoryId id);           ///< "host", "GPU 1"
std::string text_of(const ResourceId& id);  ///< "host", "GPU 1", "GPU 1 {0, 2}"
/// "GPU 1"; on the host driver "virtual GPU 1".
std::string place_text(DriverKind driver, std::size_t device);
std::string text_of(DriverKind kind);       ///< "cuda"
std::string text_of(const Range<>& range);  ///< "0...200"
std::string text_of(const Region& region);  ///< "{0...4, 2...8}"
std::string seconds_text(double seconds);   ///< "30 s", "1.25 s", "40 ms", "0 s"

/// What it says of itself; calls the program's code.
std::string text_of(const std::exception_ptr& error);

const char* text_of(LauncherInfo::Kind kind);  ///< "GPUKernel"
/// task "axpy" submitted at main.cpp:41; a task without a name is called by its launcher.
std::string text_of(const LauncherInfo& launcher);

/// task "axpy" chunk 3 of 16
std::string text_of(const TaskLabel& task);

/// "{200, 100}": the first of `values`, a pointer or a vector.
template<typename Values>
std::string list_text(const Values& values, std::size_t count) {
    std::string text = "{";
    for (std::size_t i = 0; i < count; i++) {
        text += (i > 0 ? ", " : "") + std::to_string(values[i]);
    }
    return text + "}";
}

template<typename T, std::size_t N>
std::string text_of(const fixed_vector<T, N>& values) {
    return list_text(values, N);
}

template<std::size_t N>
Region region_of(const Bounds<N>& bounds) {
    Region region;
    for (std::size_t i = 0; i < N; i++) {
        region.push_back(bounds[i]);
    }
    return region;
}

template<std::size_t N>
std::string text_of(const Bounds<N>& bounds) {
    return text_of(region_of(bounds));
}

/// "offset {600}, size {200}": the axes of a domain chunk up to the last one that says something.
std::string text_of_chunk(const DomainPoint& offset, const DomainDim& size);

}  // namespace kmm::detail
