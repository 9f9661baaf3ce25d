// Dynamic shared memory, spelled alike in all compile modes. Owns the macro only.
#pragma once

#include "kmm/utils/macros.hpp"

/// Inside a kernel: declares `T* name`, the dynamic shared memory of the block (its size is given at launch). Every use
/// in one kernel names the same bytes. Aligned to 128 bytes. The contents are undefined at the start of a block.
#if KMM_DETAIL_HAS_DEVICE_CODE
// All uses share one declaration (the symbol is one), so it has the largest alignment that anyone may need: a
// transaction of 128 bytes.
#define KMM_DYNAMIC_SHARED(T, name)                                                     \
    extern __shared__ __attribute__((aligned(128))) unsigned char kmm_dynamic_shared[]; \
    T* name = reinterpret_cast<T*>(kmm_dynamic_shared)
#elif !defined(KMM_NO_EMULATION)
#include "kmm/emulation/engine.hpp"
#define KMM_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(::kmm::emulation::detail::dynamic_shared())
#endif
