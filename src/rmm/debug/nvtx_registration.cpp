// Pools in the eyes of tools that listen to NVTX (compute-sanitizer --nvtx yes): each block of upstream is a heap, each block
// in use a region of it. Compiled where the toolkit has the header; without a tool each call is a test of a pointer.
#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExtMem.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "rmm/debug/memory_registration.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

/// Never destroyed: pools may be static objects.
nvtxDomainHandle_t domain() {
    static nvtxDomainHandle_t const the_domain = nvtxDomainCreateA("librmm");
    return the_domain;
}

class nvtx_registration final : public memory_registration {
  public:
    explicit nvtx_registration(driver::Driver& driver) : driver_(driver) {}
    ~nvtx_registration() override {
        for (const auto& [begin, heap] : heaps_) nvtxMemHeapUnregister(domain(), heap.handle);
    }

    void add_region(void* base, std::size_t bytes, const cuda_stream_view*) noexcept override {
        nvtxMemVirtualRangeDesc_t range{};
        range.size = bytes;
        range.ptr = base;
        nvtxMemHeapDesc_t description{};
        description.extCompatID = NVTX_EXT_COMPATID_MEM;
        description.structSize = sizeof(description);
        description.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
        description.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
        description.typeSpecificDescSize = sizeof(range);
        description.typeSpecificDesc = &range;
        description.messageType = NVTX_MESSAGE_TYPE_ASCII;
        description.message.ascii = "rmm pool";
        nvtxMemHeapHandle_t const handle = nvtxMemHeapRegister(domain(), &description);
        try {
            const std::lock_guard lock(mutex_);
            const auto begin = reinterpret_cast<std::uintptr_t>(base);
            heaps_[begin] = {begin + bytes, handle};
        } catch (const std::exception& e) {
            nvtxMemHeapUnregister(domain(), handle);
            rmm::detail::report_misuse(std::string("tools are not told of a block of a pool: ") + e.what());
        }
    }

    void remove_region(void* base, std::size_t) noexcept override {
        const std::lock_guard lock(mutex_);
        const auto at = heaps_.find(reinterpret_cast<std::uintptr_t>(base));
        if (at == heaps_.end()) return;
        nvtxMemHeapUnregister(domain(), at->second.handle);
        heaps_.erase(at);
    }

    void give(void* block, std::size_t bytes) noexcept override {
        nvtxMemHeapHandle_t const heap = heap_of(block);
        if (heap == nullptr) return;
        nvtxMemVirtualRangeDesc_t range{};
        range.size = bytes;
        range.ptr = block;
        nvtxMemRegionsRegisterBatch_t batch{};
        batch.extCompatID = NVTX_EXT_COMPATID_MEM;
        batch.structSize = sizeof(batch);
        batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
        batch.heap = heap;
        batch.regionCount = 1;
        batch.regionDescElementSize = sizeof(range);
        batch.regionDescElements = &range;
        nvtxMemRegionsRegister(domain(), &batch);
    }

    void take(void* block, std::size_t, cuda_stream_view stream) noexcept override {
        if (heap_of(block) == nullptr) return;
        // Tools look when a kernel runs, and know nothing of streams: kernels that are queued must not lose their memory.
        if (is_being_captured(driver_, stream)) return;
        rmm::detail::report_failure(driver_.synchronize_stream({stream.value()}), "wait for the users of a block");
        nvtxMemRegionRef_t reference{};
        reference.pointer = block;
        nvtxMemRegionsUnregisterBatch_t batch{};
        batch.extCompatID = NVTX_EXT_COMPATID_MEM;
        batch.structSize = sizeof(batch);
        batch.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
        batch.refCount = 1;
        batch.refElementSize = sizeof(reference);
        batch.refElements = &reference;
        nvtxMemRegionsUnregister(domain(), &batch);
    }

  private:
    struct heap {
        std::uintptr_t end;
        nvtxMemHeapHandle_t handle;
    };

    nvtxMemHeapHandle_t heap_of(const void* block) noexcept {
        const std::lock_guard lock(mutex_);
        const auto address = reinterpret_cast<std::uintptr_t>(block);
        auto at = heaps_.upper_bound(address);
        if (at == heaps_.begin() || (--at)->second.end <= address) return nullptr;
        return at->second.handle;
    }

    driver::Driver& driver_;
    std::mutex mutex_;
    std::map<std::uintptr_t, heap> heaps_;
};

}  // namespace

std::unique_ptr<memory_registration> make_nvtx_registration(driver::Driver& driver) {
    if (driver.kind() != driver::Kind::cuda) return nullptr;
    return std::make_unique<nvtx_registration>(driver);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
