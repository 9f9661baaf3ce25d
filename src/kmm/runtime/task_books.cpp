#include "kmm/runtime/task_books.hpp"

#include "driver/format.hpp"

#include "kmm/error.hpp"

namespace kmm::detail {

TaskBooks::TaskBooks(std::uint16_t runtime_number)
    : runtime_number_(runtime_number),
      no_host_memory_(std::make_exception_ptr(OutOfMemory(
          MemoryId::host(), 0, 0, 0,
          "the host has no memory for the books of the runtime: the program, or others on the machine, use all "
          "that the system gives; submit less at a time, or lower KMM_HOST_MEM"))) {}

void TaskBooks::throw_not_usable(bool must_be_open) const {
    if (driver::lost_in_fork())
        throw Closed(
            driver::format("runtime {} is not in this process: {}", runtime_number_, driver::LostInFork().what()));
    if (must_be_open && is_closed())
        throw Closed(driver::format("runtime {} was closed: make a new one", runtime_number_));
    std::rethrow_exception(no_host_memory_);
}

graph::TaskNumber TaskBooks::number_of(EventId event) const {
    const std::uint64_t value = event.get();
    if (value == 0) return 0;
    if (event.runtime_number() == 0) throw InvalidArgument("no runtime issued event " + std::to_string(value));
    const TaskNumber number = value & last_;
    if (event.runtime_number() != runtime_number_)
        throw InvalidArgument(driver::format(
            "event {} belongs to runtime {}, but was used with runtime {}: ask the runtime that issued it", number,
            event.runtime_number(), runtime_number_));
    if (number > table_.last())
        throw InvalidArgument(driver::format("event {} was never issued by runtime {} (the latest is {})", number,
                                             runtime_number_, table_.last()));
    return number;
}

void TaskBooks::settle(Task& task) noexcept {
    if (task.failure != nullptr) {
        try {
            failures_.add(task);
        } catch (const std::bad_alloc&) {
            lose();  // before a thread can find the task settled, and no failure of it
        }
    }
    leave(task);
}

void TaskBooks::leave(Task& task) noexcept {
    const TaskNumber number = task.number;
    table_.remove(number);
    waits_.settled(number, task);
    unfinished_.one_ended();
}

void TaskBooks::end_all() noexcept {
    const locks::Guard guard(order_);  // each number has a record that is published, or lost
    table_.for_each([this](Task& task) { leave(task); });
}

}  // namespace kmm::detail
