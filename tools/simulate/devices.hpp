// What stands in for devices and threads while a program is played.
//
// Owns: the interface, and devices that have no time: the oldest work on the lanes is done, and the oldest function is
// run, one at a time, so that two plays of one program issue the same, whatever the machine. Must not know: the
// schedule. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "kmm/schedule/instruction.hpp"

namespace kmm::simulate {

/// Addresses that the simulation gives to a memory tell which one it is.
constexpr std::uintptr_t first_address(memory::MemoryIndex m) noexcept { return (std::uintptr_t{m.index()} + 1) << 40; }
constexpr std::uint32_t index_of_memory(std::uintptr_t address) noexcept {
    return static_cast<std::uint32_t>(address >> 40) - 1;
}

/// Something that is over.
struct Done {
    enum class What : std::uint8_t { grown, lane, function } what = What::lane;
    graph::LaneId lane = graph::LaneId::none;  ///< all up to `position`
    graph::Position position = 0;
    graph::TaskNumber task = 0;  ///< lane: whose kernel it was; 0: a copy
    graph::Task* function = nullptr;
    memory::MemoryIndex memory{};  ///< grown
    std::size_t bytes = 0;         ///< grown
};

class Devices {
  public:
    virtual ~Devices() = default;
    /// What the instruction points to is not valid any more when the call returns.
    virtual void instruct(const schedule::Instruction& instruction) = 0;
    virtual void run(graph::Task& task) = 0;
    virtual void grow(memory::MemoryIndex memory, std::size_t bytes) = 0;
    /// What is over next, if it is by then; else it is that time now, or, where that is `never`, nothing is on its way.
    virtual bool next(Done& done, std::int64_t until_ns) = 0;
    virtual std::int64_t now_ns() const noexcept { return 0; }

    static constexpr std::int64_t never = INT64_MAX;
};

class UntimedDevices final : public Devices {
  public:
    void instruct(const schedule::Instruction& i) override {
        done_.push_back({.what = Done::What::lane,
                         .lane = i.lane,
                         .position = i.position,
                         .task = i.op == schedule::Instruction::Op::kernel ? i.task : 0});
    }
    void run(graph::Task& task) override { functions_.push_back({.what = Done::What::function, .function = &task}); }
    void grow(memory::MemoryIndex memory, std::size_t bytes) override {
        growths_.push_back({.what = Done::What::grown, .memory = memory, .bytes = bytes});
    }
    /// All memory that was asked for, then one instruction, one function, and so on; after all that is submitted.
    bool next(Done& done, std::int64_t until_ns) override {
        if (until_ns != never) return false;
        for (int i = 0; i < 4; ++i) {
            std::deque<Done>& list = turn_ == 0 ? growths_ : turn_ == 1 ? done_ : functions_;
            if (turn_ != 0 || list.empty()) turn_ = (turn_ + 1) % 3;
            if (list.empty()) continue;
            done = list.front();
            list.pop_front();
            return true;
        }
        return false;
    }

  private:
    std::deque<Done> growths_, done_, functions_;
    int turn_ = 0;
};

}  // namespace kmm::simulate
