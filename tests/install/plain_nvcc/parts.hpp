// One program of files that were compiled in different modes. Each has a kernel of the same type, and adds another
// number.
#pragma once

#include "kmm/kmm.hpp"

constexpr int number_of_cuda_part = 1;
constexpr int number_of_plain_part = 2;
constexpr int number_of_emulated_part = 4;

kmm::EventId submit_cuda_part(const kmm::RuntimeHandle& rt, kmm::Array<int>& a);
kmm::EventId submit_plain_part(const kmm::RuntimeHandle& rt, kmm::Array<int>& a);
kmm::EventId submit_emulated_part(const kmm::RuntimeHandle& rt, kmm::Array<int>& a);
