// Implements the logger of <rapids_logger/logger.hpp>: what a line looks like, and who gets it. Any thread; no lock is
// held while sinks write.
#include "rapids_logger/logger.hpp"

#include <ctime>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "driver/locks.hpp"
#include "driver/log_level.hpp"
#include "rmm/process_events.hpp"

namespace rapids_logger {
inline namespace kmm_v0 {
namespace {

using rmm::detail::process_observer;

static_assert(static_cast<int>(level_enum::trace) == kmm::log::trace &&
                  static_cast<int>(level_enum::warn) == kmm::log::warn &&
                  static_cast<int>(level_enum::off) == kmm::log::off,
              "a level has one number");

/// Levels that a message can have.
bool is_loggable(level_enum level) noexcept { return level < level_enum::off; }

void expect_sink(const sink_ptr& sink) {
    if (sink == nullptr) throw std::invalid_argument("a sink of a logger is null");
}

void append_number(std::string* text, long value, int num_digits) {
    char digits[24];
    std::snprintf(digits, sizeof digits, "%0*ld", num_digits, value);
    *text += digits;
}

enum class justify { right, left, middle };

void append_justified(std::string* text, std::string_view field, std::size_t width, justify where) {
    const std::size_t blanks = field.size() < width ? width - field.size() : 0;
    const std::size_t before = where == justify::right ? blanks : where == justify::left ? 0 : blanks / 2;
    text->append(before, ' ').append(field).append(blanks - before, ' ');
}

/// What one line is made of.
struct message {
    level_enum level;
    std::string_view text;
    std::string_view logger_name;
    std::timespec time;
    std::tm local_time;
};

/// False for a letter that means nothing.
bool append_field(std::string* field, char letter, const message& m) {
    switch (letter) {
    case 'v': *field += m.text; return true;
    case 'l': *field += kmm::log::name_of(static_cast<kmm::log::Level>(m.level)); return true;
    case 'n': *field += m.logger_name; return true;
    case 't': append_number(field, rmm::detail::thread_id(), 1); return true;
    case 'P': append_number(field, getpid(), 1); return true;
    case 'Y': append_number(field, m.local_time.tm_year + 1900L, 4); return true;
    case 'm': append_number(field, m.local_time.tm_mon + 1L, 2); return true;
    case 'd': append_number(field, m.local_time.tm_mday, 2); return true;
    case 'H': append_number(field, m.local_time.tm_hour, 2); return true;
    case 'M': append_number(field, m.local_time.tm_min, 2); return true;
    case 'S': append_number(field, m.local_time.tm_sec, 2); return true;
    case 'e': append_number(field, m.time.tv_nsec / 1000000, 3); return true;
    case 'f': append_number(field, m.time.tv_nsec / 1000, 6); return true;
    case 'F': append_number(field, m.time.tv_nsec, 9); return true;
    case '%': *field += '%'; return true;
    default: return false;
    }
}

void append_line(std::string* line, std::string_view pattern, const message& m) {
    constexpr std::size_t most_width = 64;  // a typing error must not fill the disk
    std::string field;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] != '%') {
            *line += pattern[i];
            continue;
        }
        const std::size_t begin = i++;
        justify where = justify::right;
        if (i < pattern.size() && (pattern[i] == '-' || pattern[i] == '='))
            where = pattern[i++] == '-' ? justify::left : justify::middle;
        std::size_t width = 0;
        for (; i < pattern.size() && pattern[i] >= '0' && pattern[i] <= '9'; ++i)
            width = std::min(most_width, 10 * width + static_cast<std::size_t>(pattern[i] - '0'));
        field.clear();
        if (i < pattern.size() && append_field(&field, pattern[i], m))
            append_justified(line, field, width, where);
        else
            *line += pattern.substr(begin, i - begin + 1);
    }
    *line += '\n';
}

}  // namespace

struct logger::state final : process_observer {
    state(std::string logger_name, std::vector<sink_ptr> first_sinks) : name(std::move(logger_name)), sinks(*this) {
        for (sink_ptr& sink : first_sinks) sinks.push_back(std::move(sink));
        enlist(place::logger);
    }
    ~state() { withdraw(place::logger); }

    void before_fork() noexcept override KMM_ACQUIRE(mutex) { mutex.lock(); }
    void after_fork(bool) noexcept override KMM_RELEASE(mutex) { mutex.unlock(); }
    void at_exit() noexcept override {}  // its sinks see to their lines

    void write(level_enum message_level, std::string_view text) {
        message m{message_level, text, name, {}, {}};
        (void)clock_gettime(CLOCK_REALTIME, &m.time);
        (void)localtime_r(&m.time.tv_sec, &m.local_time);
        std::string line;
        std::vector<sink_ptr> who;
        {
            const kmm::locks::Guard lock(mutex);
            append_line(&line, pattern, m);
            who = sinks.sinks_;
        }
        const bool flushes = message_level >= flush_level.load(std::memory_order_relaxed);
        for (const sink_ptr& sink : who) {
            sink->write(message_level, line);
            if (flushes) sink->flush();
        }
    }

    void flush() {
        std::vector<sink_ptr> who;
        {
            const kmm::locks::Guard lock(mutex);
            who = sinks.sinks_;
        }
        for (const sink_ptr& sink : who) sink->flush();
    }

    const std::string name;
    std::atomic<level_enum> level{level_enum::info};
    std::atomic<level_enum> flush_level{level_enum::off};
    kmm::locks::Mutex mutex;  // of what follows: the lists of sinks, which a public header has, too
    std::string pattern KMM_GUARDED_BY(mutex) = "[%Y-%m-%d %H:%M:%S.%e] [%n] [%l] %v";
    sink_vector sinks;

    static kmm::locks::Mutex& mutex_of(const sink_vector& sinks) { return sinks.owner_->mutex; }
};

// ---- the sinks of a logger. What is dropped goes outside of the lock: a sink's end takes the lock of those who fork.

void logger::sink_vector::push_back(sink_ptr const& sink) { push_back(sink_ptr(sink)); }

void logger::sink_vector::push_back(sink_ptr&& sink) {
    expect_sink(sink);
    const kmm::locks::Guard lock(state::mutex_of(*this));
    sinks_.push_back(std::move(sink));
}

void logger::sink_vector::pop_back() {
    sink_ptr dropped;
    const kmm::locks::Guard lock(state::mutex_of(*this));
    dropped = std::move(sinks_.back());
    sinks_.pop_back();
}

void logger::sink_vector::clear() {
    std::vector<sink_ptr> dropped;
    const kmm::locks::Guard lock(state::mutex_of(*this));
    dropped.swap(sinks_);
}

// ---- the logger

logger::logger(std::string name, std::string filename)
    : logger(std::move(name), std::vector<sink_ptr>{std::make_shared<basic_file_sink_mt>(filename, true)}) {}

logger::logger(std::string name, std::ostream& stream)
    : logger(std::move(name), std::vector<sink_ptr>{std::make_shared<ostream_sink_mt>(stream)}) {}

logger::logger(std::string name, std::vector<sink_ptr> sinks)
    : state_(std::make_unique<state>(std::move(name), std::move(sinks))) {}

logger::~logger() = default;

logger::logger(logger&& other) noexcept = default;

logger& logger::operator=(logger&& other) noexcept = default;

void logger::log(level_enum level, std::string const& message) {
    if (should_log(level)) log_message(level, message);
}

void logger::log_message(level_enum level, std::string_view message) { state_->write(level, message); }

void logger::log_printf(level_enum level, char const* format, ...) {
    char short_text[256];  // most messages
    std::va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(short_text, sizeof short_text, format, arguments);
    va_end(arguments);
    if (length < 0) {
        log_message(level, format);  // malformed: better than nothing
        return;
    }
    const auto size = static_cast<std::size_t>(length);
    if (size < sizeof short_text) {
        log_message(level, std::string_view(short_text, size));
        return;
    }
    std::string text(size + 1, '\0');
    va_start(arguments, format);
    (void)std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    log_message(level, std::string_view(text).substr(0, size));
}

logger::sink_vector& logger::sinks() { return state_->sinks; }

logger::sink_vector const& logger::sinks() const { return state_->sinks; }

level_enum logger::level() const { return state_->level.load(std::memory_order_relaxed); }

void logger::set_level(level_enum level) { state_->level.store(level, std::memory_order_relaxed); }

void logger::flush() { state_->flush(); }

void logger::flush_on(level_enum level) { state_->flush_level.store(level, std::memory_order_relaxed); }

level_enum logger::flush_level() const { return state_->flush_level.load(std::memory_order_relaxed); }

bool logger::should_log(level_enum level) const { return is_loggable(level) && level >= this->level(); }

void logger::set_pattern(std::string pattern) {
    const kmm::locks::Guard lock(state_->mutex);
    state_->pattern = std::move(pattern);
}

}  // namespace kmm_v0
}  // namespace rapids_logger
