// Owns: the text of driver errors. Any thread.
#include "driver/check.hpp"

namespace kmm::driver {

void throw_driver_error(Driver& driver, Status status, const char* attempted) {
    const std::string name = driver.error_name(status);
    const char* text = driver.error_text(status);
    // The failure is delivered by the exception; left pending, it would be found by an innocent later call.
    (void)driver.take_last_error();
    std::string what = std::string("could not ") + attempted + ": " + name;
    if (text != nullptr && *text != '\0') what += std::string(" (") + text + ")";
    what += std::string(" from the ") + driver.name() + " driver";
    throw DriverError(what, status, name);
}

}  // namespace kmm::driver
