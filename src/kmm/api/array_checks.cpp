// Owns: the checks and texts of arrays that need no runtime. Any thread.
#include "kmm/detail/array_checks.hpp"

#include <limits>

#include "kmm/api/array.hpp"
#include "kmm/error.hpp"
#include "kmm/runtime/runtime_core.hpp"
#include "kmm/utils/checked_math.hpp"

namespace kmm {

ArrayBase::~ArrayBase() = default;

namespace detail {

namespace {

std::string quoted_name(const ArrayRecord& record) {
    const std::string name = array_name(record);
    return name.empty() ? "the array" : "array \"" + name + "\"";
}

std::string shape_text(std::size_t rank, const std::int64_t* shape) {
    std::string text = "{";
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (axis > 0) text += ", ";
        text += std::to_string(shape[axis]);
    }
    return text + "}";
}

constexpr std::int64_t largest_bytes = std::numeric_limits<std::int64_t>::max();

std::string bytes_of(std::size_t element_bytes) {
    return std::to_string(element_bytes) + (element_bytes == 1 ? " byte" : " bytes");
}

std::string box_text(std::size_t rank, const Box& box) {
    std::string text = "{";
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (axis > 0) text += ", ";
        text += std::to_string(box.begin[axis]) + "..." + std::to_string(box.end[axis]);
    }
    return text + "}";
}

}  // namespace

RuntimeCore& runtime_core(Runtime& runtime) noexcept { return static_cast<RuntimeCore&>(runtime); }

Runtime& runtime_face(RuntimeCore& core) noexcept { return core; }

// The array keeps its runtime alive, so the reference outlives the pointer.
Runtime& array_runtime_face(const ArrayRecord& record) { return *array_runtime(record); }

void throw_unbound(const ArrayRecord& record, const char* what) {
    throw InvalidArgument(std::string(what) + ": " + quoted_name(record) +
                          " is not bound to a runtime yet; use rt.allocate or rt.array, or write it by a submit first");
}

void check_shape(std::size_t rank, const std::int64_t* shape, std::size_t element_bytes) {
    bool is_empty = false;
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (shape[axis] < 0) {
            throw InvalidArgument("Array: the size of axis " + std::to_string(axis) + " is " +
                                  std::to_string(shape[axis]) + "; sizes must not be negative");
        }
        is_empty |= shape[axis] == 0;
    }
    // Strides, offsets and sizes in bytes are all taken from here on without another look.
    auto bytes = static_cast<std::int64_t>(element_bytes);
    for (std::size_t axis = 0; axis < rank && !is_empty; axis++) {
        if (mul_overflows(bytes, shape[axis], bytes)) {
            throw InvalidArgument("Array: the shape " + shape_text(rank, shape) + " with elements of " +
                                  bytes_of(element_bytes) + " has more bytes than 63 bits can count (" +
                                  std::to_string(largest_bytes) + "); use smaller sizes");
        }
    }
}

void check_distribution(std::size_t rank, const std::int64_t* shape, const std::int64_t* distributed) {
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (shape[axis] != distributed[axis]) {
            throw InvalidArgument("the distribution is for an array of shape " + shape_text(rank, distributed) +
                                  ", but the array has shape " + shape_text(rank, shape));
        }
    }
}

void throw_wrong_instance(const DataType& found, const DataType& wanted) {
    throw InvalidArgument("Array: the instance has elements of type " + found.name() +
                          ", but the array has elements of type " + wanted.name());
}

void throw_wrong_count(const char* what, const char* unit, const std::string& given, std::int64_t expected) {
    throw InvalidArgument(std::string(what) + ": " + given + " " + unit + " were given, but the array has " +
                          std::to_string(expected) + " " + unit);
}

void check_region(const char* what, std::size_t rank, const Box& region, const Box& array) {
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (region.begin[axis] < array.begin[axis] || region.end[axis] > array.end[axis] ||
            region.end[axis] < region.begin[axis]) {
            throw InvalidArgument(std::string(what) + ": the region " + box_text(rank, region) +
                                  " is not inside the array " + box_text(rank, array) + " (axis " +
                                  std::to_string(axis) + ")");
        }
    }
}

void check_region(const char* what, std::size_t rank, const std::int64_t* offset, const std::int64_t* size,
                  const Box& array) {
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (size[axis] < 0 || offset[axis] < array.begin[axis] || offset[axis] > array.end[axis] ||
            size[axis] > array.end[axis] - offset[axis]) {
            throw InvalidArgument(std::string(what) + ": the region at offset " + shape_text(rank, offset) +
                                  " of size " + shape_text(rank, size) + " is not inside the array " +
                                  box_text(rank, array) + " (axis " + std::to_string(axis) + ")");
        }
    }
}

void check_view_shape(const char* what, std::size_t rank, const std::int64_t* view, const std::int64_t* array) {
    for (std::size_t axis = 0; axis < rank; axis++) {
        if (view[axis] != array[axis]) {
            throw InvalidArgument(std::string(what) + ": the view has shape " + shape_text(rank, view) +
                                  ", but the array has shape " + shape_text(rank, array));
        }
    }
}

}  // namespace detail
}  // namespace kmm
