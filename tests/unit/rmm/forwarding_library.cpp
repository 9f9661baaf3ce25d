// Stands for a library with an adaptor of its own that was built without CUDA_API_PER_THREAD_DEFAULT_STREAM.
#undef CUDA_API_PER_THREAD_DEFAULT_STREAM

#include "forwarding_library.hpp"

#include "rmm/mr/device_memory_resource.hpp"

namespace rmm_test {
namespace {

class forwarding_adaptor final : public rmm::mr::device_memory_resource {
  public:
    explicit forwarding_adaptor(rmm::mr::device_memory_resource& upstream) : upstream_(upstream) {}

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        return upstream_.allocate(bytes, stream);
    }
    void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override {
        upstream_.deallocate(ptr, bytes, stream);
    }
    rmm::mr::device_memory_resource& upstream_;
};

}  // namespace

std::unique_ptr<rmm::mr::device_memory_resource>
forwarding_adaptor_of_a_library(rmm::mr::device_memory_resource& upstream) {
    return std::make_unique<forwarding_adaptor>(upstream);
}

void destroy_in_a_library(rmm::device_buffer&& buffer) { const rmm::device_buffer taken = std::move(buffer); }

}  // namespace rmm_test
