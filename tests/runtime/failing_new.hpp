// A host without memory, as tests ask for it: any allocation of the process can be made to fail. failing_new.cpp
// replaces operator new.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>

#include "harness.hpp"
#include "kmm/graph/host_reserve.hpp"

/// Of the allocations of the process: the one after `allocations_left` more fails, and as many behind it as
/// `failures_left` says.
extern std::atomic<long> allocations_left;
extern std::atomic<long> failures_left;
extern std::atomic<long> failed_so_far;
extern std::atomic<void (*)()> at_first_failure;
/// Likewise of those that not even the whole reserve could serve.
extern std::atomic<long> large_left;
extern std::atomic<long> large_failed;
/// In the middle of what a thread does: called by its allocation after so many more.
extern thread_local long calls_until;
extern thread_local void (*in_the_middle)();
extern thread_local bool is_spared;  ///< its own allocations are served
/// Blocks of a megabyte and more, but for those of the reserve, which is the process's.
extern std::atomic<long> large_blocks;

void fail_after(long allocations, long failures);
void fail_no_more();
void fail_large_after(long allocations);

namespace {

constexpr std::int64_t n = 256;
constexpr std::int64_t chunks = 4;
constexpr std::int64_t size = n * chunks;

__global__ void add_one(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] += 1;
}

__global__ void store_index(kmm::Range<std::int64_t> range, kmm::GPUSubviewMut<std::int64_t> x) {
    const std::int64_t i = range.begin + std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < range.end) x[i] = i;
}

inline RuntimeConfig tight_config() {
    RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.virtual_devices = 2;
    config.virtual_device_memory = std::size_t{64} << 20;
    config.device_memory_limit = 2 * n * sizeof(std::int64_t) + 256;  // two chunks: the others are written down
    config.host_threads = 2;
    config.device_concurrent_streams = 2;
    config.watchdog = 20;
    return config;
}

struct Outcome {
    bool whole = true;  ///< nothing was thrown
    std::vector<std::int64_t> values;
};

/// Submits of every kind, dependencies, evictions, copies, an array that goes while it is used. Whatever is thrown must
/// be one of the library's errors, or std::bad_alloc.
#if defined(__SANITIZE_THREAD__)
// The host driver's fibers, which show ThreadSanitizer what runs beside what, are memory that no driver without it
// needs.
#define SKIP_WHERE_RACES_ARE_TRACKED() GTEST_SKIP() << "the tracking of races allocates too"
#else
#define SKIP_WHERE_RACES_ARE_TRACKED() static_cast<void>(0)
#endif

inline Outcome run_program(const RuntimeHandle& rt) {
    Outcome outcome;
    const auto attempt = [&](auto&& f) {
        try {
            f();
        } catch (const kmm::Error&) {
            outcome.whole = false;
        } catch (const std::bad_alloc&) {
            outcome.whole = false;
        }
    };
    attempt([&] {
        auto x = rt.array<std::int64_t>(Dim<1>(size), Dim<1>(n));
        auto y = rt.array<std::int64_t>(Dim<1>(size), Dim<1>(n));
        const auto tiles = [] { return TileDomain(Dim<1>(size), Dim<1>(n)); };
        attempt([&] {
            rt.parallel_submit(tiles(), GPU([](kmm::DeviceResource& device, kmm::Range<std::int64_t> r, auto v) {
                                   device.launch(dim3(4), dim3(64), 0, store_index, r, v);
                               }),
                               _x, overwrite(x[_x]));
        });
        attempt([&] { rt.parallel_submit(tiles(), GPUKernel(add_one, dim3(64)), _x, write(x[_x])); });
        attempt([&] {
            rt.parallel_submit(
                tiles(),
                Host([](kmm::Range<std::int64_t> r, kmm::Subview<std::int64_t> from, kmm::SubviewMut<std::int64_t> to) {
                    for (std::int64_t i = r.begin; i < r.end; i++) to[i] = 2 * from[i];
                }).named("double"),
                _x, x[_x], overwrite(y[_x]));
        });
        attempt([&] { rt.parallel_submit(tiles(), GPUKernel(add_one, dim3(64)), _x, write(y[_x])); });
        attempt([&] {
            auto gone = rt.allocate(counting<std::int64_t>(n));
            rt.submit(host(), Host([](kmm::ViewMut<std::int64_t> v) { v[0] = 1; }), write(gone));
        });
        attempt([&] { rt.synchronize(); });
        attempt([&] { outcome.values = y.copy_to_vector(); });
    });
    return outcome;
}

/// Calls `f` with the number of the first allocation to fail: 0, `step`, 2 `step`, .., until it was not reached.
template<typename F>
void from_whichever_allocation_on(long step, F&& f) {
    for (long at = 0;; at += step) {
        ASSERT_LT(at, 20000);
        SCOPED_TRACE("from allocation " + std::to_string(at));
        f(at);
        if (failed_so_far == 0 || ::testing::Test::HasFailure()) return;
    }
}

/// Nothing of what was before stands in the way. What failed and was not asked for is told once.
inline void expect_usable(const RuntimeHandle& rt) {
    try {
        rt.synchronize();
    } catch (const kmm::Error&) {}
    const Outcome again = run_program(rt);
    EXPECT_TRUE(again.whole);
    ASSERT_EQ(again.values.size(), static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; i++) ASSERT_EQ(again.values[static_cast<std::size_t>(i)], 2 * (i + 1) + 1);
}

/// All of the reserve, for a scope in which the system gives nothing either. It may be in many pieces.
class TakesReserve {
  public:
    TakesReserve() {
        for (std::size_t bytes = kmm::graph::HostReserve::size_bytes; bytes >= smallest_block; bytes /= 2) {
            try {
                for (;;) first_ = new (kmm::graph::HostReserve::allocate(bytes)) Piece{first_, bytes};
            } catch (const std::bad_alloc&) {
                // None of this size is left.
            }
        }
    }
    ~TakesReserve() {
        while (first_ != nullptr) {
            const Piece piece = *first_;
            kmm::graph::HostReserve::release(first_, piece.bytes);
            first_ = piece.next;
        }
    }
    TakesReserve(const TakesReserve&) = delete;
    TakesReserve& operator=(const TakesReserve&) = delete;

  private:
    static constexpr std::size_t smallest_block = 32;
    struct Piece {
        Piece* next;
        std::size_t bytes;
    };
    Piece* first_ = nullptr;
};

}  // namespace
