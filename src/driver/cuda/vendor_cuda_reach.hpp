// Every CUDA name that the driver uses, behind names without a vendor; fourth part: which memory a kernel reaches. Same
// rules as vendor_cuda.hpp.
#pragma once

#include <iterator>

#include "driver/cuda/vendor_cuda_work.hpp"

namespace kmm::driver::vendor {

/// What a kernel on the current device can do with memory. Needs a current context.
struct Reach {
    PointerKind kind = PointerKind::unknown;
    int device = -1;            ///< of device memory
    bool is_reachable = false;  ///< kernels may use the address as it is
    bool is_foreign = false;    ///< of the current device, but of another context
    std::uintptr_t begin = 0;   ///< from here to `end` all of this is the same; both 0: not known
    std::uintptr_t end = 0;
};
inline Result find_reach(Reach* out, const void* pointer, int current_device) noexcept {
    *out = {};
    const CUdeviceptr address = address_of(pointer);
    CUpointer_attribute questions[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                       CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                       CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    // Each answer is as large as this or smaller, and little-endian.
    std::uint64_t type = 0, managed = 0, usable = 0, begin = 0, size = 0;
    int device = -1;
    void* context = nullptr;  // none: of a pool, of virtual memory
    void* answers[] = {&type, &managed, &device, &usable, &context, &begin, &size};
    if (const CUresult result = entry.pointer_get_attributes(std::size(questions), questions, answers, address))
        return result;
    // Of another device's memory this is what tells, for each of the ways in which access is granted. The access flags
    // say "read and write" also of plain and pool memory that the device must not touch (CUDA 13.0, H100).
    out->is_reachable = usable == address;
    if (managed != 0) {
        out->kind = PointerKind::managed;
    } else if (type == CU_MEMORYTYPE_HOST) {
        out->kind = PointerKind::pinned;
        out->begin = begin;
        out->end = begin + size;
    } else if (type == CU_MEMORYTYPE_DEVICE) {
        out->kind = PointerKind::device;
        out->device = device;
        out->is_foreign = device == current_device && context != nullptr && context != current_context();
        // The range that the attributes tell is of reserved addresses, where the pieces may differ.
        CUdeviceptr first = 0;
        std::size_t bytes = 0;
        if (entry.address_range(&first, &bytes, address) == CUDA_SUCCESS) {
            out->begin = first;
            out->end = first + bytes;
        }
    }
    return 0;
}

}  // namespace kmm::driver::vendor
