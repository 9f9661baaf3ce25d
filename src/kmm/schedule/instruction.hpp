// Work for one lane, as the schedule hands it to a device's thread.
//
// Owns: plain values, and lists of them. Must not know: drivers, threads. An instruction points into no task: a
// device's thread that runs through a list reads memory that was written in one piece, and touches no record that the
// scheduler and the program's threads write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "driver/driver.hpp"
#include "kmm/graph/room.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/memory/transfer.hpp"
#include "kmm/schedule/kernel_times.hpp"

namespace kmm::schedule {

using driver::BoxMove;

/// A transfer inside the host's memory, as a task's function; `payload` is the task.
void run_transfer(void* payload, detail::TaskContext& context);

/// Debug mode: memory that is filled with a pattern before a kernel runs (engine/debug_pattern.hpp).
struct Fill {
    std::uintptr_t address = 0;
    std::size_t element_bytes = 0;
    std::int64_t extents[detail::max_rank] = {1, 1, 1, 1, 1, 1, 1, 1};
    std::int64_t strides[detail::max_rank] = {};  ///< in elements
};

/// What the task finds without content, once it is placed. Any thread.
Fill fill_of(const graph::Task& task, const graph::Unset& unset) noexcept;

/// What lists of instructions are made of, and what their spans point to, is copied by `InstructionList::push`.
struct Instruction {
    enum class Op : std::uint8_t {
        kernel,    ///< launch `function`
        transfer,  ///< memory::Transfer
        watch,     ///< nothing to do: report when `position`, which another thread put there, is done
    };
    Op op = Op::kernel;
    bool mark = false;     ///< another lane, or the host, will wait for exactly this position
    bool measure = false;  ///< of a kernel; answer: `Scheduler::measured`
    graph::LaneId lane = graph::LaneId::none;
    KernelTimes::Id kernel_times = 0;  ///< with `measure`
    graph::Position position = 0;
    std::span<const graph::Fence> waits;  ///< fences of other lanes that had not passed when it was issued
    graph::TaskNumber task = 0;           ///< whose kernel it is, or that the transfer is for; 0: none

    // ---- of a kernel
    const void* function = nullptr;  ///< null: an empty chunk, which launches nothing
    std::uint32_t grid[3] = {1, 1, 1};
    std::uint32_t block[3] = {1, 1, 1};
    std::uint32_t shared_bytes = 0;
    std::span<const std::byte> parameters;
    std::span<const graph::TaskNumber> needed_tasks;  ///< not settled when it was issued: a failure there skips it
    std::span<const Fill> fills;
    const graph::SubmitInfo* info = nullptr;  ///< for names; valid until the task is settled

    // ---- of a transfer
    memory::Transfer::What what = memory::Transfer::What::chunk;
    std::span<const BoxMove> boxes;  ///< none for a whole chunk, which is `bytes` from `source` to `destination`
    /// The latest position of its own lane that it must come after and that has not passed; 0: none. The lane's order
    /// ensures that, unless several copies are carried out at once.
    graph::Position after_on_lane = 0;
    /// Of a whole chunk: it begins, on both sides, where the copy ends that is right before it on its lane, and one
    /// call of the driver may do both.
    bool extends_previous = false;
    memory::Chunk* chunk = nullptr;  ///< that it fills, for others than its task too; null: it is the task's work
    memory::MemoryIndex from{};
    memory::MemoryIndex to{};
    std::uintptr_t source = 0;
    std::uintptr_t destination = 0;
    std::size_t bytes = 0;
    bool is_whole_chunk() const noexcept { return op == Op::transfer && what == memory::Transfer::What::chunk; }
};

/// Instructions in the order in which they are to be carried out, with all that their spans point to. Keeps its memory
/// when it is emptied. Not thread-safe.
class InstructionList {
  public:
    bool empty() const noexcept { return size() == 0; }
    std::size_t size() const noexcept { return instructions_.size() - first_.instruction; }
    /// Copies it. Nothing is changed if it throws. O(what its spans point to).
    void push(const Instruction& instruction) {
        const std::size_t bytes = parameters_.size();
        const std::size_t fences = fences_.size();
        const std::size_t tasks = tasks_.size();
        const std::size_t fills = fills_.size();
        const std::size_t boxes = boxes_.size();
        try {
            append(fences_, instruction.waits);
            append(tasks_, instruction.needed_tasks);
            append(fills_, instruction.fills);
            append(boxes_, instruction.boxes);
            append(parameters_, instruction.parameters);
            parameters_.resize(aligned(parameters_.size()));
            instructions_.push_back(instruction);
        } catch (...) {
            parameters_.resize(bytes);
            fences_.resize(fences);
            tasks_.resize(tasks);
            fills_.resize(fills);
            boxes_.resize(boxes);
            throw;
        }
    }
    /// Moves all of `other` to the end, and leaves it empty. Neither is changed if it throws.
    void take(InstructionList& other) {
        other.forget_consumed();
        if (empty()) return swap(other);
        reserve(instructions_, other.instructions_.size());
        reserve(parameters_, other.parameters_.size());
        reserve(fences_, other.fences_.size());
        reserve(tasks_, other.tasks_.size());
        reserve(fills_, other.fills_.size());
        reserve(boxes_, other.boxes_.size());
        append(instructions_, std::span<const Instruction>(other.instructions_));
        append(parameters_, std::span<const std::byte>(other.parameters_));
        append(fences_, std::span<const graph::Fence>(other.fences_));
        append(tasks_, std::span<const graph::TaskNumber>(other.tasks_));
        append(fills_, std::span<const Fill>(other.fills_));
        append(boxes_, std::span<const BoxMove>(other.boxes_));
        other.clear();
    }
    void swap(InstructionList& other) noexcept {
        instructions_.swap(other.instructions_);
        parameters_.swap(other.parameters_);
        fences_.swap(other.fences_);
        tasks_.swap(other.tasks_);
        fills_.swap(other.fills_);
        boxes_.swap(other.boxes_);
        std::swap(first_, other.first_);
    }
    void clear() noexcept {
        first_ = {};
        graph::clear_and_keep_few(instructions_);
        graph::clear_and_keep_few(parameters_);
        graph::clear_and_keep_few(fences_);
        graph::clear_and_keep_few(tasks_);
        graph::clear_and_keep_few(fills_);
        graph::clear_and_keep_few(boxes_);
    }
    /// Calls `f(const Instruction&)` for each, in order; spans are valid until the list is changed.
    template<typename F> void for_each(F&& f) {
        for (Place at = first_; at.instruction < instructions_.size();) f(look_at(at));
    }
    /// The same until `f` returns false; those for which it returned true are no longer in the list. O(1) for each.
    template<typename F> void consume(F&& f) {
        for (Place at = first_; at.instruction < instructions_.size(); first_ = at)
            if (!f(look_at(at))) break;
        if (empty())
            clear();
        else if (first_.instruction > instructions_.size() / 2)
            forget_consumed();
    }

  private:
    /// Where the next instruction and what it points to are.
    struct Place {
        std::size_t instruction = 0, parameter = 0, fence = 0, task = 0, fill = 0, box = 0;
    };
    const Instruction& look_at(Place& at) noexcept {
        Instruction& i = instructions_[at.instruction++];
        i.parameters = {parameters_.data() + at.parameter, i.parameters.size()};
        i.waits = {fences_.data() + at.fence, i.waits.size()};
        i.needed_tasks = {tasks_.data() + at.task, i.needed_tasks.size()};
        i.fills = {fills_.data() + at.fill, i.fills.size()};
        i.boxes = {boxes_.data() + at.box, i.boxes.size()};
        at.parameter += aligned(i.parameters.size());
        at.fence += i.waits.size();
        at.task += i.needed_tasks.size();
        at.fill += i.fills.size();
        at.box += i.boxes.size();
        return i;
    }
    void forget_consumed() noexcept {
        erase_first(instructions_, first_.instruction);
        erase_first(parameters_, first_.parameter);
        erase_first(fences_, first_.fence);
        erase_first(tasks_, first_.task);
        erase_first(fills_, first_.fill);
        erase_first(boxes_, first_.box);
        first_ = {};
    }
    template<typename T> static void erase_first(graph::Vector<T>& v, std::size_t count) noexcept {
        v.erase(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(count));
    }
    /// Parameters begin at multiples of what any of them may be aligned to.
    static constexpr std::size_t aligned(std::size_t bytes) noexcept { return (bytes + 15) / 16 * 16; }
    template<typename T> static void append(graph::Vector<T>& to, std::span<const T> what) {
        to.insert(to.end(), what.begin(), what.end());
    }
    /// Grows as push_back does, so that many small lists behind each other cost no more than one.
    template<typename T> static void reserve(graph::Vector<T>& v, std::size_t more) {
        if (v.capacity() - v.size() < more) v.reserve(std::max(v.size() + more, 2 * v.capacity()));
    }

    graph::Vector<Instruction> instructions_;
    graph::Vector<std::byte> parameters_;
    graph::Vector<graph::Fence> fences_;
    graph::Vector<graph::TaskNumber> tasks_;
    graph::Vector<Fill> fills_;
    graph::Vector<BoxMove> boxes_;
    Place first_;  ///< what is before it was consumed
};

}  // namespace kmm::schedule
