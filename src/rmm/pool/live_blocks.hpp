// The blocks of a pool that are in somebody's hand, by address.
//
// Owns what a pool knows of such a block. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rmm/address_table.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct live_block {
    std::uintptr_t address = 0;  // never 0 in use
    std::size_t size_bytes = 0;
    std::uintptr_t heap_address = 0;
};

using live_blocks = address_table<live_block>;

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
