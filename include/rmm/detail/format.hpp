// Numbers and streams as messages show them.
#pragma once

#include <cstddef>
#include <string>

#include <rmm/cuda_stream_view.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// "1.000977 KiB": divided by 1024 while the value is greater than 1024.
inline std::string format_bytes(std::size_t value) {
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    std::size_t index = 0;
    auto size = static_cast<double>(value);
    while (size > 1024 && index + 1 < sizeof(units) / sizeof(units[0])) {
        size /= 1024;
        ++index;
    }
    std::string text = std::to_string(size);
    for (char& c : text)
        if (c < '0' || c > '9') c = '.';  // whatever the program's locale has there
    return text + ' ' + units[index];
}

/// The handle as an ostream prints a pointer.
std::string format_stream(rmm::cuda_stream_view stream);

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
