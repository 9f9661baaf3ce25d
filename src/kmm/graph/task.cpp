#include "kmm/graph/task.hpp"

#include <new>

#include "driver/format.hpp"
#include "kmm/graph/box.hpp"

namespace kmm::graph {

std::string to_text(const Box& box, std::size_t rank) {
    std::string text = "{";
    for (std::size_t k = 0; k < rank; ++k) {
        if (k != 0) text += ", ";
        text += driver::format("{}...{}", box.begin[k], box.end[k]);
    }
    return text + "}";
}

void BoxTransfer::set_shape(std::size_t rank, const Box& source_chunk, const Box& destination_chunk,
                            std::size_t element_bytes) noexcept {
    const auto element = static_cast<std::int64_t>(element_bytes);
    std::int64_t from_step = element, to_step = element, run = element, from = 0, to = 0;
    bool contiguous = true;
    num_axes = 0;
    // Innermost first; neighbouring axes are joined while both sides go on where the run ends.
    for (std::size_t k = rank; k-- > 0;) {
        const std::int64_t size = box.end[k] - box.begin[k];
        from += (box.begin[k] - source_chunk.begin[k]) * from_step;
        to += (box.begin[k] - destination_chunk.begin[k]) * to_step;
        contiguous = contiguous && (size == 1 || (from_step == run && to_step == run));
        if (contiguous) {
            run *= size;
        } else if (size != 1) {
            counts[num_axes] = size;
            source_steps[num_axes] = from_step;
            destination_steps[num_axes] = to_step;
            ++num_axes;
        }
        from_step *= source_chunk.end[k] - source_chunk.begin[k];
        to_step *= destination_chunk.end[k] - destination_chunk.begin[k];
    }
    for (std::int64_t* const axes : {counts, source_steps, destination_steps}) std::reverse(axes, axes + num_axes);
    run_bytes = static_cast<std::size_t>(run);
    source_offset_bytes = static_cast<std::size_t>(from);
    destination_offset_bytes = static_cast<std::size_t>(to);
}

void* Task::allocate_storage(std::size_t bytes, std::size_t alignment) {
    if (bytes <= inline_bytes && alignment <= 16) return inline_storage_;
    const std::size_t aligned = alignment < 16 ? 16 : alignment;
    extra_storage_ = std::aligned_alloc(aligned, (bytes + aligned - 1) / aligned * aligned);
    if (extra_storage_ == nullptr) throw std::bad_alloc();
    return extra_storage_;
}

void Task::drop_payload() noexcept {
    if (body.destroy != nullptr && payload != nullptr) body.destroy(payload);
    body = {};
    payload = nullptr;
    if (extra_storage_ != nullptr) {
        std::free(extra_storage_);
        extra_storage_ = nullptr;
    }
}

void Task::reserve() {
    accesses.reserve(usual_accesses);
    layouts.reserve(usual_accesses);
    patches.reserve(usual_accesses);
    addresses.reserve(usual_accesses);
    predecessors.reserve(2 * usual_accesses);
    successors.reserve(usual_accesses);
    open_data_predecessors.reserve(usual_accesses);
}

void Task::prefetch() const noexcept {
    constexpr std::size_t line = 64;
    const auto* const begin = reinterpret_cast<const char*>(this);
    for (std::size_t at = 0; at < sizeof(Task); at += line) __builtin_prefetch(begin + at, 1);
}

void Task::prefetch_lists() const noexcept {
    constexpr std::size_t line = 64;
    const auto fetch = [](const auto& list) {
        // A number: it is 0 where the host had no memory for the list ahead.
        const auto begin = reinterpret_cast<std::uintptr_t>(list.data());
        const std::size_t bytes = usual_accesses * sizeof(*list.data());
        for (std::size_t at = 0; at < bytes; at += line)
            __builtin_prefetch(reinterpret_cast<const void*>(begin + at), 1);
    };
    fetch(accesses);
    fetch(layouts);
    fetch(patches);
    fetch(predecessors);
}

void Task::recycle() noexcept {
    drop_payload();
    number = 0;
    state.store(TaskState::waiting, std::memory_order_relaxed);
    kind = TaskKind::join;
    is_barrier = false;
    chunk_index = 0;
    where = {};
    chunk = {};
    memory = {};
    info.reset();
    next_published = nullptr;
    accesses.clear();
    layouts.clear();
    patches.clear();
    addresses.clear();
    unset.clear();
    across.clear();
    boxes.clear();
    needed_after = 0;
    fills_temporary = false;
    for_snapshot = false;
    kernel = {};
    predecessors.clear();
    successors.clear();
    unissued_predecessors = 0;
    unsettled_predecessors = 0;
    announced = false;
    open_data_predecessors.clear();
    waits.clear();
    completion.clear();
    lane = LaneId::none;
    position = 0;
    made_for = 0;
    comes_before = 0;
    awaited_predecessor = 0;
    unpassed_fences = 0;
    executed = false;
    missing_bytes = 0;
    in_fetch_queue = false;
    in_resident_queue = false;
    blocked = false;
    enables = false;
    moved_bytes = 0;
    last_at_ready = 0;
    waits_at_ready = 0;
    waited_for_memory = false;
    in_user_code.store(false, std::memory_order_relaxed);
    kernel_failure.reset();
    custody.store(Custody::scheduler, std::memory_order_relaxed);
    failure.reset();
    thrown = nullptr;
    unworded.reset();
    waiters.store(0, std::memory_order_relaxed);
}

TaskPool::~TaskPool() = default;

void TaskPool::add_slab() {
    // Both lists have room for every record. They grow in steps that double: a slab is few records, and they may be
    // many.
    auto slab = std::make_unique<Task[]>(slab_size);
    const std::size_t all = (slabs_.size() + 1) * slab_size;
    for (std::vector<Task*>* list : {&takers_.tasks, &givers_.tasks})
        if (list->capacity() < all) list->reserve(2 * all);
    slabs_.push_back(std::move(slab));
    for (std::size_t i = slab_size; i-- > 0;) {
        try {
            slabs_.back()[i].reserve();
        } catch (const std::bad_alloc&) {
            // Its lists grow when they must.
        }
        takers_.tasks.push_back(&slabs_.back()[i]);
    }
}

Task* TaskPool::take() {
    const locks::Guard guard(takers_.lock);
    std::vector<Task*>& free = takers_.tasks;
    if (free.empty()) {
        const locks::Guard guard_givers(givers_.lock);
        free.swap(givers_.tasks);
        if (free.empty()) add_slab();
    }
    Task* const task = free.back();
    free.pop_back();
    // The scheduler wrote to the record last. Fetching the next ones while this one is being filled hides most of that.
    if (free.size() >= 2) free[free.size() - 2]->prefetch();
    if (!free.empty()) free.back()->prefetch_lists();
    return task;
}

void TaskPool::give(Task* task) noexcept {
    task->recycle();
    const locks::Guard guard(givers_.lock);
    givers_.tasks.push_back(task);  // cannot allocate: both lists have room for every record
}

}  // namespace kmm::graph
