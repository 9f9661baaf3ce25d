// What the hardware and CUDA give without us: the figures that every other benchmark is compared with. Output:
// common.hpp.
#include "common.hpp"
#include "raw_cuda.hpp"

namespace {

using namespace kmm::bench;

void add(Report& report, const std::string& name, const raw::Measured& measured, const Unit& unit) {
    if (measured.ok()) {
        report.add(name, measured.seconds, unit);
    } else {
        report.skip(name, measured.error);
    }
}

void kernels(Report& report) {
    if (report.wants("raw/vector_add")) {
        // As in KMM's README: five hundred million floats in ten pieces, twenty times.
        const auto count = report.size<std::size_t>(500'000'000, 10'000'000);
        add(report, "raw/vector_add", raw::vector_add(count, 10, 20, report.repetitions(3)),
            gigabytes_per_second(12.0 * static_cast<double>(count)));
    }
    if (report.wants("raw/axpy")) {
        const auto chunk = report.size<std::size_t>(64 << 20, 1 << 20);
        add(report, "raw/axpy", raw::axpy(chunk, 32, 10, report.repetitions(3)),
            gigabytes_per_second(3.0 * static_cast<double>(chunk) * 32 * 10));
    }
    if (report.wants("raw/out_of_core_axpy")) {
        // x and y together 16 GiB, ten passes over each chunk while it is on the device.
        const int chunks = report.size(128, 8);
        add(report, "raw/out_of_core_axpy",
            raw::axpy_streamed(std::size_t{64} << 20, chunks, 10, report.repetitions(3)), seconds());
    }
}

void tiny(Report& report) {
    const int tasks = report.size(100'000, 2'000);
    const struct {
        const char* name;
        raw::Shape shape;
    } shapes[] = {
        {"independent", raw::Shape::independent}, {"chain", raw::Shape::chain}, {"stencil", raw::Shape::stencil}};
    for (const auto& [name, shape] : shapes) {
        const std::string base = std::string("raw/tiny_kernel/") + name;
        if (!report.wants(base)) continue;
        add(report, base, raw::tiny_kernels(shape, tasks, report.repetitions(5)), microseconds());
        add(report, base + "/graph", raw::tiny_graph_replay(shape, tasks, report.repetitions(5)), microseconds());
    }
    for (const int threads : {4, 16}) {
        const std::string name = "raw/tiny_kernel/" + std::to_string(threads) + "_threads";
        if (!report.wants(name)) continue;
        add(report, name, raw::tiny_kernels_threads(threads, tasks / threads, report.repetitions(5)), microseconds());
    }
}

void copies(Report& report) {
    const auto bytes = report.size<std::size_t>(std::size_t{4} << 30, 64 << 20);
    const auto piece = std::size_t{64} << 20;
    const struct {
        const char* name;
        raw::Direction direction;
        double ways;
    } directions[] = {
        {"up", raw::Direction::up, 1}, {"down", raw::Direction::down, 1}, {"both", raw::Direction::both, 2}};
    for (const auto& [name, direction, ways] : directions) {
        const std::string full = std::string("raw/pinned_copy/") + name;
        if (!report.wants(full)) continue;
        add(report, full, raw::pinned_copy(direction, bytes, piece, report.repetitions(5)),
            gigabytes_per_second(ways * static_cast<double>(bytes)));
    }
    for (const bool both_ways : {false, true}) {
        const std::string name = both_ways ? "raw/peer_copy/both" : "raw/peer_copy/one_way";
        if (!report.wants(name)) continue;
        add(report, name, raw::peer_copy(0, 1, both_ways, bytes, report.repetitions(5)),
            gigabytes_per_second((both_ways ? 2.0 : 1.0) * static_cast<double>(bytes)));
    }
}

void calls(Report& report) {
    if (!report.wants("raw/call")) return;
    const raw::CallCosts costs = raw::call_costs(report.repetitions(9));
    add(report, "raw/call/launch", costs.launch, nanoseconds());
    add(report, "raw/call/launch_and_wait", costs.launch_and_wait, nanoseconds());
    add(report, "raw/call/event_record", costs.event_record, nanoseconds());
    add(report, "raw/call/event_query", costs.event_query, nanoseconds());
    add(report, "raw/call/stream_wait_event", costs.stream_wait_event, nanoseconds());
    add(report, "raw/call/event_create_destroy", costs.event_create_destroy, nanoseconds());
    add(report, "raw/call/copy_enqueue", costs.copy_enqueue, nanoseconds());
    add(report, "raw/call/fill_enqueue", costs.fill_enqueue, nanoseconds());
    add(report, "raw/call/malloc_async_free_async", costs.malloc_async_free_async, nanoseconds());
}

}  // namespace

int main(int argc, char** argv) {
    Report report(argc, argv);
    kernels(report);
    tiny(report);
    copies(report);
    calls(report);
}
