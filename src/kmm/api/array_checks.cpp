// Owns: the checks and texts of arrays that need no runtime. Any thread.
#include "kmm/detail/array_checks.hpp"

#include <limits>

#include "driver/format.hpp"
#include "kmm/api/array.hpp"
#include "kmm/api/array_record.hpp"
#include "kmm/base/text.hpp"
#include "kmm/error.hpp"
#include "kmm/runtime/runtime_core.hpp"
#include "kmm/utils/checked_math.hpp"

namespace kmm {

ArrayBase::~ArrayBase() = default;

namespace detail {

namespace {

std::string quoted_name(const ArrayRecord& record) { return driver::format("array \"{}\"", record.name()); }

constexpr std::int64_t largest_bytes = std::numeric_limits<std::int64_t>::max();

}  // namespace

RuntimeCore& runtime_core(Runtime& runtime) noexcept { return static_cast<RuntimeCore&>(runtime); }

Runtime& runtime_face(RuntimeCore& core) noexcept { return core; }

// The array keeps its runtime alive, so the reference outlives the pointer.
Runtime& array_runtime_face(const ArrayRecord& record) { return *array_runtime(record); }

void throw_unbound(const ArrayRecord& record, const char* what) {
    throw InvalidArgument(driver::format(
        "{}: {} is not bound to a runtime yet; use rt.allocate or rt.array, or write it by a submit first", what,
        quoted_name(record)));
}

void check_shape(std::size_t rank, const std::int64_t* shape, std::size_t element_bytes) {
    bool is_empty = false;
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (shape[axis] < 0) {
            throw InvalidArgument(
                driver::format("Array: the size of axis {} is {}; sizes must not be negative", axis, shape[axis]));
        }
        is_empty |= shape[axis] == 0;
    }
    // Strides, offsets and sizes in bytes are all taken from here on without another look.
    auto bytes = static_cast<std::int64_t>(element_bytes);
    for (std::size_t axis = 0; axis < rank && !is_empty; axis++) {
        if (mul_overflows(bytes, shape[axis], bytes)) {
            throw InvalidArgument(driver::format(
                "Array: the shape {} with elements of {} has more bytes than 63 bits can count ({}); use smaller sizes",
                list_text(shape, rank), driver::count_text(element_bytes, "byte"), largest_bytes));
        }
    }
}

void check_distribution(std::size_t rank, const std::int64_t* shape, const std::int64_t* distributed) {
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (shape[axis] != distributed[axis]) {
            throw InvalidArgument(
                driver::format("the distribution is for an array of shape {}, but the array has shape {}",
                               list_text(distributed, rank), list_text(shape, rank)));
        }
    }
}

void throw_wrong_type(const ArrayRecord& record, const DataType& wanted) {
    throw InvalidArgument(driver::format("{} has elements of type {}, and was taken for an array of {}",
                                         quoted_name(record), record.type().name(), wanted.name()));
}

void throw_wrong_count(const ArrayRecord& record, const char* what, const char* unit, const std::string& given,
                       std::int64_t expected) {
    throw InvalidArgument(driver::format("{}: {} {} were given, but {} has {} {}", what, given, unit,
                                         quoted_name(record), expected, unit));
}

void check_region(const ArrayRecord& record, const char* what, const Box& region) {
    const std::size_t rank = record.rank();
    const Box& array = record.box();
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (region.begin[axis] < array.begin[axis] || region.end[axis] > array.end[axis] ||
            region.end[axis] < region.begin[axis]) {
            throw InvalidArgument(driver::format("{}: the region {} is not inside {}, whose indices are {} (axis {})",
                                                 what, boxes::to_text(region, rank), quoted_name(record),
                                                 boxes::to_text(array, rank), axis));
        }
    }
}

void check_region(const ArrayRecord& record, const char* what, const std::int64_t* offset, const std::int64_t* size) {
    const std::size_t rank = record.rank();
    const Box& array = record.box();
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (size[axis] < 0 || offset[axis] < array.begin[axis] || offset[axis] > array.end[axis] ||
            size[axis] > array.end[axis] - offset[axis]) {
            throw InvalidArgument(driver::format(
                "{}: the region at offset {} of size {} is not inside {}, whose indices are {} (axis {})", what,
                list_text(offset, rank), list_text(size, rank), quoted_name(record), boxes::to_text(array, rank),
                axis));
        }
    }
}

void check_view_shape(const ArrayRecord& record, const char* what, const std::int64_t* view) {
    const std::size_t rank = record.rank();
    const std::int64_t* const array = record.shape();
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (view[axis] != array[axis]) {
            throw InvalidArgument(driver::format("{}: the view has shape {}, but {} has shape {}", what,
                                                 list_text(view, rank), quoted_name(record), list_text(array, rank)));
        }
    }
}

}  // namespace detail
}  // namespace kmm
