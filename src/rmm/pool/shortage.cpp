// Implements shortage.hpp.
#include "rmm/pool/shortage.hpp"

#include <algorithm>
#include <utility>

#include "driver/format.hpp"
#include "rmm/class_names.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/detail/format.hpp"
#include "rmm/pool/arena.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

using rmm::detail::format_bytes;
using kmm::driver::byte_size_text;
using rmm::detail::format_size;

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

std::string name_of_stream(cudaStream_t handle) {
    if (handle == arena::no_stream()) return "(ended)";
    if (handle == arena::shared_streams()) return "(streams that share memory)";
    return rmm::detail::short_stream_name(cuda_stream_view{handle});
}

void add_advice(std::string* to, const std::string& what) { *to += (to->empty() ? "" : "; ") + what; }

}  // namespace

void refusal::meet_maximum(std::size_t held, std::size_t maximum, std::size_t size) {
    why = cause::exhausted;
    reason = driver::format("Not enough room to grow, current/max/try size = {}, {}, {}", format_bytes(held),
                            format_bytes(maximum), format_bytes(size));
}

/// Memory of the device in the rest of the process.
struct shortage::neighbours {
    neighbours(int device, const rmm::detail::memory_holder* self) {
        rmm::detail::for_each_holder(device, [&](rmm::detail::memory_holder& h) {
            if (std::string line = h.line_for_shortage(); !line.empty()) lines.push_back(std::move(line));
            const rmm::detail::holder_figures f = h.figures();
            if (f.takes_from_driver) from_driver_bytes += f.held_bytes;
            const std::size_t idle = f.held_bytes - std::min(f.in_use_bytes, f.held_bytes);
            if (&h == self || idle <= idle_bytes) return;
            idle_name = f.name;
            idle_bytes = idle;
        });
    }
    std::size_t from_driver_bytes = 0;  // of all resources together
    std::string idle_name;              // the other holder with the most unused memory
    std::size_t idle_bytes = 0;
    std::vector<std::string> lines;
};

shortage::shortage(const pool_facts& pool, const pool_account& account, std::size_t bytes,
                   cuda_stream_view stream) noexcept
    : pool_(pool), account_(account), bytes_(bytes), stream_(stream) {
    figures_.requested_bytes = bytes;
    figures_.limit = memory_limit::maximum;
}

void shortage::raise(const refusal& why) {
    if (why.why == refusal::cause::driver)
        rmm::detail::throw_allocation_failure(why.status, bytes_,
                                              "a pool, making a stream wait for the last users of a block,");
    if (why.why == refusal::cause::too_large) raise_too_large();
    raise_exhausted(why);
}

void shortage::raise_too_large() {
    std::string text = driver::format("Maximum allocation size exceeded (failed to allocate {})", format_bytes(bytes_));
    if (const std::size_t block_bytes = pool_.options.block_bytes; block_bytes != 0)
        text += driver::format(": pool \"{}\" was asked for {}, and its blocks have {}\n"
                               "  try         a larger block size, or a {} for requests of many sizes",
                               account_.name, format_size(bytes_), format_size(block_bytes),
                               rmm::detail::with_class_names("binning_memory_resource"));
    throw rmm::out_of_memory(text, figures_);
}

void shortage::raise_exhausted(const refusal& why) {
    const pool_statistics& s = account_.now;
    const std::size_t block_bytes = pool_.options.block_bytes;
    if (why.device_is_full) figures_.limit = memory_limit::device;
    if (!pool_.options.on_device) figures_.limit = memory_limit::unknown;
    figures_.pool_bytes = s.held_bytes;
    figures_.pool_in_use_bytes = s.in_use_bytes;
    figures_.pool_free_bytes = s.free_bytes;
    figures_.pool_largest_free_bytes = s.largest_free_bytes;
    figures_.pool_maximum_bytes = s.maximum_bytes;
    figures_.pool_num_blocks = s.num_blocks;
    const bool at_maximum = s.maximum_bytes != 0 && !why.device_is_full;
    std::string text =
        driver::format("Maximum pool size exceeded (failed to allocate {}): {}", format_bytes(bytes_), why.reason);
    text +=
        driver::format("\nout of memory on {}: pool \"{}\" was asked for {}{} on {}",
                       rmm::detail::device_name(pool_.device), account_.name, format_size(bytes_),
                       block_bytes == 0 ? "" : driver::format(", which takes a block of {},", format_size(block_bytes)),
                       rmm::detail::stream_name(stream_));
    if (s.maximum_bytes == 0)
        text += " and has no maximum";
    else
        text +=
            (at_maximum ? " and is at its maximum of " : " and may hold at most ") + byte_size_text(s.maximum_bytes);
    if (!names_holders()) throw rmm::out_of_memory(text, figures_);

    const neighbours others(pool_.device, account_.self);
    text += device_line(others);
    if (s.num_blocks != 0) text += holders_line();
    for (const std::string& line : others.lines) text += "\n  runtimes    " + line;
    text += "\n  try         " + advice(others, at_maximum);
    throw rmm::out_of_memory(text, figures_);
}

std::string shortage::device_line(const neighbours& others) {
    const pool_statistics& s = account_.now;
    const bool device_known = rmm::detail::describe_device_memory(pool_.device, &figures_);
    const std::size_t taken = figures_.device_total_bytes - figures_.device_free_bytes;
    if (pool_.options.on_device)
        figures_.other_pools_bytes = others.from_driver_bytes - std::min(others.from_driver_bytes, s.held_bytes);
    if (device_known) figures_.elsewhere_bytes = taken - std::min(taken, others.from_driver_bytes);

    std::string text = driver::format("\n  {}   ", rmm::detail::short_device_name(pool_.device));
    if (device_known) text += driver::format("total {}   ", byte_size_text(figures_.device_total_bytes));
    text += driver::format("this pool {} (in use {} in {} blocks, free {}, largest free piece {})   other pools {}",
                           byte_size_text(s.held_bytes), format_size(s.in_use_bytes), s.num_blocks,
                           format_size(s.free_bytes), format_size(s.largest_free_bytes),
                           byte_size_text(figures_.other_pools_bytes));
    if (!device_known) return text + "   the driver cannot say how much memory is free";
    return text + driver::format("   other processes and driver {}   free {}", byte_size_text(figures_.elsewhere_bytes),
                                 byte_size_text(figures_.device_free_bytes));
}

std::string shortage::holders_line() {
    std::vector<named_bytes> tags;
    for (std::size_t i = 0; i < account_.by_tag.size(); ++i) {
        const auto tag = static_cast<rmm::detail::tag_number>(i);
        const rmm::detail::tag_sum& sum = account_.by_tag[i];
        if (sum.num_blocks == 0) continue;
        tags.push_back({rmm::detail::name_of_tag(tag), sum.bytes, sum.num_blocks});
        if (tag <= rmm::detail::of_a_pool || sum.bytes <= figures_.largest_tag_bytes) continue;
        figures_.largest_tag = rmm::detail::name_of_tag(tag);
        figures_.largest_tag_bytes = sum.bytes;
    }
    std::vector<named_bytes> streams;
    for (const auto& [handle, in_use] : account_.by_stream) streams.push_back({name_of_stream(handle), in_use, 0});
    return driver::format("\n  holders     by tag: {} blocks      by stream: {}", largest_first(std::move(tags)),
                          largest_first(std::move(streams)));
}

/// Only what would help.
std::string shortage::advice(const neighbours& others, bool at_maximum) const {
    const pool_statistics& s = account_.now;
    std::string text;
    const bool device_known = figures_.device_total_bytes != 0;
    if (s.free_bytes >= bytes_ && !pool_.traits.is_virtual)
        add_advice(&text,
                   driver::format("{}, or one initial block instead of growth: enough is free but in pieces ({})",
                                  pool_.driver.capabilities().virtual_memory && pool_.options.on_device
                                      ? rmm::detail::with_class_names("a vmm_memory_resource")
                                      : "a larger pool",
                                  byte_size_text(s.free_bytes)));
    if (at_maximum && (!device_known || !pool_.options.on_device || figures_.device_free_bytes >= bytes_))
        add_advice(&text, "a larger maximum" + (device_known && pool_.options.on_device
                                                    ? driver::format(" ({} are free on the device)",
                                                                     byte_size_text(figures_.device_free_bytes))
                                                    : std::string()));
    // Idle memory remains here if it was not in whole blocks, or if this allocation could not reclaim.
    if (figures_.limit == memory_limit::device && others.idle_bytes >= bytes_)
        add_advice(&text, driver::format("trimming pool \"{}\", or one pool for both: it holds {} that nobody uses",
                                         others.idle_name, byte_size_text(others.idle_bytes)));
    if (figures_.limit == memory_limit::device && figures_.elsewhere_bytes >= bytes_ &&
        figures_.elsewhere_bytes >= figures_.device_total_bytes / 4)
        add_advice(&text, driver::format("ending other processes: {} are held outside this library",
                                         byte_size_text(figures_.elsewhere_bytes)));
    if (s.in_use_bytes + s.free_bytes >= bytes_ && s.in_use_bytes != 0)
        add_advice(&text, "freeing blocks" +
                              (figures_.largest_tag != nullptr
                                   ? driver::format(" (most named ones are of \"{}\", {})", figures_.largest_tag,
                                                    byte_size_text(figures_.largest_tag_bytes))
                                   : std::string()));
    if (text.empty())
        text = figures_.limit == memory_limit::device && device_known && bytes_ > figures_.device_total_bytes
                   ? "smaller requests: the whole device has less"
                   : "smaller requests, or a device with more memory";
    return text;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
