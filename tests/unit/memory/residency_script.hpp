// Residency driven by hand: its requests are only written down, and memory is granted as the test says.
#pragma once

#include <gtest/gtest.h>

#include <map>
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
using kmm::memory::Transfer;

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
    struct Parts {
        Chunk* chunk;
        MemoryIndex from, to;
        std::vector<kmm::graph::TaskNumber> readers;
        std::vector<Fence> waits;
        Fence fence;
    };
    struct Part {
        Chunk* chunk;
        MemoryIndex from, to;
        kmm::detail::Box box;
        std::vector<Fence> waits;
        Fence fence;
    };
    struct Gather {
        Task* task;
        Chunk* to;
        std::vector<std::pair<Chunk*, MemoryIndex>> from;
        std::vector<Fence> waits;
        Fence fence;
    };
    Fence transfer(const Transfer& t, const FenceSet& after) override {
        const rmm_test::Spared spared;
        const Fence fence{static_cast<LaneId>(100 + t.to.index()), ++position};
        const std::vector<Fence> waits(after.begin(), after.end());
        switch (t.what) {
        case Transfer::What::chunk:
            copies.push_back({t.chunk, t.from, t.to, waits, fence, t.task, t.source, t.destination});
            break;
        case Transfer::What::parts:
            parts.push_back({t.chunk, t.from, t.to, std::exchange(looked_for, {}), waits, fence});
            break;
        case Transfer::What::ghost: ghosts.push_back({t.chunk, t.from, t.to, box_of(t), waits, fence}); break;
        case Transfer::What::gather: {
            Gather& g = gathers.emplace_back();
            g = {t.task, t.chunk, {}, waits, fence};
            for (const Across& across : t.task->across())
                for (const std::uint32_t part : t.task->parts_of(across))
                    if (t.task->uses[across.use].chunk == t.chunk)
                        g.from.emplace_back(t.task->uses[part].chunk, t.task->uses[part].memory);
            EXPECT_EQ(g.from.size(), t.boxes.size());
            break;
        }
        case Transfer::What::task: ADD_FAILURE() << "not asked for by residency";
        }
        return fence;
    }
    /// Of an array with one axis.
    static kmm::detail::Box box_of(const Transfer& t) {
        const kmm::memory::BoxMove& move = t.boxes[0];
        EXPECT_EQ(t.boxes.size(), 1u);
        EXPECT_EQ(move.num_axes, 0u);
        const std::size_t offset = reinterpret_cast<std::uintptr_t>(move.source) - t.chunk->replicas[t.from].address;
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(move.destination) - t.chunk->replicas[t.to].address, offset);
        kmm::detail::Box box = t.chunk->box();
        const std::size_t element = t.chunk->owner->element_bytes;
        box.begin[0] += static_cast<std::int64_t>(offset / element);
        box.end[0] = box.begin[0] + static_cast<std::int64_t>(move.run_bytes / element);
        return box;
    }
    const Task* find(kmm::graph::TaskNumber number) noexcept override {
        looked_for.push_back(number);
        const auto at = tasks.find(number);
        return at == tasks.end() ? nullptr : at->second;
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

    std::map<kmm::graph::TaskNumber, Task*> tasks;
    std::vector<kmm::graph::TaskNumber> looked_for;
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
        script_.tasks[t.number] = &t;
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
