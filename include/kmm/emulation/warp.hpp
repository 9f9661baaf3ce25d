// Warp functions of CUDA for emulated kernels. A warp is 32 threads of consecutive linear index. A lane that has
// returned takes no part; reading from a lane that takes no part gives the caller's own value. The waiting is the
// engine's.
#pragma once

#include "kmm/utils/macros.hpp"

#if !KMM_DETAIL_HAS_DEVICE_CODE

#include <cstdint>
#include <cstring>

#include "kmm/emulation/beside_cuda.hpp"
#include "kmm/emulation/engine.hpp"

constexpr int warpSize = 32;

namespace kmm::emulation::detail {

template<class T>
inline T warp_exchange(WarpFunction function, unsigned mask, T value, int operand, int width) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t), "shuffles move up to eight bytes");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = warp_call(function, mask, bits, operand, width);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

}  // namespace kmm::emulation::detail

/// Also orders memory between the lanes; the other warp functions do not (a race detector knows the difference).
inline void __syncwarp(unsigned mask = 0xffffffffu) {
    kmm::emulation::detail::warp_call(kmm::emulation::detail::WarpFunction::sync, mask, 0, 0, warpSize);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
    using namespace kmm::emulation::detail;
    return static_cast<unsigned>(warp_call(WarpFunction::ballot, mask, predicate != 0, 0, warpSize));
}

inline int __any_sync(unsigned mask, int predicate) {
    using namespace kmm::emulation::detail;
    return static_cast<int>(warp_call(WarpFunction::any, mask, predicate != 0, 0, warpSize));
}

inline int __all_sync(unsigned mask, int predicate) {
    using namespace kmm::emulation::detail;
    return static_cast<int>(warp_call(WarpFunction::all, mask, predicate != 0, 0, warpSize));
}

/// The lanes that reach this call together. Inlined, so that the call is told apart from others by its address.
__attribute__((always_inline)) inline unsigned __activemask() { return kmm::emulation::detail::active_lanes(); }

#define KMM_DETAIL_SHUFFLES_(T)                                                                        \
    inline T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize) {                     \
        using namespace kmm::emulation::detail;                                                        \
        return warp_exchange(WarpFunction::shuffle, mask, value, lane, width);                         \
    }                                                                                                  \
    inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {            \
        using namespace kmm::emulation::detail;                                                        \
        return warp_exchange(WarpFunction::shuffle_up, mask, value, static_cast<int>(delta), width);   \
    }                                                                                                  \
    inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {          \
        using namespace kmm::emulation::detail;                                                        \
        return warp_exchange(WarpFunction::shuffle_down, mask, value, static_cast<int>(delta), width); \
    }                                                                                                  \
    inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {            \
        using namespace kmm::emulation::detail;                                                        \
        return warp_exchange(WarpFunction::shuffle_xor, mask, value, lane_mask, width);                \
    }

KMM_DETAIL_SHUFFLES_(int)
KMM_DETAIL_SHUFFLES_(unsigned int)
KMM_DETAIL_SHUFFLES_(long)
KMM_DETAIL_SHUFFLES_(unsigned long)
KMM_DETAIL_SHUFFLES_(long long)
KMM_DETAIL_SHUFFLES_(unsigned long long)
KMM_DETAIL_SHUFFLES_(float)
KMM_DETAIL_SHUFFLES_(double)
#undef KMM_DETAIL_SHUFFLES_

namespace kmm::emulation::detail {

/// Over the lanes of `mask` that are still there, in the order of lanes: each reads all of them.
template<class T, class F>
inline T warp_reduce(unsigned mask, T value, F combine) {
    const unsigned present = __ballot_sync(mask, 1);
    bool is_first = true;
    T result = value;
    for (int lane = 0; lane < warpSize; ++lane) {
        if ((present >> lane & 1) == 0) continue;
        const T other = __shfl_sync(mask, value, lane);
        result = is_first ? other : combine(result, other);
        is_first = false;
    }
    return result;
}

}  // namespace kmm::emulation::detail

#define KMM_DETAIL_REDUCE_(name, T, expression)                                                       \
    inline T name(unsigned mask, T value) {                                                           \
        return kmm::emulation::detail::warp_reduce(mask, value, [](T a, T b) { return expression; }); \
    }
KMM_DETAIL_REDUCE_(__reduce_add_sync, unsigned, a + b)
KMM_DETAIL_REDUCE_(__reduce_add_sync, int, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
KMM_DETAIL_REDUCE_(__reduce_min_sync, unsigned, b < a ? b : a)
KMM_DETAIL_REDUCE_(__reduce_min_sync, int, b < a ? b : a)
KMM_DETAIL_REDUCE_(__reduce_max_sync, unsigned, a < b ? b : a)
KMM_DETAIL_REDUCE_(__reduce_max_sync, int, a < b ? b : a)
KMM_DETAIL_REDUCE_(__reduce_and_sync, unsigned, a& b)
KMM_DETAIL_REDUCE_(__reduce_or_sync, unsigned, a | b)
KMM_DETAIL_REDUCE_(__reduce_xor_sync, unsigned, a ^ b)
#undef KMM_DETAIL_REDUCE_

#endif  // !KMM_DETAIL_HAS_DEVICE_CODE
