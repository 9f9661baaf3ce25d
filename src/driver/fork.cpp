// Implements fork.hpp.
#include "driver/fork.hpp"

#include <pthread.h>

namespace kmm::driver {

namespace detail {
constinit std::atomic<bool> lost{false};
}  // namespace detail

namespace {

constinit std::atomic<std::size_t> num_uses{0};

// When the library is loaded: the first use may be on another thread than the fork.
[[maybe_unused]] const int watched = pthread_atfork(nullptr, nullptr, [] {
    if (num_uses.load(std::memory_order_relaxed) != 0) detail::lost.store(true, std::memory_order_relaxed);
});

}  // namespace

LostInFork::LostInFork()
    : std::runtime_error(
          "this process was made by fork() from one that had used the GPU driver, of which nothing works in the child: "
          "start such processes with spawn (posix_spawn, or exec right after the fork; in Python "
          "multiprocessing.set_start_method(\"spawn\")), or fork before the first use of memory, streams or devices") {}

void expect_not_lost() {
    if (lost_in_fork()) [[unlikely]]
        throw LostInFork();
}

DriverUse::DriverUse() noexcept { num_uses.fetch_add(1, std::memory_order_relaxed); }

DriverUse::~DriverUse() {
    if (!kept_) num_uses.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace kmm::driver
