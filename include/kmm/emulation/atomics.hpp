// CUDA's atomic functions, with CUDA's overloads, as compiler built-ins: atomic between all threads of the process, so
// between the threads of all virtual devices. Each also exists with _block and _system behind its name. Sequentially
// consistent, which is more than CUDA's relaxed order: a race detector then understands the usual fence-and-count code.
#pragma once

#include "kmm/utils/macros.hpp"

#if !KMM_DETAIL_HAS_DEVICE_CODE

#include "kmm/emulation/beside_cuda.hpp"

namespace kmm::emulation::detail {

/// Replaces *address by next(old) and returns old.
template<class T, class Next>
inline T atomic_update(T* address, const Next& next) {
    T old;
    __atomic_load(address, &old, __ATOMIC_SEQ_CST);
    T desired = next(old);
    // The built-in compares bits, so a NaN does not make it loop for ever.
    while (!__atomic_compare_exchange(address, &old, &desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        desired = next(old);
    }
    return old;
}

template<class T>
inline T atomic_add(T* address, T value) {
    return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}
inline float atomic_add(float* address, float value) {
    return atomic_update(address, [=](float old) { return old + value; });
}
inline double atomic_add(double* address, double value) {
    return atomic_update(address, [=](double old) { return old + value; });
}

template<class T>
inline T atomic_sub(T* address, T value) {
    return __atomic_fetch_sub(address, value, __ATOMIC_SEQ_CST);
}

template<class T>
inline T atomic_exch(T* address, T value) {
    T old;
    __atomic_exchange(address, &value, &old, __ATOMIC_SEQ_CST);
    return old;
}

template<class T>
inline T atomic_min(T* address, T value) {
    return atomic_update(address, [=](T old) { return value < old ? value : old; });
}

template<class T>
inline T atomic_max(T* address, T value) {
    return atomic_update(address, [=](T old) { return old < value ? value : old; });
}

template<class T>
inline T atomic_and(T* address, T value) {
    return __atomic_fetch_and(address, value, __ATOMIC_SEQ_CST);
}

template<class T>
inline T atomic_or(T* address, T value) {
    return __atomic_fetch_or(address, value, __ATOMIC_SEQ_CST);
}

template<class T>
inline T atomic_xor(T* address, T value) {
    return __atomic_fetch_xor(address, value, __ATOMIC_SEQ_CST);
}

inline unsigned atomic_inc(unsigned* address, unsigned limit) {
    return atomic_update(address, [=](unsigned old) { return old >= limit ? 0u : old + 1u; });
}

inline unsigned atomic_dec(unsigned* address, unsigned limit) {
    return atomic_update(address, [=](unsigned old) { return old == 0 || old > limit ? limit : old - 1u; });
}

template<class T>
inline T atomic_cas(T* address, T compare, T value) {
    __atomic_compare_exchange(address, &compare, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return compare;
}

}  // namespace kmm::emulation::detail

#define KMM_DETAIL_ATOMIC_(name, function, T)                                                               \
    inline T name(T* address, T value) { return kmm::emulation::detail::function(address, value); }         \
    inline T name##_block(T* address, T value) { return kmm::emulation::detail::function(address, value); } \
    inline T name##_system(T* address, T value) { return kmm::emulation::detail::function(address, value); }
#define KMM_DETAIL_ATOMIC_CAS_(T)                                                                           \
    inline T atomicCAS(T* address, T compare, T value) {                                                    \
        return kmm::emulation::detail::atomic_cas(address, compare, value);                                 \
    }                                                                                                       \
    inline T atomicCAS_block(T* address, T compare, T value) { return atomicCAS(address, compare, value); } \
    inline T atomicCAS_system(T* address, T compare, T value) { return atomicCAS(address, compare, value); }

KMM_DETAIL_ATOMIC_(atomicAdd, atomic_add, int)
KMM_DETAIL_ATOMIC_(atomicAdd, atomic_add, unsigned int)
KMM_DETAIL_ATOMIC_(atomicAdd, atomic_add, unsigned long long)
KMM_DETAIL_ATOMIC_(atomicAdd, atomic_add, float)
KMM_DETAIL_ATOMIC_(atomicAdd, atomic_add, double)
KMM_DETAIL_ATOMIC_(atomicSub, atomic_sub, int)
KMM_DETAIL_ATOMIC_(atomicSub, atomic_sub, unsigned int)
KMM_DETAIL_ATOMIC_(atomicExch, atomic_exch, int)
KMM_DETAIL_ATOMIC_(atomicExch, atomic_exch, unsigned int)
KMM_DETAIL_ATOMIC_(atomicExch, atomic_exch, unsigned long long)
KMM_DETAIL_ATOMIC_(atomicExch, atomic_exch, float)
KMM_DETAIL_ATOMIC_(atomicMin, atomic_min, int)
KMM_DETAIL_ATOMIC_(atomicMin, atomic_min, unsigned int)
KMM_DETAIL_ATOMIC_(atomicMin, atomic_min, long long)
KMM_DETAIL_ATOMIC_(atomicMin, atomic_min, unsigned long long)
KMM_DETAIL_ATOMIC_(atomicMax, atomic_max, int)
KMM_DETAIL_ATOMIC_(atomicMax, atomic_max, unsigned int)
KMM_DETAIL_ATOMIC_(atomicMax, atomic_max, long long)
KMM_DETAIL_ATOMIC_(atomicMax, atomic_max, unsigned long long)
KMM_DETAIL_ATOMIC_(atomicAnd, atomic_and, int)
KMM_DETAIL_ATOMIC_(atomicAnd, atomic_and, unsigned int)
KMM_DETAIL_ATOMIC_(atomicAnd, atomic_and, unsigned long long)
KMM_DETAIL_ATOMIC_(atomicOr, atomic_or, int)
KMM_DETAIL_ATOMIC_(atomicOr, atomic_or, unsigned int)
KMM_DETAIL_ATOMIC_(atomicOr, atomic_or, unsigned long long)
KMM_DETAIL_ATOMIC_(atomicXor, atomic_xor, int)
KMM_DETAIL_ATOMIC_(atomicXor, atomic_xor, unsigned int)
KMM_DETAIL_ATOMIC_(atomicXor, atomic_xor, unsigned long long)
KMM_DETAIL_ATOMIC_(atomicInc, atomic_inc, unsigned int)
KMM_DETAIL_ATOMIC_(atomicDec, atomic_dec, unsigned int)
KMM_DETAIL_ATOMIC_CAS_(int)
KMM_DETAIL_ATOMIC_CAS_(unsigned int)
KMM_DETAIL_ATOMIC_CAS_(unsigned long long)
KMM_DETAIL_ATOMIC_CAS_(unsigned short)
#undef KMM_DETAIL_ATOMIC_CAS_
#undef KMM_DETAIL_ATOMIC_

#endif  // !KMM_DETAIL_HAS_DEVICE_CODE
