// The suite that every resource of device memory must pass, and how one joins it:
//
//   INSTANTIATE_TEST_SUITE_P(my_resource, ResourceConformance, testing::Values(conforming{
//       .make = [] { return std::make_shared<rmm::mr::my_resource>(); },
//       .kind = kmm::driver::MemoryKind::device}));
//
// Owns: the parameter and the small tools of its tests.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "driver/driver.hpp"
#include "driver/registry.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/mr/device_memory_resource.hpp"
#include "support/repeat.hpp"

namespace rmm_test {

using resource_ptr = std::shared_ptr<rmm::mr::device_memory_resource>;

struct conforming {
    std::function<resource_ptr()> make;
    kmm::driver::MemoryKind kind = kmm::driver::MemoryKind::device;
    bool equal_by_type = false;  ///< two objects of the type are equal
    bool supports_streams = false;
    bool supports_get_mem_info = false;
    bool null_for_zero_bytes = true;
    std::function<bool()> available = {};  ///< false: the device cannot have it, and the tests are skipped
    /// A hundred blocks of up to so much fit, with room to spare.
    std::size_t hundred_blocks_of_bytes = std::size_t{5} << 20;
    /// One block that the device may have no room for; less where each of its bytes is written.
    std::size_t one_block_of_bytes = std::size_t{1} << 30;
};

inline void PrintTo(const conforming&, std::ostream* os) { *os << "a resource"; }

/// A resource with the upstream that it needs, as one shared pointer.
template<typename Resource, typename Upstream, typename... Args>
resource_ptr over(std::shared_ptr<Upstream> upstream, Args... args) {
    auto* resource = new Resource(upstream.get(), args...);
    return resource_ptr(resource, [upstream](rmm::mr::device_memory_resource* r) { delete r; });
}

inline kmm::driver::Driver& driver() { return kmm::driver::process_default(); }

inline kmm::driver::StreamHandle handle(rmm::cuda_stream_view stream) { return {stream.value()}; }

/// Queues a pattern of 4-byte words into device memory.
void fill(void* ptr, std::uint32_t value, std::size_t bytes, rmm::cuda_stream_view stream);
/// Queues a copy.
void copy(void* to, const void* from, std::size_t bytes, rmm::cuda_stream_view stream);
/// How many of the words are not `value`, once the stream is done.
std::size_t count_different(const void* ptr, std::uint32_t value, std::size_t bytes, rmm::cuda_stream_view stream);

/// Page-locked memory for results, so that copies to it stay in stream order.
class pinned_words {
  public:
    explicit pinned_words(std::size_t count);
    ~pinned_words();
    pinned_words(const pinned_words&) = delete;
    pinned_words& operator=(const pinned_words&) = delete;
    std::uint32_t* data() { return words_; }
    std::uint32_t operator[](std::size_t i) const { return words_[i]; }

  private:
    std::uint32_t* words_ = nullptr;
};

class ResourceConformance : public testing::TestWithParam<conforming> {
  protected:
    void SetUp() override {
        if (GetParam().available && !GetParam().available()) GTEST_SKIP() << "this device cannot have the resource";
        resource_ = GetParam().make();
    }
    rmm::mr::device_memory_resource& resource() { return *resource_; }

  private:
    resource_ptr resource_;
};

}  // namespace rmm_test
