// The texts of out-of-memory errors: what was asked for, what there is, who holds it, and what would help.
//
// Owns: nothing. A refusal at submit is worded on the submitting thread and must not look at the planner's state; one at
// run time is worded by whoever plans.
#include <algorithm>
#include <fstream>

#include "kmm/execute/holders.hpp"
#include "kmm/execute/runtime_core.hpp"
#include "kmm/values/log.hpp"
#include "kmm/values/text.hpp"

namespace kmm::detail {

namespace {

// No machine has so much, and sums of a few such sizes still fit.
constexpr std::size_t most_sensible = std::size_t{1} << 56;

const char* kind_word(graph::AccessKind kind) {
    switch (kind) {
    case graph::AccessKind::read: return "read ";
    case graph::AccessKind::write: return "write ";
    case graph::AccessKind::overwrite: break;
    }
    return "overwrite ";
}

/// The size for a KMM_*_MEM variable that would be enough.
std::string enough_text(std::size_t bytes) {
    constexpr std::size_t mib = std::size_t{1} << 20;
    constexpr std::size_t gib = mib << 10;
    if (bytes >= gib && bytes % gib == 0) return std::to_string(bytes / gib) + "GiB";
    return bytes >= mib ? std::to_string((bytes + mib - 1) / mib) + "MiB" : std::to_string(bytes);
}

std::size_t part_of(std::size_t whole, double fraction) {
    return static_cast<std::size_t>(fraction * static_cast<double>(whole));
}

/// What the machine could give now, caches that it would drop included; 0: not known.
std::size_t available_host_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string key, unit;
    std::size_t kib = 0;
    while (file >> key >> kib) {
        if (key == "MemAvailable:") return kib * 1024;
        std::getline(file, unit);
    }
    return 0;
}

/// Bytes that a task needs in its memory, rounded as they are taken.
std::size_t needed_bytes(const RuntimeCore& core, const graph::Task& task) {
    std::size_t bytes = 0;
    for (const graph::Access& a : task.accesses)
        if (a.chunk != nullptr && a.first_of_chunk)
            bytes = RuntimeCore::sum_bytes(bytes, core.rounded(a.chunk->block_bytes()));
    return bytes;
}

}  // namespace

// What a value of the variables can reach: they replace the limits and fractions of the configuration, and leave the rest.
std::string RuntimeCore::setting_for(memory::MemoryIndex m, std::size_t wanted) const {
    if (wanted > most_sensible) return "";
    if (on_host_driver_) return setting_on_host_driver(m, wanted);
    const RuntimeConfig defaults;
    const std::size_t machine = info_->host_memory_size();
    const std::string enough = enough_text(wanted) + " or more";
    if (m == 0) {
        if (wanted <= part_of(machine, defaults.host_memory_fraction)) return "KMM_HOST_MEM=" + enough;
        constexpr std::size_t most_percent = 95;  // a machine must keep some for itself
        const std::size_t percent = wanted / (machine / 100) + 1;
        return percent > most_percent ? "" : "KMM_HOST_MEM=" + std::to_string(percent) + "% or more";
    }
    const std::size_t total = info_->devices()[m - 1].total_memory_size();
    const std::size_t keep_free = std::min(config_.device_memory_keep_free, most_sensible);
    const std::string limit = "KMM_DEVICE_MEM=" + enough;
    const std::size_t most = part_of(total, defaults.device_memory_fraction);
    if (wanted > most) return "";
    if (wanted + keep_free <= most) return limit;
    const std::string less = "KMM_DEVICE_KEEP_FREE=" + std::to_string(most - wanted) + " or less";
    // A size replaces a percentage, which would stand in the way too.
    const bool other =
        config_.device_memory_limit < wanted || config_.device_memory_fraction < defaults.device_memory_fraction;
    return other ? less + " with " + limit : less;
}

// Virtual devices come out of the host tier, of which they get three quarters at most (set_limits).
std::string RuntimeCore::setting_on_host_driver(memory::MemoryIndex m, std::size_t wanted) const {
    const RuntimeConfig defaults;
    const std::size_t machine = info_->host_memory_size();
    const std::size_t largest_tier = part_of(machine, defaults.host_memory_fraction);
    const std::size_t tier = std::min(config_.host_memory_limit, part_of(machine, config_.host_memory_fraction));
    const std::size_t keep_free = std::min(config_.device_memory_keep_free, most_sensible);
    std::string settings;
    const auto add = [&](const char* variable, std::size_t bytes) {
        settings += (settings.empty() ? "" : " with ") + std::string(variable) + "=" + enough_text(bytes) + " or more";
    };
    if (m == 0) {
        // The devices take part of whatever the tier gets: a third of it if their size is left to it, else what they may use
        // of their size; three quarters at most.
        std::size_t needed_tier = 0;
        if (config_.virtual_device_memory == 0) {
            needed_tier = wanted + wanted / 2 + 3;
        } else {
            needed_tier = wanted;
            for (std::size_t d = 1; d < limits_.size(); ++d) {
                const std::size_t part =
                    part_of(info_->devices()[d - 1].total_memory_size(), config_.device_memory_fraction);
                needed_tier += std::min(part - std::min(part, keep_free), config_.device_memory_limit);
            }
        }
        needed_tier = std::min(needed_tier, 4 * wanted);
        if (needed_tier > largest_tier) return "";
        add("KMM_HOST_MEM", needed_tier);
        return settings;
    }
    const std::size_t needed_tier = (wanted / 3 + 1) * 4 * num_devices();
    if (needed_tier > largest_tier) return "";
    const std::size_t total = info_->devices()[m - 1].total_memory_size();
    if (wanted + keep_free > part_of(total, config_.device_memory_fraction))
        add("KMM_VIRTUAL_DEVICE_MEM",
            static_cast<std::size_t>(static_cast<double>(wanted + keep_free) / config_.device_memory_fraction) + 1);
    if (wanted > config_.device_memory_limit) add("KMM_DEVICE_MEM", wanted);
    if (needed_tier > tier) add("KMM_HOST_MEM", needed_tier);
    return settings;
}

std::string RuntimeCore::memory_remedy(memory::MemoryIndex m, std::size_t wanted) const {
    const std::string setting = setting_for(m, wanted);
    if (!setting.empty()) return "smaller chunks | " + setting;
    return std::string("smaller chunks, or ") +
           (m == 0 || on_host_driver_ ? "a machine with more memory" : "a larger device") + ": no setting helps";
}

std::string RuntimeCore::memory_text(memory::MemoryIndex m) const {
    const memory::Residency& r = scheduler_->residency();
    const memory::MemoryCounters& k = r.counters(m);
    std::size_t total = info_->host_memory_size();
    std::size_t free_now = 0;
    std::string others;
    if (m == 0) {
        free_now = available_host_bytes();
    } else if (driver_->memory_info(ordinals_[m - 1], &free_now, &total).ok()) {
        // Ours is what was taken from the driver, used or not.
        const std::size_t taken = total - std::min(total, free_now);
        const std::size_t own = memory_service_->figures().device_bytes[m - 1];
        others = ", others (programs, runtimes, the driver) " + bytes_text(taken - std::min(taken, own));
    }
    return "total " + bytes_text(total) + ", limit " + bytes_text(limits_[m]) + ", in use " +
           bytes_text(k.current_bytes) + ", cached but free " + bytes_text(k.capacity_bytes - k.current_bytes) +
           ", largest free piece " + bytes_text(r.largest_free(m)) + others + ", free now " + bytes_text(free_now);
}

// Only tasks that were given memory hold any: they are known to the planner.
std::string RuntimeCore::running_text(memory::MemoryIndex m) {
    constexpr std::size_t most_shown = 5;
    std::vector<const Task*> holders;
    std::size_t more = 0;
    table_.for_each([&](const Task& t) {
        const graph::TaskState state = t.state.load(std::memory_order_relaxed);
        if (state != graph::TaskState::launching && state != graph::TaskState::issued) return;
        if (t.memory != m || t.accesses.empty()) return;
        if (holders.size() < most_shown)
            holders.push_back(&t);
        else
            ++more;
    });
    if (holders.empty()) return "no running task, arrays only";
    std::string text;
    for (const Task* t : holders)
        text += (text.empty() ? "" : " | ") + task_text(*t) + " " + bytes_text(needed_bytes(*this, *t));
    if (more != 0) text += " | " + std::to_string(more) + " more tasks";
    return text;
}

std::string RuntimeCore::out_of_memory_text(const Task& task, bool at_submit) {
    const memory::MemoryIndex m = task.memory;
    const std::size_t needed = needed_bytes(*this, task);
    std::string needs;
    for (const graph::Access& a : task.accesses) {
        if (a.chunk == nullptr || !a.first_of_chunk) continue;
        if (!needs.empty()) needs += " | ";
        needs += kind_word(a.kind) + a.chunk->array->name() + " chunk " + std::to_string(a.chunk->index) + " " +
                 graph::to_text(a.chunk->array->boxes[a.chunk->index], a.chunk->array->rank) + " " +
                 bytes_text(a.chunk->size_bytes);
    }
    // Where other programs hold the memory, what was got is all there is, whatever the limit says.
    std::size_t usable = limits_[m];
    if (!at_submit && scheduler_->residency().refused(m)) usable = scheduler_->residency().counters(m).capacity_bytes;
    const TaskFailure who = describe_failure(task);
    std::string text = "task \"" + who.task.task_name + "\" chunk " + std::to_string(task.chunk_index) + " of " +
                       std::to_string(who.task.num_chunks);
    text += at_submit ? " can never run on " : " found no memory on ";
    text += who.place + ": needs " + bytes_text(needed) + " (" + std::to_string(needed) + " bytes), at most " +
            bytes_text(usable) + " can be used\n  needs: " + needs + "\n";
    // The field that made the limit what it is.
    const char* field = nullptr;
    if (m == 0) {
        const bool by_limit =
            config_.host_memory_limit <= part_of(info_->host_memory_size(), config_.host_memory_fraction);
        field = on_host_driver_ ? (by_limit ? "host_memory_limit less virtual devices "
                                            : "host_memory_fraction less virtual devices ")
                                : (by_limit ? "host_memory_limit " : "host_memory_fraction ");
    } else if (limits_[m] == config_.device_memory_limit) {
        field = "device_memory_limit ";
    } else if (!on_host_driver_) {
        field = "device_memory_fraction ";
    } else {
        const std::size_t part = part_of(info_->devices()[m - 1].total_memory_size(), config_.device_memory_fraction);
        field = limits_[m] + config_.device_memory_keep_free == part ? "virtual_device_memory "
                                                                     : "its part of the host tier ";
    }
    text += std::string("  limit: ") + field + bytes_text(limits_[m]);
    text += m == 0 ? " (machine total " + bytes_text(info_->host_memory_size()) + ")\n"
                   : " (device total " + bytes_text(info_->devices()[m - 1].total_memory_size()) + ")\n";
    std::string remedies;
    if (at_submit) {
        remedies = memory_remedy(m, needed);
    } else {
        const memory::Residency& r = scheduler_->residency();
        text += "  memory: " + memory_text(m) + "\n  held by: " + running_text(m) +
                "\n  arrays: " + execute::text_of(execute::holders_of(r, m)) + "\n";
        text += "  tiers: host " + bytes_text(r.counters(0).current_bytes) + " of " + bytes_text(limits_[0]) +
                ", no disk tier\n";
        // With so much more there is room whatever else is there. Where the driver refused, a limit changes nothing.
        std::string settings;
        for (memory::MemoryIndex tier : {m, memory::MemoryIndex{0}}) {
            const std::string setting = setting_for(tier, limits_[tier] + needed);
            if (r.refused(tier))
                settings += " | memory that others give back to " + std::string(tier == 0 ? "the machine" : who.place);
            else if (!setting.empty())
                settings += " | " + setting;
            if (m == 0) break;
        }
        remedies = "smaller chunks | release arrays that are not needed" +
                   (settings.empty() ? " (no setting helps)" : settings);
    }
    return text + "  try:   " + remedies + "\n  submitted at " + to_string(who.task.where);
}

std::exception_ptr RuntimeCore::out_of_memory(Task& task) {
    const std::string text = out_of_memory_text(task, false);
    log::write(log::Level::error, text);
    const MemoryId memory = task.memory == 0 ? MemoryId::host() : MemoryId(task.where.as_device());
    return std::make_exception_ptr(OutOfMemory(memory, needed_bytes(*this, task),
                                               scheduler_->residency().counters(task.memory).current_bytes,
                                               limits_[task.memory], text, task.info->location));
}

}  // namespace kmm::detail
