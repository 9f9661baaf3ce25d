// A running runtime: its threads, its scheduler, and what the public API asks of it.
//
// Owns: everything below it. The scheduler's baton (one thread at a time runs the scheduler) passes between the
// threads: whoever has just reported something and finds it free takes it; a thread of its own takes it when nobody
// else does. Knows: drivers, scheduler, threads. Must not know: arrays as the program sees them, views, launchers.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "driver/fork.hpp"
#include "driver/locks.hpp"
#include "kmm/api/runtime.hpp"
#include "kmm/core/resource.hpp"
#include "kmm/core/stats.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/engine/baton.hpp"
#include "kmm/engine/device_thread.hpp"
#include "kmm/engine/host_pool.hpp"
#include "kmm/error.hpp"
#include "kmm/graph/failures.hpp"
#include "kmm/runtime/texts/holders.hpp"
#include "kmm/runtime/waiting.hpp"
#include "kmm/schedule/scheduler.hpp"
#include "kmm/supply/device_share.hpp"
#include "kmm/supply/memory_service.hpp"
#include "kmm/trace/collector.hpp"

namespace kmm::plan {
struct Request;
}  // namespace kmm::plan

namespace kmm::detail {

class RuntimeCore final : public Runtime,
                          public std::enable_shared_from_this<RuntimeCore>,
                          private schedule::Outbox,
                          private engine::Mailbox,
                          private engine::ErrorMaker,
                          private supply::ShareSource,
                          private engine::LauncherThreads::Runner {
  public:
    using Task = graph::Task;
    using TaskNumber = graph::TaskNumber;

    /// NA IA DE OM.
    static std::shared_ptr<RuntimeCore> start(const RuntimeConfig& config,
                                              std::shared_ptr<driver::Driver> driver = nullptr);
    ~RuntimeCore();

    // ---- constant after the start
    driver::Driver& driver() noexcept { return *driver_; }
    const RuntimeConfig& config() const noexcept { return config_; }
    const SystemInfo& info() const noexcept { return *info_; }
    std::uint32_t num_devices() const noexcept { return static_cast<std::uint32_t>(ordinals_.size()); }
    std::uint16_t number() const noexcept { return number_; }
    std::size_t limit_bytes(memory::MemoryIndex m) const noexcept { return limits_[m]; }
    std::size_t rounded(std::size_t bytes) const noexcept { return (bytes + 255) / 256 * 256; }
    /// The sum, or the largest number where it does not fit: of sizes that are compared with a limit.
    static std::size_t sum_bytes(std::size_t a, std::size_t b) noexcept { return a + b < a ? SIZE_MAX : a + b; }

    // ---- submitting (api/submission.cpp)
    graph::TaskPool& pool() noexcept { return pool_; }
    graph::TaskTable& table() noexcept { return table_; }
    /// Held while a submit takes its place in the order: numbers, bindings, histories of chunks.
    locks::Mutex& order() noexcept KMM_RETURNS_LOCK(order_) { return order_; }
    /// CL when closed or in the child of a fork; OM when the runtime has given up.
    void check_open() const {
        if (driver::lost_in_fork() || closed_.load(std::memory_order_relaxed) ||
            gave_up_from_.load(std::memory_order_acquire) != 0) [[unlikely]]
            throw_not_open();
    }
    /// CL in the child of a fork: its threads do not exist there, and its locks may be held for ever.
    void refuse_after_fork() const;
    /// Waits while too many tasks are unfinished; never inside a task.
    void admit();
    /// Hands tasks to the scheduler, with the order lock held since they got their numbers: a task that replaces a
    /// chunk must not be scheduled before an earlier one that reads it is known. Empties the vector. Returns whether
    /// nothing was pending.
    bool publish(graph::TaskList& tasks) {
        graph::TaskList none;
        return publish(tasks, none);
    }
    /// The same with joins that were made on the way: there is no list of all, which would need memory after the first
    /// number.
    /// For whoever listens: `requests` are one for each access of `tasks`, in their order; at `begin_ns` their submit
    /// began.
    bool publish(graph::TaskList& tasks, graph::TaskList& joins, const plan::Request* requests = nullptr,
                 std::int64_t begin_ns = 0);
    /// Under the order lock, before the first of at most `count` tasks gets its number and anything is changed: from
    /// here on until they are published nothing can fail. Throws std::bad_alloc.
    void begin_taking_places(std::size_t count) {
        graph::HostReserve::require();
        table_.reserve(count);
    }
    /// A numbered task that comes after `numbers`, for `joins`; 0 where there is no memory for one. Under the order
    /// lock.
    TaskNumber add_join(const graph::TaskNumbers& numbers, graph::TaskList& joins) noexcept;
    /// They could not all be published: the runtime gives up. Those without a number stay in the list.
    void lose_order(graph::TaskList& tasks) noexcept;
    /// After `publish`, without the lock: sees to it that somebody takes the baton.
    void schedule_published(bool was_idle);
    void release_array(memory::Array* array) noexcept;
    std::uint64_t next_array_number() noexcept { return 1 + num_arrays_.fetch_add(1, std::memory_order_relaxed); }

    // ---- for whoever listens (listeners.cpp)
    const trace::Emitter& emitter() const noexcept { return trace_; }
    /// An array has become the runtime's.
    void tell_bound(const memory::Array& data, const Box& box, bool is_named) noexcept;
    void tell_named(const memory::Array& data, const std::string& name) noexcept;
    /// Begins a trace in the file, and ends the one that was written before; an empty path only ends that. IA where the
    /// file cannot be written. Blocks until what happened before is in the file that ends.
    void trace(const std::string& path);

    // ---- events
    EventId event_of(TaskNumber number) const noexcept {
        return EventId((static_cast<std::uint64_t>(number_) << 48) | number);
    }
    /// A barrier's event says so in its number, so that a wait for it can report what nobody has been told yet.
    EventId barrier_event_of(TaskNumber number) const noexcept { return EventId(event_of(number).get() | barrier_bit); }
    static bool is_barrier(EventId event) noexcept { return (event.get() & barrier_bit) != 0; }
    TaskNumber number_of(EventId event) const;  ///< 0 for EventId{}; IA
    bool is_settled(TaskNumber number) noexcept { return table_.find(number) == nullptr; }
    /// The books were given up before this task was known to have ended well.
    bool is_given_up(TaskNumber number) const noexcept {
        const TaskNumber from = gave_up_from_.load(std::memory_order_acquire);
        return from != 0 && number >= from;
    }
    std::shared_ptr<graph::Failure> failure_of(TaskNumber number) const {
        auto failure = failures_.find(number);
        return failure == nullptr && is_given_up(number) ? given_up_ : failure;
    }
    /// The same for somebody who is told of it.
    std::shared_ptr<graph::Failure> deliver_failure(TaskNumber number) {
        auto failure = failures_.deliver(number);
        return failure == nullptr && is_given_up(number) ? given_up_ : failure;
    }
    /// False at the deadline. DL inside a task of this runtime. Does not look at failures.
    /// `must_wait`: nobody may go on before the task is settled, even where no other thread can take this one's place.
    bool wait_settled(TaskNumber number, const std::chrono::steady_clock::time_point* deadline, bool must_wait = false);
    /// Throws the failure of a settled task, if it failed, and marks it delivered.
    void throw_failure(TaskNumber number);
    /// Throws the undelivered failures of tasks before `number`, if there are any.
    void throw_undelivered(TaskNumber number);
    TaskNumber submit_join(const graph::Predecessors& predecessors, bool barrier);
    bool inside_own_task() const noexcept { return engine::TaskScope::current() == this; }

    void synchronize();
    void close();
    bool idle() const noexcept { return unfinished_.count() == 0; }
    /// Gives free memory back to the driver; blocks until it did.
    void trim();
    RuntimeStats stats();
    std::string report(ReportFormat format);
    /// The error of a task that failed, or was cancelled: its words are made when somebody first asks. Any thread that
    /// has no lock: they may call the driver and the program's code.
    std::exception_ptr error_of(graph::Failure& failure) const;
    std::exception_ptr error_of(graph::RootFailure& root) const;
    std::exception_ptr error_of(const std::vector<std::shared_ptr<graph::RootFailure>>& roots) const;
    /// What a task lacks that can never run, before it is submitted. Nothing of the scheduler's is looked at.
    OutOfMemory never_fits(const Task& task, std::size_t needed_bytes) const;
    /// What could be done so that `wanted` bytes of this memory can be used. Only settings that would help are named.
    std::string memory_remedy(memory::MemoryIndex m, std::size_t wanted_bytes) const;
    /// Copies between chunks on the host and memory of the program. Any thread; counted in the fields of the other
    /// copies.
    enum class UserCopy : std::uint8_t { host_to_device, device_to_host, host_to_host };
    void count_user_copy(UserCopy kind, std::size_t bytes, std::int64_t nanoseconds) noexcept;
    const char* driver_name() const noexcept { return driver_->name(); }
    TaskFailure describe_failure(const Task& task) const;  ///< the task in words, without a cause
    TaskFailure describe_failure(const graph::TaskTrace& task) const;
    std::string place_text(const ResourceId& where) const;  ///< "GPU 1", "virtual GPU 1", "the host"

  private:
    static constexpr std::uint64_t barrier_bit = 1ull << 47;
    static constexpr std::uint64_t number_mask = barrier_bit - 1;

    RuntimeCore(const RuntimeConfig& config, std::shared_ptr<driver::Driver> driver);
    /// Unchecked: nobody else knows the runtime yet.
    void start_threads() KMM_UNCHECKED_LOCKS;
    void describe();
    void set_limits();
    void wait_idle();

    // schedule::Outbox
    void instruct(std::uint32_t device, const schedule::Instruction& instruction) override KMM_REQUIRES(baton_);
    void launch(std::uint32_t device, Task& task) override;
    void run_on_host(Task& task) override KMM_REQUIRES(baton_);
    void grow(memory::MemoryIndex memory, std::size_t bytes) override;
    bool exchange(memory::MemoryIndex memory, std::size_t bytes) override;
    bool await_memory(memory::MemoryIndex memory, std::size_t bytes, bool patient) override;
    bool may_ask_again(memory::MemoryIndex memory) noexcept override KMM_REQUIRES(baton_);
    bool linked(memory::MemoryIndex from, memory::MemoryIndex to) const noexcept override;
    void settled(Task& task) noexcept override;
    void recycle(Task& task) noexcept override KMM_REQUIRES(baton_);
    std::shared_ptr<graph::Failure> make_failure(Task& task, std::exception_ptr thrown,
                                                 const std::shared_ptr<graph::RootFailure>& root) override
        KMM_REQUIRES(baton_);
    std::shared_ptr<graph::Failure> find_failure(TaskNumber number) override { return failure_of(number); }
    void out_of_memory(Task& task) override KMM_REQUIRES(baton_);
    std::exception_ptr no_host_memory() noexcept override { return no_host_memory_; }
    void memory_wait_begins(Task& task) noexcept override;
    void memory_wait_ends(Task& task) noexcept override KMM_REQUIRES(baton_);
    void kernel_failed(Task& task, std::exception_ptr thrown) override;

    // engine::Mailbox
    void post(engine::Message&& message) override;
    void lost() noexcept override;
    void help() noexcept override;
    bool take_back(memory::MemoryIndex memory, const void* address, std::size_t bytes, graph::FenceSet* users) override;
    memory::Reclaimed reclaim(memory::MemoryIndex memory, const std::vector<memory::AddressRange>& regions,
                              std::size_t wanted_bytes, bool at_once) override;
    void discard(Task& task) noexcept override { pool_.give(&task); }
    // supply::ShareSource
    supply::ShareFigures share_of(std::uint32_t device) override;
    std::size_t reclaim_for_others(std::uint32_t device, std::size_t bytes,
                                   std::chrono::steady_clock::time_point deadline) noexcept override;
    const void* some_memory_of(std::uint32_t device) const noexcept override {
        return memory_service_->sample(memory::MemoryIndex::of_device(device));
    }
    // engine::ErrorMaker
    std::exception_ptr device_error(std::uint32_t device, driver::Status status, const char* attempted) override;
    // engine::LauncherThreads::Runner
    void run_device_function(Task& task, std::uint32_t device, engine::StreamHandle stream) override;

    void scheduler_loop();
    void turn() KMM_REQUIRES(baton_);
    /// `turn`, after which the books are whole or given up.
    void turn_or_give_up() noexcept KMM_REQUIRES(baton_);
    // ---- giving_up.cpp
    void give_up() noexcept KMM_REQUIRES(baton_);
    /// From here on no task is known to have ended well.
    void begin_to_give_up() noexcept;
    void take_back_what_is_not_on_its_way() noexcept KMM_REQUIRES(baton_);
    void read_after_giving_up() noexcept KMM_REQUIRES(baton_);
    void came_back(engine::Message& message) noexcept;
    void settle_what_is_over() noexcept KMM_REQUIRES(baton_);
    bool settle_left_over() noexcept KMM_REQUIRES(baton_);
    bool is_over(Task& task) noexcept;
    bool may_run(const Task& task) const noexcept;
    void settle_after_giving_up(Task& task) noexcept KMM_REQUIRES(baton_);
    void drop_at_end(memory::Array& array) noexcept;
    void add_to_dropped(memory::Array& array) noexcept;
    void delete_dropped_arrays() noexcept KMM_UNCHECKED_LOCKS;  // at the end: nobody takes the baton any more
    bool take_turn() noexcept;
    void let_go_of_baton() noexcept KMM_RELEASE(baton_);
    /// Runs `f` while nobody else has the baton. For questions of the program: short, and nothing is issued.
    template<typename F> auto with_baton(F&& f) KMM_EXCLUDES(baton_);
    void handle(engine::Message& message) KMM_REQUIRES(baton_);
    void schedule_more() KMM_REQUIRES(baton_) {
        scheduler_->dispatch();
        flush();
    }
    void flush() KMM_REQUIRES(baton_);
    void log_undelivered() noexcept;
    void tell_submitted(trace::Sink& sink, const graph::TaskList& tasks, const graph::TaskList& joins,
                        const plan::Request* requests, std::int64_t begin_ns) noexcept;
    trace::Machine machine() const KMM_REQUIRES(baton_);
    trace::Collector& collector();
    void begin_trace(const std::string& path, const char* what_for, trace::Machine machine) KMM_REQUIRES(trace_mutex_);
    void begin_files_of_config();

    struct KnownHolders;
    // ---- figures and texts; the figures are for whoever has the baton, the texts of failures for whoever does not
    class Shortage;
    std::exception_ptr cause_of(graph::RootFailure& root) const;
    std::string task_text(const Task& task) const;  ///< "task \"axpy\" chunk 3 of 10 on GPU 1"
    std::string setting_for(memory::MemoryIndex m, std::size_t wanted_bytes) const;  ///< empty: none helps
    std::string setting_on_host_driver(memory::MemoryIndex m, std::size_t wanted_bytes) const;
    std::string shortage_text(const Shortage& shortage, bool at_submit) const;
    std::string memory_text(const Shortage& shortage) const;
    std::string limit_text(memory::MemoryIndex m) const;
    void describe_needs(const Task& task, Shortage& shortage) const;
    void describe_running(Shortage& shortage) KMM_REQUIRES(baton_);
    std::shared_ptr<const graph::Unworded> look_at_shortage(Task& task) KMM_REQUIRES(baton_);
    const KnownHolders& holders_now(memory::MemoryIndex m) KMM_REQUIRES(baton_);
    RuntimeStats read_stats() const KMM_REQUIRES(baton_);
    struct ReportFigures;
    void read_figures(ReportFigures& figures) const KMM_REQUIRES(baton_);
    std::string waits_for_text(const Task& task) KMM_REQUIRES(baton_);
    /// Who waits for what, for the log; empty if the task is settled. Takes the baton.
    std::string stuck_text(TaskNumber awaited);
    void log_stuck(TaskNumber awaited) noexcept;
    [[noreturn]] void throw_deadlock(TaskNumber number) const;
    [[noreturn]] void throw_not_open() const;

    RuntimeConfig config_;
    std::shared_ptr<driver::Driver> driver_;
    std::uint16_t number_ = 0;
    const driver::DriverUse use_;  // whichever driver it is: the threads are lost in a fork
    // What every submit and every turn of the scheduler look at: among what does not change, away from locks and
    // queues.
    std::atomic<bool> closed_{false};
    // The last resort: the reserve of host memory was used up as well (graph/host_reserve.hpp), and a step was left
    // half done.
    std::atomic<bool> must_give_up_{false};  ///< somebody could not report what happened
    /// None from this one on is known to have ended well; 0: books are whole.
    std::atomic<TaskNumber> gave_up_from_{0};

    std::vector<int> ordinals_;
    memory::PerMemory<std::size_t> limits_;
    std::vector<std::vector<bool>> peers_;
    std::uint64_t threads_at_once_ = 1;  ///< that a device runs, the least of all
    std::unique_ptr<SystemInfo> info_;
    bool on_host_driver_ = false;

    trace::Emitter trace_;
    locks::Mutex trace_mutex_;
    std::unique_ptr<trace::Collector> collector_;  ///< outlives the threads that tell it; made when it is asked for
    /// Of the trace that is being written.
    const trace::Consumer* trace_writer_ KMM_GUARDED_BY(trace_mutex_) = nullptr;
    std::atomic<std::uint64_t> num_arrays_{0};  ///< that were ever bound

    locks::Mutex order_;
    graph::TaskPool pool_;
    graph::TaskTable table_;
    UnfinishedTasks unfinished_;
    SettledWaits waits_{table_};

    // ---- scheduler
    engine::MessageQueue message_queue_;
    engine::Baton baton_;
    graph::Vector<engine::Message> messages_ KMM_GUARDED_BY(baton_);
    std::size_t next_message_ KMM_GUARDED_BY(baton_) = 0;  ///< the first of them that was not handled to the end
    std::unique_ptr<schedule::Scheduler> scheduler_ KMM_POINTEE_GUARDED_BY(baton_);
    std::vector<schedule::InstructionList> outgoing_ KMM_GUARDED_BY(baton_);
    graph::TaskList to_host_ KMM_GUARDED_BY(baton_);

    // ---- results
    graph::Failures failures_;
    const std::exception_ptr no_host_memory_;                  ///< made while there was some
    std::shared_ptr<graph::Failure> given_up_;                 ///< of all tasks from gave_up_from_ on
    Task* dropped_payloads_ KMM_GUARDED_BY(baton_) = nullptr;  ///< to be destroyed without the baton; by next_published
    Task* left_over_ KMM_GUARDED_BY(baton_) =
        nullptr;  ///< not settled when the runtime gave up, by number; by next_published
    TaskNumber looked_at_ KMM_GUARDED_BY(baton_) = 0;      ///< the last that was looked at since
    std::atomic<memory::Array*> dropped_arrays_{nullptr};  ///< to be deleted at the runtime's end; by next_dropped
    // For the log, when the baton is free again.
    graph::Vector<std::shared_ptr<graph::RootFailure>> news_ KMM_GUARDED_BY(baton_);
    std::uint64_t more_news_ KMM_GUARDED_BY(baton_) = 0;
    bool has_given_up_ KMM_GUARDED_BY(baton_) = false;
    bool ends_ KMM_GUARDED_BY(baton_) = false;  ///< the threads of devices are going: nothing is handed out any more
    struct KnownHolders {
        std::shared_ptr<const Holders> holders;
        std::size_t largest_free_bytes = 0;
        std::uint64_t ticks = 0;
    };
    memory::PerMemory<KnownHolders> known_holders_ KMM_GUARDED_BY(baton_);

    // ---- threads; the order of the members is the order in which they start, and the reverse of the order they end
    engine::FailedTasks failed_tasks_;
    std::unique_ptr<engine::Lanes> lanes_;
    std::unique_ptr<supply::MemoryService> memory_service_;
    std::vector<std::unique_ptr<engine::DeviceThread>> device_threads_;
    std::vector<std::unique_ptr<engine::LauncherThreads>> launchers_;
    std::unique_ptr<engine::HostPool> host_pool_;
    std::vector<std::unique_ptr<supply::DeviceShare>> shares_;
    struct UserCopies {
        std::atomic<std::uint64_t> bytes{0}, copies{0};
        std::atomic<std::int64_t> nanoseconds{0};
    };
    UserCopies user_copies_[3];  ///< by UserCopy
    // Waits for memory of tasks that have it now.
    std::int64_t memory_wait_ns_ KMM_GUARDED_BY(baton_) = 0;
    std::int64_t longest_memory_wait_ns_ KMM_GUARDED_BY(baton_) = 0;
    std::uint64_t memory_waits_over_ KMM_GUARDED_BY(baton_) = 0;
    /// When it was last known that the driver has no more.
    memory::PerMemory<std::int64_t> refused_at_ns_ KMM_GUARDED_BY(baton_);
    engine::Sleeper scheduler_sleeper_;
    std::atomic<bool> stop_scheduler_{false};
    std::thread scheduler_thread_;
    std::uint64_t threads_started_ = 0;  ///< besides host pool and launchers
    std::chrono::steady_clock::time_point started_;
};

// Unchecked: clang does not see that `f`, which says that it needs the baton, needs this one.
template<typename F> auto RuntimeCore::with_baton(F&& f) KMM_UNCHECKED_LOCKS {
    while (!baton_.try_take()) std::this_thread::yield();
    struct Release {
        RuntimeCore& core;
        ~Release() {
            core.let_go_of_baton();
            if (!core.message_queue_.empty()) core.scheduler_sleeper_.wake();
        }
    } release{*this};
    return f();
}

}  // namespace kmm::detail
