#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

std::size_t size_of(rmm::device_buffer const& buffer) { return buffer.size(); }
