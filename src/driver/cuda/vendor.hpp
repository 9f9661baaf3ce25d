// Which vendor the files of this directory are compiled for: CUDA, or HIP where a plug-in, which is not there yet,
// compiles the same files.
//
// Owns: that choice. Must not know: the driver contract.
#pragma once

#if defined(KMM_VENDOR_HIP)
#include "driver/hip/vendor_hip.hpp"
#else
#include "driver/cuda/vendor_cuda.hpp"
#include "driver/cuda/vendor_cuda_reach.hpp"
#include "driver/cuda/vendor_cuda_work.hpp"
#endif
