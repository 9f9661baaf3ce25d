// What one call of the driver layer costs the host, on every driver present; for cuda beside the same call made raw in
// the same run. Output: common.hpp. Names are <driver>/<call>.
#include <memory>
#include <string>

#include "common.hpp"
#include "driver/registry.hpp"
#include "raw_cuda.hpp"

namespace {

using namespace kmm::bench;
using namespace kmm::driver;

void must_be_ok(Status status, const char* what, Driver& driver) {
    if (!status.ok()) {
        Report::stop(std::string(what) + " failed on the " + driver.name() + " driver: " + driver.error_text(status));
    }
}

void run_nothing(const HostKernel&, const HostLaunchGeometry&, const void*, std::uint64_t, std::uint64_t) {}
const HostKernel nothing{run_nothing, nullptr, "nothing"};

/// Memory, a stream and an event of device 0 for the length of the measurement.
class Bench {
  public:
    Bench(std::shared_ptr<Driver> driver, Report& report) : driver_(std::move(driver)), report_(report) {
        ok(driver_->set_current_device(0), "set_current_device");
        ok(driver_->create_stream(0, true, 0, &stream_), "create_stream");
        ok(driver_->create_event(0, false, false, &event_), "create_event");
        ok(driver_->allocate(0, copy_bytes * 2, &memory_), "allocate");
        ok(driver_->allocate_pinned(copy_bytes, &pinned_), "allocate_pinned");
    }
    ~Bench() {
        (void)driver_->free_pinned(pinned_);
        (void)driver_->free(memory_);
        (void)driver_->destroy_event(event_);
        (void)driver_->destroy_stream(stream_);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    void run() {
        if (driver_->kind() == Kind::cuda) raw_ = raw::call_costs(report_.repetitions(9));
        launches();
        events();
        queries_while_busy();
        copies();
        allocations();
        graphs();
        virtual_memory();
        threads();
    }

  private:
    static constexpr std::size_t copy_bytes = 4096;
    static constexpr int calls = 1000;  // less than a GPU driver's queue: no call waits for room

    void ok(Status status, const char* what) { must_be_ok(status, what, *driver_); }

    const void* kernel() const {
        static const void* const native = raw::empty_kernel();
        return driver_->kind() == Kind::host ? static_cast<const void*>(&nothing) : native;
    }

    /// Only the calls are timed, not the work that they enqueue, which is waited for between repetitions.
    template<typename Call>
    void add(const char* name, const raw::Measured& beside, Call call, int count = calls) {
        const std::string full = std::string(driver_->name()) + "/" + name;
        if (!report_.wants(full)) return;
        Samples samples;
        const int repetitions = report_.repetitions(9);
        for (int i = 0; i <= repetitions; ++i) {
            const auto begin = Clock::now();
            for (int j = 0; j < count; ++j) ok(call(), name);
            const double elapsed = seconds_since(begin);
            ok(driver_->synchronize_stream(stream_), "synchronize_stream");
            if (i > 0) samples.push_back(elapsed / count);
        }
        Beside more;
        if (driver_->kind() == Kind::cuda && beside.ok() && !beside.seconds.empty()) more.raw = beside.seconds;
        report_.add(full, samples, nanoseconds(), more);
    }
    template<typename Call>
    void add(const char* name, Call call, int count = calls) {
        add(name, raw::Measured{}, call, count);
    }

    void launches() {
        KernelLaunch launch;
        launch.function = kernel();
        if (launch.function == nullptr) {
            report_.skip(std::string(driver_->name()) + "/launch", "no kernel was compiled for this driver");
            return;
        }
        add("launch", raw_.launch, [&] { return driver_->launch(launch, stream_); });
        add("launch_and_wait", raw_.launch_and_wait, [&] {
            const Status status = driver_->launch(launch, stream_);
            return status.ok() ? driver_->synchronize_stream(stream_) : status;
        });
        add("host_callback", [&] { return driver_->host_callback(stream_, [](void*) {}, nullptr); });
    }

    void events() {
        add("event_record", raw_.event_record, [&] { return driver_->record_event(event_, stream_); });
        add("event_query", raw_.event_query, [&] { return driver_->query_event(event_); });
        add("stream_query", [&] { return driver_->query_stream(stream_); });
        add("wait_event", raw_.stream_wait_event, [&] { return driver_->wait_event(stream_, event_); });
        add("event_create_destroy", raw_.event_create_destroy, [&] {
            EventHandle made;
            const Status status = driver_->create_event(0, false, false, &made);
            return status.ok() ? driver_->destroy_event(made) : status;
        });
        if (driver_->capabilities().device_event) {
            add("device_event_record", [&] { return driver_->device_event_record(0, event_); });
        }
        if (driver_->capabilities().stream_ids) {
            std::uint64_t id = 0;
            add("stream_id", [&] { return driver_->stream_id(stream_, &id); });
        }
        int device = 0;
        add("current_device", [&] { return driver_->current_device(&device); });
        add("set_current_device", [&] { return driver_->set_current_device(0); });
        PointerInfo info;
        add("pointer_info", [&] { return driver_->pointer_info(memory_, &info); });
    }

    /// A query costs something else while the device works: of the event that it works towards, and of one that has
    /// passed.
    void queries_while_busy() {
        KernelLaunch busy;
        busy.function = driver_->kind() == Kind::cuda ? raw::spin_kernel() : nullptr;
        if (busy.function == nullptr) return;
        const long long cycles = 20'000'000;  // about 10 ms, longer than the queries of one repetition
        busy.parameters = &cycles;
        busy.parameter_bytes = sizeof cycles;
        EventHandle passed;
        ok(driver_->create_event(0, false, false, &passed), "create_event");
        Samples of_pending, of_passed;
        for (int i = 0; i < report_.repetitions(9); ++i) {
            ok(driver_->record_event(passed, stream_), "record_event");
            ok(driver_->synchronize_event(passed), "synchronize_event");
            ok(driver_->launch(busy, stream_), "launch");
            ok(driver_->record_event(event_, stream_), "record_event");
            of_pending.push_back(time_queries(event_, Code::not_ready));
            of_passed.push_back(time_queries(passed, Code::ok));
            ok(driver_->synchronize_stream(stream_), "synchronize_stream");
        }
        ok(driver_->destroy_event(passed), "destroy_event");
        report_.add(std::string(driver_->name()) + "/event_query_pending", of_pending, nanoseconds());
        report_.add(std::string(driver_->name()) + "/event_query_passed_while_busy", of_passed, nanoseconds());
    }

    double time_queries(EventHandle event, Code expected) {
        const auto begin = Clock::now();
        for (int j = 0; j < calls; ++j) {
            const Status status = driver_->query_event(event);
            if (status.code != expected)
                Report::stop("a query of an event gave another answer than the device's state");
        }
        return seconds_since(begin) / calls;
    }

    void copies() {
        char* const first = static_cast<char*>(memory_);
        add("copy_device_to_device", raw_.copy_enqueue,
            [&] { return driver_->copy(first, first + copy_bytes, copy_bytes, stream_); });
        add("copy_pinned_to_device", [&] { return driver_->copy(first, pinned_, copy_bytes, stream_); });
        const std::uint32_t word = 7;
        add("fill_4_bytes", raw_.fill_enqueue,
            [&] { return driver_->fill(first, &word, sizeof word, copy_bytes / sizeof word, stream_); });
        const std::uint64_t pattern = 0x0123456789abcdef;
        add("fill_8_bytes",
            [&] { return driver_->fill(first, &pattern, sizeof pattern, copy_bytes / sizeof pattern, stream_); });
        batches(first);
    }

    void batches(char* first) {
        constexpr std::size_t pieces = 64;
        CopyPiece list[pieces];
        for (std::size_t i = 0; i < pieces; ++i) {
            list[i] = {first + i * (copy_bytes / pieces), static_cast<char*>(pinned_) + i * (copy_bytes / pieces),
                       copy_bytes / pieces};
        }
        add("copy_batch_of_64", [&] { return driver_->copy_batch(list, pieces, stream_); }, 100);
    }

    void allocations() {
        add(
            "allocate_free_4_mib",
            [&] {
                void* made = nullptr;
                const Status status = driver_->allocate(0, std::size_t{4} << 20, &made);
                return status.ok() ? driver_->free(made) : status;
            },
            100);
        if (!driver_->capabilities().memory_pools) return;
        PoolHandle pool;
        ok(driver_->default_pool(0, &pool), "default_pool");
        add("allocate_async_free_async", raw_.malloc_async_free_async, [&] {
            void* made = nullptr;
            const Status status = driver_->allocate_async(pool, copy_bytes, stream_, &made);
            return status.ok() ? driver_->free_async(made, stream_) : status;
        });
    }

    void graphs() {
        if (!driver_->capabilities().graphs || kernel() == nullptr) return;
        constexpr int nodes = 1000;
        KernelLaunch launch;
        launch.function = kernel();
        GraphHandle graph;
        ok(driver_->create_graph(&graph), "create_graph");
        GraphNodeHandle last;
        int made = 0;
        const auto begin = Clock::now();
        for (; made < nodes; ++made) {
            ok(driver_->add_kernel_node(graph, &last, made == 0 ? 0 : 1, launch, &last), "add_kernel_node");
        }
        const double building = seconds_since(begin) / nodes;
        GraphExecHandle exec;
        const auto second = Clock::now();
        ok(driver_->instantiate(graph, &exec), "instantiate");
        const double instantiating = seconds_since(second) / nodes;
        report_.add(std::string(driver_->name()) + "/graph_build_node", {building}, nanoseconds());
        report_.add(std::string(driver_->name()) + "/graph_instantiate_node", {instantiating}, nanoseconds());
        add("graph_update_node", [&] { return driver_->update_kernel_node(exec, last, launch); }, 100);
        const std::string replay = std::string(driver_->name()) + "/graph_replay_node";
        if (report_.wants(replay)) {
            Samples samples = time_each(report_.repetitions(9), [&] {
                ok(driver_->launch_graph(exec, stream_), "launch_graph");
                ok(driver_->synchronize_stream(stream_), "synchronize_stream");
            });
            for (double& sample : samples) sample /= nodes;
            report_.add(replay, samples, nanoseconds());
        }
        ok(driver_->destroy_exec(exec), "destroy_exec");
        ok(driver_->destroy_graph(graph), "destroy_graph");
    }

    /// Create, map, let the device at it, unmap, release: a piece of 2 MiB each.
    void virtual_memory() {
        const std::string base = std::string(driver_->name()) + "/vmm_";
        if (!driver_->capabilities().virtual_memory || !report_.wants(base)) return;
        constexpr int pieces = 64;
        std::size_t granularity = 0;
        ok(driver_->granularity(0, {}, &granularity), "granularity");
        const std::size_t piece = (((std::size_t{2} << 20) + granularity - 1) / granularity) * granularity;
        Samples create, map, access, unmap, release;
        const auto each = [&](Samples& samples, auto call) {
            const auto begin = Clock::now();
            for (int i = 0; i < pieces; ++i) ok(call(i), "virtual memory");
            samples.push_back(seconds_since(begin) / pieces);
        };
        for (int round = 0; round < report_.repetitions(5); ++round) {
            void* base_address = nullptr;
            ok(driver_->reserve_addresses(piece * pieces, &base_address), "reserve_addresses");
            const auto at = [&](int i) { return static_cast<char*>(base_address) + piece * i; };
            PhysicalHandle handles[pieces];
            const int device = 0;
            each(create, [&](int i) { return driver_->create_physical(0, piece, {}, &handles[i]); });
            each(map, [&](int i) { return driver_->map(at(i), piece, handles[i]); });
            each(access, [&](int i) { return driver_->set_access(at(i), piece, &device, 1); });
            each(unmap, [&](int i) { return driver_->unmap(at(i), piece); });
            each(release, [&](int i) { return driver_->release_physical(handles[i]); });
            ok(driver_->release_addresses(base_address, piece * pieces), "release_addresses");
        }
        report_.add(base + "create", create, nanoseconds());
        report_.add(base + "map", map, nanoseconds());
        report_.add(base + "set_access", access, nanoseconds());
        report_.add(base + "unmap", unmap, nanoseconds());
        report_.add(base + "release", release, nanoseconds());
    }

    /// Launch and record from several threads with a stream each; wall time of one call over all threads.
    void threads() {
        for (const int num_threads : {4, 16}) {
            const std::string suffix = "_" + std::to_string(num_threads) + "_threads";
            std::vector<StreamHandle> streams(num_threads);
            std::vector<EventHandle> events(num_threads);
            for (StreamHandle& stream : streams) ok(driver_->create_stream(0, true, 0, &stream), "create_stream");
            for (EventHandle& event : events) ok(driver_->create_event(0, false, false, &event), "create_event");
            KernelLaunch launch;
            launch.function = kernel();
            if (launch.function != nullptr) {
                from_threads("launch" + suffix, streams, [&](int i) { return driver_->launch(launch, streams[i]); });
            }
            from_threads("event_record" + suffix, streams,
                         [&](int i) { return driver_->record_event(events[i], streams[i]); });
            from_threads("event_query" + suffix, streams, [&](int i) { return driver_->query_event(events[i]); });
            for (const EventHandle event : events) ok(driver_->destroy_event(event), "destroy_event");
            for (const StreamHandle stream : streams) ok(driver_->destroy_stream(stream), "destroy_stream");
        }
    }

    template<typename Call>
    void from_threads(const std::string& name, const std::vector<StreamHandle>& streams, Call call) {
        const std::string full = std::string(driver_->name()) + "/" + name;
        if (!report_.wants(full)) return;
        const int num_threads = static_cast<int>(streams.size());
        const int count = report_.size(20'000, 1'000);
        Samples samples;
        for (int i = 0; i < report_.repetitions(5); ++i) {
            const double elapsed = time_threads(num_threads, [&](int thread) {
                for (int j = 0; j < count; ++j) ok(call(thread), name.c_str());
                ok(driver_->synchronize_stream(streams[thread]), "synchronize_stream");
            });
            samples.push_back(elapsed / (double(count) * num_threads));
        }
        report_.add(full, samples, nanoseconds());
    }

    std::shared_ptr<Driver> driver_;
    Report& report_;
    raw::CallCosts raw_;
    StreamHandle stream_;
    EventHandle event_;
    void* memory_ = nullptr;
    void* pinned_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
    Report report(argc, argv);
    for (const Kind kind : {Kind::host, Kind::cuda}) {
        std::string reason;
        const std::shared_ptr<Driver> driver = open(kind, &reason);
        if (driver) {
            Bench(driver, report).run();
        } else {
            report.skip(kind == Kind::cuda ? "cuda" : "host", reason);
        }
    }
}
