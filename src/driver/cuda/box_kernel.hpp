// The kernel that moves a list of boxes: its handle, for those who launch it.
//
// Owns: nothing. Must not know: how lists are made (box_launch.hpp). Any thread.
#pragma once

#include <cstddef>

namespace kmm::driver::vendor {

/// Of blocks of `boxes::threads` threads, any number of them; its parameter is a list of `num_words` words, which is
/// `BoxList::few_words` or `BoxList::max_words`. Serves every device. Null: the vendor's runtime has none. The first
/// call may load what is compiled into this library.
const void* box_kernel(std::size_t num_words) noexcept;

}  // namespace kmm::driver::vendor
