// Implements debug_environment.hpp. Any thread.
#include "rmm/debug/debug_environment.hpp"

#include <cstdlib>
#include <string>

#include "driver/byte_size.hpp"
#include "driver/format.hpp"
#include "rmm/error.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// Larger zones find no more, and a typing error should not eat the device.
constexpr std::size_t most_red_zone_bytes = std::size_t{1} << 20;

[[noreturn]] void refuse(std::string_view text, std::string_view word, const std::string& why) {
    throw rmm::logic_error(
        kmm::driver::format("RMM_DEBUG is \"{}\": \"{}\" {}\n"
                            "  known are 0 (off), 1 (the same as redzones,fill,quarantine,leaks), and lists, separated "
                            "by commas, of redzones, redzones=SIZE, fill, quarantine, quarantine=SIZE, leaks, stacks, "
                            "sync, nvtx; sizes are written as 64KiB or 1GB",
                            text, word, why));
}

std::size_t size_in(std::string_view text, std::string_view word, std::string_view value) {
    std::string why;
    if (!value.empty() && value.back() == '%') refuse(text, word, "is a percentage of nothing");
    const auto bytes = kmm::driver::parse_byte_size(value, 0, &why);
    if (!bytes) refuse(text, word, "has no size: " + why);
    return *bytes;
}

}  // namespace

debug_environment parse_debug_environment(std::string_view text) {
    debug_environment found;
    const debug_options defaults;
    if (text.empty() || text == "0") return found;
    found.enabled = true;
    debug_options& o = found.options;
    o = {};
    o.red_zone_bytes = 0;
    o.fill = false;
    o.quarantine_bytes = 0;
    o.report_leaks = false;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string_view word = text.substr(begin, end - begin);
        begin = end + 1;
        const std::size_t equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        const bool has_value = equals != std::string_view::npos;
        const std::string_view value = has_value ? word.substr(equals + 1) : std::string_view{};
        if (has_value && name != "redzones" && name != "quarantine")
            refuse(text, word, "takes no value, or is unknown");
        if (name == "redzones") {
            o.red_zone_bytes = has_value ? size_in(text, word, value) : defaults.red_zone_bytes;
            if (o.red_zone_bytes > most_red_zone_bytes) refuse(text, word, "is more than 1 MiB around each block");
        } else if (name == "quarantine") {
            o.quarantine_bytes = has_value ? size_in(text, word, value) : defaults.quarantine_bytes;
        } else if (name == "fill") {
            o.fill = true;
        } else if (name == "leaks") {
            o.report_leaks = true;
        } else if (name == "stacks") {
            o.stacks = true;
        } else if (name == "sync") {
            o.synchronous = true;
        } else if (name == "nvtx") {
            found.nvtx = true;
        } else if (name == "1") {
            o.fill = o.report_leaks = true;
            if (o.red_zone_bytes == 0) o.red_zone_bytes = defaults.red_zone_bytes;
            if (o.quarantine_bytes == 0) o.quarantine_bytes = defaults.quarantine_bytes;
        } else {
            refuse(text, word, "is unknown");
        }
    }
    // A tool sees what is written between blocks only where something lies between them.
    if (found.nvtx && o.red_zone_bytes == 0) o.red_zone_bytes = defaults.red_zone_bytes;
    return found;
}

debug_environment read_debug_environment() {
    const char* const text = std::getenv("RMM_DEBUG");
    return parse_debug_environment(text == nullptr ? std::string_view{} : std::string_view{text});
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
