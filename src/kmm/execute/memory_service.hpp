// The thread that gets memory for the heaps, in steps: page-locked for the host, of an rmm resource for each device.
//
// Owns: everything that was taken. Mapping and pinning are slow (milliseconds), so that they run here and never on the
// planner. Grows in steps that double, so that small programs stay small and large ones are not slowed down.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
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

    struct Figures {
        double pinning_seconds = 0;  ///< spent in touching and page-locking
        std::size_t pinned_bytes = 0;
        std::uint64_t steps = 0;                ///< taken so far, of all memories
        std::uint64_t mappings = 0;             ///< pieces of device memory mapped or unmapped so far
        std::vector<std::size_t> device_bytes;  ///< by device: taken from the driver, offered to the heap or not
    };
    Figures figures() const;

  private:
    enum class Wish : std::uint8_t { grow, exchange, trim };
    struct Request {
        Wish wish = Wish::grow;
        memory::MemoryIndex memory = 0;
        std::size_t bytes = 0;
        std::promise<void>* done = nullptr;  ///< of a wish to trim
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
    };

    void run();
    void grow_now(memory::MemoryIndex m, std::size_t bytes);
    void exchange_now(memory::MemoryIndex m, std::size_t bytes);
    void trim_now();
    std::size_t step_bytes(memory::MemoryIndex m, std::size_t needed, std::size_t left) const;
    bool take(memory::MemoryIndex m, std::size_t bytes, Step* out);
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

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Request> requests_;
    Figures figures_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace kmm::execute
