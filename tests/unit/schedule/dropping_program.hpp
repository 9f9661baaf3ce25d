// A program for the stage that drops its arrays.
#pragma once

#include <algorithm>
#include <vector>

#include "stage.hpp"

namespace kmm::schedule_test {

inline constexpr MemoryIndex gpu_1 = MemoryIndex::of_device(1);

/// A program that drops its arrays, and of which each task is told what the program held when it was submitted.
class Program : public Stage {
  public:
    using Stage::Stage;

    /// A chunk counts from the task on that writes it first.
    Task& run(TaskKind kind, MemoryIndex memory, const std::vector<Wanted>& uses,
              const std::vector<TaskNumber>& after = {}) {
        Task& t = make_task(kind, memory, uses, after);
        t.held_bytes = held_bytes;
        for (const Wanted& u : uses) {
            if (!u.writes || std::find(held_.begin(), held_.end(), u.chunk) != held_.end()) continue;
            held_.push_back(u.chunk);
            held_bytes += u.chunk->size_bytes;
        }
        scheduler->submit(t);
        return t;
    }
    void drop(Array& array) {
        for (Chunk& c : array.chunks) {
            const auto at = std::find(held_.begin(), held_.end(), &c);
            if (at == held_.end()) continue;
            held_.erase(at);
            held_bytes -= c.size_bytes;
        }
        scheduler->release(array);
    }
    std::size_t num_kernels() const {
        return static_cast<std::size_t>(
            std::count_if(instructions.begin(), instructions.end(),
                          [](const Instruction& i) { return i.op == Instruction::Op::kernel; }));
    }
    bool is_handed_out(TaskNumber number) const {
        return std::any_of(instructions.begin(), instructions.end(),
                           [&](const Instruction& i) { return i.op == Instruction::Op::kernel && i.task == number; });
    }
    std::size_t num_copies() const {
        return static_cast<std::size_t>(std::count_if(instructions.begin(), instructions.end(),
                                                      [](const Instruction& i) { return i.is_whole_chunk(); }));
    }

    /// As long as the watchdog waits, from a look at the front to the next.
    void pass_interval() {
        scheduler->interval_passed();
        scheduler->interval_passed();
    }

    std::size_t held_bytes = 0;

  private:
    std::vector<Chunk*> held_;
};

}  // namespace kmm::schedule_test
