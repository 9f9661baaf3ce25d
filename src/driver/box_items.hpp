// The list of boxes that a kernel of ours moves in one launch, as the kernel reads it, and what each of its threads
// does.
//
// Owns: the layout of the list and all arithmetic on it. Must not know: `Driver`, any vendor; box_launch.hpp makes
// lists. Runs on a device, one call for each unit and thread, or on the host, where tests compare it with plain loops.
//
// A list is words of 64 bits: three figures in two words, then an entry for each box, then shapes. A box is items
// of 1 to 16 bytes, its axis 0 the items of a run; axes are fastest first. A unit is what a block of threads does in
// one go: `items_of_thread` items of one box for each thread, `threads` apart, so that accesses of neighbouring threads
// are coalesced.
#pragma once

#include <cassert>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define KMM_BOX_FUNCTION __host__ __device__ __forceinline__
#else
#define KMM_BOX_FUNCTION inline
#endif
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define KMM_BOX_ON_DEVICE 1
#define KMM_BOX_UNROLL _Pragma("unroll")
#define KMM_BOX_UNROLL_AXES _Pragma("unroll unrolled_axes")
#define KMM_BOX_NO_UNROLL _Pragma("unroll 1")
#else
#define KMM_BOX_UNROLL
#define KMM_BOX_UNROLL_AXES
#define KMM_BOX_NO_UNROLL
#endif
namespace kmm::driver::boxes {

using Word = std::uint64_t;

/// Of a block.
inline constexpr unsigned threads = 256;
/// How many items a thread has on their way at a time: enough to fill a memory's latency with two blocks on a
/// multiprocessor, and few enough that the kernel leaves registers to its neighbours.
inline constexpr unsigned batch = 4;
/// A run and eight axes.
inline constexpr unsigned max_axes = 9;

/// Of a box: what is counted within a box has 32 bits. Larger ones are cut.
inline constexpr Word most_items = Word{1} << 31;

// Words of the list, and of an entry, a shape and an axis. Where there are two names, the first has the lower 32 bits.
inline constexpr unsigned num_boxes = 0, items_of_thread = 0;  ///< the second: in a unit
inline constexpr unsigned num_units = 1;
inline constexpr unsigned first_entry = 2;

inline constexpr unsigned destination = 0;
inline constexpr unsigned source = 1;
inline constexpr unsigned end_unit = 2, shape_at = 2;  ///< units of this box and of those before it; a word of the list
inline constexpr unsigned entry_words = 3;

inline constexpr unsigned form = 0, num_items = 0;  ///< number of axes, and 256 times the logarithm of an item's bytes
inline constexpr unsigned first_axis = 1;           ///< boxes of the same shape share one

inline constexpr unsigned count = 0,
                          stride = 0;            ///< what `threads` items add to the index on this axis, before carries
inline constexpr unsigned destination_step = 1;  ///< bytes
inline constexpr unsigned source_step = 2;
inline constexpr unsigned axis_words = 3;

KMM_BOX_FUNCTION std::uint32_t lower(Word word) { return static_cast<std::uint32_t>(word); }
KMM_BOX_FUNCTION std::uint32_t upper(Word word) { return static_cast<std::uint32_t>(word >> 32); }
KMM_BOX_FUNCTION Word pair(Word lower_half, Word upper_half) { return lower_half | upper_half << 32; }

/// What lies at an address that is a multiple of its size.
struct alignas(16) Item16 {
    Word low, high;
};

template<typename Item>
KMM_BOX_FUNCTION Item load(Word address) {
#if defined(KMM_BOX_ON_DEVICE)
    return *reinterpret_cast<const Item*>(address);
#else
    assert(address % sizeof(Item) == 0);
    Item item;
    std::memcpy(&item, reinterpret_cast<const void*>(address), sizeof item);
    return item;
#endif
}

template<typename Item>
KMM_BOX_FUNCTION void store(Word address, const Item& item) {
#if defined(KMM_BOX_ON_DEVICE)
    *reinterpret_cast<Item*>(address) = item;
#else
    assert(address % sizeof(Item) == 0);
    std::memcpy(reinterpret_cast<void*>(address), &item, sizeof item);
#endif
}

#if defined(KMM_BOX_ON_DEVICE) && defined(__CUDA_ARCH__)
// Memory of other devices and of the host is global memory, too. Left to itself the compiler does not know, so that
// every access would find out; nor does it know that the loads of a batch are to be on their way together.
#define KMM_BOX_LOAD(type, output, address) \
    asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %1; ld.global." type " %0, [a]; }" : output : "l"(address))
#define KMM_BOX_STORE(type, input, address) \
    asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %0; st.global." type " [a], %1; }" ::"l"(address), input)
template<>
KMM_BOX_FUNCTION std::uint8_t load<std::uint8_t>(Word address) {
    std::uint32_t item;
    KMM_BOX_LOAD("u8", "=r"(item), address);
    return static_cast<std::uint8_t>(item);
}
template<>
KMM_BOX_FUNCTION void store<std::uint8_t>(Word address, const std::uint8_t& item) {
    KMM_BOX_STORE("u8", "r"(static_cast<std::uint32_t>(item)), address);
}
template<>
KMM_BOX_FUNCTION std::uint16_t load<std::uint16_t>(Word address) {
    std::uint16_t item;
    KMM_BOX_LOAD("u16", "=h"(item), address);
    return static_cast<std::uint16_t>(item);
}
template<>
KMM_BOX_FUNCTION void store<std::uint16_t>(Word address, const std::uint16_t& item) {
    KMM_BOX_STORE("u16", "h"(static_cast<std::uint16_t>(item)), address);
}
template<>
KMM_BOX_FUNCTION std::uint32_t load<std::uint32_t>(Word address) {
    std::uint32_t item;
    KMM_BOX_LOAD("u32", "=r"(item), address);
    return static_cast<std::uint32_t>(item);
}
template<>
KMM_BOX_FUNCTION void store<std::uint32_t>(Word address, const std::uint32_t& item) {
    KMM_BOX_STORE("u32", "r"(static_cast<std::uint32_t>(item)), address);
}
template<>
KMM_BOX_FUNCTION std::uint64_t load<std::uint64_t>(Word address) {
    std::uint64_t item;
    KMM_BOX_LOAD("u64", "=l"(item), address);
    return static_cast<std::uint64_t>(item);
}
template<>
KMM_BOX_FUNCTION void store<std::uint64_t>(Word address, const std::uint64_t& item) {
    KMM_BOX_STORE("u64", "l"(static_cast<std::uint64_t>(item)), address);
}
#undef KMM_BOX_LOAD
#undef KMM_BOX_STORE
template<>
KMM_BOX_FUNCTION Item16 load<Item16>(Word address) {
    Item16 item;
    asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %2; ld.global.v2.u64 {%0, %1}, [a]; }"
                 : "=l"(item.low), "=l"(item.high)
                 : "l"(address));
    return item;
}
template<>
KMM_BOX_FUNCTION void store<Item16>(Word address, const Item16& item) {
    asm volatile("{ .reg .u64 a; cvta.to.global.u64 a, %0; st.global.v2.u64 [a], {%1, %2}; }" ::"l"(address),
                 "l"(item.low), "l"(item.high));
}
#endif

/// Moves at most `items_each` items of a box: `first`, `first + threads`, ... `known_axes`: number of axes, 0 if it is
/// only known at run time.
template<typename Item, unsigned known_axes>
KMM_BOX_FUNCTION void move_items(const Word* entry, const Word* shape, std::uint32_t first, std::uint32_t items_each) {
    constexpr unsigned most_axes = known_axes == 0 ? max_axes : known_axes;
    [[maybe_unused]] constexpr int unrolled_axes = known_axes == 0 ? 1 : known_axes;
    const unsigned axes = known_axes == 0 ? lower(shape[form]) & 0xffu : known_axes;
    const std::uint32_t items = upper(shape[num_items]);
    if (first >= items) return;
    std::uint32_t index[most_axes];
    std::uint32_t rest = first;
    KMM_BOX_UNROLL_AXES
    for (unsigned k = 0; k + 1 < axes; ++k) {
        const std::uint32_t n = lower(shape[first_axis + k * axis_words + count]);
        const std::uint32_t next = rest / n;
        index[k] = rest - next * n;
        rest = next;
    }
    index[axes - 1] = rest;
    KMM_BOX_NO_UNROLL
    for (std::uint32_t done = 0; done < items_each; done += batch) {
        Item loaded[batch];
        Word places[batch];
        KMM_BOX_UNROLL
        for (unsigned j = 0; j < batch; ++j) {
            places[j] = 0;
            if (done + j < items_each && first + (done + j) * threads < items) {
                Word to = entry[destination];
                Word from = entry[source];
                KMM_BOX_UNROLL_AXES
                for (unsigned k = 0; k < axes; ++k) {
                    const Word* const axis = shape + first_axis + k * axis_words;
                    to += index[k] * axis[destination_step];
                    from += index[k] * axis[source_step];
                }
                loaded[j] = load<Item>(from);
                places[j] = to;
            }
            // The sum of two indices, digit by digit; what lies behind the last item is never looked at.
            std::uint32_t carry = 0;
            KMM_BOX_UNROLL_AXES
            for (unsigned k = 0; k < axes; ++k) {
                const Word axis = shape[first_axis + k * axis_words + count];
                index[k] += upper(axis) + carry;
                carry = index[k] >= lower(axis) ? 1 : 0;
                if (carry != 0) index[k] -= lower(axis);
            }
        }
        KMM_BOX_UNROLL
        for (unsigned j = 0; j < batch; ++j)
            if (places[j] != 0) store(places[j], loaded[j]);
    }
}

/// Most boxes have few axes, whose indices are kept in registers.
template<typename Item>
KMM_BOX_FUNCTION void move_items_of(const Word* entry, const Word* shape, std::uint32_t first,
                                    std::uint32_t items_each) {
    switch (lower(shape[form]) & 0xffu) {
    case 1: return move_items<Item, 1>(entry, shape, first, items_each);
    case 2: return move_items<Item, 2>(entry, shape, first, items_each);
    case 3: return move_items<Item, 3>(entry, shape, first, items_each);
    default: return move_items<Item, 0>(entry, shape, first, items_each);
    }
}

/// The part of `thread` in a unit. All threads of a block are in the same one, so that they take the same branches.
KMM_BOX_FUNCTION void move_unit(const Word* list, std::uint32_t unit, unsigned thread) {
    const Word* const entries = list + first_entry;
    unsigned low = 0;
    for (unsigned high = lower(list[num_boxes]) - 1; low < high;) {
        const unsigned middle = (low + high) / 2;
        if (unit < lower(entries[middle * entry_words + end_unit]))
            high = middle;
        else
            low = middle + 1;
    }
    const Word* const entry = entries + low * entry_words;
    const std::uint32_t begin = low == 0 ? 0 : lower(entries[(low - 1) * entry_words + end_unit]);
    const Word* const shape = list + upper(entry[shape_at]);
    const std::uint32_t items_each = upper(list[items_of_thread]);
    const std::uint32_t first = (unit - begin) * items_each * threads + thread;
    switch (lower(shape[form]) >> 8) {
    case 0: return move_items_of<std::uint8_t>(entry, shape, first, items_each);
    case 1: return move_items_of<std::uint16_t>(entry, shape, first, items_each);
    case 2: return move_items_of<std::uint32_t>(entry, shape, first, items_each);
    case 3: return move_items_of<std::uint64_t>(entry, shape, first, items_each);
    default: return move_items_of<Item16>(entry, shape, first, items_each);
    }
}

}  // namespace kmm::driver::boxes
