// Loggers and their sinks: the part of RAPIDS' logger that programs written for RMM touch. Our own, so that neither
// RAPIDS' library nor spdlog is needed; in an inline namespace, so that both may live in one process.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <rapids_logger/log_levels.h>
#include <rmm/detail/export.hpp>

namespace RMM_EXPORT rapids_logger {
inline namespace kmm_v0 {

/// How much a message matters. `off` and `n_levels` are no messages' levels: nothing is logged at them.
enum class level_enum : std::int32_t {
    trace = RAPIDS_LOGGER_LOG_LEVEL_TRACE,
    debug = RAPIDS_LOGGER_LOG_LEVEL_DEBUG,
    info = RAPIDS_LOGGER_LOG_LEVEL_INFO,
    warn = RAPIDS_LOGGER_LOG_LEVEL_WARN,
    error = RAPIDS_LOGGER_LOG_LEVEL_ERROR,
    critical = RAPIDS_LOGGER_LOG_LEVEL_CRITICAL,
    off = RAPIDS_LOGGER_LOG_LEVEL_OFF,
    n_levels
};

/// Where lines go. One call at a time reaches the functions of a derived class. Thread-safe; may be shared by loggers.
/// A child process made by fork() may go on with it: neither a line nor a lock of the parent is left behind.
class RMM_EXPORT sink {
  public:
    virtual ~sink();
    sink(sink const&) = delete;
    sink& operator=(sink const&) = delete;

    /// Takes one or more whole lines, each with its newline. Throws what the derived class throws.
    void write(level_enum level, std::string_view lines);
    void flush();

    /// Whether the lines go into an object of the program (a stream, a callback), which only the thread that logs may
    /// touch. Lines for other sinks may be written by another thread.
    [[nodiscard]] virtual bool belongs_to_program() const noexcept;

  protected:
    sink();

  private:
    virtual void do_write(level_enum level, std::string_view lines) = 0;
    virtual void do_flush() = 0;

    friend class basic_file_sink_mt;
    struct state;
    std::unique_ptr<state> state_;
};

using sink_ptr = std::shared_ptr<sink>;

/// A file, written in pieces of about 4 KiB and whole lines; also when the process exits or forks. A write that fails
/// is reported on stderr, once for each sink.
class RMM_EXPORT basic_file_sink_mt : public sink {
  public:
    /// Opens the file to append, or empties it; makes folders that are missing. Throws std::runtime_error.
    explicit basic_file_sink_mt(std::string const& filename, bool truncate = false);
    ~basic_file_sink_mt() override;
    [[nodiscard]] bool belongs_to_program() const noexcept override;

  private:
    void do_write(level_enum level, std::string_view lines) override;
    void do_flush() override;
};

/// A stream of the program, which must outlive the sink. `force_flush`: after every line.
class RMM_EXPORT ostream_sink_mt : public sink {
  public:
    explicit ostream_sink_mt(std::ostream& stream, bool force_flush = false);
    ~ostream_sink_mt() override;

  private:
    void do_write(level_enum level, std::string_view lines) override;
    void do_flush() override;

    std::ostream* stream_;
    bool force_flush_;
};

/// Nowhere.
class RMM_EXPORT null_sink_mt : public sink {
  public:
    null_sink_mt();
    ~null_sink_mt() override;
    [[nodiscard]] bool belongs_to_program() const noexcept override;

  private:
    void do_write(level_enum level, std::string_view lines) override;
    void do_flush() override;
};

/// The standard error of the process, unbuffered.
class RMM_EXPORT stderr_sink_mt : public sink {
  public:
    stderr_sink_mt();
    ~stderr_sink_mt() override;
    [[nodiscard]] bool belongs_to_program() const noexcept override;

  private:
    void do_write(level_enum level, std::string_view lines) override;
    void do_flush() override;
};

typedef void (*log_callback_t)(int lvl, const char* msg);
typedef void (*flush_callback_t)();

/// Functions of the program: the first gets each line, with its newline. Called by one thread at a time and with no
/// lock held: what they log through a logger that has the sink comes when they have returned.
class RMM_EXPORT callback_sink_mt : public sink {
  public:
    explicit callback_sink_mt(log_callback_t const& callback, flush_callback_t const& flush = nullptr);
    ~callback_sink_mt() override;

  private:
    void do_write(level_enum level, std::string_view lines) override;
    void do_flush() override;

    log_callback_t callback_;
    flush_callback_t flush_;
};

namespace detail {

/// What of an argument a C function with variable arguments gets.
template<class T>
auto printf_argument(T const& value) {
    if constexpr (std::is_same<T, std::string>::value) {
        return value.c_str();
    } else if constexpr (std::is_array<T>::value) {
        return &value[0];
    } else {
        static_assert(std::is_scalar<T>::value, "printf prints numbers, pointers and strings");
        return value;
    }
}

}  // namespace detail

/// Formats messages and hands them to its sinks. Thread-safe, but for moving and for iterating over sinks(). A logger
/// that was moved from may only be destroyed or assigned to.
///
/// The level is `info` at first, the flush level `off` (flush only when asked), the pattern "[%Y-%m-%d %H:%M:%S.%e]
/// [%n] [%l] %v".
class RMM_EXPORT logger {
    struct state;

  public:
    /// The sinks of a logger. Changing them is safe while others log; iterating is not.
    class RMM_EXPORT sink_vector {
      public:
        using iterator = std::vector<sink_ptr>::iterator;
        using const_iterator = std::vector<sink_ptr>::const_iterator;

        /// Throws std::invalid_argument for null.
        void push_back(sink_ptr const& sink);
        void push_back(sink_ptr&& sink);
        void pop_back();
        void clear();
        [[nodiscard]] iterator begin() { return sinks_.begin(); }
        [[nodiscard]] iterator end() { return sinks_.end(); }
        [[nodiscard]] const_iterator begin() const { return sinks_.begin(); }
        [[nodiscard]] const_iterator end() const { return sinks_.end(); }
        [[nodiscard]] const_iterator cbegin() const { return sinks_.cbegin(); }
        [[nodiscard]] const_iterator cend() const { return sinks_.cend(); }

      private:
        friend struct logger::state;
        explicit sink_vector(state& owner) : owner_{&owner} {}

        state* owner_;  // stays where it is when the logger moves
        std::vector<sink_ptr> sinks_;
    };

    /// Into a file, which is emptied; folders that are missing are made. Throws std::runtime_error.
    logger(std::string name, std::string filename);
    /// Into a stream, which must outlive the logger.
    logger(std::string name, std::ostream& stream);
    /// Throws std::invalid_argument if a sink is null.
    logger(std::string name, std::vector<sink_ptr> sinks);
    ~logger();
    logger(logger&& other) noexcept;
    logger& operator=(logger&& other) noexcept;
    logger(logger const&) = delete;
    logger& operator=(logger const&) = delete;

    /// The message as it stands: a % in it means itself. Throws what a sink throws.
    void log(level_enum level, std::string const& message);
    /// As printf formats; std::string is welcome for %s. Without arguments the format is a message as it stands.
    template<class... A>
    void log(level_enum level, std::string const& format, A&&... arguments) {
        log(level, format.c_str(), arguments...);
    }
    template<class... A>
    void log(level_enum level, char const* format, A&&... arguments) {
        if (!should_log(level)) return;
        if constexpr (sizeof...(A) == 0)
            log_message(level, format);
        else
            log_printf(level, format, detail::printf_argument(arguments)...);
    }

    // The same for each level. `Format`: std::string or char const*.
    template<class Format, class... A>
    void trace(Format const& format, A&&... arguments) {
        log(level_enum::trace, format, arguments...);
    }
    template<class Format, class... A>
    void debug(Format const& format, A&&... arguments) {
        log(level_enum::debug, format, arguments...);
    }
    template<class Format, class... A>
    void info(Format const& format, A&&... arguments) {
        log(level_enum::info, format, arguments...);
    }
    template<class Format, class... A>
    void warn(Format const& format, A&&... arguments) {
        log(level_enum::warn, format, arguments...);
    }
    template<class Format, class... A>
    void error(Format const& format, A&&... arguments) {
        log(level_enum::error, format, arguments...);
    }
    template<class Format, class... A>
    void critical(Format const& format, A&&... arguments) {
        log(level_enum::critical, format, arguments...);
    }

    /// The same object as long as the logger lives, also after it was moved.
    [[nodiscard]] sink_vector& sinks();
    [[nodiscard]] sink_vector const& sinks() const;

    [[nodiscard]] level_enum level() const;
    void set_level(level_enum level);
    /// spdlog's levels, which older programs pass: the same numbers.
    template<class Unscoped,
             std::enable_if_t<std::is_enum<Unscoped>::value && std::is_convertible<Unscoped, int>::value, int> = 0>
    void set_level(Unscoped level) {
        set_level(static_cast<level_enum>(level));
    }
    /// Flushes every sink.
    void flush();
    /// Flushes after every message of this level or above; `off`: after none.
    void flush_on(level_enum level);
    [[nodiscard]] level_enum flush_level() const;
    [[nodiscard]] bool should_log(level_enum level) const;
    /// What a line looks like. `%v` message, `%l` level, `%n` name, `%t` thread of the system, `%P` process,
    /// `%Y %m %d %H %M %S` local time, `%e %f %F` milli-, micro-, nanoseconds, `%%`. A number before the letter is a
    /// width: right-justified, with `-` left, with `=` in the middle. Anything else stands for itself.
    void set_pattern(std::string pattern);

  private:
    void log_message(level_enum level, std::string_view message);
    void log_printf(level_enum level, char const* format, ...);

    std::unique_ptr<state> state_;
};

/// Sets a logger's level for as long as it lives. The logger must outlive it.
struct RMM_EXPORT log_level_setter {
    explicit log_level_setter(logger& subject, level_enum level) : subject_{subject}, previous_{subject.level()} {
        subject.set_level(level);
    }
    ~log_level_setter() { subject_.set_level(previous_); }
    log_level_setter(log_level_setter const&) = delete;
    log_level_setter& operator=(log_level_setter const&) = delete;

  private:
    logger& subject_;
    level_enum previous_;
};

}  // namespace kmm_v0
}  // namespace RMM_EXPORT rapids_logger
