// Implements <rmm/logger.hpp> and <rmm/detail/logging_assert.hpp>. Any thread.
#include "rmm/logger.hpp"

#include <cstdlib>
#include <memory>

#include "rmm/detail/logging_assert.hpp"

namespace rmm {
inline namespace kmm_v0 {

rapids_logger::sink_ptr default_sink() {
    // Never destroyed, like the logger.
    static const rapids_logger::sink_ptr& sink = *new rapids_logger::sink_ptr([]() -> rapids_logger::sink_ptr {
        const char* filename = std::getenv("RMM_DEBUG_LOG_FILE");
        if (filename != nullptr) return std::make_shared<rapids_logger::basic_file_sink_mt>(filename, true);
        return std::make_shared<rapids_logger::stderr_sink_mt>();
    }());
    return sink;
}

std::string default_pattern() { return "[%6t][%H:%M:%S:%f][%-6l] %v"; }

rapids_logger::logger& default_logger() {
    static rapids_logger::logger& logger = *[] {
        auto made = std::make_unique<rapids_logger::logger>("RMM", std::vector{default_sink()});
        made->set_pattern(default_pattern());
        return made.release();
    }();
    return logger;
}

namespace detail {

void log_failed_assertion(char const* file, int line, char const* expression) {
    default_logger().critical("[%s:%d] Assertion %s failed.", file, line, expression);
    default_logger().flush();
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
