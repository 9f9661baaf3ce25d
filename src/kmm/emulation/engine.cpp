// Runs the blocks of an emulated launch: which thread of a block runs, who waits for whom. Owns the built-in variables
// and, for each OS thread, a pool of fibers. Must not know the driver, parameters or kernels (kernel.hpp calls those).
// Runs on the OS thread that called run_blocks; OS threads share nothing but what the race detector limits (RaceBudget,
// and the spare stacks of fiber.cpp).
//
// One fiber runs the threads of a block as a plain loop. When a thread has to wait, the fiber stays with it, and
// another fiber goes on with the loop; the first to find every thread of the block waiting or returned lets them go on,
// each handing over to the next directly. So threads that never wait cost no switch, and others one switch for each
// wait.
//
// Compiled without -fsanitize=thread in every build (see fiber.cpp).
#include "kmm/emulation/engine.hpp"

#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <time.h>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "kmm/detail/device_access.hpp"
#include "kmm/emulation/fiber.hpp"
#include "kmm/emulation/stack_guard.hpp"
#include "kmm/emulation/state.hpp"

#define KMM_EMULATION_VARIABLE __attribute__((tls_model("initial-exec"))) __thread

namespace kmm::emulation {

KMM_EMULATION_VARIABLE ::uint3 threadIdx{0, 0, 0};
KMM_EMULATION_VARIABLE ::uint3 blockIdx{0, 0, 0};
KMM_EMULATION_VARIABLE ::dim3 blockDim{1, 1, 1};
KMM_EMULATION_VARIABLE ::dim3 gridDim{1, 1, 1};

namespace {

using detail::WarpFunction;

constexpr unsigned warp_size = 32;
// CUDA promises 16 for any type and 128 for what is loaded as a whole transaction.
constexpr std::size_t dynamic_shared_alignment = 128;
// The detector of g++ 12 ends the process at 8128 threads and fibers; the rest is for the program's own.
constexpr std::size_t race_fibers_running = 4096;

/// Ends a thread whose block has failed elsewhere: thrown where it waits, so that its destructors run.
struct Discarded {};

/// One lane at a warp function, on the lane's own stack.
struct WarpWait {
    WarpFunction function;
    std::uint32_t mask;
    std::uint64_t value;
    unsigned source = 0;         // shuffles: the lane read from
    const void* site = nullptr;  // active: the place of the call
    Fiber* fiber = nullptr;
    std::uint64_t result = 0;
    std::uint32_t group = 0;  // the lanes that took part
    std::uint32_t turns = 0;  // and which of their two tokens each released
};

struct Warp {
    std::uint32_t waiting = 0;   // lanes at a warp function
    std::uint32_t returned = 0;  // lanes known to have returned, and those that do not exist
    WarpWait* waits[warp_size] = {};
    std::uint32_t turns = 0;  // see WarpWait::turns
    char tokens[warp_size][2] = {};
};

/// Limits the fibers of the race detector that run in the process. A launch takes all that it needs at once: taking
/// them in parts could deadlock.
class RaceBudget {
  public:
    explicit RaceBudget(std::size_t fibers) : fibers_(fibers) {
        locks::Lock lock(mutex_);
        given_back_.wait(
            lock, [&]() KMM_REQUIRES(mutex_) { return running_ == 0 || running_ + fibers_ <= race_fibers_running; });
        running_ += fibers_;
    }
    ~RaceBudget() {
        const locks::Guard lock(mutex_);
        running_ -= fibers_;
        given_back_.notify_all();
    }
    RaceBudget(const RaceBudget&) = delete;
    RaceBudget& operator=(const RaceBudget&) = delete;

  private:
    const std::size_t fibers_;
    static inline locks::Mutex mutex_;
    static inline locks::Condition given_back_;
    static inline std::size_t running_ KMM_GUARDED_BY(mutex_) = 0;
};

struct FreeDeleter {
    void operator()(void* p) const noexcept { std::free(p); }
};

std::string to_text(const unsigned (&v)[3]) { return driver::format("({}, {}, {})", v[0], v[1], v[2]); }

std::string to_text(const ::uint3& v) { return to_text({v.x, v.y, v.z}); }

std::string to_hex(std::uint32_t mask) {
    char text[11] = "0x";
    for (int i = 0; i < 8; i++) text[2 + i] = "0123456789abcdef"[mask >> (28 - 4 * i) & 15];
    text[10] = 0;
    return text;
}

const char* name_of(WarpFunction f) {
    switch (f) {
    case WarpFunction::sync: return "__syncwarp";
    case WarpFunction::ballot: return "__ballot_sync";
    case WarpFunction::any: return "__any_sync";
    case WarpFunction::all: return "__all_sync";
    case WarpFunction::shuffle: return "__shfl_sync";
    case WarpFunction::shuffle_up: return "__shfl_up_sync";
    case WarpFunction::shuffle_down: return "__shfl_down_sync";
    case WarpFunction::shuffle_xor: return "__shfl_xor_sync";
    case WarpFunction::active: return "__activemask";
    }
    return "";
}

class Engine {
  public:
    Engine() = default;
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    void run(const driver::HostKernel& kernel, const driver::HostLaunchGeometry& geometry, const void* parameters,
             std::uint64_t first, std::uint64_t last, detail::StartThreads start);
    void barrier();
    detail::BarrierVotes barrier_vote(bool predicate);
    std::uint64_t warp_call(WarpWait& wait_here);
    void* dynamic_shared() const noexcept { return shared_.get(); }
    Fiber* running() const noexcept { return running_; }

  private:
    void prepare_launch(const driver::HostKernel& kernel, const driver::HostLaunchGeometry& geometry,
                        const void* parameters);
    void run_block(std::uint64_t number);
    void run_with_race_detection(std::uint64_t threads, std::uint64_t first, std::uint64_t last);

    void work(Fiber& self) noexcept;
    void start_threads(Fiber& self) noexcept;
    bool threads_left() const noexcept { return block_.next.z != blockDim.z; }
    Fiber& make_fiber();
    Fiber* free_fiber() noexcept;
    void leave(Fiber& self, Fiber& to) noexcept;
    void free_fibers() noexcept;

    void wait(Fiber& self);
    Fiber* next_to_run() noexcept;
    void settle() noexcept;
    void release_barrier() noexcept;
    bool group_complete(const Warp& warp, std::uint32_t mask, WarpFunction function) const noexcept;
    void finish_group(Warp& warp, std::uint32_t group, const WarpWait* caller) noexcept;
    void settle_warps() noexcept;
    void reset_warps() noexcept;
    void cancel(std::exception_ptr error) noexcept;
    static void discard();
    void stack_overflowed() noexcept;
    std::string deadlock_text(const std::vector<std::uint32_t>& at_barrier) const;

    // Hot at every barrier.
    detail::Block block_;
    Fiber* running_ = nullptr;
    FiberQueue ready_;       // may go on
    FiberQueue at_barrier_;  // wait at a barrier of the block
    bool cancelled_ = false;
    bool detect_races_ = false;
    std::uint32_t warp_waiting_ = 0;  // threads that wait at warp functions

    int votes_ = 0;  // of the threads at the barrier
    int voters_ = 0;
    detail::BarrierVotes result_{0, false, false};  // of the barrier that was left last

    // Every thread must leave barrier n before barrier n + 2 can be left, so two tokens taken in turn are enough.
    unsigned barriers_left_ = 0;
    char barrier_tokens_[2] = {};
    char block_begins_ = 0;
    char block_ends_ = 0;

    detail::StartThreads start_ = nullptr;
    std::exception_ptr error_;
    std::vector<Warp> warps_;
    const char* kernel_name_ = nullptr;

    Fiber main_;        // the stack that called run_blocks
    FiberQueue idle_;   // in work(), without a thread
    FiberQueue spent_;  // the same, but must not be used again for this block
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::size_t stack_bytes_ = default_stack_bytes;  // of these
    bool quit_ = false;

    std::unique_ptr<void, FreeDeleter> shared_;
    std::size_t shared_bytes_ = 0;
};

// `current` is set while this OS thread runs blocks. Two variables: a plain one for speed, an owner for the thread's
// end.
KMM_EMULATION_VARIABLE Engine* current = nullptr;
thread_local std::unique_ptr<Engine> owned;

Fiber* running_here() noexcept { return current != nullptr ? current->running() : nullptr; }

Engine& engine() {
    if (current == nullptr) {
        throw KernelError(
            "a barrier or warp function was called outside an emulated kernel: only a kernel that the host "
            "driver runs may call it");
    }
    return *current;
}

unsigned block_threads() noexcept { return blockDim.x * blockDim.y * blockDim.z; }
unsigned linear_thread(const unsigned (&t)[3]) noexcept { return t[0] + blockDim.x * (t[1] + blockDim.y * t[2]); }

// ---- launches

Engine::~Engine() { free_fibers(); }

void Engine::run(const driver::HostKernel& kernel, const driver::HostLaunchGeometry& geometry, const void* parameters,
                 std::uint64_t first, std::uint64_t last, detail::StartThreads start) {
    gridDim = ::dim3(geometry.grid[0], geometry.grid[1], geometry.grid[2]);
    blockDim = ::dim3(geometry.block[0], geometry.block[1], geometry.block[2]);
    const std::uint64_t threads = std::uint64_t{blockDim.x} * blockDim.y * blockDim.z;
    if (threads == 0 || first >= last) return;
    prepare_launch(kernel, geometry, parameters);
    start_ = start;
    if (!detect_races_) {
        for (std::uint64_t b = first; b < last; b++) run_block(b);
        return;
    }
    run_with_race_detection(threads, first, last);
}

// All fibers are made here, on the OS thread's own stack: memory that one emulated thread takes and another gives back
// would look like a race of the kernel.
void Engine::run_with_race_detection(std::uint64_t threads, std::uint64_t first, std::uint64_t last) {
    const RaceBudget budget(threads);
    struct FreeFibers {
        Engine& engine;
        ~FreeFibers() { engine.free_fibers(); }
    } afterwards{*this};
    while (fibers_.size() < threads) idle_.push_front(make_fiber());
    for (std::uint64_t b = first; b < last; b++) run_block(b);
}

void Engine::prepare_launch(const driver::HostKernel& kernel, const driver::HostLaunchGeometry& geometry,
                            const void* parameters) {
    detect_races_ = race_detector_present();
    block_.function = kernel.function;
    block_.parameters = parameters;
    block_.single = detect_races_;
    kernel_name_ = kernel.name;
    warps_.clear();
    const std::size_t stack_bytes = geometry.stack_bytes != 0 ? geometry.stack_bytes : default_stack_bytes;
    if (stack_bytes != stack_bytes_) {
        free_fibers();
        stack_bytes_ = stack_bytes;
    }
    // Exactly what was asked for, so that AddressSanitizer sees an access behind it.
    if (geometry.shared_bytes != shared_bytes_) {
        shared_.reset();
        shared_bytes_ = 0;
        if (geometry.shared_bytes == 0) return;
        void* memory = nullptr;
        if (posix_memalign(&memory, dynamic_shared_alignment, geometry.shared_bytes) != 0) throw std::bad_alloc();
        shared_.reset(memory);
        shared_bytes_ = geometry.shared_bytes;
    }
}

void Engine::run_block(std::uint64_t number) {
    blockIdx = {static_cast<unsigned>(number % gridDim.x), static_cast<unsigned>(number / gridDim.x % gridDim.y),
                static_cast<unsigned>(number / gridDim.x / gridDim.y)};
    block_.next = {0, 0, 0};
    cancelled_ = false;
    error_ = nullptr;
    votes_ = voters_ = 0;
    reset_warps();
    running_ = &main_;
    race_release(&block_begins_);
    work(main_);
    race_acquire(&block_ends_);
    idle_.append(spent_);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// ---- the loop that every fiber runs

/// Runs threads, and hands over to others, until the block is finished (then it returns on the main fiber only).
void Engine::work(Fiber& self) noexcept {
    for (;;) {
        if (quit_) return;
        if (threads_left()) {
            if (!detect_races_) {
                start_threads(self);
            } else if (&self != &main_ && !self.used) {
                start_threads(self);
            } else if (Fiber* const other = free_fiber()) {
                leave(self, *other);
            }
        } else if (Fiber* const other = next_to_run()) {
            leave(self, *other);
        } else if (&self == &main_) {
            return;
        } else {
            leave(self, main_);
        }
    }
}

void Engine::start_threads(Fiber& self) noexcept {
    if (detect_races_) {
        self.used = true;
        threadIdx = block_.next;
        ::uint3& next = block_.next;
        if (++next.x == blockDim.x) next.x = 0, next.y++;
        if (next.y == blockDim.y) next.y = 0, next.z++;
        race_acquire(&block_begins_);
    }
    try {
        start_(block_);
    } catch (const Discarded&) {
    } catch (...) {
        cancel(std::current_exception());
    }
}

Fiber& Engine::make_fiber() {
    guard_stacks(&running_here);
    const auto entry = [](void* engine) {
        auto* const self = static_cast<Engine*>(engine);
        Fiber& fiber = *self->running_;
        if (fiber.has_overflowed()) self->stack_overflowed();
        self->work(fiber);
        Fiber::switch_to(fiber, self->main_, true);
    };
    return *fibers_.emplace_back(std::make_unique<Fiber>(entry, this, fibers_.size(), stack_bytes_));
}

/// A fiber that carries no thread, or null after a failure, which cancels the block.
Fiber* Engine::free_fiber() noexcept {
    if (Fiber* const fiber = idle_.pop()) {
        fiber->used = false;
        return fiber;
    }
    try {
        return &make_fiber();
    } catch (...) {
        cancel(std::current_exception());
        return nullptr;
    }
}

/// From a fiber that carries no thread (any more).
void Engine::leave(Fiber& self, Fiber& to) noexcept {
    if (&self != &main_) {
        (detect_races_ ? spent_ : idle_).push_front(self);
        if (detect_races_) race_release(&block_ends_);
    }
    running_ = &to;
    Fiber::switch_to(self, to);
}

/// Lets each fiber end (the sanitizers keep things for one that has not), then frees the stacks.
void Engine::free_fibers() noexcept {
    quit_ = true;
    while (Fiber* const fiber = idle_.pop()) {
        running_ = fiber;
        Fiber::switch_to(main_, *fiber);
    }
    quit_ = false;
    fibers_.clear();
}

// ---- waiting

/// Suspends the thread on `self`, which is in a list already to be resumed from. Throws Discarded if the block failed.
void Engine::wait(Fiber& self) {
    self.thread[0] = threadIdx.x;
    self.thread[1] = threadIdx.y;
    self.thread[2] = threadIdx.z;
    if (block_.moved != nullptr) {
        // The loop on this fiber started this thread last. Another fiber goes on with the thread after it.
        *block_.moved = true;
        block_.moved = nullptr;
        ::uint3 next = threadIdx;
        if (++next.x == blockDim.x) next.x = 0, next.y++;
        if (next.y == blockDim.y) next.y = 0, next.z++;
        block_.next = next;
    }
    Fiber* to = ready_.pop();
    if (to == nullptr && threads_left()) to = free_fiber();
    if (to == nullptr) to = next_to_run();
    if (to != &self) {
        if (ready_.head() != nullptr) ready_.head()->prefetch();
        running_ = to;
        Fiber::switch_to(self, *to);
    }
    threadIdx = {self.thread[0], self.thread[1], self.thread[2]};
    if (cancelled_) discard();
}

/// A fiber that can go on, or null if the block is finished.
Fiber* Engine::next_to_run() noexcept {
    if (ready_.empty()) settle();
    return ready_.pop();
}

/// Every thread of the block has returned or waits: lets those go on whose wait is over, or fails the block.
void Engine::settle() noexcept {
    if (warp_waiting_ == 0) {
        release_barrier();
    } else {
        settle_warps();
    }
}

void Engine::release_barrier() noexcept {
    ready_.append(at_barrier_);
    result_ = {votes_, votes_ > 0, votes_ == voters_};
    votes_ = voters_ = 0;
    barriers_left_++;
}

/// Ends this thread, whose block has failed, unless it is being unwound already.
void Engine::discard() {
    if (std::uncaught_exceptions() == 0) throw Discarded{};
}

void Engine::barrier() {
    if (cancelled_) return discard();
    Fiber& self = *running_;
    self.require_reserve();
    at_barrier_.push(self);
    if (!detect_races_) return wait(self);
    char* const token = &barrier_tokens_[barriers_left_ & 1];
    race_release(token);
    wait(self);
    race_acquire(token);
}

detail::BarrierVotes Engine::barrier_vote(bool predicate) {
    voters_++;
    votes_ += predicate ? 1 : 0;
    barrier();
    return result_;
}

// ---- warps

std::uint64_t Engine::warp_call(WarpWait& wait_here) {
    if (cancelled_) {
        discard();
        return 0;
    }
    running_->require_reserve();
    const unsigned linear = linear_thread({threadIdx.x, threadIdx.y, threadIdx.z});
    const unsigned lane = linear % warp_size;
    const std::uint32_t bit = 1u << lane;
    if (warps_.empty()) {
        warps_.resize((block_threads() + warp_size - 1) / warp_size);
        reset_warps();
    }
    Warp& warp = warps_[linear / warp_size];
    warp.waits[lane] = &wait_here;
    warp.waiting |= bit;
    wait_here.fiber = running_;
    if (detect_races_ && wait_here.function == WarpFunction::sync)
        race_release(&warp.tokens[lane][warp.turns >> lane & 1]);
    if (wait_here.function != WarpFunction::active && group_complete(warp, wait_here.mask, wait_here.function)) {
        warp_waiting_++;  // finish_group takes it back
        finish_group(warp, wait_here.mask & ~warp.returned, &wait_here);
    } else {
        warp_waiting_++;
        wait(*running_);
    }
    if (detect_races_ && wait_here.function == WarpFunction::sync) {
        for (unsigned i = 0; i < warp_size; i++) {
            if (wait_here.group >> i & 1) race_acquire(&warp.tokens[i][wait_here.turns >> i & 1]);
        }
    }
    return wait_here.result;
}

/// Lanes that do not exist count as returned.
void Engine::reset_warps() noexcept {
    for (Warp& warp : warps_) warp.returned = 0;
    const unsigned in_last = block_threads() % warp_size;
    if (!warps_.empty() && in_last != 0) warps_.back().returned = ~0u << in_last;
}

bool Engine::group_complete(const Warp& warp, std::uint32_t mask, WarpFunction function) const noexcept {
    const std::uint32_t needed = mask & ~warp.returned;
    if ((needed & ~warp.waiting) != 0) return false;
    for (std::uint32_t rest = needed; rest != 0; rest &= rest - 1) {
        const WarpWait& other = *warp.waits[__builtin_ctz(rest)];
        if (other.mask != mask || other.function != function) return false;
    }
    return true;
}

/// Gives the lanes of `group` their results and resumes them. `caller`: the one that is running; null: none is.
void Engine::finish_group(Warp& warp, std::uint32_t group, const WarpWait* caller) noexcept {
    std::uint32_t votes = 0;
    for (std::uint32_t rest = group; rest != 0; rest &= rest - 1) {
        const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
        votes |= static_cast<std::uint32_t>(warp.waits[lane]->value & 1) << lane;
    }
    for (std::uint32_t rest = group; rest != 0; rest &= rest - 1) {
        const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
        WarpWait& one = *warp.waits[lane];
        switch (one.function) {
        case WarpFunction::sync: break;
        case WarpFunction::ballot: one.result = votes; break;
        case WarpFunction::any: one.result = votes != 0; break;
        case WarpFunction::all: one.result = votes == group; break;
        case WarpFunction::active: one.result = group; break;
        default: one.result = warp.waits[(group >> one.source & 1) != 0 ? one.source : lane]->value;
        }
        one.group = group;
        one.turns = warp.turns;
        if (&one != caller) ready_.push(*one.fiber);
        warp_waiting_--;
    }
    warp.waiting &= ~group;
    warp.turns ^= group;
}

/// `settle` where threads wait at warp functions: lanes that returned are known now.
void Engine::settle_warps() noexcept {
    try {
        std::vector<std::uint32_t> at_barrier(warps_.size(), 0);
        for (const Fiber* f = at_barrier_.head(); f != nullptr; f = f->next) {
            const unsigned linear = linear_thread(f->thread);
            at_barrier[linear / warp_size] |= 1u << linear % warp_size;
        }
        for (std::size_t w = 0; w < warps_.size(); w++) {
            Warp& warp = warps_[w];
            warp.returned = ~(warp.waiting | at_barrier[w]);
            for (std::uint32_t rest = warp.waiting; rest != 0; rest &= rest - 1) {
                const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
                const WarpWait& one = *warp.waits[lane];
                if (one.function == WarpFunction::active || !group_complete(warp, one.mask, one.function)) continue;
                const std::uint32_t group = one.mask & ~warp.returned;
                rest &= ~group | 1u << lane;
                finish_group(warp, group, nullptr);
            }
        }
        if (!ready_.empty()) return;
        for (Warp& warp : warps_) {
            std::uint32_t together = 0;
            const void* site = nullptr;
            for (std::uint32_t rest = warp.waiting; rest != 0; rest &= rest - 1) {
                const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
                const WarpWait& one = *warp.waits[lane];
                if (one.function != WarpFunction::active || (site != nullptr && one.site != site)) continue;
                site = one.site;
                together |= 1u << lane;
            }
            if (together != 0) finish_group(warp, together, nullptr);
        }
        if (!ready_.empty()) return;
        cancel(std::make_exception_ptr(KernelError(deadlock_text(at_barrier))));
    } catch (...) {
        cancel(std::current_exception());
    }
}

// ---- failures

/// Remembers the first error, starts no more threads and lets those that wait go on, to be discarded.
void Engine::cancel(std::exception_ptr error) noexcept {
    if (!error_) error_ = std::move(error);
    cancelled_ = true;
    block_.moved = nullptr;
    block_.next = {0, 0, blockDim.z};
    ready_.append(at_barrier_);
    for (Warp& warp : warps_) {
        for (std::uint32_t rest = warp.waiting; rest != 0; rest &= rest - 1) {
            ready_.push(*warp.waits[__builtin_ctz(rest)]->fiber);
        }
        warp.waiting = 0;
    }
    warp_waiting_ = 0;
}

/// The thread that ran last on this fiber is gone; the fiber goes on without one.
void Engine::stack_overflowed() noexcept {
    try {
        cancel(std::make_exception_ptr(KernelError(driver::format(
            "thread {} of block {} of kernel {} needs more than the {} KiB of stack that a thread has in a kernel with "
            "barriers: use smaller local arrays and less recursion, or larger stacks by KMM_FIBER_STACK={}KiB "
            "(RuntimeConfig::fiber_stack) or more",
            to_text(threadIdx), to_text(blockIdx), kernel_name_ != nullptr ? kernel_name_ : "(unnamed)",
            (stack_bytes_ + 1023) / 1024, (stack_bytes_ + 511) / 512))));
    } catch (...) {
        cancel(std::current_exception());
    }
}

std::string Engine::deadlock_text(const std::vector<std::uint32_t>& at_barrier) const {
    unsigned in_barrier = 0, in_warp = 0;
    std::string place;
    for (std::size_t w = 0; w < warps_.size(); w++) {
        const Warp& warp = warps_[w];
        in_barrier += static_cast<unsigned>(__builtin_popcount(at_barrier[w]));
        in_warp += static_cast<unsigned>(__builtin_popcount(warp.waiting));
        if (!place.empty() || warp.waiting == 0) continue;
        const WarpWait& one = *warp.waits[__builtin_ctz(warp.waiting)];
        std::uint32_t agreeing = 0;
        for (std::uint32_t rest = warp.waiting; rest != 0; rest &= rest - 1) {
            const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
            const WarpWait& other = *warp.waits[lane];
            if (other.mask == one.mask && other.function == one.function) agreeing |= 1u << lane;
        }
        place = driver::format(
            "thread {} waits at {}({}, ...) for the lanes {} of its warp, of which {} wait at __syncthreads()",
            to_text(one.fiber->thread), name_of(one.function), to_hex(one.mask),
            to_hex(one.mask & ~warp.returned & ~agreeing), to_hex(one.mask & at_barrier[w]));
    }
    const unsigned threads = block_threads();
    return driver::format("no thread of block {} of kernel {} can go on: of {} threads {} have returned, {} wait at "
                          "__syncthreads(), {} at warp functions; {}. Every lane that a mask names must make the same "
                          "call with the same mask, and threads wait for each other only at the same barrier",
                          to_text(blockIdx), kernel_name_ != nullptr ? kernel_name_ : "(unnamed)", threads,
                          threads - in_barrier - in_warp, in_barrier, in_warp, place);
}

}  // namespace

// ---- what kernels call

bool in_kernel() noexcept { return current != nullptr; }

Where where() noexcept {
    if (current == nullptr) return {};
    return {{blockIdx.x, blockIdx.y, blockIdx.z}, {threadIdx.x, threadIdx.y, threadIdx.z}};
}

namespace detail {

void run_blocks(const driver::HostKernel& kernel, const driver::HostLaunchGeometry& geometry, const void* parameters,
                std::uint64_t first, std::uint64_t last, StartThreads start) {
    if (current != nullptr) {
        throw KernelError("an emulated kernel started another one: launches from a kernel are not available");
    }
    struct Current {
        explicit Current(Engine& engine) { current = &engine; }
        ~Current() { current = nullptr; }
    };
    const kmm::detail::DeviceAccessScope device_access;
    if (race_detector_present()) {
        // The launches of an OS thread may belong to streams that know nothing of each other: they must share no
        // memory.
        Engine engine;
        const Current in_kernel_now(engine);
        engine.run(kernel, geometry, parameters, first, last, start);
        return;
    }
    if (owned == nullptr) owned = std::make_unique<Engine>();
    const Current in_kernel_now(*owned);
    owned->run(kernel, geometry, parameters, first, last, start);
}

void barrier() { engine().barrier(); }

BarrierVotes barrier_vote(bool predicate) { return engine().barrier_vote(predicate); }

std::uint64_t warp_call(WarpFunction function, std::uint32_t mask, std::uint64_t value, int operand, int width) {
    Engine& e = engine();
    const unsigned lane = linear_thread({threadIdx.x, threadIdx.y, threadIdx.z}) % warp_size;
    const auto fail = [&](const std::string& what) {
        throw KernelError(driver::format("{} in block {}, thread {}: {}", name_of(function), to_text(blockIdx),
                                         to_text(threadIdx), what));
    };
    if ((mask >> lane & 1) == 0) {
        fail(driver::format("the mask {} does not name the calling lane {}", to_hex(mask), lane));
    }
    const auto segment = static_cast<unsigned>(width);
    if (segment == 0 || segment > warp_size || (segment & (segment - 1)) != 0) {
        fail(driver::format("the width {} is not 1, 2, 4, 8, 16 or 32", width));
    }
    const unsigned base = lane & ~(segment - 1);
    const auto distance = static_cast<unsigned>(operand);
    unsigned source = lane;
    switch (function) {
    case WarpFunction::shuffle: source = base + (distance & (segment - 1)); break;
    case WarpFunction::shuffle_up: source = lane - base < distance ? lane : lane - distance; break;
    case WarpFunction::shuffle_down: source = distance >= base + segment - lane ? lane : lane + distance; break;
    case WarpFunction::shuffle_xor: source = (lane ^ distance) < base + segment ? lane ^ distance : lane; break;
    default: break;
    }
    WarpWait wait{function, mask, value, source};
    return e.warp_call(wait);
}

__attribute__((noinline)) std::uint32_t active_lanes() {
    WarpWait wait{WarpFunction::active, 0, 0};
    wait.site = __builtin_return_address(0);
    return static_cast<std::uint32_t>(engine().warp_call(wait));
}

void* dynamic_shared() noexcept { return current != nullptr ? current->dynamic_shared() : nullptr; }

void fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }

long long clock_ticks() noexcept {
#if defined(__x86_64__)
    return static_cast<long long>(__builtin_ia32_rdtsc());
#else
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
#endif
}

}  // namespace detail
}  // namespace kmm::emulation
