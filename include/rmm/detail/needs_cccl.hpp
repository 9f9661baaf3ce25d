// Included by headers that name types of CCCL (Thrust, CUB, libcu++), before all else. Knows nothing else.
#pragma once

#ifndef RMM_WITH_CCCL
#ifdef RMM_CCCL_WAS_NOT_FOUND
#error "types of CCCL are needed, which CMake did not find beside the CUDA toolkit: set CCCL_DIR to its package"
#else
#error "this header names types of Thrust: link with target rmm::rmm, which brings Thrust and defines RMM_WITH_CCCL"
#endif
#endif
