#include "synthetic_trace.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t num_chunks = 24;         // of each array, on each device
constexpr std::size_t room = 24;               // chunks that a device holds: half of both arrays
constexpr std::size_t chunk_bytes = 64 << 20;  // takes 1.2 ms over a link of 55 GB/s
constexpr double copy_us = 1220;
constexpr double kernel_us = 610;

/// Where a chunk of x or y is, and since when.
struct Resident {
    std::string name;
    double ready_us;
    bool changed;
};

struct Device {
    int pid;
    std::list<Resident> chunks;  // the one used last in front
    double compute_us[2] = {0, 0};
    double up_us = 0;
    double down_us = 0;
    double peer_us = 0;
};

class Story {
  public:
    explicit Story(std::size_t num_devices) {
        for (std::size_t d = 0; d < num_devices; ++d) {
            const int pid = 3 + static_cast<int>(d);
            devices_.push_back({pid, {}});
            name_process(pid, "GPU " + std::to_string(d) + ": NVIDIA H200", pid);
            const char* lanes[] = {"compute 0", "compute 1", "up", "down", "peer"};
            for (int lane = 0; lane < 5; ++lane) name_thread(pid, lane + 1, lanes[lane]);
        }
    }

    std::string write(std::size_t num_tasks);

  private:
    double random() {
        state_ = state_ * 6364136223846793005U + 1442695040888963407U;
        return static_cast<double>(state_ >> 40) / static_cast<double>(1 << 24);
    }

    void add(const std::string& fields) { events_ += (events_.empty() ? "" : ",\n") + ("{" + fields + "}"); }

    void name_process(int pid, const std::string& name, int index) {
        const std::string who = R"("ph":"M","tid":0,"pid":)" + std::to_string(pid);
        add(who + R"(,"name":"process_name","args":{"name":")" + name + "\"}");
        add(who + R"(,"name":"process_sort_index","args":{"sort_index":)" + std::to_string(index) + "}");
    }
    void name_thread(int pid, int tid, const std::string& name) {
        add(R"("ph":"M","name":"thread_name","pid":)" + std::to_string(pid) + ",\"tid\":" + std::to_string(tid) +
            R"(,"args":{"name":")" + name + "\"}");
    }

    static std::string us(double value) {
        char text[64];
        std::snprintf(text, sizeof(text), "%.3f", value);
        return text;
    }

    void slice(int pid, int tid, const std::string& name, const char* category, double begin, double length,
               const std::string& arguments) {
        add(R"("ph":"X","pid":)" + std::to_string(pid) + ",\"tid\":" + std::to_string(tid) + ",\"name\":\"" + name +
            "\",\"cat\":\"" + category + "\",\"ts\":" + us(begin) + ",\"dur\":" + us(length) + ",\"args\":{" +
            arguments + "}");
    }

    void memory(int pid, double time, std::ptrdiff_t bytes) { changes_[pid].emplace_back(time, bytes); }

    /// The runtime holds memory in steps of 512 MiB, and never gives it back.
    void write_memory() {
        constexpr std::ptrdiff_t step = 512 << 20;
        for (auto& [pid, changes] : changes_) {
            std::sort(changes.begin(), changes.end());
            std::ptrdiff_t in_use = 0;
            std::ptrdiff_t held = 0;
            for (const auto& [time, bytes] : changes) {
                in_use += bytes;
                held = std::max(held, (in_use + step - 1) / step * step);
                add(R"("ph":"C","tid":0,"name":"memory","pid":)" + std::to_string(pid) + ",\"ts\":" + us(time) +
                    ",\"args\":{\"in use\":" + std::to_string(in_use) + ",\"held\":" + std::to_string(held) +
                    (pid > 2 ? ",\"limit\":" + std::to_string((room + 4) * chunk_bytes) : "") + "}");
            }
        }
    }

    void wait(Device& device, std::size_t task, const char* phase, double time) {
        add(std::string(R"("ph":")") + phase + R"(","cat":"wait for memory","name":"axpy","tid":0,"id":)" +
            std::to_string(task) + ",\"pid\":" + std::to_string(device.pid) + ",\"ts\":" + us(time) +
            ",\"args\":{\"task\":" + std::to_string(task) + ",\"bytes\":" + std::to_string(chunk_bytes) + "}");
    }

    double make_room(Device& device, double now);
    double bring(Device& device, std::size_t task, const std::string& array, std::size_t chunk, double now,
                 bool change);
    void axpy(Device& device, std::size_t task, std::size_t chunk, double submitted);
    void send_halo(const Device& from, std::size_t task, std::size_t chunk, double ready);
    double reduce(std::size_t task, double begin);

    std::uint64_t state_ = 2024;
    double room_us_ = 0;  ///< when the task that is being made has room for its chunks
    std::string events_;
    std::vector<Device> devices_;
    std::map<int, std::vector<std::pair<double, std::ptrdiff_t>>> changes_;
};

/// Evicts the chunk that was used longest ago; the time at which its room is free.
double Story::make_room(Device& device, double now) {
    if (device.chunks.size() < room) return now;
    const Resident victim = device.chunks.back();
    device.chunks.pop_back();
    double free_us = std::max(now, victim.ready_us);
    const std::string bytes = "\"bytes\":" + std::to_string(chunk_bytes);
    add(R"("ph":"i","s":"p","cat":"evict","tid":0,"pid":)" + std::to_string(device.pid) + ",\"name\":\"" + victim.name +
        "\",\"ts\":" + us(free_us) + ",\"args\":{" + bytes + ",\"saved\":" + (victim.changed ? "true" : "false") + "}");
    if (victim.changed) {
        const double begin = std::max(free_us, device.down_us);
        const double length = copy_us * (0.97 + 0.06 * random());
        slice(device.pid, 4, victim.name, "copy", begin, length,
              bytes + R"(,"array":")" + victim.name.substr(0, 1) + R"(","from":"GPU )" +
                  std::to_string(device.pid - 3) + R"(","to":"host")");
        free_us = device.down_us = begin + length;
    }
    memory(device.pid, free_us, -static_cast<std::ptrdiff_t>(chunk_bytes));
    return free_us;
}

double Story::bring(Device& device, std::size_t task, const std::string& array, std::size_t chunk, double now,
                    bool change) {
    const std::string name = array + "[" + std::to_string(chunk) + "]";
    const auto place = std::find_if(device.chunks.begin(), device.chunks.end(),
                                    [&](const Resident& resident) { return resident.name == name; });
    if (place != device.chunks.end()) {
        device.chunks.splice(device.chunks.begin(), device.chunks, place);
        device.chunks.front().changed |= change;
        return std::max(now, device.chunks.front().ready_us);
    }
    const double free_us = make_room(device, now);
    room_us_ = std::max(room_us_, free_us);
    const double begin = std::max(free_us, device.up_us);
    const double length = copy_us * (0.97 + 0.06 * random());
    slice(device.pid, 3, name, "copy", begin, length,
          "\"array\":\"" + array + "\",\"array_chunk\":" + std::to_string(chunk) +
              ",\"bytes\":" + std::to_string(chunk_bytes) + R"(,"from":"host","to":"GPU )" +
              std::to_string(device.pid - 3) + "\",\"task\":" + std::to_string(task));
    device.up_us = begin + length;
    device.chunks.push_front({name, device.up_us, change});
    memory(device.pid, free_us, chunk_bytes);
    return device.up_us;
}

void Story::axpy(Device& device, std::size_t task, std::size_t chunk, double submitted) {
    room_us_ = submitted;
    const double x = bring(device, task, "x", chunk, submitted, false);
    const double y = bring(device, task, "y", chunk, submitted, true);
    if (room_us_ > submitted) {
        wait(device, task, "b", submitted);
        wait(device, task, "e", room_us_);
    }
    const int lane = device.compute_us[0] <= device.compute_us[1] ? 0 : 1;
    const double begin = std::max({x, y, device.compute_us[lane]}) + 2;
    const double length = kernel_us * (0.9 + 0.2 * random());
    slice(device.pid, lane + 1, task % 7 == 0 ? "scale" : "axpy", "kernel", begin, length,
          "\"task\":" + std::to_string(task) + ",\"chunk\":\"" + std::to_string(chunk) + " of " +
              std::to_string(num_chunks) + "\",\"bytes\":" + std::to_string(2 * chunk_bytes) +
              ",\"position\":" + std::to_string(task) + ",\"after\":\"up:" + std::to_string(task) + "\"");
    device.compute_us[lane] = begin + length;
    if (devices_.size() > 1 && task % 5 == 0) send_halo(device, task, chunk, begin + length);
    for (Resident& resident : device.chunks)
        if (resident.name.substr(1) == "[" + std::to_string(chunk) + "]") resident.ready_us = begin + length;
}

/// The border of a chunk goes to the next device, on that one's lane.
void Story::send_halo(const Device& from, std::size_t task, std::size_t chunk, double ready) {
    Device& to = devices_[static_cast<std::size_t>(from.pid - 2) % devices_.size()];
    const double begin = std::max(ready, to.peer_us);
    slice(to.pid, 5, "y[" + std::to_string(chunk) + "]", "copy", begin, 130,
          "\"array\":\"y\",\"array_chunk\":" + std::to_string(chunk) + R"(,"bytes":16777216,"from":"GPU )" +
              std::to_string(from.pid - 3) + "\",\"to\":\"GPU " + std::to_string(to.pid - 3) +
              "\",\"task\":" + std::to_string(task));
    to.peer_us = begin + 130;
}

double Story::reduce(std::size_t task, double begin) {
    const double length = 900 + 400 * random();
    const std::string arguments = "\"task\":" + std::to_string(task);
    slice(2, 1, "reduce", "host task", begin, length, arguments);
    slice(2, 1, "sum of a block", "host task", begin + 50, length / 2, arguments);
    memory(2, begin, 3 * chunk_bytes);
    memory(2, begin + length, -static_cast<std::ptrdiff_t>(3 * chunk_bytes));
    return begin + length;
}

std::string Story::write(std::size_t num_tasks) {
    double submitted = 0;
    double reduced = 0;
    memory(2, 0, static_cast<std::ptrdiff_t>(devices_.size() * num_chunks * 2 * chunk_bytes));
    for (std::size_t task = 1; task <= num_tasks; ++task) {
        const double length = 0.4 + 0.5 * random();
        slice(1, 1, "axpy", "submit", submitted, length, "\"task\":" + std::to_string(task));
        slice(1, 2, "turn", "turn", submitted + length, 0.4 + random(), "\"tasks\":1");
        submitted += length + 2;
        Device& device = devices_[task % devices_.size()];
        axpy(device, task, task / devices_.size() % num_chunks, submitted);
        if (task % (devices_.size() * num_chunks) != 0) continue;
        for (const Device& each : devices_) reduced = std::max({reduced, each.compute_us[0], each.compute_us[1]});
        reduced = reduce(task, reduced);
        submitted = std::max(submitted, reduced);
    }
    write_memory();
    add(R"("ph":"i","s":"p","cat":"fail","pid":3,"tid":0,"name":"axpy","ts":)" + us(reduced) + R"(,"args":{"task":)" +
        std::to_string(num_tasks) + R"(,"error":"the kernel threw: index 7 of 4"})");
    name_process(1, "the program", 1);
    name_thread(1, 1, "submits");
    name_thread(1, 2, "scheduler");
    name_process(2, "host", 2);
    name_thread(2, 1, "thread 0");
    name_thread(2, 2, "thread 1");
    return R"({"displayTimeUnit":"ms","otherData":{"kmm_version":"0.1.0","runtime":"1","driver":"cuda",)"
           R"("device_times":"host","dropped_events":"0"},"traceEvents":[)" +
           ("\n" + events_ + "\n]}\n");
}

}  // namespace

std::string synthetic_trace(std::size_t num_tasks, std::size_t num_devices) {
    return Story(num_devices).write(num_tasks);
}
