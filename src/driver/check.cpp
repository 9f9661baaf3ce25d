// Owns: the text of driver errors. Any thread.
#include "driver/check.hpp"

#include "driver/format.hpp"

namespace kmm::driver {

void throw_driver_error(Driver& driver, Status status, const char* attempted) {
    const std::string name = driver.error_name(status);
    const char* text = driver.error_text(status);
    // The failure is delivered by the exception; left pending, it would be found by an innocent later call.
    (void)driver.take_last_error();
    std::string what = driver::format("could not {}: {}", attempted, name);
    if (text != nullptr && *text != '\0') what += driver::format(" ({})", text);
    what += driver::format(" from the {} driver", driver.name());
    throw DriverError(what, status, name);
}

}  // namespace kmm::driver
