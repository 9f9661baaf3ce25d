// What lanes wait for: a stencil on the scripted driver, where every wait and every event of the driver is looked at.
#include "harness.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <future>
#include <map>
#include <set>

#include "kmm/runtime/runtime_core.hpp"
#include "kmm/trace/record_reader.hpp"
#include "scripted_driver.hpp"

namespace {

using kmm::driver::testing::LogEntry;
using kmm::driver::testing::ScriptedDriver;

constexpr std::int64_t n = 64;  // elements of a chunk
constexpr std::size_t num_chunks = 16;

__global__ void largest_and_one(kmm::GPUSubviewMut<std::int64_t> to, kmm::GPUSubview<std::int64_t> left,
                                kmm::GPUSubview<std::int64_t> middle, kmm::GPUSubview<std::int64_t> right) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    to[to.begin() + i] = std::max({left[left.begin() + i], middle[middle.begin() + i], right[right.begin() + i]}) + 1;
}

kmm::Range<std::int64_t> chunk_range(std::size_t chunk) {
    const auto first = static_cast<std::int64_t>(chunk % num_chunks) * n;
    return {first, first + n};
}

/// Launch `position` of a lane; the lanes are numbered as they come into use.
struct Place {
    std::size_t lane = 0;
    std::size_t position = 0;  ///< from 1
    friend auto operator<=>(const Place&, const Place&) = default;
};

/// What a lane is put behind, before the launch `next` of it.
struct Wait {
    Place next;
    Place after;
    friend auto operator<=>(const Wait&, const Wait&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Wait& w) {
        return out << w.next.lane << ':' << w.next.position << " after " << w.after.lane << ':' << w.after.position;
    }
};

/// The numbers of the kernels, in the order of submission and in that of their issue.
class Kernels final : public kmm::trace::Consumer {
  public:
    void bound(const kmm::trace::Array&, std::int64_t) noexcept override {}
    void named(kmm::trace::Number, const std::string&, std::int64_t) noexcept override {}
    void submitted(const kmm::trace::Task& task, std::int64_t) noexcept override {
        if (task.kind == kmm::trace::TaskKind::kernel) submitted_.push_back(task.number);
    }
    void note(const kmm::trace::Event& event, const kmm::trace::Fence*, std::size_t, std::int64_t,
              std::uint32_t) noexcept override {
        if (event.what == kmm::trace::What::launch) issued_.push_back(event.task);
    }
    void finish(std::uint64_t) noexcept override {}
    /// By place in the order of submission: that in the order of issue.
    std::vector<std::size_t> order() const {
        std::map<kmm::trace::Number, std::size_t> issued;
        for (std::size_t i = 0; i < issued_.size(); ++i) issued[issued_[i]] = i;
        std::vector<std::size_t> order;
        for (const kmm::trace::Number number : submitted_) order.push_back(issued.at(number));
        return order;
    }

  private:
    std::vector<kmm::trace::Number> submitted_;
    std::vector<kmm::trace::Number> issued_;
};

struct Observed {
    std::vector<Place> places;  ///< of the kernels, by step * num_chunks + chunk
    std::vector<Wait> waits;    ///< of compute lanes for each other
    std::size_t issued_at_once = 0;
    std::vector<std::int64_t> result;
};

/// What the driver was told, in terms of launches: streams without any are no compute lanes.
void read_log(const std::vector<LogEntry>& log, std::vector<Place>& launches, std::vector<Wait>& waits) {
    std::map<void*, std::size_t> lane_of;
    for (const LogEntry& e : log)
        if (e.call == "launch") lane_of.emplace(e.stream.native, lane_of.size());
    std::vector<std::size_t> launched(lane_of.size());
    std::map<void*, Place> recorded;  // by event
    for (const LogEntry& e : log) {
        const auto found = lane_of.find(e.stream.native);
        if (found == lane_of.end()) continue;
        const std::size_t lane = found->second;
        if (e.call == "launch")
            launches.push_back({lane, ++launched[lane]});
        else if (e.call == "record_event")
            recorded[e.event.native] = {lane, launched[lane]};
        else if (e.call == "wait_event" && recorded.count(e.event.native) != 0)
            waits.push_back({{lane, launched[lane] + 1}, recorded[e.event.native]});
    }
}

/// What the kernels need by the order in which they were put on the lanes, without what earlier waits of a lane imply.
std::vector<Wait> needed_waits(const std::vector<Place>& places, std::size_t count) {
    std::map<std::size_t, std::map<std::size_t, std::size_t>> needs;  // by step * num_chunks + chunk: position by lane
    std::map<Place, std::size_t> by_place;
    for (std::size_t k = 0; k < count; ++k) {
        by_place[places[k]] = k;
        if (k < num_chunks) continue;
        for (const std::size_t other : {num_chunks - 1, std::size_t{0}, std::size_t{1}}) {
            const Place& p = places[(k / num_chunks - 1) * num_chunks + (k + other) % num_chunks];
            if (p.lane != places[k].lane) needs[k][p.lane] = std::max(needs[k][p.lane], p.position);
        }
    }
    std::vector<Wait> waits;
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> known;
    for (const auto& [place, k] : by_place)
        for (const auto& [lane, position] : needs[k]) {
            if (known[{place.lane, lane}] >= position) continue;
            known[{place.lane, lane}] = position;
            waits.push_back({place, {lane, position}});
        }
    return waits;
}

bool comes_true(const std::function<bool()>& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::yield();
    }
    return true;
}

/// Submits the stencil while its input is held back, so that the schedule knows all of it when it issues the first
/// kernel; and holds the device until no more is issued.
Observed run_stencil(std::size_t lanes, int steps) {
    const std::string file = ::testing::TempDir() + "kmm_lane_waits_" + std::to_string(getpid());
    auto driver = std::make_shared<ScriptedDriver>();
    RuntimeConfig config;
    config.driver = kmm::DriverKind::Host;
    config.host_threads = 1;
    config.device_concurrent_streams = lanes;
    config.record = file;
    Observed observed;
    // As many as a device is given at a time (schedule::SchedulerOptions).
    observed.issued_at_once = std::min<std::size_t>(1024, static_cast<std::size_t>(steps) * num_chunks);
    {
        const RuntimeHandle rt(kmm::detail::RuntimeCore::start(config, driver));
        std::promise<void> begin;
        std::shared_future<void> begun = begin.get_future().share();
        Array<std::int64_t> arrays[2] = {rt.array<std::int64_t>(num_chunks * n, Dim<1>(n)),
                                         rt.array<std::int64_t>(num_chunks * n, Dim<1>(n))};
        std::vector<DomainChunk> on_host;
        for (std::size_t chunk = 0; chunk < num_chunks; ++chunk)
            on_host.push_back({ResourceId::host(), kmm::DomainPoint(chunk_range(chunk).begin), kmm::DomainDim(n)});
        rt.parallel_submit(on_host, Host([begun](kmm::SubviewMut<std::int64_t> v) {
                               begun.wait();
                               for (std::int64_t i = v.begin(); i < v.end(); ++i) v[i] = i == 0 ? 1 : 0;
                           }),
                           overwrite(arrays[0][_x]));
        driver->set_automatic(false);
        const GPUKernel kernel = GPUKernel(largest_and_one, dim3(64)).grid(dim3(1));
        for (int step = 0; step < steps; ++step)
            for (std::size_t chunk = 0; chunk < num_chunks; ++chunk) {
                const auto& in = arrays[step % 2];
                const auto left = chunk_range(chunk + num_chunks - 1), middle = chunk_range(chunk),
                           right = chunk_range(chunk + 1);
                rt.submit(ResourceId(DeviceId(0)), kernel,
                          overwrite(arrays[(step + 1) % 2][kmm::range(middle.begin, middle.end)]),
                          in[kmm::range(left.begin, left.end)], in[kmm::range(middle.begin, middle.end)],
                          in[kmm::range(right.begin, right.end)]);
            }
        begin.set_value();
        EXPECT_TRUE(comes_true([&] { return driver->count("launch") >= observed.issued_at_once; }));
        driver->set_automatic(true);
        observed.result = arrays[steps % 2].copy_to_vector();
    }
    std::vector<Place> launches;
    read_log(driver->log(), launches, observed.waits);
    Kernels kernels;
    std::ifstream in(file);
    bool complete = false;
    (void)kmm::trace::read_record(in, file, kernels, &complete);
    std::remove(file.c_str());
    EXPECT_TRUE(complete);
    for (const std::size_t place : kernels.order()) observed.places.push_back(launches.at(place));
    return observed;
}

/// The waits that were put on the lanes while the device stood still.
std::vector<Wait> first_waits(const Observed& observed) {
    std::set<Place> held(observed.places.begin(),
                         observed.places.begin() + static_cast<std::ptrdiff_t>(observed.issued_at_once));
    std::vector<Wait> waits;
    for (const Wait& w : observed.waits)
        if (held.count(w.next) != 0) waits.push_back(w);
    std::sort(waits.begin(), waits.end());
    return waits;
}

TEST(LaneWaits, a_stencil_waits_for_exactly_the_positions_that_it_needs) {
    for (const std::size_t lanes : {2, 4}) {
        SCOPED_TRACE(std::to_string(lanes) + " lanes");
        const Observed observed = run_stencil(lanes, 100);
        ASSERT_EQ(observed.places.size(), std::size_t{100 * num_chunks});
        std::vector<Wait> needed = needed_waits(observed.places, observed.issued_at_once);
        std::sort(needed.begin(), needed.end());
        EXPECT_EQ(first_waits(observed), needed);
        // After 100 steps the one has spread over all elements' chunks, and each step added one.
        for (const std::int64_t value : observed.result) EXPECT_LE(value, 101);
        EXPECT_EQ(observed.result[0], 101);
    }
}

TEST(LaneWaits, a_stencil_waits_for_neighbours_of_other_lanes_alone) {
    for (const std::size_t lanes : {1, 2, 4}) {
        const std::size_t steps = 64;  // all of them are issued at once
        const Observed observed = run_stencil(lanes, static_cast<int>(steps));
        // Each row of chunks needs its two neighbours; the first step is spread as lanes are free.
        const std::size_t ends = lanes == 1 ? 0 : 2 * lanes;
        EXPECT_LE(observed.waits.size(), steps * ends + 2 * num_chunks) << lanes;
        EXPECT_GE(observed.waits.size(), (steps - 2) * ends) << lanes;
    }
}

}  // namespace
