// The end of a process after a failed assertion, and of an emulated kernel. Any thread.
#include "kmm/detail/panic.hpp"

#include <execinfo.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "driver/format.hpp"
#include "kmm/detail/device_access.hpp"
#include "kmm/emulation/state.hpp"
#include "kmm/error.hpp"

namespace kmm::detail {

void panic_on_host(const char* text, const char* file, int line) {
    if (emulation::in_kernel()) {
        const auto triple = [](const std::uint32_t(&v)[3]) { return driver::format("({}, {}, {})", v[0], v[1], v[2]); };
        const emulation::Where where = emulation::where();
        const std::string message = driver::format("{} (at {}:{}, block {}, thread {})", text, file, line,
                                                   triple(where.block), triple(where.thread));
        throw DeviceError(message, DriverKind::Host, -1, 0, "assertion", false, SourceLocation(file, line, ""));
    }
    std::fprintf(stderr, "panic at %s:%d: %s\n", file, line, text);
    std::fflush(stderr);
    constexpr int max_frames = 64;  // deeper stacks say nothing more
    void* frames[max_frames];
    backtrace_symbols_fd(frames, backtrace(frames, max_frames), STDERR_FILENO);
    std::abort();
}

bool device_access_allowed_without_scope() noexcept { return emulation::in_kernel(); }

}  // namespace kmm::detail
