// Implements the part of engine.hpp that reports the holders of memory, and handles a shortage of memory and its
// error text.
//
// Must not know: how blocks are found. Any thread; no other holder is called with a lock held.
#include <algorithm>
#include <exception>
#include <string>
#include <unordered_map>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "rmm/aligned.hpp"
#include "rmm/class_names.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/detail/format.hpp"
#include "rmm/pool/engine.hpp"
#include "rmm/reclaim.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

using rmm::detail::format_bytes;
using kmm::driver::byte_size_text;
using rmm::detail::format_size;

constexpr std::size_t no_maximum = ~std::size_t{0};
// Holders that an error names; the others are summed up.
constexpr std::size_t max_named = 5;

struct named_bytes {
    std::string name;
    std::size_t bytes = 0;
    std::size_t num_blocks = 0;
};

/// "A 1.00 GiB   B 2.00 MiB   3 others 1.00 KiB", the largest first.
std::string largest_first(std::vector<named_bytes> all) {
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    std::string text;
    std::size_t rest = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (i >= max_named) {
            rest += all[i].bytes;
            continue;
        }
        if (i != 0) text += "   ";
        text += driver::format("{} {}", all[i].name, byte_size_text(all[i].bytes));
        if (all[i].num_blocks != 0) text += driver::format(" in {}", all[i].num_blocks);
    }
    if (all.size() > max_named) text += driver::format("   {} others {}", all.size() - max_named, byte_size_text(rest));
    return text;
}

/// Memory of the device in the rest of the process.
struct neighbours {
    std::size_t from_driver_bytes = 0;  // of all resources together
    std::string idle_name;              // the other holder with the most unused memory
    std::size_t idle_bytes = 0;
    std::vector<std::string> lines;
};

neighbours ask_neighbours(int device, const rmm::detail::memory_holder& self) {
    neighbours n;
    rmm::detail::for_each_holder(device, [&](rmm::detail::memory_holder& h) {
        if (std::string line = h.line_for_shortage(); !line.empty()) n.lines.push_back(std::move(line));
        const rmm::detail::holder_figures f = h.figures();
        if (f.takes_from_driver) n.from_driver_bytes += f.held_bytes;
        const std::size_t idle = f.held_bytes - std::min(f.in_use_bytes, f.held_bytes);
        if (&h == &self || idle <= n.idle_bytes) return;
        n.idle_name = f.name;
        n.idle_bytes = idle;
    });
    return n;
}

}  // namespace

// ---- as a holder of memory

/// Changes nothing in the pool, unlike `statistics`: frequent calls must not cost streams the spans of their arenas.
rmm::detail::holder_figures pool_engine::figures() {
    rmm::detail::holder_figures f;
    const lock held(mutex_);
    f.name = name_in_texts();
    f.kind = rmm::detail::with_class_names(options_.name);
    f.held_bytes = held_bytes();
    f.peak_bytes = std::max(peak_held_bytes_, f.held_bytes);
    f.maximum_bytes = options_.maximum_bytes == no_maximum ? 0 : options_.maximum_bytes;
    f.takes_from_driver = traits_.is_virtual;
    f.in_use_bytes = large_bytes_;
    f.num_blocks = large_.size();
    f.largest_free_bytes = std::max(heaps_[0].largest_free_bytes(), heaps_[1].largest_free_bytes());
    for (const auto& a : arenas_) {
        const kmm::locks::Guard in(a->mutex);
        f.in_use_bytes += a->heap.live_bytes();
        f.num_blocks += a->heap.num_live();
        f.largest_free_bytes = std::max(f.largest_free_bytes, a->heap.largest_free_bytes());
        if (!a->stock.empty()) f.largest_free_bytes = std::max(f.largest_free_bytes, options_.block_bytes);
    }
    if (has_stocks_) {
        const std::size_t num_out = num_blocks_out();
        f.in_use_bytes += num_out * options_.block_bytes;
        f.num_blocks += num_out;
    }
    return f;
}

void pool_engine::add_by_tag(rmm::detail::tag_sums* sums) {
    const lock held(mutex_);
    large_.for_each([&](std::uintptr_t, const large_block& b) { add_to(sums, b.tag, b.size_bytes); });
    blocks_.for_each_in_use([&](const stocked_block& b) { add_to(sums, b.tag, options_.block_bytes); });
    for (const auto& a : arenas_) {
        const kmm::locks::Guard in(a->mutex);
        a->heap.for_each_live(
            [&](std::uintptr_t, std::size_t bytes, rmm::detail::tag_number tag) { add_to(sums, tag, bytes); });
    }
}

void pool_engine::add_blocks(std::vector<rmm::detail::held_block>* blocks) {
    const lock held(mutex_);
    large_.for_each(
        [&](std::uintptr_t address, const large_block& b) { blocks->push_back({address, b.size_bytes, b.tag}); });
    blocks_.for_each_in_use(
        [&](const stocked_block& b) { blocks->push_back({b.address, options_.block_bytes, b.tag}); });
    for (const auto& a : arenas_) {
        const kmm::locks::Guard in(a->mutex);
        a->heap.for_each_live([&](std::uintptr_t address, std::size_t bytes, rmm::detail::tag_number tag) {
            blocks->push_back({address, bytes, tag});
        });
    }
}

std::size_t pool_engine::give_back(std::size_t bytes) noexcept {
    // A pool that does not grow could never take the memory again.
    if (!options_.on_device || !options_.grows) return 0;
    try {
        lock held(mutex_);
        // The thread that grows the pool may be waiting for memory that the caller holds.
        if (growing_) return 0;
        return trim(held, held_bytes() - std::min(bytes, held_bytes()));
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("a pool could not give memory back: ", e.what());
    }
    return 0;
}

bool pool_engine::gave(const void* memory) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const lock held(mutex_);
    if (blocks_.is_in_use(address)) return true;
    return large_.find(address) != nullptr || directory_.find(address) != nullptr;
}

std::size_t pool_engine::in_use_bytes(const char* tag) {
    const rmm::detail::tag_number number = rmm::detail::find_tag(tag);
    const bool named = tag != nullptr && *tag != 0;
    if (named && number == rmm::detail::untagged) return 0;
    rmm::detail::tag_sums sums;
    add_by_tag(&sums);
    return number < sums.size() ? sums[number].bytes : 0;
}

std::vector<std::pair<cudaStream_t, std::size_t>> pool_engine::in_use_by_stream() {
    std::unordered_map<cudaStream_t, std::size_t> sums;
    {
        const lock held(mutex_);
        large_.for_each([&](std::uintptr_t, const large_block& b) { sums[b.stream] += b.size_bytes; });
        blocks_.for_each_in_use([&](const stocked_block& b) { sums[b.stream] += options_.block_bytes; });
        for (const auto& a : arenas_) {
            const kmm::locks::Guard in(a->mutex);
            const cudaStream_t who = a.get() == common_ ? arena::shared_streams() : a->handle.load();
            if (a->heap.live_bytes() != 0) sums[who] += a->heap.live_bytes();
        }
    }
    return {sums.begin(), sums.end()};
}

// ---- short of memory

namespace {

std::string name_of_stream(cudaStream_t handle) {
    if (handle == arena::no_stream()) return "(ended)";
    if (handle == arena::shared_streams()) return "(streams that share memory)";
    return rmm::detail::short_stream_name(cuda_stream_view{handle});
}

}  // namespace

void* pool_engine::allocate_short_of_memory(std::size_t bytes, cuda_stream_view stream, refusal* why) {
    // What is freed while a stream is captured could not be ordered before the capture.
    if (why->why == refusal::cause::exhausted && capture_of(stream) == 0) {
        rmm::detail::reclaim_rounds others(device_, size_of(bytes), stream, this);
        while (others.ask(why->device_is_full && options_.on_device)) {
            *why = {};
            if (void* const ptr = try_allocate(bytes, stream, why)) return ptr;
            if (why->why != refusal::cause::exhausted) break;
        }
    }
    throw_refusal(bytes, *why, stream);
}

namespace {

void add_advice(std::string* to, const std::string& what) { *to += (to->empty() ? "" : "; ") + what; }

}  // namespace

void refusal::meet_maximum(std::size_t held, std::size_t maximum, std::size_t size) {
    why = cause::exhausted;
    reason = driver::format("Not enough room to grow, current/max/try size = {}, {}, {}", format_bytes(held),
                            format_bytes(maximum), format_bytes(size));
}

std::string pool_engine::name_in_texts() const {
    return name_.empty() ? rmm::detail::with_class_names(options_.name) : name_;
}

void pool_engine::throw_too_large(std::size_t bytes) {
    memory_shortage shortage;
    shortage.requested_bytes = bytes;
    shortage.limit = memory_limit::maximum;
    std::string text = driver::format("Maximum allocation size exceeded (failed to allocate {})", format_bytes(bytes));
    if (options_.block_bytes != 0) {
        const lock held(mutex_);
        text += driver::format(": pool \"{}\" was asked for {}, and its blocks have {}\n"
                               "  try         a larger block size, or a {} for requests of many sizes",
                               name_in_texts(), format_size(bytes), format_size(options_.block_bytes),
                               rmm::detail::with_class_names("binning_memory_resource"));
    }
    throw rmm::out_of_memory(text, shortage);
}

void pool_engine::throw_refusal(std::size_t bytes, const refusal& why, cuda_stream_view stream) {
    if (why.why == refusal::cause::driver)
        rmm::detail::throw_allocation_failure(why.status, bytes,
                                              "a pool, making a stream wait for the last users of a block,");
    if (why.why == refusal::cause::too_large) throw_too_large(bytes);
    memory_shortage shortage;
    shortage.requested_bytes = bytes;
    shortage.limit = memory_limit::maximum;
    const pool_statistics s = statistics();
    if (why.device_is_full) shortage.limit = memory_limit::device;
    if (!options_.on_device) shortage.limit = memory_limit::unknown;
    shortage.pool_bytes = s.held_bytes;
    shortage.pool_in_use_bytes = s.in_use_bytes;
    shortage.pool_free_bytes = s.free_bytes;
    shortage.pool_largest_free_bytes = s.largest_free_bytes;
    shortage.pool_maximum_bytes = s.maximum_bytes;
    shortage.pool_num_blocks = s.num_blocks;
    std::string name;
    {
        const lock held(mutex_);
        name = name_in_texts();
    }
    const bool at_maximum = s.maximum_bytes != 0 && !why.device_is_full;
    std::string text =
        driver::format("Maximum pool size exceeded (failed to allocate {}): {}", format_bytes(bytes), why.reason);
    text += driver::format("\nout of memory on {}: pool \"{}\" was asked for {}{} on {}",
                           rmm::detail::device_name(device_), name, format_size(bytes),
                           options_.block_bytes == 0
                               ? ""
                               : driver::format(", which takes a block of {},", format_size(options_.block_bytes)),
                           rmm::detail::stream_name(stream));
    if (s.maximum_bytes == 0)
        text += " and has no maximum";
    else
        text +=
            (at_maximum ? " and is at its maximum of " : " and may hold at most ") + byte_size_text(s.maximum_bytes);
    // A pool that asks for this one has figures of its own, and may only be trying how much it can get.
    if (rmm::detail::tag_of_thread == rmm::detail::of_a_pool) throw rmm::out_of_memory(text, shortage);

    text += shortage_details(bytes, s, at_maximum, &shortage);
    throw rmm::out_of_memory(text, shortage);
}

std::string pool_engine::shortage_details(std::size_t bytes, const pool_statistics& s, bool at_maximum,
                                          memory_shortage* shortage) {
    const neighbours others = ask_neighbours(device_, *this);
    const bool device_known = rmm::detail::describe_device_memory(device_, shortage);
    const std::size_t taken = shortage->device_total_bytes - shortage->device_free_bytes;
    if (options_.on_device)
        shortage->other_pools_bytes = others.from_driver_bytes - std::min(others.from_driver_bytes, s.held_bytes);
    if (device_known) shortage->elsewhere_bytes = taken - std::min(taken, others.from_driver_bytes);

    std::string text = driver::format("\n  {}   ", rmm::detail::short_device_name(device_));
    if (device_known) text += driver::format("total {}   ", byte_size_text(shortage->device_total_bytes));
    text += driver::format("this pool {} (in use {} in {} blocks, free {}, largest free piece {})   other pools {}",
                           byte_size_text(s.held_bytes), format_size(s.in_use_bytes), s.num_blocks,
                           format_size(s.free_bytes), format_size(s.largest_free_bytes),
                           byte_size_text(shortage->other_pools_bytes));
    if (device_known)
        text += driver::format("   other processes and driver {}   free {}", byte_size_text(shortage->elsewhere_bytes),
                               byte_size_text(shortage->device_free_bytes));
    else
        text += "   the driver cannot say how much memory is free";

    if (s.num_blocks != 0) {
        rmm::detail::tag_sums sums;
        add_by_tag(&sums);
        std::vector<named_bytes> tags;
        for (std::size_t i = 0; i < sums.size(); ++i) {
            const auto tag = static_cast<rmm::detail::tag_number>(i);
            if (sums[i].num_blocks == 0) continue;
            tags.push_back({rmm::detail::name_of_tag(tag), sums[i].bytes, sums[i].num_blocks});
            if (tag <= rmm::detail::of_a_pool || sums[i].bytes <= shortage->largest_tag_bytes) continue;
            shortage->largest_tag = rmm::detail::name_of_tag(tag);
            shortage->largest_tag_bytes = sums[i].bytes;
        }
        std::vector<named_bytes> streams;
        for (const auto& [handle, in_use] : in_use_by_stream()) streams.push_back({name_of_stream(handle), in_use, 0});
        text += driver::format("\n  holders     by tag: {} blocks      by stream: {}", largest_first(std::move(tags)),
                               largest_first(std::move(streams)));
    }
    for (const std::string& line : others.lines) text += "\n  runtimes    " + line;
    return driver::format("{}\n  try         {}", text,
                          advice(bytes, s, at_maximum, *shortage, others.idle_name, others.idle_bytes));
}

/// Only what would help.
std::string pool_engine::advice(std::size_t bytes, const pool_statistics& s, bool at_maximum,
                                const memory_shortage& shortage, const std::string& idle_name,
                                std::size_t idle_bytes) const {
    std::string text;
    const bool device_known = shortage.device_total_bytes != 0;
    if (s.free_bytes >= bytes && !traits_.is_virtual)
        add_advice(&text,
                   driver::format("{}, or one initial block instead of growth: enough is free but in pieces ({})",
                                  driver_.capabilities().virtual_memory && options_.on_device
                                      ? rmm::detail::with_class_names("a vmm_memory_resource")
                                      : "a larger pool",
                                  byte_size_text(s.free_bytes)));
    if (at_maximum && (!device_known || !options_.on_device || shortage.device_free_bytes >= bytes))
        add_advice(&text, "a larger maximum" + (device_known && options_.on_device
                                                    ? driver::format(" ({} are free on the device)",
                                                                     byte_size_text(shortage.device_free_bytes))
                                                    : std::string()));
    // Idle memory remains here if it was not in whole blocks, or if this allocation could not reclaim.
    if (shortage.limit == memory_limit::device && idle_bytes >= bytes)
        add_advice(&text, driver::format("trimming pool \"{}\", or one pool for both: it holds {} that nobody uses",
                                         idle_name, byte_size_text(idle_bytes)));
    if (shortage.limit == memory_limit::device && shortage.elsewhere_bytes >= bytes &&
        shortage.elsewhere_bytes >= shortage.device_total_bytes / 4)
        add_advice(&text, driver::format("ending other processes: {} are held outside this library",
                                         byte_size_text(shortage.elsewhere_bytes)));
    if (s.in_use_bytes + s.free_bytes >= bytes && s.in_use_bytes != 0)
        add_advice(&text, "freeing blocks" +
                              (shortage.largest_tag != nullptr
                                   ? driver::format(" (most named ones are of \"{}\", {})", shortage.largest_tag,
                                                    byte_size_text(shortage.largest_tag_bytes))
                                   : std::string()));
    if (text.empty())
        text = shortage.limit == memory_limit::device && device_known && bytes > shortage.device_total_bytes
                   ? "smaller requests: the whole device has less"
                   : "smaller requests, or a device with more memory";
    return text;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
