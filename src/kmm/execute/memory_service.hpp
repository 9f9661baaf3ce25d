// The thread that gets memory from the driver for the heaps: pinned segments for the host, mapped ranges for devices.
//
// Owns: everything that was taken. Mapping and pinning are slow (milliseconds), so that they run here and never on the
// planner. Grows in steps that double, so that small programs stay small and large ones are not slowed down.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "driver/driver.hpp"
#include "kmm/execute/messages.hpp"

namespace kmm::execute {

class MemoryService {
  public:
    /// Limits by memory: 0 the host, 1 + d device d. `virtual_memory`: device memory is one address range per device that
    /// grows by mapping; else one driver allocation for each step.
    MemoryService(driver::Driver& driver, std::vector<int> ordinals, std::vector<std::size_t> limits_bytes,
                  bool virtual_memory, const void* runtime, Reports& reports);
    ~MemoryService();

    /// Gives back what is free: pinned segments, and of each device's range the end. Blocks until it is done, which takes
    /// milliseconds for each gigabyte. Any thread but the planner.
    void trim();
    /// Answered by Message::grown, with 0 bytes if the driver refuses.
    void grow(memory::MemoryIndex memory, std::size_t at_least_bytes);

    struct Figures {
        double pinning_seconds = 0;  ///< spent in touching and page-locking
        std::size_t pinned_bytes = 0;
        std::size_t mapped_bytes = 0;
        std::uint64_t mappings = 0;
        std::vector<std::size_t> device_bytes;  ///< by device: taken from the driver, offered to the heap or not
    };
    Figures figures() const;

  private:
    struct Request {
        memory::MemoryIndex memory = 0;
        std::size_t bytes = 0;
        std::promise<void>* trimmed = nullptr;  ///< set: a request to trim
    };
    struct Segment {
        void* address = nullptr;
        std::size_t offered_bytes = 0;
        std::size_t pinned_bytes = 0;
        void* reservation = nullptr;
        std::size_t reserved_bytes = 0;
    };
    struct Piece {
        driver::PhysicalHandle handle;
        void* address = nullptr;
        std::size_t bytes = 0;
    };
    struct Allocation {
        void* address = nullptr;
        std::size_t offered_bytes = 0;
    };
    struct Range {
        std::byte* base = nullptr;
        std::size_t reserved_bytes = 0;
        std::size_t mapped_bytes = 0;   ///< from the base
        std::size_t offered_bytes = 0;  ///< from the base; never more than is mapped
        std::size_t granularity = 0;
        std::vector<Piece> pieces;
        std::vector<Allocation> allocations;  ///< without virtual memory, or where mapping was refused
        std::size_t allocated_bytes = 0;
    };

    void run();
    void grow_host(std::size_t bytes);
    void grow_device(std::uint32_t device, std::size_t bytes);
    void trim_all();
    void trim_device(std::uint32_t device);
    bool map_more(std::uint32_t device, Range& range, std::size_t bytes);
    void touch(std::byte* address, std::size_t bytes);
    void answer(memory::MemoryIndex memory, const void* address, std::size_t bytes);

    driver::Driver& driver_;
    std::vector<int> ordinals_;
    std::vector<std::size_t> limits_;
    bool virtual_memory_;
    const void* runtime_;
    Reports& reports_;
    std::vector<Segment> segments_;
    std::size_t host_bytes_ = 0;
    std::vector<Range> ranges_;

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Request> requests_;
    Figures figures_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace kmm::execute
