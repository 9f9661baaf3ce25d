// What a runtime tells people: its report, and the texts of out-of-memory errors.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "kmm/execute/runtime_core.hpp"
#include "kmm/values/log.hpp"

namespace kmm::detail {

namespace {

std::string bytes_text(std::size_t bytes) {
    constexpr double mib = 1024.0 * 1024.0;
    char text[48];
    const double value = static_cast<double>(bytes);
    if (bytes >= std::size_t{1} << 30)
        std::snprintf(text, sizeof text, "%.2f GiB", value / mib / 1024.0);
    else if (bytes >= std::size_t{1} << 20)
        std::snprintf(text, sizeof text, "%.2f MiB", value / mib);
    else
        std::snprintf(text, sizeof text, "%zu bytes", bytes);
    return text;
}

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
    return bytes >= mib ? std::to_string((bytes + mib - 1) / mib) + "MiB" : std::to_string(bytes);
}

/// The arrays that hold most of a memory, with what they hold there.
std::string largest_arrays_text(const memory::Residency& residency, memory::MemoryIndex m) {
    struct Share {
        const memory::Array* array;
        std::size_t bytes = 0, chunks = 0, stale = 0;
    };
    std::unordered_map<const memory::Array*, Share> shares;
    residency.for_each_resident(m, [&](const memory::Chunk& c) {
        Share& s = shares.try_emplace(c.array, Share{c.array}).first->second;
        s.bytes += c.size_bytes;
        ++s.chunks;
        if (c.replicas[m].version != c.version) ++s.stale;
    });
    std::vector<Share> sorted;
    for (const auto& entry : shares) sorted.push_back(entry.second);
    std::sort(sorted.begin(), sorted.end(), [](const Share& a, const Share& b) {
        return a.bytes != b.bytes ? a.bytes > b.bytes : a.array < b.array;
    });
    constexpr std::size_t shown = 5;
    std::string text;
    for (std::size_t i = 0; i < std::min(sorted.size(), shown); ++i) {
        const Share& s = sorted[i];
        if (i > 0) text += " | ";
        text += s.array->name() + " " + bytes_text(s.bytes) + " in " + std::to_string(s.chunks) +
                (s.chunks == 1 ? " chunk" : " chunks");
        if (s.stale != 0) text += ", " + std::to_string(s.stale) + " stale";
    }
    if (sorted.size() > shown) text += " | " + std::to_string(sorted.size() - shown) + " more";
    return sorted.empty() ? "none" : text;
}

}  // namespace

std::string RuntimeCore::out_of_memory_text(const Task& task, bool at_submit) {
    const memory::MemoryIndex m = task.memory;
    std::size_t needed = 0;
    std::string needs;
    for (const graph::Access& a : task.accesses) {
        if (a.chunk == nullptr || !a.first_of_chunk) continue;
        needed += rounded(a.chunk->size_bytes);
        if (!needs.empty()) needs += " | ";
        needs += kind_word(a.kind) + a.chunk->array->name() + " chunk " + std::to_string(a.chunk->index) + " " +
                 graph::to_text(a.chunk->array->boxes[a.chunk->index], a.chunk->array->rank) + " " +
                 bytes_text(a.chunk->size_bytes);
    }
    const TaskFailure who = describe_failure(task);
    std::string text = "task \"" + who.task.task_name + "\" chunk " + std::to_string(task.chunk_index) + " of " +
                       std::to_string(who.task.num_chunks);
    if (at_submit)
        text += " can never run on ";
    else
        text += " found no memory on ";
    text += place_text(task.where) + ": needs " + bytes_text(needed) + " (" + std::to_string(needed) +
            " bytes), at most " + bytes_text(limits_[m]) + " can be used\n  needs: " + needs + "\n";
    const char* variable = m == 0 ? "KMM_HOST_MEM" : "KMM_DEVICE_MEM";
    text +=
        std::string("  limit: ") + (m == 0 ? "host_memory_limit " : "device_memory_limit ") + bytes_text(limits_[m]);
    text += m == 0 ? " (machine total " + bytes_text(info_->host_memory_size()) + ")\n"
                   : " (device total " + bytes_text(info_->devices()[m - 1].total_memory_size()) + ")\n";
    if (!at_submit) {
        const memory::Residency& r = scheduler_->residency();
        const memory::MemoryCounters& k = r.counters(m);
        text += "  memory: in use " + bytes_text(k.current_bytes) + ", cached but free " +
                bytes_text(k.capacity_bytes - k.current_bytes) + ", largest free piece " +
                bytes_text(r.largest_free(m)) + "\n";
        text += "  held by: no running task, arrays only\n  arrays: " + largest_arrays_text(r, m) + "\n";
        text += "  tiers: host " + bytes_text(r.counters(0).current_bytes) + " of " + bytes_text(limits_[0]) +
                ", no disk tier\n";
    }
    text += std::string("  try:   smaller chunks | ") + variable + "=" +
            enough_text(at_submit ? needed : limits_[m] + needed) + " or more";
    if (!at_submit && m != 0) text += " | KMM_HOST_MEM larger, so that more can be evicted | release arrays";
    text += "\n  submitted at " + to_string(who.task.where);
    return text;
}

std::exception_ptr RuntimeCore::out_of_memory(Task& task) {
    const std::string text = out_of_memory_text(task, false);
    log::write(log::Level::error, text);
    std::size_t needed = 0;
    for (const graph::Access& a : task.accesses)
        if (a.chunk != nullptr && a.first_of_chunk) needed += rounded(a.chunk->size_bytes);
    const MemoryId memory = task.memory == 0 ? MemoryId::host() : MemoryId(task.where.as_device());
    return std::make_exception_ptr(OutOfMemory(memory, needed,
                                               scheduler_->residency().counters(task.memory).current_bytes,
                                               limits_[task.memory], text, task.info->location));
}

std::string RuntimeCore::report(ReportFormat format) {
    const RuntimeStats s = stats();
    const execute::MemoryService::Figures service = memory_service_->figures();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    if (format == ReportFormat::Json) {
        nlohmann::json j;
        j["runtime"] = number_;
        j["driver"] = driver_->name();
        j["seconds"] = seconds;
        j["tasks"] = {{"submitted", s.tasks_submitted}, {"succeeded", s.tasks_succeeded},
                      {"failed", s.tasks_failed},       {"cancelled", s.tasks_cancelled},
                      {"kernels", s.kernels_launched},  {"unfinished", pending_.load()}};
        const auto link = [](const CopyStats& c) { return nlohmann::json{{"bytes", c.bytes}, {"copies", c.copies}}; };
        j["links"] = {{"host_to_device", link(s.host_to_device)},
                      {"device_to_host", link(s.device_to_host)},
                      {"device_to_device", link(s.device_to_device)}};
        j["evictions"] = {
            {"count", s.evictions}, {"written_bytes", s.evicted_bytes}, {"dropped_bytes", s.dropped_clean_bytes}};
        j["pinning"] = {{"bytes", service.pinned_bytes}, {"seconds", service.pinning_seconds}};
        for (const MemoryStats& m : s.memories)
            j["memories"].push_back(
                {{"memory",
                  m.memory.is_host() ? std::string("host") : "device " + std::to_string(m.memory.as_device().get())},
                 {"current_bytes", m.current_bytes},
                 {"peak_bytes", m.peak_bytes},
                 {"limit_bytes", m.limit_bytes}});
        return j.dump();
    }
    std::string text = "kmm runtime " + std::to_string(number_) + " on the " + driver_->name() + " driver, " +
                       std::to_string(num_devices()) + " device(s)\n";
    text += "  tasks      submitted " + std::to_string(s.tasks_submitted) + "  succeeded " +
            std::to_string(s.tasks_succeeded) + "  failed " + std::to_string(s.tasks_failed) + "  cancelled " +
            std::to_string(s.tasks_cancelled) + "  kernels " + std::to_string(s.kernels_launched) + "  unfinished " +
            std::to_string(pending_.load()) + "\n";
    text += "  links      host to device " + bytes_text(s.host_to_device.bytes) + "  device to host " +
            bytes_text(s.device_to_host.bytes) + "  device to device " + bytes_text(s.device_to_device.bytes) + "\n";
    text += "  evictions  " + std::to_string(s.evictions) + ": written down " + bytes_text(s.evicted_bytes) +
            ", dropped " + bytes_text(s.dropped_clean_bytes) + "\n";
    char pinning[96];
    std::snprintf(pinning, sizeof pinning, "  pinned     %s in %.3f s\n", bytes_text(service.pinned_bytes).c_str(),
                  service.pinning_seconds);
    text += pinning;
    for (const MemoryStats& m : s.memories)
        text +=
            "  memory     " +
            (m.memory.is_host() ? std::string("host    ") : "device " + std::to_string(m.memory.as_device().get())) +
            "  in use " + bytes_text(m.current_bytes) + "  peak " + bytes_text(m.peak_bytes) + "  limit " +
            bytes_text(m.limit_bytes) + "\n";
    return text;
}

}  // namespace kmm::detail
