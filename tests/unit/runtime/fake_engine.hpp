// What SchedulerTurns and Outgoing need, without a runtime: an engine that notes what it is handed and does nothing;
// books, words, and a platform on the host driver.
//
// Owns: what was handed over. Must not know: who hands it over. The engine has no lock on purpose: its callers must
// hold the baton, and ThreadSanitizer reports a call without it as a data race.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "../memory/cut_array.hpp"
#include "driver/registry.hpp"
#include "forwarding_driver.hpp"
#include "kmm/base/log.hpp"
#include "kmm/runtime/engine.hpp"
#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/task_books.hpp"
#include "kmm/runtime/texts/failure_words.hpp"
#include "kmm/runtime/texts/shortage_words.hpp"
#include "kmm/trace/events.hpp"

namespace kmm::runtime_test {

using graph::LaneId;
using graph::Position;
using graph::Task;
using graph::TaskKind;
using graph::TaskNumber;
using memory::MemoryIndex;
using schedule::Instruction;

inline constexpr MemoryIndex host = MemoryIndex::host();
inline constexpr MemoryIndex gpu = MemoryIndex::of_device(0);
inline constexpr MemoryIndex gpu_1 = MemoryIndex::of_device(1);
inline constexpr std::size_t mib = std::size_t{1} << 20;

class FakeEngine final : public detail::Engine {
  public:
    struct Given {
        Instruction::Op op;
        LaneId lane;
        Position position;
        TaskNumber task;
    };
    /// A list of instructions.
    struct Batch {
        std::uint32_t device;
        std::vector<Given> instructions;
    };
    struct Wish {
        enum class What : std::uint8_t { grow, exchange, bounce, await } what;
        MemoryIndex memory{};
        std::size_t bytes = 0;
        bool is_patient = false;
        friend bool operator==(const Wish&, const Wish&) = default;
    };

    std::vector<Batch> batches;
    std::vector<std::vector<TaskNumber>> to_host;  ///< by call
    std::vector<std::pair<std::uint32_t, TaskNumber>> launched;
    std::vector<Wish> wishes;
    std::size_t times_advanced = 0;
    std::size_t times_stopped = 0;
    std::size_t times_awaited_stop = 0;

    /// The next calls of `push` and `push_to_host` find no memory.
    int refusals = 0;
    // Called at the end of each call of that name.
    std::function<void(std::span<Task* const>)> on_push_to_host = [](auto) {};
    std::function<void(const Wish&)> on_wish = [](const Wish&) {};
    std::function<void()> on_stop = [] {};
    std::function<void()> on_wait_until_stopped = [] {};

    /// Tasks of all calls of `push_to_host`.
    std::vector<TaskNumber> all_to_host() const {
        std::vector<TaskNumber> all;
        for (const auto& call : to_host) all.insert(all.end(), call.begin(), call.end());
        return all;
    }
    /// Tasks of all instructions for the device.
    std::vector<TaskNumber> all_for(std::uint32_t device) const {
        std::vector<TaskNumber> all;
        for (const Batch& b : batches)
            for (const Given& g : b.instructions)
                if (b.device == device) all.push_back(g.task);
        return all;
    }

    void push(std::uint32_t device, schedule::InstructionList& instructions) override {
        const Inside inside(*this);
        refuse();
        Batch& batch = batches.emplace_back();
        batch.device = device;
        instructions.for_each(
            [&](const Instruction& i) { batch.instructions.push_back({i.op, i.lane, i.position, i.task}); });
        instructions.clear();
    }
    void launch(std::uint32_t device, Task& task) override {
        const Inside inside(*this);
        launched.emplace_back(device, task.number);
    }
    void push_to_host(std::span<Task* const> tasks) override {
        const Inside inside(*this);
        refuse();
        auto& numbers = to_host.emplace_back();
        for (const Task* t : tasks) numbers.push_back(t->number);
        on_push_to_host(tasks);
    }
    void grow(MemoryIndex memory, std::size_t bytes) override { wish({Wish::What::grow, memory, bytes}); }
    void exchange(MemoryIndex memory, std::size_t bytes) override { wish({Wish::What::exchange, memory, bytes}); }
    void give_bounce(std::size_t bytes) override { wish({Wish::What::bounce, {}, bytes}); }
    void await(MemoryIndex memory, const memory::Lacking& lacking, bool patient) override {
        wish({Wish::What::await, memory, lacking.bytes, patient});
    }
    void device_advanced() override {
        const Inside inside(*this);
        ++times_advanced;
    }
    std::size_t taken_bytes(std::uint32_t) const override { return 0; }
    engine::FailedTasks& failed_tasks() noexcept override { return failed_tasks_; }
    void stop() noexcept override {
        const Inside inside(*this);
        ++times_stopped;
        on_stop();
    }
    /// The only call without the baton.
    void wait_until_stopped() noexcept override {
        ++times_awaited_stop;
        on_wait_until_stopped();
    }

  private:
    /// One thread at a time calls it.
    struct Inside {
        explicit Inside(FakeEngine& e) : engine(e) {
            EXPECT_FALSE(engine.is_inside_.exchange(true)) << "two threads hand over at once";
        }
        ~Inside() { engine.is_inside_.store(false); }
        FakeEngine& engine;
    };
    void refuse() {
        if (refusals > 0 && refusals-- > 0) throw std::bad_alloc();
    }
    void wish(const Wish& wish) {
        const Inside inside(*this);
        wishes.push_back(wish);
        on_wish(wish);
    }

    engine::FailedTasks failed_tasks_;
    std::atomic<bool> is_inside_{false};
};

/// Says when the driver is asked how much memory a device has, which the words of a shortage tell.
class AskedDriver final : public driver::testing::ForwardingDriver {
  public:
    explicit AskedDriver(std::shared_ptr<driver::Driver> inner) : ForwardingDriver(*inner), inner_(std::move(inner)) {}
    driver::Status memory_info(int device, std::size_t* free_bytes, std::size_t* total_bytes) noexcept override {
        on_memory_info();
        return ForwardingDriver::memory_info(device, free_bytes, total_bytes);
    }
    std::function<void()> on_memory_info = [] {};

  private:
    void called(const char*) noexcept override {}
    std::shared_ptr<driver::Driver> inner_;
};

/// All but SchedulerTurns and Outgoing, which tests make.
struct Ground {
    explicit Ground(int num_devices = 1)
        : asked_driver(std::make_shared<AskedDriver>(driver::make_host_driver({num_devices, 64 * mib, 1}))),
          platform(config(), asked_driver),
          books(platform.number()),
          words(platform, books),
          shortage_words(platform, words) {
        graph::HostReserve::prepare();
        log::prepare();
        infos.reset(std::make_unique<graph::SubmitInfo>());
    }

    /// A record with its number, that is not published.
    Task& make_task(TaskKind kind, MemoryIndex memory, std::initializer_list<TaskNumber> after = {}) {
        const locks::Guard guard(books.order());
        return make_numbered(kind, memory, after);
    }
    /// Under the order lock.
    Task& make_numbered(TaskKind kind, MemoryIndex memory, std::initializer_list<TaskNumber> after = {}) {
        books.begin_taking_places(1);
        Task& t = *books.pool().take();
        t.kind = kind;
        t.memory = memory;
        infos.give_to(t.info);
        if (kind == TaskKind::kernel) t.set_kernel({});
        for (const TaskNumber n : after) t.predecessors.push_back({n, true});
        (void)books.table().add(&t);
        return t;
    }
    static void add_use(Task& task, memory::Chunk& chunk, bool replaces = true) {
        graph::Use& use = task.uses.emplace_back();
        use.chunk = &chunk;
        use.writes = true;
        use.replaces = replaces;
        use.needs_content = !replaces;
    }

    /// Of one chunk. It lives as long as the ground.
    memory::Array& make_array(std::size_t bytes = mib) { return *arrays_.emplace_back(make_free_array(bytes)); }
    static std::unique_ptr<memory::Array> make_free_array(std::size_t bytes = mib) {
        auto array = std::make_unique<memory::Array>();
        kmm_test::cut(*array, 1, bytes, 2);
        return array;
    }

    std::shared_ptr<AskedDriver> asked_driver;
    detail::Platform platform;
    detail::TaskBooks books;
    detail::FailureWords words;
    detail::ShortageWords shortage_words;
    graph::SubmitInfoSource infos;  ///< under the order lock
    trace::Emitter emitter;
    FakeEngine engine;

  private:
    std::vector<std::unique_ptr<memory::Array>> arrays_;
    static RuntimeConfig config() {
        RuntimeConfig config;
        config.driver = DriverKind::Host;
        config.host_threads = 1;
        config.watchdog = 0;
        return config;
    }
};

}  // namespace kmm::runtime_test
