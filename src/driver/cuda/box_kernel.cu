// The kernel that moves a list of boxes, in two sizes of the list.
//
// Owns: the kernels. Must not know: `Driver`, how lists are made. What a thread does is in box_items.hpp.
#include "driver/cuda/box_kernel.hpp"

#include "driver/box_launch.hpp"
#include "driver/cuda/vendor.hpp"

namespace kmm::driver::vendor {

namespace {

template<std::size_t num_words>
struct List {
    boxes::Word words[num_words];
};

// The list is read where the launch put it, in constant memory, rather than copied by each thread. clang does so
// unasked.
#if defined(__clang__)
#define KMM_IN_PLACE
#else
#define KMM_IN_PLACE __grid_constant__
#endif

/// Four blocks have room on a multiprocessor, so that two of them leave half of it to others.
template<std::size_t num_words>
__global__ void __launch_bounds__(boxes::threads, 4) move_boxes(const KMM_IN_PLACE List<num_words> list) {
    const auto units = static_cast<std::uint32_t>(list.words[boxes::num_units]);
    for (std::uint32_t unit = blockIdx.x; unit < units; unit += gridDim.x)
        boxes::move_unit(list.words, unit, threadIdx.x);
}

template<std::size_t num_words>
const void* find() noexcept {
    static_assert(sizeof(List<num_words>) == num_words * sizeof(boxes::Word));
    const void* handle = nullptr;
    const Result failed = kernel_handle(&handle, reinterpret_cast<const void*>(&move_boxes<num_words>));
    if (failed == 0) return handle;
    (void)take_last_error();
    return nullptr;
}

}  // namespace

const void* box_kernel(std::size_t num_words) noexcept {
    using boxes::BoxList;
    static const void* const few = find<BoxList::few_words>();
    static const void* const many = find<BoxList::max_words>();
    return num_words == BoxList::few_words ? few : many;
}

}  // namespace kmm::driver::vendor
