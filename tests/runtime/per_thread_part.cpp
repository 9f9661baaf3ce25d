// Copies of a unit in which the default stream is the thread's own, in one program with units in which it is not.
#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#endif

#include "per_thread_part.hpp"

void copy_from_in_per_thread_unit(const kmm::Array<std::int32_t>& array, const std::int32_t* source) {
    array.copy_from(source);
}

void copy_to_in_per_thread_unit(const kmm::Array<std::int32_t>& array, std::int32_t* destination) {
    array.copy_to(destination);
}

void copy_bytes_to_in_per_thread_unit(const kmm::ArrayBase& array, void* destination, std::size_t bytes) {
    array.copy_bytes_to(destination, bytes);
}

kmm::Array<std::int32_t> allocate_in_per_thread_unit(const kmm::RuntimeHandle& rt, const std::int32_t* source,
                                                     std::int64_t n) {
    return rt.allocate(source, n);
}
