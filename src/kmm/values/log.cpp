// The library's log; see log.hpp. Owns the level and the handler of the process.
#include "kmm/values/log.hpp"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "driver/never_destroyed.hpp"
#include "kmm/core/config.hpp"
#include "kmm/error.hpp"

namespace kmm {

namespace log {

namespace {

constexpr const char* accepted_names = "trace, debug, info, warn, error, critical, off";

std::optional<int> parse_level(const std::string& name) {
    static constexpr struct {
        const char* name;
        int level;
    } known[] = {{"trace", trace}, {"debug", debug}, {"info", info},         {"warn", warn}, {"warning", warn},
                 {"err", error},   {"error", error}, {"critical", critical}, {"off", off}};
    for (const auto& entry : known) {
        const std::string lower = entry.name;
        std::string upper = lower;
        for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        if (name == lower || name == upper) return entry.level;
    }
    return std::nullopt;
}

struct Destination {
    std::mutex mutex;  // held during a call of the handler, so that a replaced one is never called again
    void (*handler)(int level, const char* text, void* user) = nullptr;
    void* user = nullptr;
};

// Never destroyed: threads of the library may log while the process ends.
Destination& destination() { return driver::never_destroyed<Destination>(); }

int level_from_environment() noexcept {
    const char* text = std::getenv("KMM_LOG_LEVEL");
    if (text == nullptr || *text == '\0') return warn;
    try {
        if (std::optional<int> parsed = parse_level(text)) return *parsed;
    } catch (...) {
        return warn;
    }
    std::fprintf(stderr, "[kmm] [warning] KMM_LOG_LEVEL=%s is not understood: use %s\n", text, accepted_names);
    return warn;
}

}  // namespace

const char* refuse_level(const std::string& name) { return parse_level(name) ? nullptr : accepted_names; }

namespace {

std::atomic<int>& current_level() noexcept {
    static std::atomic<int> level{level_from_environment()};
    return level;
}

const char* label(Level level) noexcept {
    switch (level) {
    case trace: return "trace";
    case debug: return "debug";
    case info: return "info";
    case warn: return "warning";
    case error: return "error";
    case critical:
    case off: break;
    }
    return "critical";
}

}  // namespace

int level() noexcept { return current_level().load(std::memory_order_relaxed); }

void write(Level level, const char* text) noexcept {
    if (!wants(level)) return;
    try {
        Destination& to = destination();
        const std::lock_guard lock(to.mutex);
        if (to.handler != nullptr) {
            to.handler(level, text, to.user);
        } else {
            std::fprintf(stderr, "[kmm] [%s] %s\n", label(level), text);
        }
    } catch (...) {
        // A handler that throws breaks its contract; a log line is no reason to end a thread.
        std::fprintf(stderr, "[kmm] [error] the log handler threw; the message was: %s\n", text);
    }
}

}  // namespace log

void set_global_log_level(const std::string& name) {
    const std::optional<int> parsed = log::parse_level(name);
    if (!parsed) {
        throw InvalidArgument("set_global_log_level: \"" + name + "\" is not a level: use " + log::accepted_names);
    }
    log::current_level().store(*parsed, std::memory_order_relaxed);
}

void set_log_handler(void (*handler)(int level, const char* text, void* user), void* user) {
    log::Destination& to = log::destination();
    const std::lock_guard lock(to.mutex);
    to.handler = handler;
    to.user = user;
}

}  // namespace kmm
