// Implements <rmm/detail/element_access.hpp>. Any thread.
#include "rmm/detail/element_access.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "driver/format.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

// What the driver takes as the pattern of a fill, and thereby by value.
constexpr std::size_t max_pattern_bytes = 64;

}  // namespace

void write_element(void* device_address, void const* value, std::size_t bytes, cuda_stream_view stream) {
    driver::Driver& d = the_driver();
    if (bytes <= max_pattern_bytes)
        check(d.fill(device_address, value, bytes, 1, handle_of(stream)));
    else
        check(d.copy(device_address, value, bytes, handle_of(stream)));
}

void zero_element(void* device_address, std::size_t bytes, cuda_stream_view stream) {
    const unsigned char zero = 0;
    check(the_driver().fill(device_address, &zero, 1, bytes, handle_of(stream)));
}

void read_element(void* value, void const* device_address, std::size_t bytes, cuda_stream_view stream) {
    driver::Driver& d = the_driver();
    check(d.copy(value, device_address, bytes, handle_of(stream)));
    check(d.synchronize_stream(handle_of(stream)));
}

void refuse_element_index(std::size_t index, std::size_t size) {
    RMM_FAIL(driver::format("index {} of {} elements: Attempt to access out of bounds element.", index, size),
             rmm::out_of_range);
}

void refuse_element_count(std::size_t count, std::size_t element_bytes) {
    throw rmm::bad_alloc(
        driver::format("{} elements of {} bytes are more than an address can reach", count, element_bytes));
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
