// Names of libcu++, CUB and Thrust, which come with CCCL::CCCL.
#include <cub/version.cuh>
#include <thrust/version.h>

#include <cuda/std/cstddef>
#include <cuda/std/span>

static_assert(CUB_VERSION == THRUST_VERSION, "one CCCL");

cuda::std::size_t length(cuda::std::span<int const> numbers) { return numbers.size(); }
