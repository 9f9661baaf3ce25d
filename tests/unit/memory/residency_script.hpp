// Residency driven by hand: its requests are only written down, and memory is granted as the test says.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "../memory/cut_array.hpp"
#include "host_allocations.hpp"
#include "kmm/memory/places.hpp"
#include "kmm/memory/residency.hpp"

namespace kmm::residency_test {

using kmm::graph::Across;
using kmm::graph::Fence;
using kmm::graph::FenceSet;
using kmm::graph::LaneId;
using kmm::graph::Task;
using kmm::graph::Use;
using kmm::memory::address_of;
using kmm::memory::Array;
using kmm::memory::Temporary;
using kmm::memory::Chunk;
using kmm::memory::MemoryIndex;
using kmm::memory::PerMemory;
using kmm::memory::Placement;
using kmm::memory::Requests;
using kmm::memory::Residency;

inline constexpr std::size_t unit = 1024;
inline constexpr MemoryIndex host = MemoryIndex::host();
inline constexpr MemoryIndex gpu = MemoryIndex::of_device(0);
inline constexpr MemoryIndex gpu_1 = MemoryIndex::of_device(1);

/// Writes down copies; memory is granted at once, up to what the test allows.
class Script final : public Requests {
  public:
    struct Copy {
        Chunk* chunk;
        MemoryIndex from, to;
        std::vector<Fence> waits;
        Fence fence;
        Task* task;
        std::uintptr_t source, destination;
    };
    Fence copy(Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source, std::uintptr_t destination,
               const FenceSet& waits, Task* task) override {
        const rmm_test::Spared spared;
        const Fence fence{static_cast<LaneId>(100 + to.index()), ++position};
        copies.push_back(
            {&chunk, from, to, std::vector<Fence>(waits.begin(), waits.end()), fence, task, source, destination});
        return fence;
    }
    struct Parts {
        Chunk* chunk;
        MemoryIndex from, to;
        std::vector<kmm::graph::TaskNumber> readers;
        std::vector<Fence> waits;
        Fence fence;
    };
    Fence copy_parts(Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t, std::uintptr_t,
                     const FenceSet& waits, const kmm::graph::Vector<kmm::graph::TaskNumber>& readers,
                     std::size_t* bytes) override {
        const Fence fence{static_cast<LaneId>(100 + to.index()), ++position};
        parts.push_back({&chunk, from, to, {readers.begin(), readers.end()}, {waits.begin(), waits.end()}, fence});
        *bytes += 1;
        return fence;
    }
    struct Part {
        Chunk* chunk;
        MemoryIndex from, to;
        kmm::detail::Box box;
        std::vector<Fence> waits;
        Fence fence;
    };
    Fence copy_part(Chunk& chunk, MemoryIndex from, MemoryIndex to, std::uintptr_t source, std::uintptr_t destination,
                    const FenceSet& waits, Task&, const kmm::graph::BoxTransfer& part) override {
        EXPECT_EQ(source, chunk.replicas[from].address);
        EXPECT_EQ(destination, chunk.replicas[to].address);
        const Fence fence{static_cast<LaneId>(100 + to.index()), ++position};
        ghosts.push_back({&chunk, from, to, part.box, {waits.begin(), waits.end()}, fence});
        return fence;
    }
    struct Gather {
        Task* task;
        Chunk* to;
        std::vector<std::pair<Chunk*, MemoryIndex>> from;
        std::vector<Fence> waits;
        Fence fence;
    };
    Fence gather(Task& task, const Across& across, const FenceSet& waits) override {
        const Fence fence{static_cast<LaneId>(100 + task.memory.index()), ++position};
        Gather& g = gathers.emplace_back();
        g = {&task, task.uses[across.use].chunk, {}, {waits.begin(), waits.end()}, fence};
        for (const std::uint32_t part : task.parts_of(across))
            g.from.emplace_back(task.uses[part].chunk, task.uses[part].memory);
        return fence;
    }
    struct Move {
        std::uintptr_t source, destination;
        std::size_t bytes;
        std::size_t num_copies_before;
    };
    void move_on_host(std::uintptr_t destination, std::uintptr_t source, std::size_t bytes) override {
        moves.push_back({source, destination, bytes, copies.size()});
    }
    void grow(MemoryIndex memory, std::size_t bytes) override {
        const rmm_test::Spared spared;
        growths.emplace_back(memory, bytes);
    }
    bool exchange(MemoryIndex memory, std::size_t bytes) override {
        if (can_exchange) exchanges.emplace_back(memory, bytes);
        return can_exchange;
    }
    bool passed(Fence fence) const noexcept override { return fence.position <= completed; }
    bool linked(MemoryIndex from, MemoryIndex to) const noexcept override {
        return all_linked && from.is_device() && to.is_device();
    }
    void residency_changed(Task&) override { changes++; }
    void unblocked(Task& task) override { woken.push_back(&task); }

    std::vector<Copy> copies;
    std::vector<Move> moves;
    std::vector<Parts> parts;
    std::vector<Part> ghosts;
    std::vector<Gather> gathers;
    std::vector<std::pair<MemoryIndex, std::size_t>> growths;
    std::vector<std::pair<MemoryIndex, std::size_t>> exchanges;
    bool can_exchange = false;
    std::vector<Task*> woken;
    kmm::graph::Position position = 0;
    kmm::graph::Position completed = 0;
    int changes = 0;
    bool all_linked = false;
};

class ResidencyTest : public ::testing::Test {
  protected:
    void start(PerMemory<std::size_t> limits) {
        residency_ = std::make_unique<Residency>(script_, limits);
        base_.resize_for_devices(limits.num_devices());
        for (const MemoryIndex m : base_.memories()) base_[m] = (std::uintptr_t{m.index()} + 1) << 32;
    }
    std::unique_ptr<Array> make_array(std::size_t chunks, std::size_t bytes = unit) {
        auto a = std::make_unique<Array>();
        kmm_test::cut(*a, chunks, bytes, base_.num_devices());
        return a;
    }
    struct Wanted {
        Chunk* chunk;
        bool writes;
        bool replaces;
    };
    Task& make_task(MemoryIndex m, const std::vector<Wanted>& uses) {
        tasks_.push_back(std::make_unique<Task>());
        Task& t = *tasks_.back();
        t.number = tasks_.size();
        t.memory = m;
        for (const Wanted& w : uses) {
            Use& use = add_use(t, *w.chunk);
            use.writes = w.writes;
            use.replaces = w.replaces;
            use.needs_content = !w.replaces;
            residency_->residents().add_next_use(*w.chunk, kmm::memory::next_use_of(t, use));
        }
        return t;
    }
    /// One that a view of the task's function sees.
    static Use& add_use(Task& task, Chunk& chunk) {
        task.views.emplace_back().use = static_cast<std::uint32_t>(task.uses.size());
        Use& use = task.uses.emplace_back();
        use.chunk = &chunk;
        return use;
    }
    /// Places with all the memory that is asked for, up to the limit.
    Placement place(Task& t) {
        for (;;) {
            const Placement p = residency_->place(t);
            if (p != Placement::wait_growth) return p;
            const auto [memory, bytes] = script_.growths.back();
            residency_->space(memory).grown(base_[memory], bytes);
            base_[memory] += bytes;
        }
    }
    Fence run(Task& t) {
        EXPECT_EQ(place(t), Placement::granted);
        const Fence fence{static_cast<LaneId>(t.memory.index()), ++script_.position};
        residency_->issued(t, fence);
        return fence;
    }
    Fence overwrite_on(MemoryIndex m, Chunk& c) { return run(make_task(m, {{&c, true, true}})); }
    Fence write_on(MemoryIndex m, Chunk& c) { return run(make_task(m, {{&c, true, false}})); }
    Fence read_on(MemoryIndex m, Chunk& c) { return run(make_task(m, {{&c, false, false}})); }

    Script script_;
    std::unique_ptr<Residency> residency_;
    PerMemory<std::uintptr_t> base_;
    std::vector<std::unique_ptr<Task>> tasks_;
};

}  // namespace kmm::residency_test
