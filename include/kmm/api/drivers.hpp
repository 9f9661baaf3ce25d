// Which drivers a runtime could use on this machine, and why not the others.
//
// Owns: nothing. Any thread. C++17.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kmm/core/identifiers.hpp"

namespace kmm {

struct DriverStatus {
    DriverKind driver = DriverKind::Host;
    bool usable = false;
    std::string reason;  ///< why it cannot be used, or what was found
    std::size_t num_devices = 0;
};

/// Every driver, in the order in which `DriverKind::Auto` tries them. The first call takes the time of starting them.
std::vector<DriverStatus> available_drivers();

}  // namespace kmm
