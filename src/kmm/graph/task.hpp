// The record of one task, from submit to result.
//
// Owns: Task. Records come from a pool (graph/task_pool.hpp). Built by the submitting thread. Once published, all but
// the atomics is guarded by the scheduler's baton; the executing thread reads `body` and the function's arguments.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "driver/driver.hpp"
#include "driver/locks.hpp"
#include "kmm/base/memory_index.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/graph/across.hpp"
#include "kmm/graph/list.hpp"
#include "kmm/graph/position.hpp"
#include "kmm/graph/submit_info.hpp"
#include "kmm/graph/task_number.hpp"
#include "kmm/graph/use.hpp"

namespace kmm::graph {

using detail::AccessKind;
using detail::AccessLayout;
using detail::ParameterField;

/// A transfer moves boxes between chunks; the library makes it for the submit that needs it.
enum class TaskKind : std::uint8_t { join, host, device_function, kernel, transfer };

enum class TaskState : std::uint8_t {
    waiting,    ///< for tasks that it depends on, or for its turn
    ready,      ///< may be issued when it has memory
    launching,  ///< a device function has its memory, and has not returned: its position is not known yet
    issued,     ///< on a lane; a host function: it has its memory and waits for fences, for a thread, or runs
    executed,   ///< done, but a task that it depends on is not settled yet
    settled,    ///< finished, failed or not
};

/// Debug mode: what a task finds without content, to be filled with a pattern before it runs
/// (engine/debug_pattern.hpp).
struct Unset {
    std::uint32_t index = 0;  ///< of the view, or of the use whose whole chunk it is
    bool whole_chunk = false;
    std::int64_t extents[detail::max_rank] = {1, 1, 1, 1, 1, 1, 1, 1};  ///< of the region
    // Set when the task is placed.
    std::uintptr_t address = 0;
    std::int64_t strides[detail::max_rank] = {};  ///< in elements; not of a whole chunk
};

struct Task;
struct TaskWaiter;
class TaskSlab;

/// An edge of the graph: kept by the task that comes after, and linked into a list of the one before it while that is
/// not settled.
struct Predecessor {
    Predecessor() = default;
    Predecessor(TaskNumber before, bool is_data) noexcept : number(before & most), data(is_data) {}
    TaskNumber number : 63 = 0;
    bool data : 1 = false;  ///< a failure there cancels this task; else it is order only
    // Valid once it is linked.
    Task* after = nullptr;
    Predecessor* next = nullptr;  ///< of the same task before

  private:
    static constexpr TaskNumber most = ~TaskNumber{0} >> 1;
};
static_assert(sizeof(Predecessor) == 24);

/// The tasks that come after one, in the order in which they were linked to it.
class Successors {
  public:
    class Iterator {
      public:
        explicit Iterator(const Predecessor* edge) noexcept : edge_(edge) {}
        const Predecessor& operator*() const noexcept { return *edge_; }
        const Predecessor* operator->() const noexcept { return edge_; }
        Iterator& operator++() noexcept {
            edge_ = edge_->next;
            return *this;
        }
        friend bool operator==(const Iterator&, const Iterator&) = default;

      private:
        const Predecessor* edge_;
    };
    Iterator begin() const noexcept { return Iterator(first_); }
    Iterator end() const noexcept { return Iterator(nullptr); }
    bool empty() const noexcept { return first_ == nullptr; }
    /// The edge stays where it is until this task is settled.
    void add(Predecessor& edge, Task& after) noexcept {
        edge.after = &after;
        edge.next = nullptr;
        (last_ != nullptr ? last_->next : first_) = &edge;
        last_ = &edge;
    }
    void clear() noexcept { first_ = last_ = nullptr; }

  private:
    Predecessor* first_ = nullptr;
    Predecessor* last_ = nullptr;
};

using Predecessors = Vector<Predecessor>;
using TaskEdges = List<Predecessor>;
using TaskNumbers = Vector<TaskNumber>;

/// A task's identity, for texts that may be made after its record was recycled.
struct TaskTrace {
    TaskNumber number = 0;
    SubmitInfoRef info;
    std::uint32_t chunk_index = 0;
    DomainChunk chunk;
    ResourceId where;
};

/// What a task ended with, as figures that were collected under the scheduler's baton. `words` is for any thread that
/// has neither the baton nor a lock: it may ask the driver and the system, and call the program's code.
class Unworded {
  public:
    virtual ~Unworded() = default;
    virtual std::exception_ptr words() const = 0;
    /// What the error of the failed task, which names it and its submit, says of `words`; empty: their whole text.
    virtual std::string as_cause(const std::exception_ptr& /*words*/) const { return {}; }
    /// Whether it is a message for the log as well.
    virtual bool is_logged() const noexcept { return false; }
};

/// A failure that began at one task. Shared by all tasks that it cancelled.
struct RootFailure {
    std::exception_ptr cause;  ///< what the user's code or the driver threw; null: `unworded` says it
    std::shared_ptr<const Unworded> unworded;
    TaskTrace task;
    TaskNumber number = 0;
    // Whether it was delivered to the program, and its links in the list of undelivered roots: see graph::Failures.
    bool delivered = false;
    bool listed = false;
    RootFailure* previous = nullptr;
    RootFailure* next = nullptr;
    // Texts, made when they are first asked for.
    locks::Mutex words_mutex;  ///< never held while they are made
    std::exception_ptr worded_cause KMM_GUARDED_BY(words_mutex);
    std::exception_ptr error;  ///< the TaskError that wait() throws
};

/// A task's failure: its root, and what the error that names the task itself is made of.
struct Failure {
    std::shared_ptr<RootFailure> root;
    TaskTrace task;
    bool keeps_content = false;  ///< the task writes into what the root was to leave
    std::exception_ptr error;    ///< as above, under the root's mutex
};

// What a task does, by its kind.

struct Kernel {
    const void* function = nullptr;
    std::uint32_t grid[3] = {1, 1, 1};
    std::uint32_t block[3] = {1, 1, 1};
    std::uint32_t shared_bytes = 0;
    std::uint32_t parameter_bytes = 0;
    std::byte* parameters = nullptr;
};

/// What a thread runs.
struct Function {
    detail::TaskBody body;
    void* payload = nullptr;
    std::uint32_t unpassed_fences = 0;  ///< that it still waits for on the host
    std::uint32_t began_at_look = 0;    ///< once it runs: see schedule::RunningFunctions
};

struct Join {
    std::uint32_t num_settled_before;  ///< how many of its first predecessors settled
};

using TaskList = Vector<Task*>;

/// For each chunk that it uses a task usually depends on one writer and one reader.
inline constexpr std::size_t edges_of_use = 2;

/// Rarely used fields, split from the record (Chilimbi, Davidson, Larus: Cache-conscious structure definition, 1999):
/// made on first use, in the record's memory, and freed with it.
struct alignas(RecordMemory::alignment_bytes) ColdPart {
    RecordMemory own_memory;  ///< of its lists
    List<Across, UseOfReserve::no> across{own_memory};
    List<std::uint32_t, UseOfReserve::no> parts{own_memory};  ///< of `across`: uses, in the order of the chunks
    List<Unset> unset{own_memory};                            ///< debug mode only
    /// Of a device function: not settled when it was issued, and a failure there skips it.
    List<TaskNumber> open_data_predecessors{own_memory};
    std::shared_ptr<const Unworded> unworded;  ///< what the task itself ended with, unless `thrown` says it
    std::int64_t waits_for_memory_ns = 0;      ///< since when, by engine::now_ns, while `waited_for_memory`
};

// The three parts of a task's record. Fields that are used together lie together, those that every step of the schedule
// looks at first.

/// What is fixed when the task takes its place, but for the cold part: which chunks it uses, and what it comes after.
struct TaskRequest {
    RecordMemory own_memory;  ///< of the lists, and of what is given to a function or kernel
    ColdPart* cold = nullptr;
    TaskNumber number = 0;
    TaskKind kind = TaskKind::join;
    bool is_barrier : 1 = false;                     ///< a join that waits for everything with a lower number
    bool fills_temporary : 1 = false;                ///< of a transfer: else it brings back what was written into one
    bool for_snapshot : 1 = false;                   ///< of a transfer: it keeps what its submit writes
    memory::MemoryIndex memory;                      ///< that it runs in
    std::uint32_t chunk_index = 0;                   ///< which task of its submit it is
    List<Use, UseOfReserve::no> uses{own_memory};    ///< the place in each is the schedule's
    List<View, UseOfReserve::no> views{own_memory};  ///< one for each access of the program
    TaskEdges predecessors{own_memory};              ///< does not grow once the scheduler has the task
    std::size_t held_bytes = 0;                      ///< by the program, when it submitted the task: graph::HeldBytes
    TaskNumber comes_before = 0;                     ///< a helper: the first number of those that come after it
    TaskNumber made_for = 0;                         ///< a helper: whose failure its own is
};

/// How far it is: the schedule's. But for the atomics, `waiters`, and what is set before it is published.
struct TaskProgress {
    std::atomic<TaskState> state{TaskState::waiting};
    std::atomic<bool> in_user_code{false};  ///< a thread of the library runs the user's function now
    bool announced : 1 = false;             ///< its successors know its positions
    bool in_fetch_queue : 1 = false;
    bool blocked : 1 = false;
    bool waited_for_memory : 1 = false;  ///< the runtime was told that it waits, and not yet that it has what it needs
    bool enables : 1 = false;            ///< with `moved_bytes`: see schedule::ReadyTask
    bool makes : 1 = false;              ///< likewise
    bool is_unplaced : 1 = false;        ///< schedule::Ahead knows it, and it has not been given its memory
    LaneId lane = LaneId::none;
    std::uint16_t order_position = 0;   ///< position in its memory's planned order, from 1; 0: none
    std::uint16_t index_in_search = 0;  ///< while an order is looked for (schedule/order_search.hpp)
    std::uint32_t unissued_predecessors = 0;
    std::uint32_t unsettled_predecessors = 0;
    std::uint32_t kernel_times = 0;  ///< of a kernel: schedule::KernelTimes::Id
    Successors successors;
    /// Fences that its work waits for; once its position is known, the fences that mean that it is done.
    FenceSet fences;
    Position position = 0;             ///< on `lane`, once it is issued
    TaskWaiter* waiters = nullptr;     ///< threads that wait for it: see detail::SettledWaits
    std::size_t missing_bytes = 0;     ///< memory::Residency::missing_bytes
    std::size_t moved_bytes = 0;       ///< memory::Residency::moved_bytes, in the fetch queue
    std::uint32_t ready_at = 0;        ///< how many had become ready before it; may wrap: it decides between tasks only
    std::uint32_t waits_at_ready = 0;  ///< how many waits for others' memory had begun when it became ready
    TaskNumber last_when_queued = 0;   ///< the latest task when this one came into a fetch queue first
    std::shared_ptr<Failure> failure;
    std::exception_ptr thrown;       ///< what the task itself ended with, as far as it is known
    Task* next_published = nullptr;  ///< of the tasks that the scheduler is told of together
};

/// What runs, and what it is called.
struct TaskWork {
    explicit TaskWork(RecordMemory& memory) noexcept : fields(memory), function() {}

    /// Set when it is placed: of a function one for each view, of a transfer for each use, of a kernel none.
    void** addresses = nullptr;
    /// Of a function that looks at them, one for each view, made at the submit; set when it is placed.
    AccessLayout* layouts = nullptr;
    List<ParameterField, UseOfReserve::no> fields;  ///< of kernels: what is written when they are placed
    union {
        Function function;  ///< of a transfer too, on a memory without lanes
        Kernel kernel;      ///< of TaskKind::kernel, once `set_kernel` was called
        Join join;          ///< of TaskKind::join, once the schedule knows it
    };
    /// Of kernels that a device function launched, on a driver that asks about them: written before they count as
    /// completed.
    std::shared_ptr<driver::KernelFailure> kernel_failure;
    TaskSlab* slab = nullptr;  ///< constant: that the record is part of, if it comes from a pool
    SubmitInfoRef info;
    ResourceId where;
    DomainChunk chunk;
};

struct Task : TaskRequest, TaskProgress, TaskWork {
    Task() noexcept : TaskWork(own_memory) {}
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    ~Task();

    /// Where it stands in the order of submission: a helper right before the first task that may come after it.
    TaskNumber place() const noexcept { return comes_before != 0 ? comes_before : number; }
    /// By which the program knows it.
    TaskNumber public_number() const noexcept { return made_for != 0 ? made_for : number; }
    /// Neither a join nor a transfer: what the program submitted, or a copy with the program.
    bool is_counted() const noexcept { return kind != TaskKind::join && kind != TaskKind::transfer; }
    /// A transfer that brings what a task wrote beside the chunks into them.
    bool is_write_back() const noexcept { return kind == TaskKind::transfer && !fills_temporary; }
    bool has_failed() const noexcept { return failure != nullptr || ended_ill(); }
    /// By itself.
    bool ended_ill() const noexcept { return thrown != nullptr || (cold != nullptr && cold->unworded != nullptr); }
    /// What it ended with, unless that is known already.
    void note_thrown(const std::exception_ptr& error) noexcept {
        if (thrown == nullptr) thrown = error;
    }
    void trace(TaskTrace& out) const noexcept {
        out.number = public_number();
        out.info.share(info);
        out.chunk_index = chunk_index;
        out.chunk = chunk;
        out.where = where;
    }

    // Fields of the cold part; empty if there is none.
    std::span<Across> across() noexcept {
        return cold != nullptr ? std::span<Across>(cold->across) : std::span<Across>();
    }
    std::span<const Across> across() const noexcept { return const_cast<Task&>(*this).across(); }
    /// The use of each part of the region. Of a task that has such a region.
    std::span<const std::uint32_t> parts_of(const Across& across) const noexcept {
        return std::span<const std::uint32_t>(cold->parts).subspan(across.first_part, across.num_parts);
    }
    Use& part(const Across& across, std::uint32_t i) noexcept { return uses[cold->parts[across.first_part + i]]; }
    const Use& part(const Across& across, std::uint32_t i) const noexcept {
        return const_cast<Task&>(*this).part(across, i);
    }
    std::span<const Unset> unset() const noexcept {
        return cold != nullptr ? std::span<const Unset>(cold->unset) : std::span<const Unset>();
    }
    std::span<const TaskNumber> open_data_predecessors() const noexcept {
        return cold != nullptr ? std::span<const TaskNumber>(cold->open_data_predecessors)
                               : std::span<const TaskNumber>();
    }
    /// The cold part, made if there is none, with `list_bytes` of memory for its lists. Throws std::bad_alloc. Only for
    /// the record's owner.
    ColdPart& cold_part(UseOfReserve reserve, std::size_t list_bytes = 0) {
        if (cold == nullptr) make_cold_part(reserve, list_bytes);
        return *cold;
    }

    void set_kernel(const Kernel& k) noexcept { kernel = k; }
    /// Room in the lists of a fresh record, so that they need not grow. Throws std::bad_alloc.
    void make_room(std::size_t num_uses, bool has_views, std::size_t num_fields = 0,
                   std::size_t edges_each = edges_of_use);
    /// Memory for parameters or a payload, until `recycle`. Throws std::bad_alloc.
    void* allocate_storage(std::size_t bytes, std::size_t alignment) {
        return own_memory.take(bytes, alignment, false);
    }
    /// `layouts`, for the views that it has. Throws std::bad_alloc.
    void make_layouts() {
        if (views.empty()) return;
        auto* const made =
            static_cast<AccessLayout*>(allocate_storage(views.size() * sizeof(AccessLayout), alignof(AccessLayout)));
        std::uninitialized_value_construct_n(made, views.size());
        layouts = made;
    }
    /// Memory for `addresses`, from the host's reserve if need be. Throws std::bad_alloc.
    void** allocate_addresses(std::size_t count) {
        return static_cast<void**>(own_memory.take(count * sizeof(void*), alignof(void*), true));
    }
    bool runs_function() const noexcept { return kind != TaskKind::kernel && kind != TaskKind::join; }
    /// Whether what a function was given must be destroyed.
    bool has_payload() const noexcept {
        return runs_function() && function.payload != nullptr && function.body.destroy != nullptr;
    }
    void drop_payload() noexcept {
        if (has_payload()) destroy_payload();
    }
    /// Prefetches the record and `list_bytes` of its lists, for a thread that will soon write to them.
    void prefetch(std::size_t list_bytes) const noexcept;
    /// Makes the record as new.
    void recycle() noexcept;

  private:
    void destroy_payload() noexcept;
    void make_cold_part(UseOfReserve reserve, std::size_t list_bytes);
};

}  // namespace kmm::graph
