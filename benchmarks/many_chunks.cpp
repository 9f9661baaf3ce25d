// How the cost of arrays of very many pieces grows: each figure at n pieces and at 2 n. Irregular chunks made, written
// by one submit, and freed; copies and synchronize of small chunks; joins of events; tiles written into one chunk. Host
// driver, host tasks that do nothing; copies of small chunks of a device on whatever driver there is. And what the host
// keeps of chunks, before and after a task has used them. Output: common.hpp.
#include <malloc.h>

#include <random>

#include "kmm_runtime.hpp"

namespace {

using namespace kmm::bench;
using namespace kmm::placeholders;
using kmm::Array;
using kmm::ArrayChunk;
using kmm::Dim;
using kmm::Distribution;
using kmm::EventId;
using kmm::Host;
using kmm::MemoryId;
using kmm::Point;
using kmm::range;
using kmm::ResourceId;
using kmm::RuntimeHandle;

Unit milliseconds() { return {"ms", Better::lower, 1e3}; }

RuntimeHandle start_runtime(std::size_t num_devices = 1) {
    kmm::RuntimeConfig config = config_for(1, std::size_t{256} << 20);
    config.driver = kmm::DriverKind::Host;
    config.devices.clear();
    config.virtual_devices = num_devices;
    return kmm::make_runtime(config);
}

double time_of(const std::function<void()>& work) {
    const auto begin = Clock::now();
    work();
    return seconds_since(begin);
}

struct Cut {
    Dim<2> size;
    std::vector<ArrayChunk<2>> chunks;
};

/// Rows of different heights, each cut into columns at other places, in no order.
Cut rows_of_columns(std::int64_t count) {
    std::mt19937 random(1);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    Cut cut;
    std::int64_t columns = 1;
    while (columns * columns < count) ++columns;
    const std::int64_t width = 4 * columns;
    std::int64_t y = 0;
    for (std::int64_t left = count; left > 0;) {
        const std::int64_t height = pick(1, 4);
        const std::int64_t in_row = std::min(columns, left);
        std::int64_t x = 0;
        for (std::int64_t i = 0; i < in_row; ++i) {
            // The pieces that follow need one element each.
            const std::int64_t end = i + 1 == in_row ? width : std::min(x + pick(1, 7), width - (in_row - i - 1));
            cut.chunks.push_back({MemoryId::host(), Point<2>(y, x), Dim<2>(height, end - x)});
            x = end;
        }
        y += height;
        left -= in_row;
    }
    cut.size = Dim<2>(y, width);
    std::shuffle(cut.chunks.begin(), cut.chunks.end(), random);
    return cut;
}

/// Cut in two along the longer side, again and again, each time at some place in the middle half.
Cut random_halves(std::int64_t count) {
    std::mt19937 random(2);
    Cut cut;
    std::int64_t side = 1;
    while (side * side < count * 64) side *= 2;
    cut.size = Dim<2>(side, side);
    cut.chunks.push_back({MemoryId::host(), Point<2>(0, 0), cut.size});
    // A list is cut from its front, so that the pieces stay of about the same size.
    for (std::size_t next = 0; static_cast<std::int64_t>(cut.chunks.size()) < count;) {
        if (next >= cut.chunks.size()) next = 0;
        const std::size_t at = next++;
        const ArrayChunk<2> whole = cut.chunks[at];
        const std::size_t axis = whole.size[0] >= whole.size[1] ? 0 : 1;
        const std::int64_t length = whole.size[axis];
        if (length < 2) continue;
        const std::int64_t low = std::max<std::int64_t>(1, length / 4);
        const std::int64_t first = std::uniform_int_distribution<std::int64_t>(low, length - low)(random);
        ArrayChunk<2> second = whole;
        cut.chunks[at].size[axis] = first;
        second.offset[axis] += first;
        second.size[axis] -= first;
        cut.chunks.push_back(second);
    }
    std::shuffle(cut.chunks.begin(), cut.chunks.end(), random);
    return cut;
}

struct Figure {
    const char* name;
    std::optional<double> must_ms;  ///< at n and the usual size
    const char* note;
};

/// `measure(n, samples)` adds one sample to each list; the first round warms up.
template<std::size_t Count, typename Measure>
void measure_growth(Report& report, const std::string& group, std::int64_t usual, const Figure (&figures)[Count],
                    Measure measure) {
    bool wanted = false;
    for (const Figure& f : figures) wanted = wanted || report.wants("many_chunks/" + group + "/" + f.name);
    if (!wanted) return;
    for (const std::int64_t n :
         {report.size<std::int64_t>(usual, usual / 100), report.size<std::int64_t>(2 * usual, usual / 50)}) {
        Samples samples[Count];
        measure(n, samples);
        for (Samples& s : samples) s.clear();
        for (int i = 0; i < report.repetitions(3); ++i) measure(n, samples);
        for (std::size_t f = 0; f < Count; ++f) {
            Beside beside;
            if (!report.quick() && n == usual) beside.must = figures[f].must_ms;
            beside.note = figures[f].note;
            report.add("many_chunks/" + group + "/" + figures[f].name + "/" + std::to_string(n), samples[f],
                       milliseconds(), beside);
        }
    }
}

void measure_irregular(Report& report, const std::string& group, Cut (*cut_into)(std::int64_t)) {
    const Figure figures[] = {
        {"distribution", std::nullopt, "Distribution::from_chunks, in shuffled order"},
        {"make", std::nullopt, "rt.array with that distribution"},
        {"submit", 60, "one submit with a host task for each chunk, which overwrites it; the call alone"},
        {"run", std::nullopt, "from there until rt.synchronize returns"},
        {"free", std::nullopt, "the last handle goes"},
    };
    measure_growth(report, group, 40'000, figures, [&](std::int64_t n, Samples* samples) {
        const RuntimeHandle rt = start_runtime();
        const Cut cut = cut_into(n);
        std::vector<kmm::DomainChunk> tasks;
        for (const ArrayChunk<2>& c : cut.chunks)
            tasks.push_back({ResourceId::host(), kmm::DomainPoint(c.offset), kmm::DomainDim(c.size)});
        std::optional<Distribution<2>> distribution;
        samples[0].push_back(time_of([&] { distribution = Distribution<2>::from_chunks(cut.size, cut.chunks); }));
        std::optional<Array<float, 2>> array;
        samples[1].push_back(time_of([&] { array = rt.array<float, 2>(cut.size, *distribution); }));
        samples[2].push_back(time_of(
            [&] { rt.parallel_submit(tasks, Host([](kmm::SubviewMut<float, 2>) {}), overwrite((*array)[_x][_y])); }));
        samples[3].push_back(time_of([&] { rt.synchronize(); }));
        samples[4].push_back(time_of([&] { array.reset(); }));
    });
}

void measure_copies(Report& report) {
    constexpr std::int64_t chunk_elements = 4;
    const Figure figures[] = {
        {"make", std::nullopt, "rt.array with chunks of 4 floats each"},
        {"copy_from", std::nullopt, "the whole array"},
        {"copy_to", 60, "the whole array"},
        {"synchronize", 60, "array.synchronize with nothing to wait for"},
        {"copy_one", std::nullopt, "copy_to of one chunk in the middle"},
        {"free", std::nullopt, "the last handle goes"},
    };
    measure_growth(report, "copies", 160'000, figures, [&](std::int64_t n, Samples* samples) {
        const RuntimeHandle rt = start_runtime();
        const std::int64_t elements = n * chunk_elements;
        std::vector<float> data(static_cast<std::size_t>(elements), 1.0f);
        std::optional<Array<float>> array;
        samples[0].push_back(time_of([&] { array = rt.array<float, 1>(elements, chunk_elements); }));
        samples[1].push_back(time_of([&] { array->copy_from(data.data()); }));
        samples[2].push_back(time_of([&] { array->copy_to(data.data()); }));
        samples[3].push_back(time_of([&] { array->synchronize(); }));
        samples[4].push_back(
            time_of([&] { array->copy_to(data.data(), Point<1>(n / 2 * chunk_elements), Dim<1>(chunk_elements)); }));
        samples[5].push_back(time_of([&] { array.reset(); }));
    });
}

/// Of chunks on a device of the host driver, or on a GPU: this file has no kernels, so that any build runs it on both.
void measure_copies_of_devices(Report& report, kmm::DriverKind driver) {
    const bool is_gpu = driver != kmm::DriverKind::Host;
    const std::string group = is_gpu ? "copies_of_a_gpu" : "copies_of_a_device";
    for (const kmm::DriverStatus& status : kmm::available_drivers()) {
        if (status.driver != driver || status.usable) continue;
        report.skip("many_chunks/" + group, "not available: " + status.reason);
        return;
    }
    constexpr std::int64_t chunk_elements = 1024;
    const Figure figures[] = {
        {"fill", std::nullopt, "of chunks of 4 KiB at home on a device, until synchronize returns"},
        {"copy_to", is_gpu ? 100 : 137, is_gpu ? "the whole array" : "the whole array; 3 GB/s"},
        {"copy_from", std::nullopt, "the whole array"},
    };
    measure_growth(report, group, 100'000, figures, [&](std::int64_t n, Samples* samples) {
        const std::size_t bytes = static_cast<std::size_t>(n * chunk_elements) * sizeof(float);
        kmm::RuntimeConfig config = config_for(1, bytes + (std::size_t{64} << 20));
        config.driver = driver;
        const RuntimeHandle rt = kmm::make_runtime(config);
        std::vector<float> data(static_cast<std::size_t>(n * chunk_elements), 2.0f);
        const Array<float> array = rt.array<float, 1>(n * chunk_elements, chunk_elements);
        array.fill(0.0f);
        array.copy_to(data.data());  // memory of the host and of the device is there, page-locked
        samples[0].push_back(time_of([&] {
            array.fill(3.0f);
            rt.synchronize();
        }));
        samples[1].push_back(time_of([&] { array.copy_to(data.data()); }));
        if (std::ranges::any_of(data, [](float value) { return value != 3.0f; }))
            Report::stop("copy_to brought something else");
        samples[2].push_back(time_of([&] { array.copy_from(data.data()); }));
    });
}

void measure_joins(Report& report) {
    const Figure figures[] = {
        {"call", std::nullopt, "rt.join of the events of as many host tasks"},
        {"wait", std::nullopt, "from there until rt.wait of it returns"},
    };
    measure_growth(report, "join", 100'000, figures, [&](std::int64_t n, Samples* samples) {
        const RuntimeHandle rt = start_runtime();
        std::vector<EventId> events;
        for (std::int64_t i = 0; i < n; ++i) events.push_back(rt.submit(ResourceId::host(), Host([] {})));
        EventId all;
        samples[0].push_back(time_of([&] { all = rt.join(kmm::EventList(events.begin(), events.end())); }));
        samples[1].push_back(time_of([&] { rt.wait(all); }));
    });
}

void measure_tiles(Report& report) {
    const Figure figures[] = {
        {"submit", 30, "as many submits, each of a host task that overwrites another tile of one chunk"},
        {"run", std::nullopt, "from there until rt.synchronize returns"},
        {"read", 0.02, "the submit of a host task that reads the whole array afterwards"},
        {"read_run", std::nullopt, "from there until rt.synchronize returns"},
    };
    measure_growth(report, "tiles_in_one_chunk", 16'000, figures, [&](std::int64_t n, Samples* samples) {
        const RuntimeHandle rt = start_runtime();
        constexpr std::int64_t rows = 4, columns = 4, tiles_along = 125;
        const std::int64_t tiles_down = (n + tiles_along - 1) / tiles_along;
        const Dim<2> size(tiles_down * rows, tiles_along * columns);
        const Array<float, 2> array = rt.array<float, 2>(size, size);
        Array<float, 2> written = array;
        samples[0].push_back(time_of([&] {
            for (std::int64_t i = 0; i < tiles_down; ++i) {
                for (std::int64_t j = 0; j < tiles_along; ++j) {
                    rt.submit(
                        ResourceId::host(), Host([](kmm::SubviewMut<float, 2>) {}),
                        overwrite(written[range(i * rows, (i + 1) * rows)][range(j * columns, (j + 1) * columns)]));
                }
            }
        }));
        samples[1].push_back(time_of([&] { rt.synchronize(); }));
        samples[2].push_back(time_of([&] { rt.submit(ResourceId::host(), Host([](kmm::View<float, 2>) {}), array); }));
        samples[3].push_back(time_of([&] { rt.synchronize(); }));
    });
}

/// Of the process's heap.
double held_bytes() {
    const struct mallinfo2 heap = mallinfo2();
    return static_cast<double>(heap.uordblks + heap.hblkhd);
}

/// An array of a million chunks of 4 KiB, of which some are copied into.
void measure_records(Report& report, std::size_t num_devices) {
    constexpr std::int64_t chunk_elements = 1024;
    const std::string name = "many_chunks/records_of_" + std::to_string(num_devices) + "_devices/";
    if (!report.wants(name + "make") && !report.wants(name + "untouched") && !report.wants(name + "touched")) return;
    const auto n = report.size<std::int64_t>(1'000'000, 10'000), touched = n / 20;
    const RuntimeHandle rt = start_runtime(num_devices);
    const std::vector<float> data(static_cast<std::size_t>(touched * chunk_elements), 1.0f);
    Samples make, untouched_bytes, touched_bytes;
    for (int i = 0; i <= report.repetitions(3); ++i) {
        rt.synchronize();
        rt.trim_memory();  // records of tasks
        const double before = held_bytes();
        std::optional<Array<float>> array;
        const double seconds = time_of([&] { array = rt.array<float, 1>(n * chunk_elements, chunk_elements); });
        const double made = held_bytes();
        array->copy_from(data.data(), Point<1>(0), Dim<1>(touched * chunk_elements));
        rt.synchronize();
        rt.trim_memory();
        if (i == 0) continue;  // what stays with the runtime was made
        make.push_back(seconds);
        untouched_bytes.push_back((made - before) / static_cast<double>(n));
        touched_bytes.push_back((held_bytes() - made) / static_cast<double>(touched));
    }
    const Unit bytes{"bytes", Better::lower, 1};
    report.add(name + "make", make, {"us", Better::lower, 1e6}, {.note = "rt.array with a million chunks"});
    report.add(name + "untouched", untouched_bytes, bytes,
               {.must = 1, .note = "of the host, for each chunk of that array"});
    report.add(name + "touched", touched_bytes, bytes,
               {.must = 352, .note = "for each chunk that was copied into: a replica on the host"});
}

void run(Report& report) {
    measure_records(report, 1);
    measure_records(report, 8);
    measure_irregular(report, "rows_of_columns", rows_of_columns);
    measure_irregular(report, "random_halves", random_halves);
    measure_copies(report);
    measure_copies_of_devices(report, kmm::DriverKind::Host);
    measure_copies_of_devices(report, kmm::DriverKind::CUDA);
    measure_joins(report);
    measure_tiles(report);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }
