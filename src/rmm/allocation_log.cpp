// Implements allocation_log.hpp.
#include "rmm/allocation_log.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "driver/locks.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

// Longest delay from a record to its line in the file: unnoticed by a reader, and ten writes a second at most for a
// program that always allocates.
constexpr std::chrono::milliseconds longest_delay{100};

// 10 of the thread, 15 of the time, 16 of the action, 18 of the pointer, 20 of the size, 18 of the stream, commas,
// newline.
constexpr std::size_t longest_line = 128;

constexpr auto level = rapids_logger::level_enum::info;

std::int64_t now_ns() noexcept {
    std::timespec now{};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return std::int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

template<std::size_t N>
char* put(char* to, const char (&text)[N]) noexcept {
    return std::copy_n(text, N - 1, to);
}

/// `digits` of them, with zeros in front.
char* put_digits(char* to, long value, int digits) noexcept {
    for (int i = digits; i-- > 0; value /= 10) to[i] = static_cast<char>('0' + value % 10);
    return to + digits;
}

template<typename Integer>
char* put_number(char* to, Integer value, int base = 10) noexcept {
    return std::to_chars(to, to + 20, value, base).ptr;
}

char* put_address(char* to, const void* address) noexcept {
    return put_number(put(to, "0x"), reinterpret_cast<std::uintptr_t>(address), 16);
}

std::vector<rapids_logger::sink_ptr> checked(std::vector<rapids_logger::sink_ptr> sinks) {
    for (const auto& sink : sinks)
        if (sink == nullptr) throw std::invalid_argument("a sink of a logging adaptor is null");
    return sinks;
}

}  // namespace

void allocation_log::unmapped::operator()(slot* slots) const noexcept { (void)munmap(slots, capacity * sizeof(slot)); }

allocation_log::allocation_log(std::vector<rapids_logger::sink_ptr> sinks, bool auto_flush)
    : auto_flush_(auto_flush), sinks_(checked(std::move(sinks))) {
    // Zeros are the first lap, free; pages that are never reached are never touched.
    void* const zeros =
        mmap(nullptr, capacity * sizeof(slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (zeros == MAP_FAILED) throw std::bad_alloc();
    slots_.reset(static_cast<slot*>(zeros));
    const bool of_program =
        std::any_of(sinks_.begin(), sinks_.end(), [](const auto& s) { return s->belongs_to_program(); });
    in_step_.store(auto_flush || of_program, std::memory_order_relaxed);
    may_have_writer_ = !(auto_flush || of_program);
    const std::string line = std::string(header) + "\n";
    for (const auto& sink : sinks_) {
        sink->write(level, line);
        if (auto_flush || !sink->belongs_to_program()) sink->flush();
    }
    enlist(place::log);
}

allocation_log::~allocation_log() {
    withdraw(place::log);
    {
        const kmm::locks::Guard lock(wake_mutex_);
        stopping_ = true;
    }
    wake_.notify_one();
    if (has_writer_) (void)pthread_join(writer_, nullptr);
    const kmm::locks::Guard lock(pen_);
    write_until(next_place_.load(), true);
}

void allocation_log::record(action what, void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept {
    if (next_place_.load(std::memory_order_relaxed) - num_written_.load(std::memory_order_relaxed) >=
        capacity - reserve)
        wait_for_room();
    const std::int64_t time_ns = now_ns();
    const int thread = rmm::detail::thread_id();
    const std::uint64_t place = next_place_.fetch_add(1);
    slot& mine = slot_of(place);
    if (mine.turn.load(std::memory_order_acquire) != turn_of(place)) wait_for_turn(place);
    mine.time_ns = time_ns;
    mine.ptr = ptr;
    mine.bytes = bytes;
    mine.stream = stream.value();
    mine.thread = thread;
    mine.what = what;
    mine.turn.store(turn_of(place) + 1, std::memory_order_release);
    if (in_step_.load(std::memory_order_relaxed)) {
        write_in_step(place);
        return;
    }
    // The writer says that it sleeps before it looks at next_place_ for the last time; both are sequentially
    // consistent, so that one of us sees the other.
    if (writer_sleeps_.load() || place % wake_interval == 0) wake_writer();
}

void allocation_log::flush() {
    const std::uint64_t end = next_place_.load();
    const kmm::locks::Guard lock(pen_);
    write_until(std::max(end, written_), true);
}

// ---- the ring

void allocation_log::wait_for_room() noexcept {
    const kmm::locks::Guard lock(pen_);
    if (next_place_.load(std::memory_order_relaxed) - written_ >= capacity - reserve)
        write_until(next_place_.load(), auto_flush_);
}

/// More threads than the reserve are here at once. The holder of the pen waits for threads that have a place, so these
/// must not block on the pen.
void allocation_log::wait_for_turn(std::uint64_t place) noexcept {
    while (slot_of(place).turn.load(std::memory_order_acquire) != turn_of(place)) {
        if (!pen_.try_lock()) {
            (void)sched_yield();
            continue;
        }
        const std::uint64_t end = place - capacity + 1;  // whose slot this is
        if (written_ < end) write_until(end, auto_flush_);
        pen_.unlock();
    }
}

/// The caller has the pen.
void allocation_log::write_until(std::uint64_t end, bool flushes) noexcept {
    for (; written_ < end; ++written_) {
        slot& record = slot_of(written_);
        // Another thread has taken the place and not yet filled it: nanoseconds, unless it was preempted.
        for (int spins = 0; record.turn.load(std::memory_order_acquire) != turn_of(written_) + 1; ++spins)
            if (spins >= 100) (void)sched_yield();
        append(record);
        record.turn.store(turn_of(written_) + 2, std::memory_order_release);
        if (text_size_ + longest_line > sizeof text_) {
            num_written_.store(written_ + 1, std::memory_order_relaxed);
            hand_over();
        }
    }
    num_written_.store(written_, std::memory_order_relaxed);
    hand_over();
    if (flushes) flush_sinks();
}

void allocation_log::write_in_step(std::uint64_t place) noexcept {
    const kmm::locks::Guard lock(pen_);
    // The previous holder of the pen may have written and flushed this record too.
    if (written_ <= place) write_until(place + 1, auto_flush_);
}

// ---- lines

void allocation_log::append(const slot& record) noexcept {
    const std::int64_t second = record.time_ns / 1000000000;
    if (second != clock_second_) {
        clock_second_ = second;
        const auto time = static_cast<std::time_t>(second);
        std::tm local{};
        (void)localtime_r(&time, &local);
        char* clock = put_digits(clock_text_, local.tm_hour, 2);
        clock = put_digits(put(clock, ":"), local.tm_min, 2);
        (void)put_digits(put(clock, ":"), local.tm_sec, 2);
    }
    char* end = put_number(text_ + text_size_, record.thread);
    end = std::copy_n(clock_text_, sizeof clock_text_, put(end, ","));
    end = put_digits(put(end, "."), static_cast<long>(record.time_ns / 1000 % 1000000), 6);
    switch (record.what) {
    case action::allocate: end = put(end, ",allocate,"); break;
    case action::allocate_failure: end = put(end, ",allocate failure,"); break;
    case action::free: end = put(end, ",free,"); break;
    }
    end = record.ptr == nullptr ? put(end, "(nil)") : put_address(end, record.ptr);
    end = put_number(put(end, ","), record.bytes);
    end = put(end, ",");
    end = record.stream == nullptr ? put(end, "0") : put_address(end, record.stream);
    end = put(end, "\n");
    text_size_ = static_cast<std::size_t>(end - text_);
}

/// `deallocate` must not throw for a sink, and the next line may succeed.
template<typename Work>
void allocation_log::attempt(Work work) noexcept {
    try {
        work();
    } catch (const std::exception& e) {
        report(e.what());
    } catch (...) {
        report("an exception of unknown type");
    }
}

void allocation_log::report(const char* what) noexcept {
    if (!std::exchange(reported_, true)) rmm::detail::report_misuse("a sink of a logging adaptor failed: ", what);
}

void allocation_log::hand_over() noexcept {
    if (text_size_ == 0) return;
    const std::string_view lines(text_, text_size_);
    text_size_ = 0;
    for (const auto& sink : sinks_) {
        attempt([&] {
            if (!sink->belongs_to_program()) {
                sink->write(level, lines);
                return;
            }
            for (std::size_t begin = 0; begin < lines.size();) {
                const std::size_t end = lines.find('\n', begin) + 1;
                sink->write(level, lines.substr(begin, end - begin));
                begin = end;
            }
        });
    }
}

void allocation_log::flush_sinks() noexcept {
    for (const auto& sink : sinks_) attempt([&] { sink->flush(); });
}

// ---- the thread of the log

void allocation_log::wake_writer() noexcept {
    writer_sleeps_.store(false, std::memory_order_relaxed);
    {
        const kmm::locks::Guard lock(wake_mutex_);
        woken_ = true;
        if (!has_writer_ && may_have_writer_ && !stopping_) start_writer();
    }
    wake_.notify_one();
}

void allocation_log::start_writer() noexcept {
    // The program's signals are none of its business.
    sigset_t all_signals;
    sigset_t before;
    (void)sigfillset(&all_signals);
    (void)pthread_sigmask(SIG_SETMASK, &all_signals, &before);
    has_writer_ = pthread_create(&writer_, nullptr, &run_writer, this) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
    // Without one the records are written when the ring is full, and by flush().
    may_have_writer_ = has_writer_;
}

void* allocation_log::run_writer(void* log) {
    (void)pthread_setname_np(pthread_self(), "rmm log");
    static_cast<allocation_log*>(log)->write_behind();
    return nullptr;
}

void allocation_log::write_behind() {
    kmm::locks::Lock lock(wake_mutex_);
    while (!stopping_) {
        writer_sleeps_.store(true);
        if (next_place_.load() == num_written_.load())
            wake_.wait(lock, [this]() KMM_REQUIRES(wake_mutex_) { return woken_ || stopping_; });
        writer_sleeps_.store(false);
        woken_ = false;
        // Woken early after `wake_interval` records and by the destructor.
        wake_.wait_for(lock, longest_delay, [this]() KMM_REQUIRES(wake_mutex_) { return woken_ || stopping_; });
        woken_ = false;
        lock.unlock();
        {
            const kmm::locks::Guard pen(pen_);
            write_until(next_place_.load(), true);
        }
        lock.lock();
    }
}

// ---- fork and exit

void allocation_log::before_fork() noexcept {
    pen_.lock();
    wake_mutex_.lock();
}

void allocation_log::after_fork(bool in_child) noexcept {
    if (in_child) {
        // The parent writes the pending records; places taken by its other threads would never be filled here.
        if (next_place_.load() > 0) std::memset(static_cast<void*>(slots_.get()), 0, capacity * sizeof(slot));
        next_place_.store(0);
        num_written_.store(0);
        written_ = 0;
        // A child of a program with threads must not rely on making threads of its own: it writes what it records.
        in_step_.store(true);
        writer_sleeps_.store(false);
        has_writer_ = false;
        may_have_writer_ = false;
        new (&wake_) kmm::locks::Condition;  // its waiter does not exist here
    }
    wake_mutex_.unlock();
    pen_.unlock();
}

void allocation_log::at_exit() noexcept {
    in_step_.store(true);
    const kmm::locks::Guard lock(pen_);
    // Files are flushed by their sinks, next. A stream of the program has every line already, and may be destroyed.
    write_until(next_place_.load(), false);
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
