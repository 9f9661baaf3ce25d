#include "kmm/graph/task_pool.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>
#include <utility>

namespace kmm::graph {

/// Records in one piece of memory, each with the memory of its lists behind it. Each is made by the thread that first
/// needs it, which touches its pages: no submit waits for a thousand records.
class TaskSlab {
  public:
    TaskSlab(std::size_t kind_of_pool, std::size_t num_records, std::size_t list_bytes)
        : kind(kind_of_pool),
          num_records_(num_records),
          stride_(record_bytes(list_bytes)),
          memory_(static_cast<std::byte*>(::operator new(num_records * stride_, std::align_val_t(line)))) {
        static_assert(std::has_single_bit(fewest_records) && steps_between % 2 == 1);
    }
    ~TaskSlab() {
        for (std::size_t i = 0; i < num_made; ++i) record(i)->~Task();
        ::operator delete(memory_, std::align_val_t(line));
    }
    TaskSlab(const TaskSlab&) = delete;
    TaskSlab& operator=(const TaskSlab&) = delete;

    /// Constructs record `i`, which must not have been made.
    Task* make(std::size_t i) noexcept {
        std::byte* const at = address(i);
        Task* const task = new (at) Task;
        task->slab = this;
        task->own_memory.adopt(at + task_bytes, stride_ - task_bytes);
        return task;
    }
    std::size_t num_records() const noexcept { return num_records_; }
    std::size_t size_bytes() const noexcept { return num_records_ * stride_; }

    // Numbers of slabs are powers of two, so that an odd number of steps comes to each.
    static constexpr std::size_t fewest_records = 64;
    static constexpr std::size_t most_records = 1024;

    const std::size_t kind;
    std::size_t num_made = 0;             ///< or about to be; under the lock of those who take
    TaskSlab* next_unfinished = nullptr;  ///< likewise
    std::size_t num_free = 0;             ///< while a pool is being trimmed
    bool is_over = false;                 ///< likewise: it goes back to the host

  private:
    static constexpr std::size_t line = 64;
    static constexpr std::size_t task_bytes = (sizeof(Task) + RecordMemory::alignment_bytes - 1) /
                                              RecordMemory::alignment_bytes * RecordMemory::alignment_bytes;
    // Records that are used one after the other do not lie side by side: a core that reads one has the next ones
    // fetched for it by the hardware, from the core that fills them just then.
    static constexpr std::size_t steps_between = 11;

    static constexpr std::size_t record_bytes(std::size_t list_bytes) noexcept {
        return (task_bytes + list_bytes + line - 1) / line * line;
    }
    std::byte* address(std::size_t i) const noexcept {
        return memory_ + (i * steps_between & (num_records_ - 1)) * stride_;
    }
    Task* record(std::size_t i) const noexcept { return std::launder(reinterpret_cast<Task*>(address(i))); }

    std::size_t num_records_;  ///< a power of two
    std::size_t stride_;
    std::byte* memory_;
};

namespace {

// A kernel with one access; a function with one; a function with two views of three axes; a kernel with four accesses;
// a function with four; one with some ten. Records take whole lines, and not a power of two of them: their first lines
// would share few sets of a cache.
constexpr std::size_t list_bytes_of_kind[] = {160, 352, 480, 608, 864, 1632};
// Most records that a trim moves under one lock.
constexpr std::size_t records_at_once = 1024;
// Most unfinished slabs that one trim frees. There is more than one only if threads made slabs at the same time.
constexpr std::size_t most_unfinished = 16;

std::size_t list_bytes_for(const RecordSize& size) noexcept {
    // A kernel with a table has no addresses.
    const std::size_t each = sizeof(Use) + sizeof(View) + (size.num_fields == 0 ? sizeof(void*) : 0) +
                             edges_of_use * sizeof(Predecessor) + (size.has_layouts ? sizeof(AccessLayout) : 0);
    constexpr std::size_t unit = RecordMemory::alignment_bytes;
    return (size.num_uses * each + unit - 1) / unit * unit + (size.storage_bytes + 7) / 8 * 8 +
           size.num_edges * sizeof(Predecessor) + size.num_fields * sizeof(ParameterField);
}

}  // namespace

TaskPool::TaskPool() {
    static_assert(std::size(list_bytes_of_kind) == num_kinds);
    for (std::size_t k = 0; k < num_kinds; ++k) kinds_[k].index = k;
}

TaskPool::~TaskPool() = default;

TaskPool::Kind& TaskPool::kind_for(const RecordSize& size) noexcept {
    const std::size_t bytes = list_bytes_for(size);
    std::size_t k = 0;
    while (k < num_kinds && list_bytes_of_kind[k] < bytes) ++k;
    // Lists that fit no kind get a block of the host, so that the smallest record does.
    return kinds_[k < num_kinds ? k : 0];
}

/// Both lists have room for every record. They grow in proportion, since there may be many slabs; by a fourth, since a
/// pending record has room in both, and what is moved are free records, which are few when a slab is added.
void TaskPool::add_slab(Kind& kind, std::unique_ptr<TaskSlab> slab) {
    const std::size_t all = kind.num_records + slab->num_records();
    for (std::vector<Task*>* list : {&kind.takers.tasks, &kind.givers.tasks})
        if (list->capacity() < all) list->reserve(all + all / 4);
    kind.slabs.push_back(std::move(slab));
    kind.num_records = all;
    TaskSlab& added = *kind.slabs.back();
    added.next_unfinished = std::exchange(kind.unfinished, &added);
}

/// A free record, or null.
Task* TaskPool::take_free(Kind& kind) noexcept {
    std::vector<Task*>& free = kind.takers.tasks;
    if (free.empty()) [[unlikely]] {
        const locks::Guard guard(kind.givers.lock);
        free.swap(kind.givers.tasks);
        if (free.empty()) return nullptr;
    }
    Task* const task = free.back();
    free.pop_back();
    // The scheduler wrote to the records last. Fetching one while those before it are being filled hides most of that;
    // even its size must not be read from it.
    if (free.size() >= 2) free[free.size() - 2]->prefetch(list_bytes_of_kind[kind.index]);
    return task;
}

/// The number of a record that the calling thread is to make, in the first unfinished slab.
std::size_t TaskPool::claim(Kind& kind) noexcept {
    TaskSlab& slab = *kind.unfinished;
    const std::size_t i = slab.num_made++;
    if (slab.num_made == slab.num_records()) kind.unfinished = slab.next_unfinished;
    return i;
}

Task* TaskPool::take(const RecordSize& size) {
    Kind& kind = kind_for(size);
    std::unique_ptr<TaskSlab> made;
    std::size_t number = 0;
    TaskSlab* slab = nullptr;
    {
        const locks::Guard guard(kind.takers.lock);
        if (Task* const task = take_free(kind)) [[likely]]
            return task;
        slab = kind.unfinished;
        number = slab != nullptr ? claim(kind) : kind.slabs.size();
    }
    if (slab != nullptr) return slab->make(number);
    // Without a lock: those who give records back do not wait for the host. A program with few tasks takes little, one
    // with many asks rarely.
    const std::size_t count =
        std::min(TaskSlab::most_records, TaskSlab::fewest_records << std::min<std::size_t>(number, std::size_t{10}));
    made = std::make_unique<TaskSlab>(kind.index, count, list_bytes_of_kind[kind.index]);
    slab = made.get();
    {
        // Adds the slab even if records were given back meanwhile: a thread that submits as fast as tasks end would
        // otherwise allocate one every few tasks.
        const locks::Guard guard(kind.takers.lock);
        const locks::Guard guard_givers(kind.givers.lock);
        add_slab(kind, std::move(made));
        number = claim(kind);
    }
    return slab->make(number);
}

void TaskPool::give(Task* task) noexcept {
    task->recycle();
    Kind& kind = kinds_[task->slab->kind];
    const locks::Guard guard(kind.givers.lock);
    kind.givers.tasks.push_back(task);  // cannot allocate: both lists have room for every record
}

/// Appends all free records.
void TaskPool::take_all_free(Kind& kind, std::vector<Task*>& free) {
    for (FreeList* const list : {&kind.takers, &kind.givers}) {
        for (bool more = true; more;) {
            if (free.capacity() < free.size() + records_at_once) free.reserve(2 * free.size() + records_at_once);
            const locks::Guard guard(list->lock);
            std::vector<Task*>& tasks = list->tasks;
            const std::size_t count = std::min(tasks.size(), records_at_once);
            free.insert(free.end(), tasks.end() - static_cast<std::ptrdiff_t>(count), tasks.end());
            tasks.resize(tasks.size() - count);
            more = !tasks.empty();
        }
    }
}

void TaskPool::put_back(Kind& kind, const std::vector<Task*>& kept) noexcept {
    for (std::size_t first = 0; first < kept.size(); first += records_at_once) {
        const locks::Guard guard(kind.givers.lock);
        const std::size_t end = std::min(kept.size(), first + records_at_once);
        kind.givers.tasks.insert(kind.givers.tasks.end(), kept.begin() + static_cast<std::ptrdiff_t>(first),
                                 kept.begin() + static_cast<std::ptrdiff_t>(end));
    }
}

void TaskPool::trim(Kind& kind) {
    std::vector<Task*> free;
    std::vector<std::unique_ptr<TaskSlab>> over;
    // Whatever fails, no free record is lost.
    struct PutBack {
        Kind& kind;
        const std::vector<Task*>& free;
        ~PutBack() { put_back(kind, free); }
    } guard{kind, free};
    take_all_free(kind, free);
    {
        // Of all slabs: one that was full of free records when a trim failed may be in use by now.
        const locks::Guard takers(kind.takers.lock);
        for (const auto& slab : kind.slabs) slab->num_free = 0;
    }
    // Lists for what will be left: those that are kept have room for as many records as there ever were.
    std::vector<Task*> takers_left, givers_left;
    std::size_t num_over = 0;
    for (const Task* t : free) num_over += ++t->slab->num_free == t->slab->num_records() ? 1 : 0;
    over.reserve(num_over + most_unfinished);
    std::size_t num_left = records_at_once;
    {
        const locks::Guard takers(kind.takers.lock);
        num_left += kind.num_records;
    }
    for (const Task* t : free)
        if (t->slab->num_free == t->slab->num_records()) --num_left;
    for (std::vector<Task*>* const list : {&takers_left, &givers_left}) list->reserve(num_left);
    {
        const locks::Guard takers(kind.takers.lock);
        const locks::Guard givers(kind.givers.lock);
        // Of an unfinished slab, records may have been made meanwhile.
        const auto is_used = [](const auto& slab) { return slab->num_free != slab->num_made; };
        const auto end = kind.slabs.end();
        const auto num_unused = end - std::partition(kind.slabs.begin(), end, is_used);
        const auto first_over = end - std::min(num_unused, static_cast<std::ptrdiff_t>(over.capacity()));
        for (auto slab = first_over; slab != end; ++slab) {
            (*slab)->is_over = true;
            kind.num_records -= (*slab)->num_records();
            over.push_back(std::move(*slab));
        }
        kind.slabs.erase(first_over, end);
        for (auto [list, left] : {std::pair(&kind.takers.tasks, &takers_left), {&kind.givers.tasks, &givers_left}}) {
            // Where records were made or given back meanwhile, the lists stay as they are.
            if (kind.num_records > num_left || list->capacity() <= 2 * num_left || list->size() > records_at_once)
                continue;
            left->assign(list->begin(), list->end());
            list->swap(*left);
        }
        kind.unfinished = nullptr;
        for (const auto& slab : kind.slabs)
            if (slab->num_made != slab->num_records())
                slab->next_unfinished = std::exchange(kind.unfinished, slab.get());
    }
    std::erase_if(free, [](const Task* t) { return t->slab->is_over; });
}

void TaskPool::trim() noexcept {
    const locks::Guard guard(trimming_);
    for (Kind& kind : kinds_) {
        try {
            trim(kind);
        } catch (const std::bad_alloc&) {
            // What is free stays.
        }
    }
}

std::size_t TaskPool::size_bytes() noexcept {
    std::size_t bytes = 0;
    for (Kind& kind : kinds_) {
        const locks::Guard guard(kind.takers.lock);
        for (const auto& slab : kind.slabs) bytes += slab->size_bytes();
    }
    return bytes;
}

}  // namespace kmm::graph
