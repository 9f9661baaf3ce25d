// Functions of CUDA over integers and their bits, and loads and stores with a word about caches, of which the host has
// no need. Plain functions without state.
#pragma once

#include "kmm/utils/macros.hpp"

#if !KMM_DETAIL_HAS_DEVICE_CODE

#include <cstdint>

#include "kmm/emulation/beside_cuda.hpp"

// NOLINTBEGIN: the names are CUDA's.
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned __brev(unsigned x) {
    x = (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
    x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
    x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
    return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
    const auto low = __brev(static_cast<unsigned>(x));
    return static_cast<unsigned long long>(low) << 32 | __brev(static_cast<unsigned>(x >> 32));
}

inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) {
    return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
inline long long __mul64hi(long long x, long long y) {
    __extension__ using wide = __int128;
    return static_cast<long long>(static_cast<wide>(x) * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    __extension__ using wide = unsigned __int128;
    return static_cast<unsigned long long>(static_cast<wide>(x) * y >> 64);
}
/// Of the low 24 bits of both the low 32 bits of the product.
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
inline int __mul24(int x, int y) {
    const auto low = [](int a) { return static_cast<long long>(static_cast<int>(static_cast<unsigned>(a) << 8) >> 8); };
    return static_cast<int>(static_cast<unsigned>(static_cast<unsigned long long>(low(x) * low(y))));
}
/// |x - y| + z
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x < y ? y - x : x - y) + z; }
inline unsigned __sad(int x, int y, unsigned z) {
    const long long difference = static_cast<long long>(x) - y;
    return static_cast<unsigned>(difference < 0 ? -difference : difference) + z;
}
/// The mean, rounded down; with `r` rounded up.
inline int __hadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y) >> 1); }
inline int __rhadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y + 1) >> 1); }
inline unsigned __uhadd(unsigned x, unsigned y) {
    return static_cast<unsigned>((static_cast<unsigned long long>(x) + y) >> 1);
}
inline unsigned __urhadd(unsigned x, unsigned y) {
    return static_cast<unsigned>((static_cast<unsigned long long>(x) + y + 1) >> 1);
}
/// Four bytes of the eight of y:x, each chosen by three bits of `selector`.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return result;
}
/// The high word of high:low << shift, or the low word of high:low >> shift. Shifts are taken modulo 32, or with `c`
/// from 32 on as 32.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
/// Position of the n-th set bit of `mask`, counted from `base` on (n > 0), or down (n < 0); for n = 0 `base` if that
/// bit is set. ~0u if there is none.
inline unsigned __fns(unsigned mask, unsigned base, int n) {
    const int step = n < 0 ? -1 : 1;
    int left = n < 0 ? -n : (n == 0 ? 1 : n);
    for (int at = static_cast<int>(base & 31); at >= 0 && at < 32; at += step) {
        if ((mask >> at & 1) != 0 && --left == 0) return static_cast<unsigned>(at);
        if (n == 0) break;
    }
    return ~0u;
}

namespace kmm::emulation::detail {

/// c plus the products of elements of a, from the first on, and the elements of b that `first_of_b` names.
template<class ElementA, class ElementB, class T>
inline T dot_product(T a, T b, T c, int count, int first_of_b) {
    constexpr int bits_a = 8 * static_cast<int>(sizeof(ElementA)), bits_b = 8 * static_cast<int>(sizeof(ElementB));
    auto sum = static_cast<unsigned>(c);
    for (int i = 0; i < count; ++i) {
        const auto x = static_cast<ElementA>(static_cast<unsigned>(a) >> bits_a * i);
        const auto y = static_cast<ElementB>(static_cast<unsigned>(b) >> bits_b * (first_of_b + i));
        sum += static_cast<unsigned>(static_cast<T>(x)) * static_cast<unsigned>(static_cast<T>(y));
    }
    return static_cast<T>(sum);
}

}  // namespace kmm::emulation::detail

inline int __dp4a(int a, int b, int c) {
    return kmm::emulation::detail::dot_product<std::int8_t, std::int8_t>(a, b, c, 4, 0);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    return kmm::emulation::detail::dot_product<std::uint8_t, std::uint8_t>(a, b, c, 4, 0);
}
inline int __dp2a_lo(int a, int b, int c) {
    return kmm::emulation::detail::dot_product<std::int16_t, std::int8_t>(a, b, c, 2, 0);
}
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
    return kmm::emulation::detail::dot_product<std::uint16_t, std::uint8_t>(a, b, c, 2, 0);
}
inline int __dp2a_hi(int a, int b, int c) {
    return kmm::emulation::detail::dot_product<std::int16_t, std::int8_t>(a, b, c, 2, 2);
}
inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) {
    return kmm::emulation::detail::dot_product<std::uint16_t, std::uint8_t>(a, b, c, 2, 2);
}

#define KMM_DETAIL_LOAD_(name)        \
    template<class T>                 \
    inline T name(const T* address) { \
        return *address;              \
    }
KMM_DETAIL_LOAD_(__ldg)
KMM_DETAIL_LOAD_(__ldca)
KMM_DETAIL_LOAD_(__ldcg)
KMM_DETAIL_LOAD_(__ldcs)
KMM_DETAIL_LOAD_(__ldcv)
KMM_DETAIL_LOAD_(__ldlu)
#undef KMM_DETAIL_LOAD_
#define KMM_DETAIL_STORE_(name)             \
    template<class T>                       \
    inline void name(T* address, T value) { \
        *address = value;                   \
    }
KMM_DETAIL_STORE_(__stcg)
KMM_DETAIL_STORE_(__stcs)
KMM_DETAIL_STORE_(__stwb)
KMM_DETAIL_STORE_(__stwt)
#undef KMM_DETAIL_STORE_
// NOLINTEND

#endif  // !KMM_DETAIL_HAS_DEVICE_CODE
