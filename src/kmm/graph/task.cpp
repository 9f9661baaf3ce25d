#include "kmm/graph/task.hpp"

#include <algorithm>

namespace kmm::graph {

void BoxTransfer::set_shape(std::size_t rank, const detail::Box& source_chunk, const detail::Box& destination_chunk,
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

Task::~Task() {
    drop_payload();
    if (cold != nullptr) cold->~ColdPart();
}

void Task::destroy_payload() noexcept {
    function.body.destroy(function.payload);
    // What the schedule counts of the function stays.
    function.body = {};
    function.payload = nullptr;
}

void Task::make_cold_part(UseOfReserve reserve, std::size_t list_bytes) {
    constexpr std::size_t unit = RecordMemory::alignment_bytes;
    static_assert(alignof(ColdPart) <= unit && sizeof(ColdPart) % unit == 0);
    void* const memory = own_memory.take(sizeof(ColdPart) + list_bytes, unit, reserve == UseOfReserve::yes);
    cold = new (memory) ColdPart;
    cold->own_memory.adopt(cold + 1, list_bytes);
}

void Task::make_room(std::size_t num_uses, bool has_views, std::size_t num_fields, std::size_t edges_each) {
    // Very many lists grow by themselves.
    const std::size_t count = num_uses <= uses.most_at_once / edges_of_use ? num_uses : 0;
    const std::size_t each = sizeof(Use) + (has_views ? sizeof(View) : 0) + edges_each * sizeof(Predecessor);
    if (count == 0 || num_fields > fields.most_at_once) return;
    const std::size_t bytes = count * each + num_fields * sizeof(ParameterField);
    auto* at = static_cast<std::byte*>(own_memory.take(bytes, alignof(Use), false));
    at = uses.lie_at(at, count);
    if (has_views) at = views.lie_at(at, count);
    at = predecessors.lie_at(at, edges_each * count);
    if (num_fields != 0) fields.lie_at(at, num_fields);
}

void Task::prefetch(std::size_t list_bytes) const noexcept {
    constexpr std::size_t line = 64;
    const auto* const begin = reinterpret_cast<const char*>(this);
    for (std::size_t at = 0; at < sizeof(Task) + list_bytes; at += line) __builtin_prefetch(begin + at, 1);
}

void Task::recycle() noexcept {
    drop_payload();
    if (cold != nullptr) [[unlikely]] {
        cold->~ColdPart();
        cold = nullptr;
    }
    number = 0;
    state.store(TaskState::waiting, std::memory_order_relaxed);
    kind = TaskKind::join;
    in_user_code.store(false, std::memory_order_relaxed);
    chunk_index = 0;
    memory = {};
    waiters = nullptr;
    unissued_predecessors = 0;
    unsettled_predecessors = 0;
    uses.forget();
    views.forget();
    addresses = nullptr;
    layouts = nullptr;
    predecessors.forget();
    successors.clear();
    fences.clear();
    position = 0;
    lane = LaneId::none;
    order_position = 0;
    is_barrier = fills_temporary = for_snapshot = announced = false;
    in_fetch_queue = blocked = waited_for_memory = enables = is_unplaced = false;
    missing_bytes = 0;
    moved_bytes = 0;
    held_bytes = 0;
    last_when_queued = 0;
    waits_at_ready = 0;
    failure.reset();
    thrown = nullptr;
    comes_before = 0;
    made_for = 0;
    next_published = nullptr;
    fields.forget();
    function = {};
    kernel_failure.reset();
    info.reset();
    where = {};
    chunk = {};
    own_memory.clear();
}

}  // namespace kmm::graph
