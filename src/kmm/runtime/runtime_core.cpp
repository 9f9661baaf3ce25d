#include "kmm/runtime/runtime_core.hpp"

#include "driver/format.hpp"

#include <algorithm>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <system_error>
#include <utility>

#include "driver/check.hpp"
#include "driver/nvtx_ranges.hpp"
#include "kmm/base/log.hpp"
#include "kmm/base/text.hpp"
#include "kmm/runtime/kept_books.hpp"

namespace kmm::detail {

namespace {

// Most failures that are logged one by one when a runtime ends: one cause often fails very many tasks.
constexpr std::size_t most_undelivered = 20;

constexpr std::chrono::duration<double> a_day{86400};

}  // namespace

std::shared_ptr<RuntimeCore> RuntimeCore::start(const RuntimeConfig& config, std::shared_ptr<driver::Driver> driver) {
    try {
        std::unique_ptr<RuntimeCore> core(new RuntimeCore(config, std::move(driver)));
        core->start_threads();
        // The last handle may go on one of the runtime's own threads, which cannot wait for itself.
        return std::shared_ptr<RuntimeCore>(core.release(), [](RuntimeCore* dying) {
            // The child of a fork has none of the threads, and what they waited on cannot even be destroyed: it is
            // left.
            if (driver::lost_in_fork()) return;
            if (!engine::RuntimeThread::of(dying->platform_.runtime_mark())) return delete dying;
            try {
                std::thread([dying] { delete dying; }).detach();
            } catch (const std::exception&) {
                log::post(log::Level::error,
                          "a kmm runtime stays until the process ends: there is no thread to end it");
            }
        });
    } catch (const driver::DriverError& e) {
        throw DeviceError(e.what(), config.driver, -1, e.native(), e.name());
    } catch (const std::system_error& e) {
        throw NotAvailable(
            driver::format("the system gives a runtime no threads ({}): end some of the process's, or raise "
                           "its limits (ulimit -u, -v)",
                           e.what()));
    }
}

RuntimeCore::RuntimeCore(const RuntimeConfig& config, std::shared_ptr<driver::Driver> driver)
    : platform_(config, std::move(driver)),
      copy_buffers_(platform_),
      copy_streams_(platform_.driver()),
      books_(platform_.number()),
      words_(platform_, books_),
      shortage_words_(platform_, words_),
      listeners_(platform_),
      engine_(platform_, words_, listeners_.emitter()),
      turns_(platform_, books_, words_, shortage_words_, engine_, listeners_.emitter()),
      reports_(platform_, books_, engine_, turns_, copy_buffers_),
      who_waits_(platform_, books_, words_, turns_),
      pending_tasks_(platform_, books_, words_, turns_),
      share_(platform_, engine_, turns_) {
    graph::HostReserve::prepare();
    log::prepare();
}

void RuntimeCore::start_threads() {
    listeners_.begin_files_of_config(turns_.lanes());
    if (platform_.config().nvtx && !driver::nvtx::has_ranges()) {
        log::write(log::Level::warn, "nvtx (KMM_NVTX) is on, but this build of kmm has no NVTX: build it with CUDA");
        platform_.turn_nvtx_off();
    }
    engine_.start(turns_.lanes(), turns_);
    turns_.start();
    for (std::uint32_t d = 0; d < platform_.num_devices(); ++d)
        shares_.push_back(
            std::make_unique<supply::DeviceShare>(share_, platform_.driver(), d, platform_.ordinals()[d],
                                                  driver::format("kmm runtime {}", platform_.number()),
                                                  platform_.config().device_memory_kind != DeviceMemoryKind::Resource));
    const std::size_t asked = platform_.config().host_threads;
    const std::size_t given = engine_.start_host_pool(turns_);
    if (given == asked) return;
    log::write(log::Level::warn,
               driver::format("runtime {} runs host tasks on {} threads instead of {} (KMM_HOST_THREADS): the system "
                              "gives no more",
                              platform_.number(), given, asked));
    platform_.set_host_threads(given);
}

RuntimeCore::~RuntimeCore() {
    if (turns_.has_started()) {
        books_.close();
        wait_idle();  // every task has to finish
        shares_.clear();
        turns_.end();
    }
    shares_.clear();
    turns_.hand_over_no_more();  // the memory service may still take the baton
    engine_.end_threads();
    turns_.help();
    engine_.end_memory_service();
    KeptBooks::give_all_back();
    log_undelivered();
    log::flush();
}

// Without a task of its own: a barrier cannot be submitted to a runtime that is going.
void RuntimeCore::wait_idle() {
    const engine::Workers::Wait wait;  // the last handle may go in a task of another runtime
    books_.unfinished().wait_until_below(1);
}

void RuntimeCore::log_undelivered() noexcept {
    try {
        const auto roots = books_.deliver_all_failures();
        const std::size_t told = std::min(roots.size(), most_undelivered);
        for (std::size_t i = 0; i < told; ++i)
            log::post(log::Level::error, "a failure that nobody asked for: " + text_of(words_.error_of(*roots[i])));
        if (told != roots.size())
            log::post(log::Level::error, driver::format("{} more tasks of runtime {} failed, and nobody asked for them",
                                                        roots.size() - told, platform_.number()));
    } catch (...) {
        // No memory for the text, and no caller to throw to.
        log::last_words(log::Level::error, "a failure that nobody asked for could not be described");
    }
}

// ---------------------------------------------------------------------------------------------------- submitting

void RuntimeCore::admit() {
    if (would_wait()) books_.unfinished().wait_until_below(platform_.config().max_pending_tasks);
}

bool RuntimeCore::commit(Batch& batch) {
    bool was_idle = false;
    if (!take_places(batch, &was_idle)) return false;
    turns_.schedule_published(was_idle);
    return true;
}

void RuntimeCore::commit_and_run(Batch& batch) {
    bool was_idle = false;
    (void)take_places(batch, &was_idle);
    engine::HostPool::RunHere here(engine_.host_pool(), batch.first());
    turns_.schedule_published(was_idle);
    here.run();
}

/// All of `commit` that the order lock is held for. `*was_idle`: nothing was pending.
bool RuntimeCore::take_places(Batch& batch, bool* was_idle) {
    const locks::Guard guard(books_.order());
    if (!batch.closes_)
        books_.check_open();
    else
        books_.check_usable();
    if (books_.is_closed()) return false;
    batch.look_back(listeners_.any());
    batch.check();
    books_.begin_taking_places(batch.tasks_.size());
    batch.bind();
    if (batch.closes_) books_.close();
    batch.last_helper_before_ = books_.table().last_helper();
    batch.first_ = books_.table().add(batch.tasks_);
    batch.num_tasks_ = batch.tasks_.size();
    try {
        batch.connect();
    } catch (const std::bad_alloc&) {
        books_.unfinished().add(batch.leave_numbered());
        turns_.lost();
        throw;
    }
    *was_idle = publish(batch);
    return true;
}

/// Returns whether nothing was pending.
bool RuntimeCore::publish(Batch& batch) noexcept {
    if (listeners_.any()) [[unlikely]]
        listeners_.tell_submitted(batch.ahead_, batch.tasks_, batch.helpers_, batch.requests(), batch.begin_ns());
    const std::uint64_t before =
        books_.unfinished().add(batch.ahead_.size() + batch.tasks_.size() + batch.helpers_.size());
    turns_.publish(batch.take_all());
    return before == 0;
}

graph::TaskNumber RuntimeCore::submit_join(const graph::Predecessors& predecessors, bool barrier) {
    books_.check_open();
    JoinBatch batch(books_, predecessors, barrier);
    commit(batch);
    return batch.last();
}

void RuntimeCore::release_array(memory::Array* array) noexcept {
    if (driver::lost_in_fork()) return;  // no thread reads messages there, and a lock may be held for ever
    listeners_.tell_dropped(*array);
    const std::size_t held_bytes = array->held_bytes;
    turns_.release(*array);
    // Afterwards: a task whose claim leaves the array out is behind its release in the queue.
    books_.held().remove(held_bytes);
}

// ---------------------------------------------------------------------------------------------------- waiting

void RuntimeCore::throw_deadlock(TaskNumber number) const {
    throw DeadlockError(
        driver::format("a task of runtime {} waits for event {} of its own runtime, which may never end: submit a task "
                       "that depends on it instead",
                       platform_.number(), number));
}

bool RuntimeCore::wait_settled(TaskNumber number, const std::chrono::steady_clock::time_point* deadline,
                               bool must_wait) {
    if (!wait_until_settled(number, deadline, must_wait)) return false;
    books_.check_usable();  // of a lost runtime tasks go without having ended well
    return true;
}

/// Of a lost runtime: until nothing runs any more.
bool RuntimeCore::wait_until_settled(TaskNumber number, const std::chrono::steady_clock::time_point* deadline,
                                     bool must_wait) {
    using clock = std::chrono::steady_clock;
    if (number == 0 || books_.is_settled(number)) return true;
    if (deadline != nullptr && clock::now() >= *deadline) return false;
    if (inside_own_task()) throw_deadlock(number);
    // A thread of another runtime's tasks gives its place to another thread while it waits here.
    const engine::Workers::Wait wait;
    if (wait.refused() && !must_wait)
        throw DeadlockError(
            driver::format("{} tasks of another runtime wait for this one already, or the system gives no more "
                           "threads; one more could wait for ever",
                           engine::Workers::most_waiting));
    if (engine::many_cores()) {
        const auto until = clock::now() + engine::spin_time;
        do {
            for (int i = 0; i < 16; ++i) locks::relax();
            if (books_.is_settled(number)) return true;
        } while (clock::now() < until);
    }
    TaskNumber settled_before = books_.table().settled_up_to();
    std::uint64_t unfinished_before = books_.unfinished().count();
    const auto log_if_nothing_moves = [&]() noexcept {
        if (platform_.config().watchdog <= 0) return false;
        const bool moves =
            books_.table().settled_up_to() != settled_before || books_.unfinished().count() != unfinished_before;
        settled_before = books_.table().settled_up_to();
        unfinished_before = books_.unfinished().count();
        if (!moves) log_stuck(number);
        return moves;
    };
    const auto watchdog =
        std::chrono::duration<double>(platform_.config().watchdog > 0 ? platform_.config().watchdog : 1e5);
    return books_.waits().wait(number, deadline, std::chrono::duration_cast<clock::duration>(std::min(watchdog, a_day)),
                               log_if_nothing_moves);
}

void RuntimeCore::log_stuck(TaskNumber awaited) noexcept {
    try {
        if (const std::string who = who_waits_.stuck_text(awaited); !who.empty())
            log::post(log::Level::warn,
                      driver::format("no task of runtime {} has finished for {}; {}\n{}", platform_.number(),
                                     seconds_text(platform_.config().watchdog), who, report(ReportFormat::Text)));
    } catch (...) {
        // The wait must not end early for want of a text.
        log::post(log::Level::warn, "a wait takes long, and there is no memory to say why");
    }
}

void RuntimeCore::throw_failure(TaskNumber number) {
    if (const auto failure = books_.deliver_failure(number)) std::rethrow_exception(words_.error_of(*failure));
}

void RuntimeCore::throw_failure(TaskNumber number, std::uint32_t chunk_index, const DomainChunk& chunk) {
    const auto failure = books_.deliver_failure(number);
    if (failure == nullptr) return;
    graph::Failure named;
    named.root = failure->root;
    named.keeps_content = failure->keeps_content;
    named.task.number = failure->task.number;
    named.task.info.share(failure->task.info);
    named.task.where = failure->task.where;
    named.task.chunk_index = chunk_index;
    named.task.chunk = chunk;
    std::rethrow_exception(words_.error_of(named));
}

void RuntimeCore::throw_undelivered(TaskNumber number) {
    const std::vector<std::shared_ptr<graph::RootFailure>> open = books_.deliver_failures_before(number);
    if (open.empty()) return;
    std::exception_ptr error;
    try {
        error = words_.error_of(open);
    } catch (const std::bad_alloc&) {
        books_.take_back(open);  // not delivered
        throw;
    }
    std::rethrow_exception(error);
}

/// The program may free what its tasks use when this throws: it waits until a lost runtime runs nothing any more.
bool RuntimeCore::commit_barrier(Batch& batch) {
    try {
        return commit(batch);
    } catch (...) {
        if (books_.is_lost()) wait_idle();
        throw;
    }
}

void RuntimeCore::synchronize() {
    if (inside_own_task()) throw_deadlock(books_.table().last());
    JoinBatch batch(books_, {}, true);
    commit_barrier(batch);
    wait_settled(batch.last(), nullptr);
    throw_undelivered(batch.last());
}

void RuntimeCore::close() {
    if (inside_own_task()) throw_deadlock(books_.table().last());
    JoinBatch batch(books_, {}, true, true);
    if (!commit_barrier(batch)) return;
    const TaskNumber barrier = batch.last();
    wait_settled(barrier, nullptr);
    try {
        trace({});
    } catch (const std::bad_alloc&) {
        // It ends with the runtime.
    }
    throw_undelivered(barrier);
}

// ---------------------------------------------------------------------------------------------------- memory

void RuntimeCore::trim() {
    books_.check_open();
    KeptBooks::give_all_back();
    books_.pool().trim();
    turns_.with_everything_read([](auto& scheduler, const auto&) { scheduler.trim(); });
    engine_.memory_service().trim();
    copy_buffers_.trim();
    copy_streams_.trim();
#ifdef __GLIBC__
    (void)malloc_trim(0);  // else the C library keeps most of it, among blocks in use
#endif
}

}  // namespace kmm::detail
