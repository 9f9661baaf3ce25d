// An upstream for tests of adaptors: answers with addresses that the test names (nobody may touch them), or throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "rmm/mr/device_memory_resource.hpp"

namespace rmm_test {

class fake_resource final : public rmm::mr::device_memory_resource {
  public:
    struct request {
        void* ptr;
        std::size_t bytes;
        rmm::cuda_stream_view stream;
    };
    std::deque<std::uintptr_t> answers;     ///< addresses to give, in order; then 1 MiB, 2 MiB, ..
    std::function<void()> before_allocate;  ///< may throw
    std::function<void()> before_free;
    std::vector<request> allocations;
    std::vector<request> frees;

    bool supports_streams() const noexcept override { return true; }
    bool supports_get_mem_info() const noexcept override { return true; }

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        if (before_allocate) before_allocate();
        std::uintptr_t address = ++num_ << 20;
        if (!answers.empty()) {
            address = answers.front();
            answers.pop_front();
        }
        allocations.push_back({reinterpret_cast<void*>(address), bytes, stream});
        return allocations.back().ptr;
    }
    void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override {
        if (before_free) before_free();
        frees.push_back({ptr, bytes, stream});
    }
    std::pair<std::size_t, std::size_t> do_get_mem_info(rmm::cuda_stream_view) const override { return {3, 7}; }

    std::uintptr_t num_ = 0;
};

inline void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace rmm_test
