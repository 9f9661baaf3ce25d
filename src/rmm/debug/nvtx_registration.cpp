// Pools in the eyes of tools that listen to NVTX (compute-sanitizer --nvtx yes): each block of upstream is a heap, each
// block in use a region of it.
#include <cstdint>
#include <map>
#include <string>

#include "driver/locks.hpp"
#include "driver/nvtx_memory.hpp"
#include "rmm/debug/memory_registration.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

namespace nvtx = driver::nvtx;

class nvtx_registration final : public memory_registration {
  public:
    explicit nvtx_registration(driver::Driver& driver) : driver_(driver) {}
    ~nvtx_registration() override {
        for (const auto& [begin, heap] : heaps_) nvtx::unregister_heap(heap.handle);
    }

    void add_region(void* base, std::size_t bytes, const cuda_stream_view*) noexcept override {
        const nvtx::Heap handle = nvtx::register_heap(base, bytes);
        try {
            const kmm::locks::Guard lock(mutex_);
            const auto begin = reinterpret_cast<std::uintptr_t>(base);
            heaps_[begin] = {begin + bytes, handle};
        } catch (const std::exception& e) {
            nvtx::unregister_heap(handle);
            rmm::detail::report_misuse("tools are not told of a block of a pool: ", e.what());
        }
    }

    void remove_region(void* base, std::size_t) noexcept override {
        kmm::locks::Lock lock(mutex_);
        const auto removed = heaps_.extract(reinterpret_cast<std::uintptr_t>(base));
        lock.unlock();
        if (!removed.empty()) nvtx::unregister_heap(removed.mapped().handle);
    }

    void give(void* block, std::size_t bytes) noexcept override {
        nvtx::Heap heap;
        if (find_heap(block, &heap)) nvtx::register_region(heap, block, bytes);
    }

    void take(void* block, std::size_t, cuda_stream_view stream) noexcept override {
        nvtx::Heap heap;
        if (!find_heap(block, &heap)) return;
        // Tools look when a kernel runs, and know nothing of streams: kernels that are queued must not lose their
        // memory.
        if (is_being_captured(driver_, stream)) return;
        rmm::detail::report_failure(driver_.synchronize_stream({stream.value()}), "wait for the users of a block");
        nvtx::unregister_region(block);
    }

  private:
    struct registered {
        std::uintptr_t end;
        nvtx::Heap handle;
    };

    bool find_heap(const void* block, nvtx::Heap* heap) noexcept {
        const kmm::locks::Guard lock(mutex_);
        const auto address = reinterpret_cast<std::uintptr_t>(block);
        auto at = heaps_.upper_bound(address);
        if (at == heaps_.begin()) return false;
        --at;
        if (at->second.end <= address) return false;
        *heap = at->second.handle;
        return true;
    }

    driver::Driver& driver_;
    kmm::locks::Mutex mutex_;
    std::map<std::uintptr_t, registered> heaps_ KMM_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<memory_registration> make_nvtx_registration(driver::Driver& driver) {
    if (driver.kind() != driver::Kind::cuda || !nvtx::has_memory()) return nullptr;
    return std::make_unique<nvtx_registration>(driver);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
