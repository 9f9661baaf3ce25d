#include "kmm/runtime/texts/report.hpp"

#include <nlohmann/json.hpp>

#include "driver/byte_size.hpp"
#include "driver/format.hpp"
#include "kmm/base/text.hpp"
#include "kmm/runtime/texts/holders.hpp"

namespace kmm::detail {

namespace {

using driver::byte_size_text;
using memory::Link;

constexpr double seconds_of(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

std::string copies_text(std::uint64_t count) { return driver::format("{} {}", count, count == 1 ? "copy" : "copies"); }

/// Copies over one kind of link, and for how long such a link was busy, added over all of them.
struct LinkFigures {
    const char* key;
    const char* name;
    CopyStats copies;
    double busy_seconds = 0;

    /// Of one link while it had something to do; 0 where nothing was measured.
    double gigabytes_per_second() const {
        return busy_seconds > 0 ? static_cast<double>(copies.bytes) / busy_seconds * 1e-9 : 0;
    }
    nlohmann::json json() const {
        return {{"bytes", copies.bytes},
                {"copies", copies.copies},
                {"busy_seconds", busy_seconds},
                {"gigabytes_per_second_while_busy", gigabytes_per_second()}};
    }
    std::string text() const {
        std::string rate;
        if (busy_seconds > 0)
            rate = driver::format(", {} GB/s while busy ({})", driver::fixed_text(gigabytes_per_second(), 2),
                                  seconds_text(busy_seconds));
        return driver::format("  link       {}  {} in {}{}\n", name, byte_size_text(copies.bytes),
                              copies_text(copies.copies), rate);
    }
};

struct MemoryFigures {
    memory::MemoryCounters counters;
    std::size_t largest_free_bytes = 0;
    Holders holders;
};

nlohmann::json holders_json(const Holders& holders) {
    nlohmann::json list = nlohmann::json::array();
    for (const Holder& h : holders.largest)
        list.push_back({{"name", h.name},
                        {"bytes", h.size_bytes},
                        {"chunks", h.chunks},
                        {"stale_chunks", h.stale_chunks},
                        {"refetched_bytes", h.refetched_bytes}});
    return list;
}

}  // namespace

void UserCopies::count(Kind kind, std::size_t bytes, std::size_t copies, std::int64_t nanoseconds) noexcept {
    Counters& c = counters_[static_cast<std::size_t>(kind)];
    c.bytes.fetch_add(bytes, std::memory_order_relaxed);
    c.copies.fetch_add(copies, std::memory_order_relaxed);
    c.nanoseconds.fetch_add(nanoseconds, std::memory_order_relaxed);
}

UserCopies::Count UserCopies::of(Kind kind) const noexcept {
    const Counters& c = counters_[static_cast<std::size_t>(kind)];
    return {c.bytes.load(std::memory_order_relaxed), c.copies.load(std::memory_order_relaxed),
            c.nanoseconds.load(std::memory_order_relaxed)};
}

void LateKernels::count(const LauncherInfo& launcher, std::size_t kernels) noexcept {
    const locks::Guard guard(mutex_);
    const SourceLocation& at = launcher.location;
    for (Place& p : places_)
        if (p.location.line() == at.line() && std::string_view(p.location.file()) == at.file()) {
            p.kernels += kernels;
            return;
        }
    try {
        if (places_.size() < most_places) {
            places_.push_back({text_of(launcher), at, kernels});
            return;
        }
    } catch (const std::bad_alloc&) {
        // counted below
    }
    elsewhere_ += kernels;
}

std::vector<LateKernels::Place> LateKernels::places() const {
    const locks::Guard guard(mutex_);
    std::vector<Place> places = places_;
    if (elsewhere_ != 0) places.push_back({"other places", {}, elsewhere_});
    return places;
}

RuntimeStats Reports::stats() {
    turns_.help();
    return turns_.with_baton(
        [&](const schedule::Scheduler& scheduler, const Outgoing&) { return read_stats(scheduler); });
}

RuntimeStats Reports::read_stats(const schedule::Scheduler& scheduler) const {
    const schedule::SchedulerCounters& c = scheduler.counters();
    const auto copies = [&](UserCopies::Kind kind, Link link) {
        const UserCopies::Count user = user_copies_.of(kind);
        return CopyStats{user.bytes + c.transfers.bytes[static_cast<std::size_t>(link)],
                         user.copies + c.transfers.copies[static_cast<std::size_t>(link)]};
    };
    RuntimeStats s;
    s.tasks_submitted = c.submitted;
    s.tasks_succeeded = c.succeeded;
    s.tasks_failed = c.failed;
    s.tasks_cancelled = c.cancelled;
    s.kernels_launched = c.kernels;
    s.gathered_bytes = c.gathered_bytes;
    s.snapshot_bytes = c.snapshot_bytes;
    s.host_to_device = copies(UserCopies::Kind::host_to_device, Link::host_to_device);
    s.device_to_host = copies(UserCopies::Kind::device_to_host, Link::device_to_host);
    s.device_to_device = copies(UserCopies::Kind::device_to_device, Link::device_to_device);
    const UserCopies::Count on_host = user_copies_.of(UserCopies::Kind::host_to_host);
    s.host_to_host = {on_host.bytes, on_host.copies};
    s.threads_started = 1 + engine_.threads_started();  // 1: the scheduler's
    for (const memory::MemoryIndex m : scheduler.residency().residents().memories()) {
        const memory::MemoryCounters& k = scheduler.residency().space(m).counters;
        s.evictions += k.evictions;
        s.evicted_bytes += k.evicted_bytes;
        s.dropped_clean_bytes += k.dropped_bytes;
        s.allocations += k.allocations;
        s.frees += k.frees;
        MemoryStats entry;
        entry.memory = m.id();
        entry.current_bytes = k.current_bytes;
        entry.peak_bytes = k.peak_bytes;
        entry.limit_bytes = platform_.limit_bytes(m);
        s.memories.push_back(entry);
    }
    return s;
}

/// All that a report says.
struct Reports::Figures {
    std::uint64_t runtime = 0;
    std::string driver;
    std::size_t num_devices = 0;
    double seconds = 0;  ///< since the start
    RuntimeStats stats;
    std::vector<MemoryFigures> memories;  ///< as `stats.memories`
    std::vector<std::string> places;      ///< likewise
    std::uint64_t unfinished = 0, refetches = 0, refetched_bytes = 0, tasks_waited = 0, waiting_now = 0;
    double waited_seconds = 0, longest_wait_seconds = 0;
    std::vector<LinkFigures> links;
    supply::MemoryService::Figures service;
    std::size_t copy_buffers_bytes = 0;
    std::vector<LateKernels::Place> late_kernels;

    nlohmann::json json() const;
    std::string text() const;

  private:
    nlohmann::json memory_json(std::size_t m) const;
    std::string memory_text(std::size_t m) const;
};

nlohmann::json Reports::Figures::memory_json(std::size_t m) const {
    const MemoryStats& s = stats.memories[m];
    const MemoryFigures& f = memories[m];
    return {{"memory", places[m]},
            {"current_bytes", s.current_bytes},
            {"peak_bytes", s.peak_bytes},
            {"limit_bytes", s.limit_bytes},
            {"capacity_bytes", f.counters.capacity_bytes},
            {"largest_free_bytes", f.largest_free_bytes},
            {"evictions", f.counters.evictions},
            {"refetched_bytes", f.counters.refetched_bytes},
            {"largest_arrays", holders_json(f.holders)},
            {"other_arrays", f.holders.others}};
}

nlohmann::json Reports::Figures::json() const {
    nlohmann::json j;
    j["runtime"] = runtime;
    j["driver"] = driver;
    j["seconds"] = seconds;
    j["threads_started"] = stats.threads_started;
    j["tasks"] = {{"submitted", stats.tasks_submitted}, {"succeeded", stats.tasks_succeeded},
                  {"failed", stats.tasks_failed},       {"cancelled", stats.tasks_cancelled},
                  {"kernels", stats.kernels_launched},  {"unfinished", unfinished}};
    j["memory_waits"] = {{"tasks", tasks_waited},
                         {"waiting_now", waiting_now},
                         {"seconds", waited_seconds},
                         {"longest_seconds", longest_wait_seconds}};
    for (const LinkFigures& l : links) j["links"][l.key] = l.json();
    j["gathered_bytes"] = stats.gathered_bytes;
    j["snapshot_bytes"] = stats.snapshot_bytes;
    j["evictions"] = {{"count", stats.evictions},
                      {"evicted_bytes", stats.evicted_bytes},
                      {"dropped_clean_bytes", stats.dropped_clean_bytes},
                      {"refetches", refetches},
                      {"refetched_bytes", refetched_bytes}};
    j["allocations"] = stats.allocations;
    j["frees"] = stats.frees;
    j["pinning"] = {{"bytes", service.pinned_bytes}, {"seconds", service.pinning_seconds}};
    j["late_kernels"] = nlohmann::json::array();
    for (const LateKernels::Place& p : late_kernels)
        j["late_kernels"].push_back({{"submit", p.submit}, {"kernels", p.kernels}});
    j["copy_buffers"] = {{"bytes", copy_buffers_bytes}};
    j["bounce_buffer"] = {{"bytes", service.bounce_bytes}};
    for (std::size_t m = 0; m < memories.size(); ++m) j["memories"].push_back(memory_json(m));
    return j;
}

std::string Reports::Figures::memory_text(std::size_t m) const {
    const MemoryStats& s = stats.memories[m];
    return driver::format("  memory     {}  in use {}  peak {}  limit {}\n             held by {}\n", places[m],
                          byte_size_text(s.current_bytes), byte_size_text(s.peak_bytes), byte_size_text(s.limit_bytes),
                          text_of(memories[m].holders));
}

std::string Reports::Figures::text() const {
    using driver::count_text;
    std::string text = driver::format("kmm runtime {} on the {} driver, {}, {}\n", runtime, driver,
                                      count_text(num_devices, "device"), count_text(stats.threads_started, "thread"));
    text +=
        driver::format("  tasks      submitted {}  succeeded {}  failed {}  cancelled {}  kernels {}  unfinished {}\n",
                       stats.tasks_submitted, stats.tasks_succeeded, stats.tasks_failed, stats.tasks_cancelled,
                       stats.kernels_launched, unfinished);
    text += driver::format("  waits      {} waited for memory, {} together, the longest {}; {} now\n",
                           count_text(tasks_waited, "task"), seconds_text(waited_seconds),
                           seconds_text(longest_wait_seconds), waiting_now);
    for (const LateKernels::Place& p : late_kernels)
        text += driver::format("  late       {} of {}: launchers build parameters of the program's own types\n",
                               count_text(p.kernels, "kernel"), p.submit);
    for (const LinkFigures& l : links) text += l.text();
    text += driver::format("  gathered   {}  snapshots {}\n", byte_size_text(stats.gathered_bytes),
                           byte_size_text(stats.snapshot_bytes));
    text += driver::format("  evictions  {}: written down {}, dropped {}; fetched again {} in {}\n", stats.evictions,
                           byte_size_text(stats.evicted_bytes), byte_size_text(stats.dropped_clean_bytes),
                           byte_size_text(refetched_bytes), copies_text(refetches));
    text += driver::format("  blocks     {}, {}\n", count_text(stats.allocations, "allocation"),
                           count_text(stats.frees, "free"));
    text += driver::format("  pinned     {} in {}\n", byte_size_text(service.pinned_bytes),
                           seconds_text(service.pinning_seconds));
    text += driver::format("  buffers    {} for copies to the program's memory, beside the limits\n",
                           byte_size_text(copy_buffers_bytes));
    if (service.bounce_bytes != 0)
        text += driver::format("  bounce     {} to move and exchange chunks, beside the limits\n",
                               byte_size_text(service.bounce_bytes));
    for (std::size_t m = 0; m < memories.size(); ++m) text += memory_text(m);
    return text;
}

/// The figures of the scheduler, which belong together.
void Reports::read_figures(Figures& f, const schedule::Scheduler& scheduler, const Outgoing::MemoryWaits& waits) const {
    f.stats = read_stats(scheduler);
    const memory::Residency& r = scheduler.residency();
    for (const memory::MemoryIndex m : r.residents().memories()) {
        f.memories.push_back({r.space(m).counters, r.space(m).heap.largest_free_bytes(), holders_of(r, m)});
        f.refetches += r.space(m).counters.refetches;
        f.refetched_bytes += r.space(m).counters.refetched_bytes;
    }
    f.tasks_waited = scheduler.counters().tasks_waited;
    f.waiting_now = f.tasks_waited - waits.count;
    f.waited_seconds = seconds_of(waits.sum_ns);
    f.longest_wait_seconds = seconds_of(waits.longest_ns);
}

std::string Reports::report(ReportFormat format) {
    turns_.help();
    Figures f;
    turns_.with_baton([&](const schedule::Scheduler& scheduler, const Outgoing& outgoing) {
        read_figures(f, scheduler, outgoing.memory_waits());
    });
    const RuntimeStats& s = f.stats;
    f.links = {{"host_to_device", "host to device  ", s.host_to_device},
               {"device_to_host", "device to host  ", s.device_to_host},
               {"device_to_device", "device to device", s.device_to_device},
               {"host_to_host", "host to host    ", s.host_to_host},
               {"host_to_disk", "host to disk    ", s.host_to_disk},
               {"disk_to_host", "disk to host    ", s.disk_to_host}};
    for (std::size_t i = 0; i < memory::num_links; ++i)
        for (const auto& thread : engine_.device_threads())
            f.links[i].busy_seconds += seconds_of(thread->busy_ns(static_cast<Link>(i)));
    for (const auto& [kind, link] :
         {std::pair{UserCopies::Kind::host_to_device, 0}, std::pair{UserCopies::Kind::device_to_host, 1},
          std::pair{UserCopies::Kind::device_to_device, 2}, std::pair{UserCopies::Kind::host_to_host, 3}})
        f.links[static_cast<std::size_t>(link)].busy_seconds += seconds_of(user_copies_.of(kind).nanoseconds);
    for (const MemoryStats& m : s.memories)
        f.places.push_back(m.memory.is_host() ? "host" : platform_.place_text(ResourceId(m.memory.as_device())));
    f.runtime = platform_.number();
    f.driver = platform_.driver_name();
    f.num_devices = platform_.num_devices();
    f.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    f.unfinished = books_.unfinished().count();
    f.service = engine_.memory_service().figures();
    f.copy_buffers_bytes = copy_buffers_.size_bytes();
    f.late_kernels = late_kernels_.places();
    return format == ReportFormat::Json ? f.json().dump() : f.text();
}

}  // namespace kmm::detail
