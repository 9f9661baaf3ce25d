// The library's log; see log.hpp. Owns the level, the process's handler, and the queue of undelivered lines.
//
// One thread at a time delivers, in the order of the writes, and holds no lock while it calls the handler or writes to
// stderr. A thread of the program that writes while no thread delivers does so itself. For lines of the library's own
// threads a thread is made, which ends when the queue is empty.
#include "kmm/base/log.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "kmm/core/config.hpp"
#include "kmm/error.hpp"
#include "rmm/process_events.hpp"

namespace kmm {

namespace log {

namespace {

// Bound of the queue, for a handler that blocks or a pipe without a reader. Later lines are dropped and counted.
constexpr std::size_t most_waiting = 1024;
// Timeout of `flush` at the end of a process or runtime, and when the handler is replaced.
constexpr std::chrono::seconds longest_flush{1};

struct Line {
    Level level;
    std::string text;
};

struct Destination final : rmm::detail::process_observer {
    Destination() {
        enlist(place::log);
        // Not in at_exit(), which the list of observers is locked for: the handler may make a sink, and enlist it.
        (void)std::atexit([] { flush(); });
    }
    ~Destination() { withdraw(place::log); }

    void before_fork() noexcept override KMM_ACQUIRE(mutex) { mutex.lock(); }
    void after_fork(bool in_child) noexcept override KMM_RELEASE(mutex);
    void at_exit() noexcept override {}

    locks::Mutex mutex;
    locks::Condition progress;
    std::deque<Line> waiting KMM_GUARDED_BY(mutex);
    std::uint64_t written KMM_GUARDED_BY(mutex) = 0;    ///< lines, dropped ones included
    std::uint64_t delivered KMM_GUARDED_BY(mutex) = 0;  ///< likewise
    std::uint64_t dropped KMM_GUARDED_BY(mutex) = 0;    ///< since the last message about it
    Level last_level KMM_GUARDED_BY(mutex) = critical;
    const char* last_words KMM_GUARDED_BY(mutex) = nullptr;  ///< a line for which memory was lacking
    bool delivering KMM_GUARDED_BY(mutex) = false;           ///< some thread delivers
    bool calling KMM_GUARDED_BY(mutex) = false;              ///< that thread is in the handler
    std::uint64_t calls KMM_GUARDED_BY(mutex) = 0;           ///< of the handler, this one included
    void (*handler)(int level, const char* text, void* user) KMM_GUARDED_BY(mutex) = nullptr;
    void* user KMM_GUARDED_BY(mutex) = nullptr;
};

// Never destroyed: threads of the library may log while the process ends.
Destination& destination() { return driver::never_destroyed<Destination>(); }

thread_local bool delivers_here = false;

/// The parent keeps its queue. The child starts with an empty one, and without the parent's delivering thread.
void Destination::after_fork(bool in_child) noexcept {
    if (in_child) {
        waiting.clear();
        delivered = written;
        dropped = 0;
        last_words = nullptr;
        delivering = delivers_here;
        calling = delivers_here;
        new (&progress) locks::Condition;  // its waiters are threads of the parent
    }
    mutex.unlock();
}

int level_from_environment() noexcept {
    const char* text = std::getenv("KMM_LOG_LEVEL");
    if (text == nullptr || *text == '\0') return warn;
    if (const std::optional<Level> level = level_named(text)) return *level;
    std::fprintf(stderr, "[kmm] [warning] KMM_LOG_LEVEL=%s is not understood: use %s\n", text, accepted_level_names);
    return warn;
}

std::atomic<int>& current_level() noexcept {
    static std::atomic<int> level{level_from_environment()};
    return level;
}

}  // namespace

int level() noexcept { return current_level().load(std::memory_order_relaxed); }

namespace {

void hand_out(int level, const char* text, void (*handler)(int, const char*, void*), void* user) noexcept {
    try {
        if (handler != nullptr)
            handler(level, text, user);
        else
            std::fprintf(stderr, "[kmm] [%s] %s\n", name_of(static_cast<Level>(level)), text);
    } catch (...) {
        // A handler that throws breaks its contract; a log line is no reason to end a thread.
        std::fprintf(stderr, "[kmm] [error] the log handler threw; the message was: %s\n", text);
    }
}

/// Delivers until the queue is empty. The caller has set `delivering`.
void deliver() noexcept {
    Destination& to = destination();
    delivers_here = true;
    locks::Lock lock(to.mutex);
    for (;;) {
        Line line{warn, {}};
        char lost[112];
        const char* text = nullptr;
        std::uint64_t count = 1;
        if (!to.waiting.empty()) {
            line = std::move(to.waiting.front());
            to.waiting.pop_front();
            text = line.text.c_str();
        } else if (to.last_words != nullptr) {
            line.level = to.last_level;
            text = std::exchange(to.last_words, nullptr);
        } else if (to.dropped != 0) {
            count = std::exchange(to.dropped, 0);
            std::snprintf(lost, sizeof lost,
                          "%llu messages more were dropped: the log was too slow, or the host had no memory",
                          static_cast<unsigned long long>(count));
            text = lost;
        } else {
            break;
        }
        const auto handler = to.handler;
        void* const user = to.user;
        to.calling = true;
        ++to.calls;
        lock.unlock();
        hand_out(line.level, text, handler, user);
        lock.lock();
        to.calling = false;
        to.delivered += count;
        to.progress.notify_all();
    }
    to.delivering = false;
    delivers_here = false;
    to.progress.notify_all();
}

/// True: the caller must deliver, and `delivering` is set. `stays`: the text lives until the process ends.
bool queue(Level level, const char* text, bool stays) noexcept {
    Destination& to = destination();
    const locks::Guard lock(to.mutex);
    ++to.written;
    bool queued = false;
    try {
        if (to.waiting.size() < most_waiting) {
            to.waiting.push_back({level, text});
            queued = true;
        }
    } catch (const std::bad_alloc&) {
        // Counted as dropped below.
    }
    if (!queued && stays && to.last_words == nullptr) {
        to.last_level = level;
        to.last_words = text;
    } else if (!queued) {
        ++to.dropped;
    }
    return !std::exchange(to.delivering, true);
}

/// The caller has set `delivering`. False: the system has no thread or memory; `delivering` is cleared again.
bool deliver_on_a_thread() noexcept {
    try {
        std::thread(deliver).detach();
        return true;
    } catch (...) {
        Destination& to = destination();
        const locks::Guard lock(to.mutex);
        to.delivering = false;
        to.progress.notify_all();
        return false;
    }
}

void post(Level level, const char* text, bool stays) noexcept {
    if (wants(level) && queue(level, text, stays)) (void)deliver_on_a_thread();  // else the next write or flush
}

}  // namespace

void write(Level level, const char* text) noexcept {
    if (!wants(level)) return;
    if (of_library_thread()) {
        post(level, text);
        return;
    }
    if (queue(level, text, false)) deliver();
}

void write(Level level, const char* text, const char* more) noexcept {
    if (!wants(level)) return;
    try {
        // The text of an exception of the program's may be null.
        write(level, std::string(text) + (more != nullptr ? more : "an exception without a text"));
    } catch (const std::bad_alloc&) {
        write(level, text);
    }
}

void post(Level level, const char* text) noexcept { post(level, text, false); }

void last_words(Level level, const char* text) noexcept { post(level, text, true); }

void prepare() { (void)destination(); }

void flush() noexcept {
    Destination& to = destination();
    if (delivers_here) return;
    locks::Lock lock(to.mutex);
    const std::uint64_t until = to.written;
    if (to.delivered >= until) return;
    if (!std::exchange(to.delivering, true)) {
        lock.unlock();
        const bool on_a_thread = deliver_on_a_thread();
        lock.lock();
        if (!on_a_thread && !std::exchange(to.delivering, true)) {
            lock.unlock();
            return deliver();
        }
    }
    (void)to.progress.wait_for(lock, longest_flush,
                               [&]() KMM_REQUIRES(to.mutex) { return to.delivered >= until || !to.delivering; });
}

bool& of_library_thread() noexcept {
    thread_local bool is_one = false;
    return is_one;
}

}  // namespace log

void set_global_log_level(const std::string& name) {
    const std::optional<log::Level> level = log::level_named(name);
    if (!level) {
        throw InvalidArgument(
            driver::format("set_global_log_level: \"{}\" is not a level: use {}", name, log::accepted_level_names));
    }
    log::current_level().store(*level, std::memory_order_relaxed);
}

void set_log_handler(void (*handler)(int level, const char* text, void* user), void* user) {
    log::flush();  // what was written so far is for the handler before
    log::Destination& to = log::destination();
    locks::Lock lock(to.mutex);
    const bool was_set = to.handler != nullptr;
    to.handler = handler;
    to.user = user;
    // The one that was replaced may go: it is not called any more, unless it is the one that calls here.
    const std::uint64_t call = to.calls;  // a later one is of the new handler, which may block until this returns
    if (was_set && !log::delivers_here) {
        while (to.calling && to.calls == call) to.progress.wait(lock);
    }
}

}  // namespace kmm
