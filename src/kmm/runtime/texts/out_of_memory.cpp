// The texts of out-of-memory errors: what was asked for, what there is, who holds it, and what would help.
//
// Owns: nothing. A refusal at submit is worded on the submitting thread and must not look at the scheduler's state. Of
// one at run time whoever has the baton collects the figures; the words are made later, by whoever asks and holds
// nobody up.
#include <algorithm>

#include "driver/byte_size.hpp"
#include "driver/machine.hpp"
#include "kmm/base/log.hpp"
#include "kmm/base/text.hpp"
#include "kmm/runtime/runtime_core.hpp"
#include "kmm/runtime/texts/holders.hpp"

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

/// Bytes that a task needs in its memory, rounded as they are taken.
std::size_t needed_bytes(const RuntimeCore& core, const graph::Task& task) {
    std::size_t bytes = 0;
    for (const graph::Access& a : task.accesses)
        if (a.chunk != nullptr && a.first_of_chunk)
            bytes = RuntimeCore::sum_bytes(bytes, core.rounded(a.chunk->block_bytes()));
    return bytes;
}

}  // namespace

// What a value of the variables can reach: they replace the limits and fractions of the configuration, and leave the
// rest.
std::string RuntimeCore::setting_for(memory::MemoryIndex m, std::size_t wanted) const {
    if (wanted > most_sensible) return "";
    if (on_host_driver_) return setting_on_host_driver(m, wanted);
    const RuntimeConfig defaults;
    const std::size_t machine = info_->host_memory_size();
    const std::string enough = enough_text(wanted) + " or more";
    if (m.is_host()) {
        if (wanted <= part_of(machine, defaults.host_memory_fraction)) return "KMM_HOST_MEM=" + enough;
        constexpr std::size_t most_percent = 95;  // a machine must keep some for itself
        const std::size_t percent = wanted / (machine / 100) + 1;
        return percent > most_percent ? "" : "KMM_HOST_MEM=" + std::to_string(percent) + "% or more";
    }
    const std::size_t total = info_->devices()[m.device()].total_memory_size();
    const std::size_t keep_free = std::min(config_.device_memory_keep_free, most_sensible);
    std::string limit = "KMM_DEVICE_MEM=" + enough;
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
    if (m.is_host()) {
        // The devices take part of whatever the tier gets: a third of it if their size is left to it, else what they
        // may use of their size; three quarters at most.
        std::size_t needed_tier = 0;
        if (config_.virtual_device_memory == 0) {
            needed_tier = wanted + wanted / 2 + 3;
        } else {
            needed_tier = wanted;
            for (const auto& device : info_->devices()) {
                const std::size_t part = part_of(device.total_memory_size(), config_.device_memory_fraction);
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
    const std::size_t total = info_->devices()[m.device()].total_memory_size();
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
           (m.is_host() || on_host_driver_ ? "a machine with more memory" : "a larger device") + ": no setting helps";
}

// ---------------------------------------------------------------------------------------------------- figures

/// All that the text of an error needs of a moment. What the driver and the system say is asked when the words are
/// made.
class RuntimeCore::Shortage final : public graph::Unworded {
  public:
    explicit Shortage(const RuntimeCore& core) noexcept : core_(core) {}
    std::exception_ptr words() const override {
        return std::make_exception_ptr(OutOfMemory(memory.id(), needed_bytes, in_use_bytes, core_.limits_[memory],
                                                   core_.shortage_text(*this, false), task.info->location));
    }
    bool is_logged() const noexcept override { return true; }

    struct Need {
        graph::AccessKind kind;
        std::string array;
        std::uint32_t chunk;
        graph::Box box;
        std::size_t rank;
        std::size_t size_bytes;
    };
    struct Running {
        graph::TaskTrace task;
        std::size_t size_bytes = 0;
    };
    static constexpr std::size_t most_running = 5;

    graph::TaskTrace task;
    memory::MemoryIndex memory;
    std::size_t needed_bytes = 0;
    std::size_t usable_bytes = 0;
    std::vector<Need> needs;
    // At run time only:
    std::size_t in_use_bytes = 0;
    std::size_t capacity_bytes = 0;
    std::size_t largest_free_bytes = 0;
    std::size_t taken_bytes = 0;  ///< of the device, from the driver
    std::size_t host_in_use_bytes = 0;
    bool refused = false;       ///< by the driver
    bool host_refused = false;  ///< by the system
    std::vector<std::unique_ptr<Running>> running;
    std::size_t more_running = 0;
    std::shared_ptr<const Holders> holders;

  private:
    const RuntimeCore& core_;
};

void RuntimeCore::describe_needs(const Task& task, Shortage& s) const {
    task.trace(s.task);
    s.memory = task.memory;
    s.needed_bytes = needed_bytes(*this, task);
    s.usable_bytes = limits_[task.memory];
    for (const graph::Access& a : task.accesses)
        if (a.chunk != nullptr && a.first_of_chunk)
            s.needs.push_back({a.kind, a.chunk->array->name(), a.chunk->index, a.chunk->array->boxes[a.chunk->index],
                               a.chunk->array->rank, a.chunk->size_bytes});
}

// Only tasks that were given memory hold any: they are known to the scheduler.
void RuntimeCore::describe_running(Shortage& s) {
    if (scheduler_->in_flight(s.memory) == 0) return;
    std::vector<const Task*> found;
    found.reserve(Shortage::most_running);
    table_.for_each([&](const Task& t) {
        const graph::TaskState state = t.state.load(std::memory_order_relaxed);
        if (state != graph::TaskState::launching && state != graph::TaskState::issued) return;
        if (t.memory != s.memory || t.accesses.empty()) return;
        if (found.size() < Shortage::most_running)
            found.push_back(&t);
        else
            ++s.more_running;
    });
    for (const Task* t : found) {
        s.running.push_back(std::make_unique<Shortage::Running>());
        t->trace(s.running.back()->task);
        s.running.back()->size_bytes = needed_bytes(*this, *t);
    }
}

// A look at every replica and every free piece: shared by all who ask before a sixteenth of what is there has changed,
// so that thousands of tasks that fail one behind the other do not each look at all.
const RuntimeCore::KnownHolders& RuntimeCore::holders_now(memory::MemoryIndex m) {
    const memory::Residency& r = scheduler_->residency();
    known_holders_.resize_for_devices(limits_.num_devices());
    KnownHolders& known = known_holders_[m];
    const std::uint64_t changes = r.ticks() - known.ticks;
    if (known.holders == nullptr || (changes != 0 && changes >= r.num_resident(m) / 16)) {
        known.holders = std::make_shared<const Holders>(holders_of(r, m));
        known.largest_free_bytes = r.largest_free(m);
        known.ticks = r.ticks();
    }
    return known;
}

void RuntimeCore::out_of_memory(Task& task) {
    try {
        task.unworded = look_at_shortage(task);
    } catch (const std::bad_alloc&) {
        task.thrown = no_host_memory_;
    }
}

std::shared_ptr<const graph::Unworded> RuntimeCore::look_at_shortage(Task& task) {
    const memory::Residency& r = scheduler_->residency();
    const memory::MemoryIndex m = task.memory;
    const memory::MemoryCounters& k = r.counters(m);
    auto s = std::make_shared<Shortage>(*this);
    describe_needs(task, *s);
    // Where other programs hold the memory, what was got is all there is, whatever the limit says.
    s->refused = r.refused(m);
    s->host_refused = r.refused(memory::MemoryIndex::host());
    if (s->refused) s->usable_bytes = k.capacity_bytes;
    s->in_use_bytes = k.current_bytes;
    s->capacity_bytes = k.capacity_bytes;
    if (m.is_device()) s->taken_bytes = memory_service_->taken_bytes(m.device());
    s->host_in_use_bytes = r.counters(memory::MemoryIndex::host()).current_bytes;
    describe_running(*s);
    const KnownHolders& known = holders_now(m);
    s->holders = known.holders;
    s->largest_free_bytes = known.largest_free_bytes;
    return s;
}

// ---------------------------------------------------------------------------------------------------- words

std::string RuntimeCore::memory_text(const Shortage& s) const {
    std::size_t total = info_->host_memory_size();
    std::size_t free_now = 0;
    std::string others;
    if (s.memory.is_host()) {
        free_now = driver::available_memory_bytes();
    } else if (driver_->memory_info(ordinals_[s.memory.device()], &free_now, &total).ok()) {
        // Ours is what was taken from the driver, used or not.
        const std::size_t taken = total - std::min(total, free_now);
        others = ", others (programs, runtimes, the driver) " +
                 driver::byte_size_text(taken - std::min(taken, s.taken_bytes));
    }
    return "total " + driver::byte_size_text(total) + ", limit " + driver::byte_size_text(limits_[s.memory]) +
           ", in use " + driver::byte_size_text(s.in_use_bytes) + ", cached but free " +
           driver::byte_size_text(s.capacity_bytes - s.in_use_bytes) + ", largest free piece " +
           driver::byte_size_text(s.largest_free_bytes) + others +
           (free_now == driver::unknown_bytes ? "" : ", free now " + driver::byte_size_text(free_now));
}

/// The field that made the limit what it is.
std::string RuntimeCore::limit_text(memory::MemoryIndex m) const {
    const char* field = nullptr;
    if (m.is_host()) {
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
        const std::size_t part =
            part_of(info_->devices()[m.device()].total_memory_size(), config_.device_memory_fraction);
        field = limits_[m] + config_.device_memory_keep_free == part ? "virtual_device_memory "
                                                                     : "its part of the host tier ";
    }
    return field + driver::byte_size_text(limits_[m]) +
           (m.is_host()
                ? " (machine total " + driver::byte_size_text(info_->host_memory_size()) + ")"
                : " (device total " + driver::byte_size_text(info_->devices()[m.device()].total_memory_size()) + ")");
}

std::string RuntimeCore::shortage_text(const Shortage& s, bool at_submit) const {
    const memory::MemoryIndex m = s.memory;
    std::string needs;
    for (const Shortage::Need& n : s.needs) {
        if (!needs.empty()) needs += " | ";
        needs += kind_word(n.kind) + n.array + " chunk " + std::to_string(n.chunk) + " " +
                 graph::to_text(n.box, n.rank) + " " + driver::byte_size_text(n.size_bytes);
    }
    const auto name_of = [](const TaskFailure& who) {
        return "task \"" + who.task.task_name + "\" chunk " + std::to_string(who.task.chunk_index) + " of " +
               std::to_string(who.task.num_chunks);
    };
    const TaskFailure who = describe_failure(s.task);
    std::string text = name_of(who) + (at_submit ? " can never run on " : " found no memory on ") + who.place +
                       ": needs " + driver::byte_size_text(s.needed_bytes) + " (" + std::to_string(s.needed_bytes) +
                       " bytes), at most " + driver::byte_size_text(s.usable_bytes) +
                       " can be used\n  needs: " + needs + "\n  limit: " + limit_text(m) + "\n";
    std::string remedies;
    if (at_submit) {
        remedies = memory_remedy(m, s.needed_bytes);
    } else {
        std::string running;
        for (const auto& r : s.running) {
            const TaskFailure other = describe_failure(r->task);
            running += (running.empty() ? "" : " | ") + name_of(other) + " on " + other.place + " " +
                       driver::byte_size_text(r->size_bytes);
        }
        if (s.more_running != 0) running += " | " + std::to_string(s.more_running) + " more tasks";
        text += "  memory: " + memory_text(s) +
                "\n  held by: " + (running.empty() ? "no running task, arrays only" : running) +
                "\n  arrays: " + text_of(*s.holders) + "\n  tiers: host " +
                driver::byte_size_text(s.host_in_use_bytes) + " of " +
                driver::byte_size_text(limits_[memory::MemoryIndex::host()]) + ", no disk tier\n";
        // With so much more there is room whatever else is there. Where the driver refused, a limit changes nothing.
        std::string settings;
        for (const memory::MemoryIndex tier : {m, memory::MemoryIndex::host()}) {
            const std::string setting = setting_for(tier, limits_[tier] + s.needed_bytes);
            if (tier.is_host() ? s.host_refused : s.refused)
                settings +=
                    " | memory that others give back to " + std::string(tier.is_host() ? "the machine" : who.place);
            else if (!setting.empty())
                settings += " | " + setting;
            if (m.is_host()) break;
        }
        remedies = "smaller chunks | release arrays that are not needed" +
                   (settings.empty() ? " (no setting helps)" : settings);
    }
    return text + "  try:   " + remedies + "\n  submitted at " + to_string(who.task.where);
}

OutOfMemory RuntimeCore::never_fits(const Task& task, std::size_t bytes) const {
    Shortage s(*this);
    describe_needs(task, s);
    return OutOfMemory(task.memory.id(), bytes, 0, limits_[task.memory], shortage_text(s, true), task.info->location);
}

}  // namespace kmm::detail
