// What a unit of a program does that is compiled for per-thread default streams (per_thread_part.cpp).
#pragma once

#include <cstdint>

#include "kmm/kmm.hpp"

void copy_from_in_per_thread_unit(const kmm::Array<std::int32_t>& array, const std::int32_t* source);
void copy_to_in_per_thread_unit(const kmm::Array<std::int32_t>& array, std::int32_t* destination);
void copy_bytes_to_in_per_thread_unit(const kmm::ArrayBase& array, void* destination, std::size_t bytes);
kmm::Array<std::int32_t> allocate_in_per_thread_unit(const kmm::RuntimeHandle& rt, const std::int32_t* source,
                                                     std::int64_t n);
