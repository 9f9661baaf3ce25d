#include "kmm/runtime/texts/shortage_words.hpp"

#include <algorithm>

#include "driver/byte_size.hpp"
#include "driver/format.hpp"
#include "driver/machine.hpp"
#include "kmm/base/text.hpp"
#include "kmm/memory/tiers.hpp"

namespace kmm::detail {

namespace {

using driver::byte_size_text;

// No machine has so much, and sums of a few such sizes still fit.
constexpr std::size_t most_sensible = std::size_t{1} << 56;

// Before the last line of a text.
constexpr const char* before_place = "\n  submitted at ";

const char* kind_word(graph::AccessKind kind) {
    switch (kind) {
    case graph::AccessKind::read: return "read";
    case graph::AccessKind::write: return "write";
    case graph::AccessKind::overwrite: break;
    }
    return "overwrite";
}

/// As its first parameter that sees the chunk does; a transfer has none.
graph::AccessKind kind_of(const graph::Task& task, std::uint32_t use) {
    for (const graph::View& v : task.views)
        if (v.use == use) return v.kind;
    return task.uses[use].writes ? graph::AccessKind::overwrite : graph::AccessKind::read;
}

/// The size for a KMM_*_MEM variable that would be enough.
std::string enough_text(std::size_t bytes) {
    constexpr std::size_t mib = std::size_t{1} << 20;
    constexpr std::size_t gib = mib << 10;
    if (bytes >= gib && bytes % gib == 0) return driver::format("{}GiB", bytes / gib);
    return bytes >= mib ? driver::format("{}MiB", (bytes + mib - 1) / mib) : std::to_string(bytes);
}

std::size_t part_of(std::size_t whole, double fraction) {
    return static_cast<std::size_t>(fraction * static_cast<double>(whole));
}

}  // namespace

std::size_t needed_bytes(const graph::Task& task) {
    std::size_t bytes = 0;
    for (const graph::Use& u : task.uses)
        if (u.takes_room()) bytes = memory::sum_bytes(bytes, memory::rounded(u.chunk->block_bytes()));
    return bytes;
}

Shortage::Shortage(const ShortageWords& words, const Platform& platform, const graph::Task& t) : words_(words) {
    t.trace(task);
    memory = t.memory;
    needed_bytes = detail::needed_bytes(t);
    usable_bytes = platform.limit_bytes(memory);
    for (std::uint32_t i = 0; i < t.uses.size(); ++i) {
        if (!t.uses[i].takes_room()) continue;
        const memory::Chunk& c = *t.uses[i].chunk;
        const std::size_t bytes = memory::rounded(c.block_bytes());
        if (needs.size() < most_needs)
            needs.push_back(
                {kind_of(t, i), c.owner->name(), c.index, c.box(), c.owner->rank, bytes, c.owner->num_pieces});
        else
            leave_out(bytes);
    }
}

void Shortage::leave_out(std::size_t bytes) noexcept {
    ++more_needs;
    more_needs_bytes = memory::sum_bytes(more_needs_bytes, bytes);
}

std::exception_ptr Shortage::words() const {
    return worded_once(mutex_, &words_made_, [&] { return std::make_exception_ptr(words_.error_of(*this)); });
}

std::string Shortage::as_cause(const std::exception_ptr& words) const {
    return words_.without_task(task, text_of(words));
}

SharedShortage::SharedShortage(const ShortageWords& words, const graph::Task& task,
                               std::shared_ptr<const Shortage> first)
    : words_(words), first_(std::move(first)), needed_bytes_(needed_bytes(task)) {
    task.trace(task_);
}

std::exception_ptr SharedShortage::words() const {
    try {
        std::rethrow_exception(first_->words());
    } catch (const OutOfMemory& first) {
        return std::make_exception_ptr(words_.error_of(*this, first));
    }
}

std::string SharedShortage::as_cause(const std::exception_ptr& words) const {
    return words_.without_task(task_, text_of(words));
}

// What a value of the variables can reach: they replace the limits and fractions of the configuration, and leave the
// rest.
std::string ShortageWords::setting_for(memory::MemoryIndex m, std::size_t wanted) const {
    if (wanted > most_sensible) return "";
    if (platform_.on_host_driver()) return setting_on_host_driver(m, wanted);
    const RuntimeConfig defaults;
    const std::size_t machine = platform_.info().host_memory_size();
    const std::string enough = enough_text(wanted) + " or more";
    if (m.is_host()) {
        if (wanted <= part_of(machine, defaults.host_memory_fraction)) return "KMM_HOST_MEM=" + enough;
        constexpr std::size_t most_percent = 95;  // a machine must keep some for itself
        const std::size_t percent = wanted / (machine / 100) + 1;
        return percent > most_percent ? "" : driver::format("KMM_HOST_MEM={}% or more", percent);
    }
    const std::size_t total = platform_.info().devices()[m.device()].total_memory_size();
    const std::size_t keep_free = std::min(platform_.config().device_memory_keep_free, most_sensible);
    std::string limit = "KMM_DEVICE_MEM=" + enough;
    const std::size_t most = part_of(total, defaults.device_memory_fraction);
    if (wanted > most) return "";
    if (wanted + keep_free <= most) return limit;
    const std::string less = driver::format("KMM_DEVICE_KEEP_FREE={} or less", most - wanted);
    // A size replaces a percentage, which would stand in the way too.
    const bool other = platform_.config().device_memory_limit < wanted ||
                       platform_.config().device_memory_fraction < defaults.device_memory_fraction;
    return other ? driver::format("{} with {}", less, limit) : less;
}

// Virtual devices come out of the host tier, of which they get three quarters at most (set_limits).
std::string ShortageWords::setting_on_host_driver(memory::MemoryIndex m, std::size_t wanted) const {
    const RuntimeConfig defaults;
    const std::size_t machine = platform_.info().host_memory_size();
    const std::size_t largest_tier = part_of(machine, defaults.host_memory_fraction);
    const std::size_t tier =
        std::min(platform_.config().host_memory_limit, part_of(machine, platform_.config().host_memory_fraction));
    const std::size_t keep_free = std::min(platform_.config().device_memory_keep_free, most_sensible);
    std::string settings;
    const auto add = [&](const char* variable, std::size_t bytes) {
        settings += driver::format("{}{}={} or more", settings.empty() ? "" : " with ", variable, enough_text(bytes));
    };
    if (m.is_host()) {
        // The devices take part of whatever the tier gets: a third of it if their size is left to it, else what they
        // may use of their size; three quarters at most.
        std::size_t needed_tier = 0;
        if (platform_.config().virtual_device_memory == 0) {
            needed_tier = wanted + wanted / 2 + 3;
        } else {
            needed_tier = wanted;
            for (const auto& device : platform_.info().devices()) {
                const std::size_t part = part_of(device.total_memory_size(), platform_.config().device_memory_fraction);
                needed_tier += std::min(part - std::min(part, keep_free), platform_.config().device_memory_limit);
            }
        }
        needed_tier = std::min(needed_tier, 4 * wanted);
        if (needed_tier > largest_tier) return "";
        add("KMM_HOST_MEM", needed_tier);
        return settings;
    }
    const std::size_t needed_tier = (wanted / 3 + 1) * 4 * platform_.num_devices();
    if (needed_tier > largest_tier) return "";
    const std::size_t total = platform_.info().devices()[m.device()].total_memory_size();
    if (wanted + keep_free > part_of(total, platform_.config().device_memory_fraction) ||
        wanted > platform_.whole_pieces(m.device(), total)) {
        const std::size_t piece = platform_.piece_bytes(m.device());
        const auto by_fraction = static_cast<std::size_t>(static_cast<double>(wanted + keep_free) /
                                                          platform_.config().device_memory_fraction);
        add("KMM_VIRTUAL_DEVICE_MEM", std::max(by_fraction + 1, (wanted + piece - 1) / piece * piece));
    }
    if (wanted > platform_.config().device_memory_limit) add("KMM_DEVICE_MEM", wanted);
    if (needed_tier > tier) add("KMM_HOST_MEM", needed_tier);
    return settings;
}

std::string ShortageWords::memory_remedy(memory::MemoryIndex m, std::size_t wanted) const {
    const std::string setting = setting_for(m, wanted);
    if (!setting.empty()) return "smaller chunks | " + setting;
    return driver::format("smaller chunks, or {}: no setting helps",
                          m.is_host() || platform_.on_host_driver() ? "a machine with more memory" : "a larger device");
}

// Two sums: limit = in use + cached + not taken, as it was when the task failed; total = this runtime + others + free,
// as it is now, of which the runtime can have no more than it had then.
std::string ShortageWords::memory_text(const Shortage& s) const {
    std::size_t total = platform_.info().host_memory_size();
    std::size_t free_now = driver::unknown_bytes;
    if (s.memory.is_host())
        free_now = driver::available_memory_bytes();
    else if (!platform_.driver().memory_info(platform_.ordinals()[s.memory.device()], &free_now, &total).ok())
        free_now = driver::unknown_bytes;
    const std::size_t limit = platform_.limit_bytes(s.memory);
    std::string text = driver::format(
        "total {}, limit {}, in use {}, cached but free {}, largest free piece {}, {} {}", byte_size_text(total),
        byte_size_text(limit), byte_size_text(s.in_use_bytes), byte_size_text(s.capacity_bytes - s.in_use_bytes),
        byte_size_text(s.largest_free_bytes), s.refused ? "refused by the driver" : "not taken",
        byte_size_text(limit - std::min(limit, s.capacity_bytes)));
    if (free_now == driver::unknown_bytes) return text;
    const std::size_t taken = total - std::min(total, free_now);
    const std::size_t ours = std::min(taken, s.taken_bytes);
    return text + driver::format(", this runtime {}, others (programs, runtimes, the driver) {}, free now {}",
                                 byte_size_text(ours), byte_size_text(taken - ours), byte_size_text(total - taken));
}

/// The field that made the limit what it is.
std::string ShortageWords::limit_text(memory::MemoryIndex m) const {
    const RuntimeConfig& config = platform_.config();
    const std::size_t limit = platform_.limit_bytes(m);
    const auto text = [limit](const std::string& field, const char* owner, std::size_t total) {
        return driver::format("{} {} ({} total {})", field, byte_size_text(limit), owner, byte_size_text(total));
    };
    if (m.is_host()) {
        const std::size_t total = platform_.info().host_memory_size();
        const bool by_limit = config.host_memory_limit <= part_of(total, config.host_memory_fraction);
        return text(driver::format("{}{}", by_limit ? "host_memory_limit" : "host_memory_fraction",
                                   platform_.on_host_driver() ? " less virtual devices" : ""),
                    "machine", total);
    }
    const std::size_t total = platform_.info().devices()[m.device()].total_memory_size();
    if (limit == config.device_memory_limit) return text("device_memory_limit", "device", total);
    std::string field;
    if (limit != total && limit == platform_.whole_pieces(m.device(), total))
        field =
            driver::format("the device's memory in pieces of {},", byte_size_text(platform_.piece_bytes(m.device())));
    else if (!platform_.on_host_driver())
        field = "device_memory_fraction";
    else if (limit + config.device_memory_keep_free == part_of(total, config.device_memory_fraction))
        field = "virtual_device_memory";
    else
        field = "its part of the host tier";
    return text(field + (config.device_memory_keep_free != 0 ? " less device_memory_keep_free" : ""), "device", total);
}

std::string ShortageWords::running_text(const Shortage& s) const {
    std::string text;
    for (const auto& r : s.running) {
        const TaskFailure who = failures_.describe_failure(r->task);
        text += driver::format("{}{} on {} {}", text.empty() ? "" : " | ", text_of(who.task), who.place,
                               byte_size_text(r->size_bytes));
    }
    if (s.more_running != 0) text += driver::format(" | {} more tasks", s.more_running);
    return text.empty() ? "no running task, arrays only" : text;
}

// With so much more there is room whatever else is there. Where the driver refused, a limit changes nothing.
std::string ShortageWords::remedies_text(const Shortage& s, const std::string& place) const {
    std::string settings;
    for (std::optional<memory::MemoryIndex> tier = s.memory; tier; tier = memory::Tiers::below(*tier)) {
        const std::string setting = setting_for(*tier, platform_.limit_bytes(*tier) + s.needed_bytes);
        if (tier == s.memory ? s.refused : s.host_refused)
            settings +=
                driver::format(" | memory that others give back to {}", tier->is_host() ? "the machine" : place);
        else if (!setting.empty())
            settings += " | " + setting;
    }
    return "smaller chunks | release arrays that are not needed" +
           (settings.empty() ? " (no setting helps)" : settings);
}

std::string ShortageWords::needs_text(const Shortage& s) {
    std::string text;
    for (const Shortage::Need& n : s.needs) {
        if (!text.empty()) text += " | ";
        const std::string box = boxes::to_text(n.box, n.rank);
        const std::string size = byte_size_text(n.size_bytes);
        if (n.num_pieces == 0) {
            text += driver::format("{} {} chunk {} {} {}", kind_word(n.kind), n.array, n.chunk, box, size);
            continue;
        }
        const bool reads = n.kind == graph::AccessKind::read;
        const std::string from = n.num_pieces == 1 && reads
                                     ? "a snapshot"
                                     : driver::format("{} {}", reads ? "gathered from" : "beside",
                                                      driver::count_text(n.num_pieces, "chunk"));
        text += driver::format("{} {} {} {} ({})", kind_word(n.kind), n.array, box, size, from);
    }
    if (s.more_needs != 0) text += driver::format(" | {} more {}", s.more_needs, byte_size_text(s.more_needs_bytes));
    return text;
}

std::string ShortageWords::shortage_text(const Shortage& s, bool at_submit) const {
    const TaskFailure who = failures_.describe_failure(s.task);
    std::string text =
        driver::format("{} {} {}: needs {} ({} bytes), at most {} ({} bytes) can be used\n  needs: {}\n  limit: {}\n",
                       text_of(who.task), at_submit ? "can never run on" : "found no memory on", who.place,
                       byte_size_text(s.needed_bytes), s.needed_bytes, byte_size_text(s.usable_bytes), s.usable_bytes,
                       needs_text(s), limit_text(s.memory));
    if (!at_submit)
        text +=
            driver::format("  memory: {}\n  held by: {}\n  arrays: {}\n  tiers: host {} of {}, no disk tier\n",
                           memory_text(s), running_text(s), text_of(*s.holders), byte_size_text(s.host_in_use_bytes),
                           byte_size_text(platform_.limit_bytes(memory::MemoryIndex::host())));
    return text + driver::format("  try:   {}{}{}",
                                 at_submit ? memory_remedy(s.memory, s.needed_bytes) : remedies_text(s, who.place),
                                 before_place, to_string(who.task.where));
}

std::string ShortageWords::without_task(const graph::TaskTrace& task, const std::string& text) const {
    const std::size_t begin = text_of(failures_.describe_failure(task).task).size() + 1;
    const std::size_t end = text.rfind(before_place);
    return begin < end && begin < text.size() ? text.substr(begin, end - begin) : text;
}

OutOfMemory ShortageWords::never_fits(const graph::Task& task, std::size_t bytes,
                                      std::vector<Shortage::Need> needs) const {
    Shortage s(*this, platform_, task);
    s.needed_bytes = bytes;
    for (; needs.size() > Shortage::most_needs; needs.pop_back()) s.leave_out(needs.back().size_bytes);
    s.needs = std::move(needs);
    return OutOfMemory(s.memory.id(), bytes, 0, platform_.limit_bytes(s.memory), shortage_text(s, true),
                       task.info->location);
}

OutOfMemory ShortageWords::error_of(const Shortage& s) const {
    return OutOfMemory(s.memory.id(), s.needed_bytes, s.in_use_bytes, platform_.limit_bytes(s.memory),
                       shortage_text(s, false), s.task.info->location);
}

OutOfMemory ShortageWords::error_of(const SharedShortage& s, const OutOfMemory& first) const {
    const TaskFailure who = failures_.describe_failure(s.task_);
    return OutOfMemory(
        first, s.needed_bytes_,
        driver::format("{} found no memory on {}: needs {} ({} bytes), and none was freed since {} found "
                       "none, whose report says more{}{}",
                       text_of(who.task), who.place, byte_size_text(s.needed_bytes_), s.needed_bytes_,
                       text_of(failures_.describe_failure(s.first_->task).task), before_place,
                       to_string(who.task.where)),
        who.task.where);
}

}  // namespace kmm::detail
