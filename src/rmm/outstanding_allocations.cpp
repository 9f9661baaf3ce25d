// Implements outstanding_allocations.hpp.
#include "rmm/outstanding_allocations.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

using rmm::detail::stack_trace;

allocation_info::allocation_info(std::size_t size, bool capture_stack)
    : strace(capture_stack ? std::make_unique<stack_trace>() : nullptr), allocation_size(size) {}

outstanding_allocations::~outstanding_allocations() {
    for (const shard& s : shards_) s.blocks.for_each([](std::uintptr_t, const record& block) { delete block.trace; });
}

outstanding_allocations::shard& outstanding_allocations::shard_of(const void* ptr) const noexcept {
    // As address_map spreads addresses, but by other bits.
    return shards_[((reinterpret_cast<std::uintptr_t>(ptr) >> 8) * 0x9e3779b97f4a7c15u) >> 60];
}

void outstanding_allocations::add(void* ptr, std::size_t bytes) {
    std::unique_ptr<stack_trace> trace;
    if (capture_stacks_) trace = std::make_unique<stack_trace>();
    std::unique_ptr<stack_trace> replaced;  // goes when the lock is given back
    shard& home = shard_of(ptr);
    const kmm::locks::Guard lock(home.lock);
    replaced.reset(take(home, ptr).trace);
    insert(home, ptr, bytes, std::move(trace));
}

std::optional<std::size_t> outstanding_allocations::remove(void* ptr) noexcept {
    shard& home = shard_of(ptr);
    kmm::locks::Lock lock(home.lock);
    const record removed = take(home, ptr);
    lock.unlock();
    delete removed.trace;
    if (removed.address == 0) return std::nullopt;
    return removed.bytes;
}

void outstanding_allocations::insert(shard& home, void* ptr, std::size_t bytes, std::unique_ptr<stack_trace> trace) {
    if (has_map_) {
        allocation_info info(bytes, false);
        info.strace = std::move(trace);
        const kmm::locks::Guard lock(map_mutex_);
        map_.emplace(ptr, std::move(info));
    } else {
        const auto address = reinterpret_cast<std::uintptr_t>(ptr);
        home.blocks.insert(address, {address, bytes, trace.get()});
        (void)trace.release();
    }
    ++home.num_blocks;
    home.num_bytes += bytes;
}

/// The caller gets the stack.
outstanding_allocations::record outstanding_allocations::take(shard& home, void* ptr) noexcept {
    record taken;
    if (has_map_) {
        const kmm::locks::Guard lock(map_mutex_);
        auto node = map_.extract(ptr);
        if (node.empty()) return taken;
        taken = {reinterpret_cast<std::uintptr_t>(ptr), node.mapped().allocation_size, node.mapped().strace.release()};
    } else {
        const auto found = home.blocks.take(reinterpret_cast<std::uintptr_t>(ptr));
        if (!found) return taken;
        taken = *found;
    }
    --home.num_blocks;
    home.num_bytes -= taken.bytes;
    return taken;
}

std::size_t outstanding_allocations::num_blocks() const noexcept {
    if (rmm::detail::lost_in_fork()) return 0;
    std::size_t sum = 0;
    for (shard& s : shards_) {
        const kmm::locks::Guard lock(s.lock);
        sum += s.num_blocks;
    }
    return sum;
}

std::size_t outstanding_allocations::num_bytes() const noexcept {
    if (rmm::detail::lost_in_fork()) return 0;
    std::size_t sum = 0;
    for (shard& s : shards_) {
        const kmm::locks::Guard lock(s.lock);
        sum += s.num_bytes;
    }
    return sum;
}

// Unchecked, as is what runs in it: clang follows no loop over locks.
template<typename Work>
void outstanding_allocations::with_all_locked(Work work) const KMM_UNCHECKED_LOCKS {
    struct every_shard {
        std::array<shard, num_shards>& shards;
        explicit every_shard(std::array<shard, num_shards>& all) : shards(all) {
            for (shard& s : shards) s.lock.lock();
        }
        ~every_shard() {
            for (shard& s : shards) s.lock.unlock();
        }
    } const held(shards_);
    work();
}

const std::map<void*, allocation_info>& outstanding_allocations::as_map() noexcept {
    if (rmm::detail::lost_in_fork()) return ::kmm::driver::never_destroyed<std::map<void*, allocation_info>>();
    with_all_locked([this]() KMM_UNCHECKED_LOCKS {
        if (has_map_) return;
        try {
            std::map<void*, allocation_info> map;
            for (const shard& s : shards_)
                s.blocks.for_each([&](std::uintptr_t, const record& block) {
                    map.emplace(reinterpret_cast<void*>(block.address), allocation_info(block.bytes, false));
                });
            // From here on nothing throws.
            for (shard& s : shards_) {
                s.blocks.for_each([&](std::uintptr_t, const record& block) {
                    map.find(reinterpret_cast<void*>(block.address))->second.strace.reset(block.trace);
                });
                s.blocks.clear();
            }
            map_.swap(map);
            has_map_ = true;
        } catch (const std::exception& e) {
            rmm::detail::report_misuse("the outstanding allocations could not be listed: ", e.what());
        }
    });
    return map_;
}

std::string outstanding_allocations::text() const {
    rmm::detail::refuse_after_fork();
    struct entry {
        void* ptr;
        std::size_t bytes;
        std::optional<stack_trace> trace;
    };
    std::vector<entry> entries;
    const auto add = [&](void* ptr, std::size_t bytes, const stack_trace* trace) {
        entries.push_back({ptr, bytes, std::nullopt});
        if (trace != nullptr) entries.back().trace = *trace;
    };
    with_all_locked([&]() KMM_UNCHECKED_LOCKS {
        for (const shard& s : shards_)
            s.blocks.for_each([&](std::uintptr_t, const record& block) {
                add(reinterpret_cast<void*>(block.address), block.bytes, block.trace);
            });
        for (const auto& [ptr, info] : map_) add(ptr, info.allocation_size, info.strace.get());
    });
    std::sort(entries.begin(), entries.end(), [](const entry& a, const entry& b) { return a.ptr < b.ptr; });
    std::string text;
    for (const entry& e : entries) {
        text += kmm::driver::format("{}: {} B", rmm::detail::address_text(e.ptr), e.bytes);
        if (e.trace) text += " : callstack:\n" + e.trace->to_string();
        text += '\n';
    }
    return text;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
