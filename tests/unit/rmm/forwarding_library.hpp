// Parts of a program that are built without CUDA_API_PER_THREAD_DEFAULT_STREAM, for units that are built with it.
#pragma once

#include <memory>

#include "rmm/device_buffer.hpp"
#include "rmm/mr/device_memory_resource.hpp"

namespace rmm_test {

/// Forwards every request as it is.
std::unique_ptr<rmm::mr::device_memory_resource>
forwarding_adaptor_of_a_library(rmm::mr::device_memory_resource& upstream);

void destroy_in_a_library(rmm::device_buffer&& buffer);

}  // namespace rmm_test
