// The thread that allocates memory for the heaps, in steps: page-locked for the host, from an rmm resource for each
// device; and that gives some back to other users of a device.
//
// Owns: everything that it allocated. Mapping and pinning are slow (milliseconds), so that they run here and never on
// the scheduler. Grows in steps that double, so that small programs stay small and large ones are not slowed down.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "driver/driver.hpp"
#include "driver/locks.hpp"
#include "kmm/core/config.hpp"
#include "kmm/engine/lanes.hpp"
#include "kmm/engine/mailbox.hpp"
#include "kmm/memory/requests.hpp"
#include "kmm/supply/device_memory.hpp"
#include "rmm/pinning.hpp"

namespace kmm::supply {

class MemoryService {
  public:
    /// `device_kind` is not Automatic. `config` outlives the service.
    MemoryService(engine::Lanes& lanes, std::vector<int> ordinals, memory::PerMemory<std::size_t> limits_bytes,
                  const RuntimeConfig& config, DeviceMemoryKind device_kind, const void* runtime,
                  engine::Mailbox& mailbox);
    ~MemoryService();

    /// Gives back the steps that are wholly free, after their last users. Blocks until it is done, which takes
    /// milliseconds for each gigabyte. Any thread but the scheduler.
    void trim();
    /// Allocates a step. Answered by engine::Message::grown, with 0 bytes if that much cannot be had.
    void grow(memory::MemoryIndex memory, std::size_t at_least_bytes);
    /// Frees all wholly free steps, and allocates as much, at least `at_least_bytes`, as one step. Answered like
    /// `grow`; on failure the freed steps are allocated again (engine::Message::given_again).
    void exchange(memory::MemoryIndex memory, std::size_t at_least_bytes);

    /// Allocates the bounce buffer for compaction and swaps, page-locked host memory outside the budget. Frees the one
    /// before, which must not be in use. Answered by engine::Message::bounce_came, with 0 bytes if it cannot be had.
    void give_bounce(std::size_t bytes);

    /// Tries to get `lacking.bytes` of a device's memory, which other users of it in this process hold now: idle pools
    /// and other runtimes are asked to give some back. Gives up when none was given back for `memory_wait` seconds, or
    /// no other user has held any since, and then tries to get `lacking.least_bytes`. Answered by
    /// engine::Message::awaited, with 0 bytes if none was obtained. One at a time for each memory. Not `patient`:
    /// tries once.
    void await(memory::MemoryIndex memory, const memory::Lacking& lacking, bool patient);
    /// Frees about `bytes` of a device's memory that are unused or evictable; `at_once`: without waiting for kernels.
    /// Returns the bytes freed until then or, at the latest, the deadline. Blocks. Any thread, also in tasks, but not
    /// the scheduler's and not this service's. The caller must hold no lock that the memory's resource takes.
    std::size_t reclaim(memory::MemoryIndex memory, std::size_t bytes, bool at_once,
                        std::chrono::steady_clock::time_point deadline) noexcept;
    /// Address of a step that the memory's heap has; null if it has none. Any thread.
    const void* sample(memory::MemoryIndex memory) const noexcept { return memories_[memory].sample.load(); }
    /// Devices have finished work. Any thread; costs one load while no step is leaving.
    void device_advanced() {
        if (num_leaving_.load(std::memory_order_seq_cst) != 0) push({Wish::look});
    }

    struct Figures {
        double pinning_seconds = 0;  ///< spent in touching and page-locking
        std::size_t pinned_bytes = 0;
        std::size_t bounce_bytes = 0;           ///< in `pinned_bytes`, outside the budget
        std::uint64_t steps = 0;                ///< taken so far, of all memories
        std::uint64_t mappings = 0;             ///< pieces of device memory mapped or unmapped so far
        std::vector<std::size_t> device_bytes;  ///< by device: taken from the driver, offered to the heap or not
    };
    Figures figures() const;
    /// Figures::device_bytes of one device.
    std::size_t taken_bytes(std::uint32_t device) const {
        const locks::Guard guard(mutex_);
        return figures_.device_bytes[device];
    }

  private:
    using Clock = std::chrono::steady_clock;
    /// Priority among waiting services: the longest wait first.
    struct Turn {
        Clock::time_point since = Clock::time_point::min();
        std::uint64_t service = 0;
        friend auto operator<=>(const Turn&, const Turn&) = default;
    };
    /// A request to give memory back, from a thread or another service.
    struct Asked {
        std::atomic<bool> waits{true};    ///< the requester still waits
        std::atomic<bool> pending{true};  ///< not answered yet
        bool at_once = false;
        bool choosing = false;  ///< more steps may be chosen
        std::size_t wanted_bytes = 0;
        std::size_t given_bytes = 0;             ///< freed so far; of the service that is asked
        std::size_t leaving_bytes = 0;           ///< likewise
        std::atomic<std::size_t> told_bytes{0};  ///< of `given_bytes`: what the driver has again
        std::promise<std::size_t> given;         ///< the answer to a thread
        // If a service asks:
        std::uint64_t service = 0;
        Turn turn;
    };
    enum class Wish : std::uint8_t { grow, exchange, trim, await, reclaim, bounce, look };
    struct Request {
        Wish wish = Wish::grow;
        memory::MemoryIndex memory{};
        std::size_t bytes = 0;
        std::promise<void>* done = nullptr;  ///< of a wish to trim
        bool patient = true;                 ///< of a wish to await
        std::size_t least_bytes = 0;         ///< of a wish to await
        std::shared_ptr<Asked> asked{};      ///< of a wish to reclaim
    };
    struct Awaited {
        memory::Lacking lacking;
        Turn turn;
        Clock::time_point until;
        std::chrono::milliseconds pause{1};
        Clock::time_point next;                ///< attempt
        std::size_t least_held_by_others = 0;  ///< seen so far
        bool others_held = false;              ///< any, since it is awaited
        int times_alone = 0;                   ///< refusals with no allocation in transit
        std::shared_ptr<Asked> asked;          ///< the latest request to a neighbour
        std::size_t next_neighbour = 0;
    };
    struct Step {
        void* address = nullptr;
        std::size_t bytes = 0;            ///< offered to the heap
        rmm::detail::pinned_block block;  ///< of the host
        bool plain = false;               ///< of a device: an allocation of the driver, where its resource had nothing
        bool sealed = true;               ///< see memory::Space::grown
    };
    /// The sizes of a memory's steps.
    struct StepRule {
        std::size_t piece_bytes;  ///< granularity
        std::size_t block_bytes;  ///< of each step; 0: `by_request`, or they double between the bounds
        std::size_t smallest_bytes, largest_bytes;
        bool by_request;  ///< a step is as large as the request
    };
    struct Memory {
        graph::Vector<Step> steps;
        std::size_t offered_bytes = 0;
        StepRule rule{};
        std::unique_ptr<DeviceMemory> device;  ///< where steps come from; null: they are page-locked memory
        std::optional<Awaited> awaited;
        bool refused = false;  ///< the driver gave nothing when it was asked last
        std::atomic<const void*> sample{nullptr};
    };

    void push(Request request);
    void run();
    bool next_request(Request* out);
    void serve(Request& request);
    void refuse(Request& request) noexcept;
    void grow_now(memory::MemoryIndex m, std::size_t bytes);
    void exchange_now(memory::MemoryIndex m, std::size_t bytes);
    void trim_now();
    void give_bounce_now(std::size_t bytes);
    void post_bounce();
    // sharing
    void meet_neighbours();
    void leave_neighbours() noexcept;
    void ask_a_neighbour(memory::MemoryIndex m);
    static void wake(std::uint64_t service);
    void await_now(memory::MemoryIndex m, const memory::Lacking& lacking, bool patient);
    void try_awaited();
    void end_awaited(memory::MemoryIndex m, const Step& step);
    void reclaim_for(memory::MemoryIndex m, const std::shared_ptr<Asked>& asked);
    bool let_go(memory::MemoryIndex m, const std::shared_ptr<Asked>& asked);
    void give_what_has_left();
    void answer(Asked& asked);
    graph::Vector<Request> pending_growth(memory::MemoryIndex m);
    std::size_t held_by_others(memory::MemoryIndex m) noexcept;
    void note_sample(memory::MemoryIndex m) noexcept;
    std::size_t in_pieces(memory::MemoryIndex m, std::size_t bytes, std::size_t left) const noexcept;
    std::size_t left_bytes(memory::MemoryIndex m) const noexcept {
        return limits_[m] - std::min(limits_[m], memories_[m].offered_bytes);
    }
    std::size_t step_bytes(memory::MemoryIndex m, std::size_t needed, std::size_t left) const;
    bool take(memory::MemoryIndex m, std::size_t bytes, Step* out);
    bool take_anywhere(memory::MemoryIndex m, std::size_t bytes, Step* out);
    void give_back(memory::MemoryIndex m, const Step& step);
    graph::Vector<Step> take_back_free(memory::MemoryIndex m);
    void offer(memory::MemoryIndex m, const Step& step, engine::Message::What what);
    void count();

    driver::Driver& driver_;
    engine::Lanes& lanes_;
    std::vector<int> ordinals_;
    memory::PerMemory<std::size_t> limits_;
    const RuntimeConfig& config_;
    const void* runtime_;
    engine::Mailbox& mailbox_;
    memory::PerMemory<Memory> memories_;
    Figures current_;  // used by the thread only
    Step bounce_;      // used by the thread only
    engine::Lanes::Scratch scratch_;
    /// A step that left the heap, freed when its last users have passed.
    struct Leaving {
        Step step;
        memory::MemoryIndex memory{};
        graph::FenceSet users;
        std::shared_ptr<Asked> asked;
    };
    graph::Vector<Leaving> leaving_;
    std::atomic<std::size_t> num_leaving_{0};
    const std::uint64_t number_;  // of this service, among all

    mutable locks::Mutex mutex_;
    locks::Condition wake_;
    graph::Deque<Request> requests_ KMM_GUARDED_BY(mutex_);
    Figures figures_ KMM_GUARDED_BY(mutex_);
    bool stop_ KMM_GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

}  // namespace kmm::supply
