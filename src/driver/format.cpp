// Implements format.hpp. The one file that compiles what fmt does: its code is nowhere else. Pure; any thread.
#define FMT_HEADER_ONLY
#include "driver/format.hpp"

#include <fmt/format.h>

namespace kmm::driver {

std::string vformat(fmt::string_view text, fmt::format_args values) { return fmt::vformat(text, values); }

std::string count_text(std::size_t count, const char* what) {
    return driver::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace kmm::driver
