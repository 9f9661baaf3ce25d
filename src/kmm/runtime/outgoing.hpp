// The scheduler's outbox: collects instructions for the threads that carry them out, and reports how tasks end.
//
// Owns: instructions and host tasks that a turn has decided and not handed over; failures to be logged after the turn.
// Must not know: messages, who has the baton. Runs under the baton.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kmm/runtime/engine.hpp"
#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/task_books.hpp"
#include "kmm/runtime/texts/failure_words.hpp"
#include "kmm/runtime/texts/shortages.hpp"
#include "kmm/schedule/instruction.hpp"
#include "kmm/schedule/outbox.hpp"
#include "kmm/schedule/scheduler.hpp"

namespace kmm::detail {

class Outgoing final : public schedule::Outbox {
  public:
    using Task = graph::Task;
    using TaskNumber = graph::TaskNumber;

    Outgoing(const Platform& platform, TaskBooks& books, FailureWords& words, const ShortageWords& shortages,
             Engine& engine)
        : platform_(platform), books_(books), words_(words), engine_(engine), shortages_(platform, shortages) {
        instructions_.resize(platform.num_devices());
        refused_at_ns_.resize_for_devices(platform.num_devices());
    }
    /// Before the first turn.
    void connect(const schedule::Scheduler& scheduler) noexcept { scheduler_ = &scheduler; }

    /// Hands over what was decided. Throws std::bad_alloc; what was not handed over stays.
    void flush();

    /// The driver, or the system, was asked for more of this memory, and has none.
    void refused(memory::MemoryIndex m) noexcept { refused_at_ns_[m] = engine::now_ns(); }

    /// Failures to be logged once the baton is free.
    struct News {
        graph::Vector<std::shared_ptr<graph::RootFailure>> roots;
        std::uint64_t more = 0;  ///< that there was no room for
    };
    News take_news() noexcept {
        News news;
        news.roots.swap(news_.roots);
        news.more = std::exchange(news_.more, 0);
        return news;
    }

    /// Waits for memory of tasks that have it now.
    struct MemoryWaits {
        std::int64_t sum_ns = 0;
        std::int64_t longest_ns = 0;
        std::uint64_t count = 0;
    };
    const MemoryWaits& memory_waits() const noexcept { return memory_waits_; }

    // ---- schedule::Outbox
    void instruct(std::uint32_t device, const schedule::Instruction& instruction) override {
        instructions_[device].push(instruction);
    }
    void launch(std::uint32_t device, Task& task) override { engine_.launch(device, task); }
    void run_on_host(Task& task) override { to_host_.push_back(&task); }
    bool ask_for_bounce(std::size_t bytes) override;
    void move_on_host(std::uintptr_t destination, std::uintptr_t source, std::size_t bytes) override;
    void grow(memory::MemoryIndex memory, std::size_t bytes) override;
    bool exchange(memory::MemoryIndex memory, std::size_t bytes) override;
    bool await_memory(memory::MemoryIndex memory, const memory::Lacking& lacking, bool patient) override;
    bool may_ask_again(memory::MemoryIndex memory) noexcept override;
    bool linked(memory::MemoryIndex from, memory::MemoryIndex to) const noexcept override;
    void settled(Task& task) noexcept override { books_.settle(task); }
    void recycle(Task& task) noexcept override;
    std::shared_ptr<graph::Failure> make_failure(Task& task, std::exception_ptr thrown,
                                                 const std::shared_ptr<graph::RootFailure>& root) override;
    std::shared_ptr<graph::Failure> find_failure(TaskNumber number) override { return books_.failure_of(number); }
    void out_of_memory(Task& task) override;
    std::exception_ptr no_host_memory() noexcept override { return books_.no_host_memory(); }
    void memory_wait_begins(Task& task) override {
        task.cold_part(graph::UseOfReserve::yes).waits_for_memory_ns = engine::now_ns();
    }
    void memory_wait_ends(Task& task) noexcept override;
    void kernel_failed(Task& task, std::exception_ptr thrown) override {
        words_.note_thrown_by_kernel(task, std::move(thrown));
    }

  private:
    const Platform& platform_;
    TaskBooks& books_;
    FailureWords& words_;
    Engine& engine_;
    const schedule::Scheduler* scheduler_ = nullptr;
    std::vector<schedule::InstructionList> instructions_;  ///< by device
    graph::TaskList to_host_;
    News news_;
    MemoryWaits memory_waits_;
    memory::PerMemory<std::int64_t> refused_at_ns_;
    Shortages shortages_;
};

}  // namespace kmm::detail
