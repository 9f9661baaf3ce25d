// Implements parallel_copy.hpp.
//
// The parts of a copy are claimed by adding one to a ticket, which also says which copy it is of. What the copy is made
// of may be read too late; the claim then fails, as the ticket is of another copy.
#include "rmm/parallel_copy.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

constexpr std::size_t part_bytes = std::size_t{32} << 10;
// Of a copy of less the threads' part is not worth their waking up.
constexpr std::size_t least_bytes = 4 * part_bytes;
constexpr unsigned num_helpers = 2;
// The next piece of a longer copy comes within some microseconds.
constexpr auto awake_for = std::chrono::microseconds(50);

class copier {
  public:
    void copy(void* to, const void* from, std::size_t bytes) {
        kmm::locks::Lock mine(busy_, std::defer_lock);
        if (!mine.try_lock() || !has_helpers()) {
            std::memcpy(to, from, bytes);
            return;
        }
        const auto num_parts = static_cast<std::uint32_t>((bytes + part_bytes - 1) / part_bytes);
        const std::uint64_t copy_number = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
        ticket_.store(copy_number << 32 | closed);
        to_.store(static_cast<std::byte*>(to));
        from_.store(static_cast<const std::byte*>(from));
        bytes_.store(bytes);
        num_finished_.store(0);
        ticket_.store((copy_number + 1) << 32);
        ticket_.notify_all();
        while (copy_one()) {}
        while (num_finished_.load(std::memory_order_acquire) != num_parts) std::this_thread::yield();
    }

  private:
    static constexpr std::uint32_t closed = ~std::uint32_t{0};

    /// False where there is no part left.
    bool copy_one() noexcept {
        std::uint64_t ticket = ticket_.load();
        for (;;) {
            std::byte* const to = to_.load();
            const std::byte* const from = from_.load();
            const std::size_t bytes = bytes_.load();
            const std::size_t offset = static_cast<std::uint32_t>(ticket) * part_bytes;
            if (offset >= bytes) return false;
            if (!ticket_.compare_exchange_weak(ticket, ticket + 1)) continue;
            std::memcpy(to + offset, from + offset, std::min(part_bytes, bytes - offset));
            num_finished_.fetch_add(1, std::memory_order_release);
            return true;
        }
    }

    /// The threads live as long as the process.
    bool has_helpers() noexcept KMM_REQUIRES(busy_) {
        if (num_started_ == 0 && !has_failed_) {
            const unsigned wanted = std::min(num_helpers, std::max(1u, std::thread::hardware_concurrency()) - 1);
            try {
                for (; num_started_ < wanted; ++num_started_) std::thread([this] { help(); }).detach();
            } catch (const std::exception&) {
                // The system gives no more threads.
            }
            has_failed_ = num_started_ == 0;
        }
        return num_started_ > 0;
    }

    [[noreturn]] void help() noexcept {
        for (;;) {
            const std::uint64_t before = ticket_.load();
            while (copy_one()) {}
            const auto until = std::chrono::steady_clock::now() + awake_for;
            while (ticket_.load(std::memory_order_relaxed) >> 32 == before >> 32 &&
                   std::chrono::steady_clock::now() < until)
                std::this_thread::yield();
            const std::uint64_t now = ticket_.load();
            if (now >> 32 == before >> 32) ticket_.wait(now);
        }
    }

    kmm::locks::Mutex busy_;
    unsigned num_started_ KMM_GUARDED_BY(busy_) = 0;
    bool has_failed_ KMM_GUARDED_BY(busy_) = false;
    std::atomic<std::uint64_t> ticket_{closed};
    std::atomic<std::byte*> to_{nullptr};
    std::atomic<const std::byte*> from_{nullptr};
    std::atomic<std::size_t> bytes_{0};
    std::atomic<std::uint32_t> num_finished_{0};
};

}  // namespace

void copy_in_parallel(void* to, const void* from, std::size_t bytes) {
    if (bytes < least_bytes) {
        std::memcpy(to, from, bytes);
        return;
    }
    ::kmm::driver::never_destroyed<copier>().copy(to, from, bytes);
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
