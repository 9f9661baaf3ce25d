// Owns: what the worker threads do (executor.hpp). Everything but `start` and `submit` runs on them.
#include "driver/host/executor.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "driver/host/event.hpp"

namespace kmm::driver::host {
namespace {

// How long an idle worker looks before it sleeps: about what sleeping and waking cost.
constexpr std::chrono::microseconds spin_time{20};

// A worker goes on with the next stream after this many pieces of work if other streams wait.
constexpr int turn_length = 16;

// Fewer threads than this are run by one worker: they take less time than it takes to wake another.
constexpr std::uint64_t min_shared_threads = 2048;

// Turns per worker: enough to even out unequal blocks, few enough that taking a turn costs nothing.
constexpr std::uint64_t turns_per_worker = 4;

// The list of ready streams must stand still for this long before extra workers join.
constexpr std::chrono::milliseconds patience{2};
// The race detector calls a thread that has ended and not yet been joined a leak, also while the process ends.
constexpr std::chrono::seconds extra_lifetime{races::tracked ? 3600 : 1};
// Bounds what a program can cause; a GPU runs at most 128 kernels at once.
constexpr int max_extra_workers = 256;
constexpr int extra_worker = -1;

// What runs in the place of a stream (races::Fiber): the only code that touches what users wrote into the work.

void wait_body(void* argument) {
    Op& op = *static_cast<Op*>(argument);
    races::acquire(&op.enqueue_clock);
    (void)op.work.wait.stream->reached(op.work.wait.position);
    op.stream->released();
    races::release(&op.enqueue_clock);
}

void perform_body(void* argument) {
    Op& op = *static_cast<Op*>(argument);
    races::acquire(&op.enqueue_clock);
    perform(op.work);
    op.stream->released();
    races::release(&op.enqueue_clock);
}

void begin_launch_body(void* argument) {
    Op& op = *static_cast<Op*>(argument);
    races::acquire(&op.enqueue_clock);
    const KernelHooks& hooks = op.work.kernel.hooks;
    if (hooks.skip != nullptr && hooks.skip(hooks.user)) op.skipped.store(true, std::memory_order_relaxed);
    races::release(&op.begin_clock);
}

void blocks_body(void* argument) {
    Op& op = *static_cast<Op*>(argument);
    races::acquire(&op.begin_clock);
    const KernelWork& kernel = op.work.kernel;
    const std::uint64_t per_turn = op.blocks_per_turn.load(std::memory_order_relaxed);
    for (;;) {
        const std::uint64_t first = op.next_block.fetch_add(per_turn, std::memory_order_relaxed);
        if (first >= kernel.num_blocks) break;
        const std::uint64_t last = std::min(kernel.num_blocks, first + per_turn);
        try {
            kernel.kernel->run_blocks(*kernel.kernel, kernel.geometry, op.work.parameters(), first, last);
        } catch (...) {
            if (!op.failed.exchange(true)) op.error = std::current_exception();
            op.next_block.store(kernel.num_blocks, std::memory_order_relaxed);
        }
    }
    races::release(&op.end_clock);
}

/// Leaves `failed` set if the launch had no KernelHooks::failure to take the exception.
void end_launch_body(void* argument) {
    Op& op = *static_cast<Op*>(argument);
    races::acquire(&op.end_clock);
    if (op.failed.load(std::memory_order_relaxed)) {
        const KernelHooks& hooks = op.work.kernel.hooks;
        if (hooks.failure != nullptr) {
            hooks.failure->error = op.error;
            op.failed.store(false, std::memory_order_relaxed);
        }
        if (hooks.failed != nullptr) hooks.failed(hooks.user);
        op.error = nullptr;
    }
    op.stream->released();
    races::release(&op.enqueue_clock);
}

}  // namespace

Executor::Executor(int num_threads, std::size_t stack_bytes, std::function<void(Stream&)> recycle)
    : num_threads_(num_threads),
      stack_bytes_(stack_bytes),
      spins_(std::thread::hardware_concurrency() > 2),
      recycle_(std::move(recycle)) {}

Executor::~Executor() {
    {
        const locks::Guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    alarm_.notify_all();
    if (supervisor_.joinable()) supervisor_.join();
    for (std::thread& thread : threads_) thread.join();
    // Extra workers move themselves to `gone_` under the lock and then end.
    for (;;) {
        std::list<std::thread> ending;
        {
            const locks::Guard lock(mutex_);
            ending.swap(gone_);
            if (ending.empty()) ending.swap(extras_);
        }
        if (ending.empty()) break;
        for (std::thread& thread : ending) thread.join();
    }
}

bool Executor::start() noexcept {
    if (started_.load(std::memory_order_acquire)) return true;
    const locks::Guard lock(mutex_);
    if (started_.load(std::memory_order_relaxed)) return true;
    try {
        threads_.reserve(static_cast<std::size_t>(num_threads_));
        if (!supervisor_.joinable()) supervisor_ = std::thread([this] { supervise(); });
        for (int number = 0; number < num_threads_; ++number) threads_.emplace_back([this, number] { work(number); });
    } catch (...) {
        // Fewer workers than wanted are enough: extra ones join where work stands still.
        if (threads_.empty()) return false;
    }
    started_.store(true, std::memory_order_release);
    return true;
}

void Executor::submit(Stream& stream) noexcept {
    const locks::Guard lock(mutex_);
    const int list = stream.urgent ? 0 : 1;
    stream.next_ready = nullptr;
    (ready_tail_[list] == nullptr ? ready_head_[list] : ready_tail_[list]->next_ready) = &stream;
    ready_tail_[list] = &stream;
    ++num_ready_;
    num_offers_.fetch_add(1, std::memory_order_relaxed);
    rouse();
}

/// Makes sure that a worker takes the ready stream. With the lock held.
void Executor::rouse() noexcept {
    if (searching_ > 0 && !races::tracked) return;  // a spinning worker finds it, and calls this again for the rest
    if (races::tracked)
        wake_.notify_all();  // only one of them takes this stream
    else if (sleeping_ > 0)
        wake_.notify_one();
    if ((sleeping_ == 0 || races::tracked) && !watched_) {
        watched_ = true;
        alarm_.notify_one();
    }
}

/// The first stream that this worker may run. With the lock held.
Stream* Executor::pop_ready(int worker) noexcept {
    for (int list : {0, 1}) {
        Stream* before = nullptr;
        Stream* stream = ready_head_[list];
        // Under the race detector streams keep to their workers; see race_annotations.hpp.
        while (races::tracked && stream != nullptr && worker != extra_worker &&
               static_cast<int>(stream->slot) % num_threads_ != worker) {
            before = stream;
            stream = stream->next_ready;
        }
        if (stream == nullptr) continue;
        (before == nullptr ? ready_head_[list] : before->next_ready) = stream->next_ready;
        if (ready_tail_[list] == stream) ready_tail_[list] = before;
        --num_ready_;
        num_offers_.fetch_sub(1, std::memory_order_relaxed);
        ++pops_;
        return stream;
    }
    return nullptr;
}

void Executor::wake(std::uint64_t most) noexcept {
    for (std::uint64_t i = std::min<std::uint64_t>(most, static_cast<std::uint64_t>(sleeping_)); i > 0; --i)
        wake_.notify_one();
}

void Executor::look_for_work() noexcept {
    const auto end = std::chrono::steady_clock::now() + spin_time;
    while (num_offers_.load(std::memory_order_relaxed) == 0 && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
}

void Executor::work(int number) noexcept {
    races::begin_worker();
    const bool extra = number == extra_worker;
    bool looked = false;
    locks::Lock lock(mutex_);
    for (;;) {
        if (Stream* stream = pop_ready(number)) {
            if (num_ready_ > 0) rouse();
            lock.unlock();
            run(*stream, false);
            lock.lock();
            looked = false;
        } else if (launches_ != nullptr) {
            Op& op = *launches_;
            op.participants.fetch_add(1, std::memory_order_relaxed);
            lock.unlock();
            help(op);
            lock.lock();
            looked = false;
        } else if (stopping_) {
            break;
        } else if (spins_ && !looked) {
            ++searching_;
            lock.unlock();
            look_for_work();
            lock.lock();
            --searching_;
            looked = true;
        } else {
            looked = false;
            ++sleeping_;
            const bool late = extra && wake_.wait_for(lock, extra_lifetime) == std::cv_status::timeout;
            if (!extra) wake_.wait(lock);
            --sleeping_;
            if (late && num_offers_.load(std::memory_order_relaxed) == 0) break;
        }
    }
    if (!extra) return;
    --num_extra_;
    const auto self = std::find_if(extras_.begin(), extras_.end(),
                                   [](const std::thread& t) { return t.get_id() == std::this_thread::get_id(); });
    if (self == extras_.end()) return;
    gone_.splice(gone_.end(), extras_, self);
    alarm_.notify_one();  // the supervisor joins it: until then the system keeps its stack
}

void Executor::supervise() noexcept {
    locks::Lock lock(mutex_);
    for (;;) {
        alarm_.wait(lock, [this]() KMM_REQUIRES(mutex_) { return watched_ || stopping_ || !gone_.empty(); });
        if (stopping_) return;
        if (!gone_.empty()) {
            std::list<std::thread> ended;
            ended.swap(gone_);
            lock.unlock();
            for (std::thread& thread : ended) thread.join();
            lock.lock();
            continue;
        }
        const std::uint64_t seen = pops_;
        alarm_.wait_for(lock, patience, [this]() KMM_REQUIRES(mutex_) { return stopping_; });
        if (stopping_) return;
        if (num_ready_ == 0)
            watched_ = false;
        else if (pops_ == seen)
            add_extra_workers();
    }
}

void Executor::add_extra_workers() noexcept {
    for (int i = std::min(num_ready_, max_extra_workers - num_extra_); i > 0; --i) {
        try {
            extras_.emplace_back([this] { work(extra_worker); });
        } catch (...) {
            return;  // the system gives no more threads; those that run go on
        }
        ++num_extra_;
    }
}

void Executor::run(Stream& stream, bool front_is_done) noexcept {
    Stream* next = run_turn(stream, front_is_done);
    while (next != nullptr) next = run_turn(*next, false);
}

/// Runs a stream until it is idle, blocked or has had its turn. Returns a stream that this made ready, to be run next.
Stream* Executor::run_turn(Stream& stream, bool front_is_done) noexcept {
    Stream* next = nullptr;
    for (int ran = 0;; ++ran) {
        bool recycle = false;
        Op* op = stream.front(&recycle);
        if (op == nullptr) {
            if (recycle) recycle_(stream);
            return next;
        }
        if (next != nullptr) {  // there is more to do here, so another worker runs that stream
            submit(*next);
            next = nullptr;
        }
        if (!front_is_done) {
            if (ran >= turn_length && num_offers_.load(std::memory_order_relaxed) > 0) {
                submit(stream);
                return nullptr;
            }
            if (!execute(stream, *op)) return nullptr;
        }
        front_is_done = false;
        stream.finish_front([&](Stream& unblocked) {
            if (next == nullptr && stream.drained())
                next = &unblocked;
            else
                submit(unblocked);
        });
    }
}

/// True if the work is done; false if it, and the stream, are now in the hands of others.
bool Executor::execute(Stream& stream, Op& op) noexcept {
    switch (op.work.kind) {
    case WorkKind::wait:
        if (!stream.pass(*op.work.wait.stream, op.work.wait.position)) return false;
        if (races::tracked) stream.fiber().run(&wait_body, &op);
        return true;
    case WorkKind::timestamp: {
        Event& event = *op.work.timestamp.event;
        const locks::Guard lock(event.mutex);
        if (event.record == op.work.timestamp.record) {
            event.time = std::chrono::steady_clock::now();
            event.timed_record = event.record;
        }
        return true;
    }
    case WorkKind::kernel: return run_launch(stream, op);
    default: stream.fiber().run(&perform_body, &op); return true;
    }
}

bool Executor::run_launch(Stream& stream, Op& op) noexcept {
    KernelWork& kernel = op.work.kernel;
    kernel.geometry.stack_bytes = stack_bytes_;
    op.next_block.store(0, std::memory_order_relaxed);
    op.participants.store(1, std::memory_order_relaxed);
    op.failed.store(false, std::memory_order_relaxed);
    op.skipped.store(false, std::memory_order_relaxed);
    const bool alone = num_threads_ == 1 || kernel.num_blocks == 1 || kernel.num_threads() < min_shared_threads;
    const std::uint64_t turns = static_cast<std::uint64_t>(num_threads_) * turns_per_worker;
    const std::uint64_t per_turn = alone ? kernel.num_blocks : std::max<std::uint64_t>(1, kernel.num_blocks / turns);
    op.blocks_per_turn.store(per_turn, std::memory_order_relaxed);
    stream.fiber().run(&begin_launch_body, &op);
    if (!op.skipped.load(std::memory_order_relaxed)) {
        if (!alone) share(op);
        if (!take_part(op, stream.fiber())) return false;
    }
    end_launch(op);
    return true;
}

/// Offers the blocks to idle workers.
void Executor::share(Op& op) noexcept {
    const locks::Guard lock(mutex_);
    op.next_launch = launches_;
    launches_ = &op;
    op.listed = true;
    num_offers_.fetch_add(1, std::memory_order_relaxed);
    wake(op.work.kernel.num_blocks / op.blocks_per_turn.load(std::memory_order_relaxed));
}

/// Runs blocks until none is left to begin. True for the last participant to leave: the launch is then over.
bool Executor::take_part(Op& op, races::Fiber& fiber) noexcept {
    const bool shared = op.blocks_per_turn.load(std::memory_order_relaxed) < op.work.kernel.num_blocks;
    fiber.run(&blocks_body, &op);
    if (shared) {
        const locks::Guard lock(mutex_);
        if (op.listed) {
            Op** at = &launches_;
            while (*at != &op) at = &(*at)->next_launch;
            *at = op.next_launch;
            op.listed = false;
            num_offers_.fetch_sub(1, std::memory_order_relaxed);
        }
    }
    return op.participants.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

void Executor::help(Op& op) noexcept {
    bool last = false;
    {
        races::Fiber fiber;
        last = take_part(op, fiber);
    }
    if (!last) return;
    Stream& stream = *op.stream;
    end_launch(op);
    run(stream, true);
}

void Executor::end_launch(Op& op) noexcept {
    Stream& stream = *op.stream;
    stream.fiber().run(&end_launch_body, &op);
    if (!op.failed.load(std::memory_order_relaxed)) return;
    Stream& blamed = op.blamed != nullptr ? *op.blamed : stream;
    const locks::Guard lock(blamed.mutex);
    blamed.set_failed(op.blamed != nullptr ? op.blamed_position : op.position);
}

}  // namespace kmm::driver::host
