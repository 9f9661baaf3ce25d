#include <rmm/device_vector.hpp>
