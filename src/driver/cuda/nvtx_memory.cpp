// Implements nvtx_memory.hpp where the toolkit has it. Any thread.
#include "driver/nvtx_memory.hpp"

#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExtMem.h>

namespace kmm::driver::nvtx {
namespace {

/// Never destroyed: pools may be static objects.
nvtxDomainHandle_t domain() noexcept {
    static nvtxDomainHandle_t const the_domain = nvtxDomainCreateA("librmm");
    return the_domain;
}

nvtxMemVirtualRangeDesc_t range_of(const void* base, std::size_t bytes) noexcept {
    nvtxMemVirtualRangeDesc_t range{};
    range.size = bytes;
    range.ptr = base;
    return range;
}

}  // namespace

bool has_memory() noexcept { return true; }

Heap register_heap(const void* base, std::size_t bytes) noexcept {
    const nvtxMemVirtualRangeDesc_t range = range_of(base, bytes);
    nvtxMemHeapDesc_t description{};
    description.extCompatID = NVTX_EXT_COMPATID_MEM;
    description.structSize = sizeof(description);
    description.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
    description.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    description.typeSpecificDescSize = sizeof(range);
    description.typeSpecificDesc = &range;
    description.messageType = NVTX_MESSAGE_TYPE_ASCII;
    description.message.ascii = "rmm pool";
    return {nvtxMemHeapRegister(domain(), &description)};
}

void unregister_heap(Heap heap) noexcept {
    nvtxMemHeapUnregister(domain(), static_cast<nvtxMemHeapHandle_t>(heap.native));
}

void register_region(Heap heap, const void* base, std::size_t bytes) noexcept {
    const nvtxMemVirtualRangeDesc_t range = range_of(base, bytes);
    nvtxMemRegionsRegisterBatch_t batch{};
    batch.extCompatID = NVTX_EXT_COMPATID_MEM;
    batch.structSize = sizeof(batch);
    batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    batch.heap = static_cast<nvtxMemHeapHandle_t>(heap.native);
    batch.regionCount = 1;
    batch.regionDescElementSize = sizeof(range);
    batch.regionDescElements = &range;
    nvtxMemRegionsRegister(domain(), &batch);
}

void unregister_region(const void* base) noexcept {
    nvtxMemRegionRef_t reference{};
    reference.pointer = base;
    nvtxMemRegionsUnregisterBatch_t batch{};
    batch.extCompatID = NVTX_EXT_COMPATID_MEM;
    batch.structSize = sizeof(batch);
    batch.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    batch.refCount = 1;
    batch.refElementSize = sizeof(reference);
    batch.refElements = &reference;
    nvtxMemRegionsUnregister(domain(), &batch);
}

}  // namespace kmm::driver::nvtx
