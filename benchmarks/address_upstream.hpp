// An upstream whose memory is only addresses: pools of a large GPU's size on a machine that has less memory than that.
//
// Owns: the addresses. Must not know: who asks. Nobody may touch the memory. Any thread.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <string>

#include <rmm/error.hpp>
#include <rmm/mr/device_memory_resource.hpp>

namespace kmm::bench {

class AddressUpstream final : public rmm::mr::device_memory_resource {
  public:
    explicit AddressUpstream(std::size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
    std::size_t held_bytes() const { return held_bytes_; }

  private:
    void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override {
        if (held_bytes_.fetch_add(bytes) + bytes <= capacity_bytes_) {
            constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
            void* const memory = mmap(nullptr, bytes, PROT_NONE, flags, -1, 0);
            if (memory != MAP_FAILED) return memory;
        }
        held_bytes_ -= bytes;
        throw rmm::out_of_memory("no addresses for " + std::to_string(bytes) + " bytes");
    }
    void do_deallocate(void* memory, std::size_t bytes, rmm::cuda_stream_view) override {
        munmap(memory, bytes);
        held_bytes_ -= bytes;
    }

    std::size_t capacity_bytes_;
    std::atomic<std::size_t> held_bytes_{0};
};

}  // namespace kmm::bench
