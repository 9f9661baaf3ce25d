// From exceptions to the codes and texts of <rmm/rmm.h>.
//
// Owns: the last error of each thread. Must not know: resources. Any thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <string>

#include "rmm/error.hpp"
#include "rmm/rmm.h"

namespace rmm {
inline namespace kmm_v0 {
namespace c_interface {

/// An argument of the C interface is wrong.
class invalid_argument final : public std::exception {
  public:
    explicit invalid_argument(std::string text) : text_(std::move(text)) {}
    const char* what() const noexcept override { return text_.c_str(); }

  private:
    std::string text_;
};

/// Inside of a catch: the code of the exception, whose text and figures become the thread's.
int failure_of_exception() noexcept;

/// Runs `work()`; RMM_OK, or the failure.
template<typename Work>
int guarded(Work&& work) noexcept {
    try {
        work();
        return RMM_OK;
    } catch (...) {
        return failure_of_exception();
    }
}

void expect_not_null(const void* argument, const char* name);

/// The `struct_size` that a struct of the caller begins with. Throws invalid_argument for null or a too small size.
template<typename Struct>
std::size_t checked_struct_size(const Struct* out, const char* name) {
    expect_not_null(out, name);
    const std::size_t size = out->struct_size;
    if (size < sizeof size)
        throw invalid_argument(std::string(name) + "->struct_size is " + std::to_string(size) + ": set it to sizeof(*" +
                               name + ")");
    return size;
}

/// Copies at most `out->struct_size` bytes; zeros the bytes of the caller's struct beyond `Struct`.
template<typename Struct>
void write_struct(Struct* out, Struct value, const char* name) {
    const std::size_t size = checked_struct_size(out, name);
    value.struct_size = size;
    if (size > sizeof value) std::memset(reinterpret_cast<char*>(out) + sizeof value, 0, size - sizeof value);
    std::memcpy(out, &value, size < sizeof value ? size : sizeof value);
}

}  // namespace c_interface
}  // namespace kmm_v0
}  // namespace rmm
