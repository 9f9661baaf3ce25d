// The vendor's runtime under the name that hipMM gave it. Interop only: units of target rmm::rmm.
#pragma once

#include <cuda_runtime_api.h>
