// Implements <rmm/error.hpp>. Any thread.
#include "rmm/error.hpp"

namespace rmm {
inline namespace kmm_v0 {

bad_alloc::bad_alloc(std::string const& message) : text_("std::bad_alloc: " + message) {}

out_of_memory::out_of_memory(std::string const& message) : out_of_memory(message, memory_shortage{}) {}

out_of_memory::out_of_memory(std::string const& message, memory_shortage const& shortage)
    : bad_alloc("out_of_memory: " + message), shortage_(shortage) {}

}  // namespace kmm_v0
}  // namespace rmm
