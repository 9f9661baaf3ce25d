// The thread that gets memory for the heaps, in steps: page-locked for the host, of an rmm resource for each device; and that
// gives some back when others need it more.
//
// Owns: everything that was taken. Mapping and pinning are slow (milliseconds), so that they run here and never on the
// planner. Grows in steps that double, so that small programs stay small and large ones are not slowed down. Waits for the
// devices, never for a thread that allocates.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "driver/driver.hpp"
#include "kmm/core/config.hpp"
#include "kmm/execute/device_memory.hpp"
#include "kmm/execute/lanes.hpp"
#include "kmm/execute/messages.hpp"
#include "rmm/pinning.hpp"

namespace kmm::execute {

class MemoryService {
  public:
    /// Limits by memory: 0 the host, 1 + d device d. `device_kind` is not Automatic. `config` outlives the service.
    MemoryService(Lanes& lanes, std::vector<int> ordinals, std::vector<std::size_t> limits_bytes,
                  const RuntimeConfig& config, DeviceMemoryKind device_kind, const void* runtime, Reports& reports);
    ~MemoryService();

    /// Gives back the steps that are wholly free, after their last users. Blocks until it is done, which takes milliseconds for
    /// each gigabyte. Any thread but the planner.
    void trim();
    /// Answered by Message::grown, with 0 bytes if nobody gives that much.
    void grow(memory::MemoryIndex memory, std::size_t at_least_bytes);
    /// Gives back what is wholly free, and takes as much and at least `at_least_bytes` in one step. Answered like `grow`; if it
    /// cannot be had, what was given back is taken again (Message::given_again).
    void exchange(memory::MemoryIndex memory, std::size_t at_least_bytes);

    /// Tries for `memory_wait` seconds to get that much of a device's memory, which other users of it in this process hold now:
    /// idle pools and other runtimes are asked to give some back. Answered like `grow`; at once if nobody else holds any.
    void await(memory::MemoryIndex memory, std::size_t at_least_bytes);
    /// Gives about so much of a device's memory back that is free or can be evicted now. Returns what was given back, of which
    /// the driver has at least the part that its resource does not keep; 0 as well if that takes longer than `reclaim_patience`.
    /// Any thread that holds no lock, in tasks too; not the planner and not this service.
    std::size_t reclaim(memory::MemoryIndex memory, std::size_t bytes) noexcept;
    static constexpr std::chrono::seconds reclaim_patience{10};

    struct Figures {
        double pinning_seconds = 0;  ///< spent in touching and page-locking
        std::size_t pinned_bytes = 0;
        std::uint64_t steps = 0;                ///< taken so far, of all memories
        std::uint64_t mappings = 0;             ///< pieces of device memory mapped or unmapped so far
        std::vector<std::size_t> device_bytes;  ///< by device: taken from the driver, offered to the heap or not
    };
    Figures figures() const;

  private:
    using Clock = std::chrono::steady_clock;
    /// Who waits for memory longest has it first.
    struct Turn {
        Clock::time_point since = Clock::time_point::min();
        std::uint64_t service = 0;
        friend auto operator<=>(const Turn&, const Turn&) = default;
    };
    enum class Wish : std::uint8_t { grow, exchange, trim, await, reclaim, look };
    struct Request {
        Wish wish = Wish::grow;
        memory::MemoryIndex memory = 0;
        std::size_t bytes = 0;
        std::promise<void>* done = nullptr;                  ///< of a wish to trim
        std::shared_ptr<std::promise<std::size_t>> given{};  ///< of a thread's wish to reclaim
        // Of another service's: null, or whether it still waits.
        std::shared_ptr<const std::atomic<bool>> waits{};
        Turn turn{};
    };
    struct Awaited {
        std::size_t bytes = 0;
        Turn turn;
        Clock::time_point until;
        std::chrono::milliseconds pause{1};
        Clock::time_point next;  ///< attempt
        std::shared_ptr<std::atomic<bool>> waits = std::make_shared<std::atomic<bool>>(true);
    };
    struct Step {
        void* address = nullptr;
        std::size_t bytes = 0;            ///< offered to the heap
        rmm::detail::pinned_block block;  ///< of the host
        bool plain = false;               ///< of a device: an allocation of the driver, where its resource had nothing
        bool sealed = true;               ///< see memory::Residency::grown
    };
    struct Memory {
        std::vector<Step> steps;
        std::size_t offered_bytes = 0;
        std::unique_ptr<DeviceMemory> device;  ///< null for the host
        std::optional<Awaited> awaited;
        bool refused = false;  ///< the driver gave nothing when it was asked last
    };

    void push(Request request);
    void run();
    bool next_request(Request* out);
    void serve(Request& request);
    void grow_now(memory::MemoryIndex m, std::size_t bytes);
    void exchange_now(memory::MemoryIndex m, std::size_t bytes);
    void trim_now();
    // memory_sharing.cpp
    void meet_neighbours();
    void leave_neighbours() noexcept;
    void ask_neighbours(memory::MemoryIndex m);
    static void wake(std::uint64_t service);
    void await_now(memory::MemoryIndex m, std::size_t bytes);
    void try_awaited();
    void end_awaited(memory::MemoryIndex m, const Step& step);
    std::size_t reclaim_now(memory::MemoryIndex m, std::size_t bytes);
    void reclaim_for(const Request& request);
    std::vector<Request> pending_growth(memory::MemoryIndex m);
    bool others_hold(memory::MemoryIndex m) noexcept;
    std::size_t step_bytes(memory::MemoryIndex m, std::size_t needed, std::size_t left) const;
    bool take(memory::MemoryIndex m, std::size_t bytes, Step* out);
    bool take_anywhere(memory::MemoryIndex m, std::size_t bytes, Step* out);
    void give_back(memory::MemoryIndex m, const Step& step);
    std::vector<Step> take_back_free(memory::MemoryIndex m);
    void offer(memory::MemoryIndex m, const Step& step, Message::What what);
    void count();

    driver::Driver& driver_;
    Lanes& lanes_;
    std::vector<int> ordinals_;
    std::vector<std::size_t> limits_;
    const RuntimeConfig& config_;
    const void* runtime_;
    Reports& reports_;
    std::vector<Memory> memories_;
    Figures current_;  // of the thread
    Lanes::Scratch scratch_;
    const std::uint64_t number_;  // of this service, among all

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Request> requests_;
    Figures figures_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace kmm::execute
