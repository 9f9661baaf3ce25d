// A resource for tests: remembers every request and the device that was current, and can be told to fail.
#pragma once

#include <cstddef>
#include <vector>

#include "rmm/cuda_device.hpp"
#include "rmm/error.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"

namespace rmm_test {

class recording_resource final : public rmm::mr::device_memory_resource {
  public:
    struct request {
        std::size_t bytes;
        rmm::cuda_stream_view stream;
        int device;
    };
    std::vector<request> allocations;
    std::vector<request> frees;
    std::size_t limit = static_cast<std::size_t>(-1);    // bytes in use that may not be exceeded
    std::size_t largest = static_cast<std::size_t>(-1);  // that it has in one block
    std::size_t in_use = 0;

    /// Bytes of every request, in order.
    std::vector<std::size_t> asked() const {
        std::vector<std::size_t> bytes;
        for (const request& r : allocations) bytes.push_back(r.bytes);
        return bytes;
    }
    std::size_t num_live() const { return allocations.size() - frees.size(); }

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        allocations.push_back({bytes, stream, rmm::get_current_cuda_device().value()});
        if (bytes > limit - in_use || bytes > largest) throw rmm::out_of_memory("the limit of a test");
        void* const ptr = upstream_.allocate(bytes, stream);
        in_use += bytes;
        return ptr;
    }
    void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override {
        frees.push_back({bytes, stream, rmm::get_current_cuda_device().value()});
        in_use -= bytes;
        upstream_.deallocate(ptr, bytes, stream);
    }
    rmm::mr::cuda_memory_resource upstream_;
};

}  // namespace rmm_test
