// Implements the sinks of <rapids_logger/logger.hpp>. Any thread. A sink of the library's has a lock, which is held
// over the system call. What is the program's, a stream or a callback, is called with no lock held, by the thread that
// logs, one at a time; what it logs itself comes when it has returned.
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <new>
#include <ostream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "rapids_logger/logger.hpp"
#include "rmm/process_events.hpp"
#include "rmm/status.hpp"

namespace rapids_logger {
inline namespace kmm_v0 {
namespace {

using rmm::detail::process_observer;

/// Writes all of it, or says why not: an errno.
int write_all(int descriptor, std::string_view text) noexcept {
    while (!text.empty()) {
        const ssize_t written = ::write(descriptor, text.data(), text.size());
        if (written < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return 0;
}

/// A file, and what is on its way into it.
struct output {
    // What stdio holds back too: a file is rarely further behind, and a line costs no system call of its own.
    static constexpr std::size_t most_pending_bytes = 4096;

    int descriptor = -1;  ///< none
    std::string name;
    std::string pending;
    bool reported = false;

    void write_out() noexcept {
        if (pending.empty()) return;
        const int error = write_all(descriptor, pending);
        pending.clear();
        if (error == 0 || reported) return;
        reported = true;
        rmm::detail::report_misuse("could not write to the log file '", name, "': ", std::strerror(error));
    }
};

}  // namespace

struct sink::state final : process_observer {
    state() { enlist(place::sink); }
    ~state() {
        withdraw(place::sink);
        file.write_out();
        if (file.descriptor >= 0) (void)::close(file.descriptor);
    }

    // Nothing is held back over a fork, or the child would write it too.
    void before_fork() noexcept override KMM_ACQUIRE(mutex) {
        mutex.lock();
        file.write_out();
    }
    void after_fork(bool in_child) noexcept override KMM_RELEASE(mutex) {
        if (in_child) {
            if (!delivers_here()) {  // the delivering thread does not exist in the child
                waiting.clear();
                delivering = false;
            }
            new (&free_again) kmm::locks::Condition;  // nor do its waiters
        }
        mutex.unlock();
    }
    /// Tells clang: `write` and `flush` call the sink of a file under the lock.
    void expect_held() const noexcept KMM_ASSERT_HELD(mutex) {}
    void at_exit() noexcept override {
        const kmm::locks::Guard lock(mutex);
        exiting = true;
        file.write_out();
    }

    /// For the program's code: a line, or a flush.
    struct item {
        level_enum level = level_enum::off;
        std::string lines;
        bool flushes = false;
    };

    bool delivers_here() const noexcept KMM_REQUIRES(mutex) {
        return delivering && deliverer == std::this_thread::get_id();
    }

    /// Hands over the item and what the program's code logs meanwhile. Throws what that throws; what waits behind it is
    /// dropped.
    void deliver(sink& to, item next) {
        kmm::locks::Lock lock(mutex);
        if (delivers_here()) {
            waiting.push_back(std::move(next));
            return;
        }
        while (delivering) free_again.wait(lock);
        struct done {
            state& self;
            ~done() {
                self.waiting.clear();
                self.delivering = false;
                self.free_again.notify_one();
            }
        } const at_the_end{*this};
        delivering = true;
        deliverer = std::this_thread::get_id();
        for (;;) {
            {
                const kmm::locks::Unlocked without(lock, mutex);
                if (next.flushes)
                    to.do_flush();
                else
                    to.do_write(next.level, next.lines);
            }
            if (waiting.empty()) return;
            next = std::move(waiting.front());
            waiting.pop_front();
        }
    }

    kmm::locks::Mutex mutex;
    output file KMM_GUARDED_BY(mutex);
    bool exiting KMM_GUARDED_BY(mutex) = false;
    kmm::locks::Condition free_again;
    std::deque<item> waiting KMM_GUARDED_BY(mutex);  ///< logged by the program's code that is being called
    bool delivering KMM_GUARDED_BY(mutex) = false;
    std::thread::id deliverer KMM_GUARDED_BY(mutex);
};

sink::sink() : state_(std::make_unique<state>()) {}

sink::~sink() = default;

void sink::write(level_enum level, std::string_view lines) {
    if (belongs_to_program()) return state_->deliver(*this, {level, std::string(lines), false});
    const kmm::locks::Guard lock(state_->mutex);
    do_write(level, lines);
}

void sink::flush() {
    if (belongs_to_program()) return state_->deliver(*this, {level_enum::off, {}, true});
    const kmm::locks::Guard lock(state_->mutex);
    do_flush();
}

bool sink::belongs_to_program() const noexcept { return true; }

// ---- a file

basic_file_sink_mt::basic_file_sink_mt(std::string const& filename, bool truncate) {
    std::error_code ignored;  // opening tells what is wrong with the folder
    const std::filesystem::path folder = std::filesystem::path(filename).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
    const int descriptor =
        ::open(filename.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | (truncate ? O_TRUNC : 0), 0666);
    if (descriptor < 0)
        throw std::runtime_error(kmm::driver::format("could not open the log file '{}': {}", filename,
                                                     std::generic_category().message(errno)));
    const kmm::locks::Guard lock(state_->mutex);
    state_->file.name = filename;
    state_->file.descriptor = descriptor;
}

basic_file_sink_mt::~basic_file_sink_mt() = default;

bool basic_file_sink_mt::belongs_to_program() const noexcept { return false; }

void basic_file_sink_mt::do_write(level_enum, std::string_view lines) {
    state_->expect_held();
    output& file = state_->file;
    file.pending += lines;
    if (state_->exiting || file.pending.size() >= output::most_pending_bytes) file.write_out();
}

void basic_file_sink_mt::do_flush() {
    state_->expect_held();
    state_->file.write_out();
}

// ---- a stream

ostream_sink_mt::ostream_sink_mt(std::ostream& stream, bool force_flush)
    : stream_(&stream), force_flush_(force_flush) {}

ostream_sink_mt::~ostream_sink_mt() = default;

void ostream_sink_mt::do_write(level_enum, std::string_view lines) {
    stream_->write(lines.data(), static_cast<std::streamsize>(lines.size()));
    if (force_flush_) stream_->flush();
}

void ostream_sink_mt::do_flush() { stream_->flush(); }

// ---- nowhere

null_sink_mt::null_sink_mt() = default;

null_sink_mt::~null_sink_mt() = default;

bool null_sink_mt::belongs_to_program() const noexcept { return false; }

void null_sink_mt::do_write(level_enum, std::string_view) {}

void null_sink_mt::do_flush() {}

// ---- standard error

stderr_sink_mt::stderr_sink_mt() = default;

stderr_sink_mt::~stderr_sink_mt() = default;

bool stderr_sink_mt::belongs_to_program() const noexcept { return false; }

void stderr_sink_mt::do_write(level_enum, std::string_view lines) { (void)write_all(STDERR_FILENO, lines); }

void stderr_sink_mt::do_flush() {}

// ---- functions

callback_sink_mt::callback_sink_mt(log_callback_t const& callback, flush_callback_t const& flush)
    : callback_(callback), flush_(flush) {}

callback_sink_mt::~callback_sink_mt() = default;

void callback_sink_mt::do_write(level_enum level, std::string_view lines) {
    if (callback_ != nullptr) callback_(static_cast<int>(level), std::string(lines).c_str());
}

void callback_sink_mt::do_flush() {
    if (flush_ != nullptr) flush_();
}

}  // namespace kmm_v0
}  // namespace rapids_logger
