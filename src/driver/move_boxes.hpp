// Boxes of any number of axes as strided copies of up to three.
//
// Owns: nothing. Must not know: how a driver copies. Any thread.
#pragma once

#include "driver/driver.hpp"

namespace kmm::driver {

/// One `copy_box` for each index of the axes before the last two. Of a valid box that is not empty.
Status copy_box_by_box(Driver& driver, const BoxMove& box, StreamHandle stream) noexcept;

}  // namespace kmm::driver
