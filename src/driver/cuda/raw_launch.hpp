// A kernel launch of the driver contract in the words of the vendor layer.
//
// Owns: nothing. Must not know: the class VendorDriver. For the .cpp files here only.
#pragma once

#include "driver/cuda/vendor.hpp"
#include "driver/driver.hpp"

namespace kmm::driver::vendor {

/// Refers to the parameters of `launch`, which must outlive it.
inline RawLaunch raw_launch(const KernelLaunch& launch) noexcept {
    return {launch.function,
            {launch.grid.x, launch.grid.y, launch.grid.z},
            {launch.block.x, launch.block.y, launch.block.z},
            launch.shared_bytes,
            launch.parameters,
            launch.parameter_bytes};
}

}  // namespace kmm::driver::vendor
