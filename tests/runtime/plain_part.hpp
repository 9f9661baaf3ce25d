// What the two halves of the program of row 7 call of each other: one is compiled by the C++ compiler, one by nvcc.
#pragma once

#include "kmm/kmm.hpp"

kmm::EventId submit_plain_kernel(const kmm::RuntimeHandle& rt, kmm::Array<int>& a);
kmm::EventId submit_plain_device_function(const kmm::RuntimeHandle& rt, kmm::Array<int>& a, int value);
kmm::EventId submit_plain_host_function(const kmm::RuntimeHandle& rt, kmm::Array<int>& a);
