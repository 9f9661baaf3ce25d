#include "kmm/trace/record_file.hpp"

#include <new>
#include <utility>

#include "driver/format.hpp"

namespace kmm::trace {

namespace {

constexpr std::string_view kind_names[] = {"join", "barrier", "host", "function", "kernel", "transfer"};
constexpr char access_letters[] = {'r', 'w', 'o'};

}  // namespace

std::string lane_name(const LaneInfo& lane) {
    const std::string device = driver::format("g{}.", lane.device);
    switch (lane.role) {
    case LaneRole::compute: return driver::format("{}c{}", device, lane.index);
    case LaneRole::up: return device + "up";
    case LaneRole::down: return device + "down";
    case LaneRole::peer: return device + "peer";
    case LaneRole::launcher: break;
    }
    return driver::format("{}f{}", device, lane.index);
}

RecordWriter::RecordWriter(const FilePath& path, const char* what_for, Machine machine)
    : machine_(std::move(machine)), file_(path, what_for) {
    file_ << "kmm-record 1\nruntime driver=" << machine_.driver << " limits=";
    for (const char* before = ""; const std::size_t limit : machine_.limits_bytes)
        file_ << std::exchange(before, ",") << std::uint64_t{limit};
    file_ << " lanes=";
    for (std::size_t i = 0; i < machine_.lanes.size(); ++i)
        (i > 0 ? file_ << ',' : file_) << lane_name(machine_.lanes[i]);
    file_ << '\n';
    file_.complete();
}

// ------------------------------------------------------------------------------------------------------ parts of lines

void RecordWriter::lane(LaneId lane) { file_ << lane_name(machine_.lanes[graph::index_of(lane)]); }

void RecordWriter::place(const Fence& fence) {
    lane(fence.lane);
    file_ << ':' << std::uint64_t{fence.position};
}

void RecordWriter::memory(Memory memory) {
    if (memory.is_host())
        file_ << "host";
    else
        file_ << 'g' << memory.device();
}

void RecordWriter::box(const detail::Box& box, std::uint32_t rank) {
    if (rank == 0) file_ << '.';
    for (std::uint32_t k = 0; k < rank; ++k) {
        if (k > 0) file_ << ',';
        file_ << std::int64_t{box.begin[k]} << ':' << std::int64_t{box.end[k]};
    }
}

void RecordWriter::use(const Use& use) {
    file_ << ' ' << access_letters[static_cast<std::size_t>(use.kind)] << use.array;
    if (use.empty)
        file_ << "[]";
    else
        file_ << '[' << use.chunk << "]@", box(use.region, use.rank);
    if (use.empty || !use.first_of_chunk) return;
    file_ << '=';
    if (use.needs_content) file_ << 'c';
    if (use.writes_chunk) file_ << 'w';
    if (use.replaces_chunk) file_ << 'x';
    if (use.anywhere) file_ << 'a';
    if (use.gathers) file_ << 'g';
    if (use.is_piece) file_ << 'p';
}

/// "7", and "h3" for the third helper.
void RecordWriter::task(Number number) {
    if (graph::is_helper(number)) file_ << 'h';
    file_ << number % graph::first_helper;
}

void RecordWriter::after(const Fence* fences, std::size_t num_fences) {
    for (std::size_t i = 0; i < num_fences; ++i) {
        file_ << (i == 0 ? " after=" : ",");
        place(fences[i]);
    }
}

template<typename Write>
void RecordWriter::line(Write&& write) noexcept {
    try {
        write();
        file_ << '\n';
        file_.complete();
    } catch (const std::bad_alloc&) {
        file_.drop_incomplete();
        ++num_dropped_;
    }
}

// --------------------------------------------------------------------------------------------------------------- lines

void RecordWriter::bound(const Array& array, std::int64_t) noexcept {
    line([&] {
        file_ << "array " << array.number << " element=" << std::uint64_t{array.element_bytes} << " box=";
        box(array.box, array.rank);
        file_ << " chunks=";
        for (std::size_t i = 0; i < array.chunks.size(); ++i) {
            if (i > 0) file_ << ';';
            box(array.chunks[i], array.rank);
        }
        if (array.num_pieces != 0) file_ << " temporary=" << std::uint64_t{array.num_pieces};
    });
    if (array.is_named) named(array.number, array.name, 0);
}

void RecordWriter::named(Number array, const std::string& name, std::int64_t) noexcept {
    line([&] {
        file_ << "name " << array << ' ';
        file_.quoted(name);
    });
}

void RecordWriter::submitted(const Task& task, std::int64_t) noexcept {
    line([&] {
        file_ << kind_names[static_cast<std::size_t>(task.kind)] << ' ';
        this->task(task.number);
        if (task.kind > TaskKind::barrier) {
            file_ << " on=";
            memory(task.memory);
            file_ << " name=";
            file_.quoted(task.name) << " chunk=" << task.chunk_index << '/' << task.num_chunks << " space=";
            for (std::size_t k = 0; k < task.offset.size(); ++k) {
                if (k > 0) file_ << ',';
                file_ << task.offset[k] << '+' << task.size[k];
            }
            if (task.offset.empty()) file_ << '.';
        }
        if (task.kind == TaskKind::kernel) {
            file_ << " grid=" << task.grid[0] << ',' << task.grid[1] << ',' << task.grid[2]
                  << " block=" << task.block[0] << ',' << task.block[1] << ',' << task.block[2];
            if (task.shared_bytes != 0) file_ << " shared=" << task.shared_bytes;
        }
        for (const Use& u : task.uses) use(u);
        for (std::size_t i = 0; i < task.predecessors.size(); ++i) {
            file_ << (i == 0 ? " after=" : ",");
            this->task(task.predecessors[i].task);
            if (!task.predecessors[i].data) file_ << '-';
        }
    });
}

void RecordWriter::chunk(const Event& e) {
    file_ << e.array << '[';
    file_ << e.chunk << "] ";
}

void RecordWriter::way(const Event& e) {
    memory(e.from);
    file_ << '>';
    memory(e.to);
    file_ << " bytes=" << std::uint64_t{e.bytes};
}

/// What was handed out, or came back.
void RecordWriter::work(const Event& e, const Fence* fences, std::size_t num_fences) {
    switch (e.what) {
    case What::copy:
        file_ << "copy ";
        place({e.lane, e.position});
        file_ << ' ';
        chunk(e);
        way(e);
        if (e.task != 0) file_ << " for=", task(e.task);
        return after(fences, num_fences);
    case What::move:
        file_ << "move ";
        place({e.lane, e.position});
        file_ << ' ';
        task(e.task);
        file_ << ' ';
        way(e);
        return after(fences, num_fences);
    case What::launch:
        file_ << "launch ";
        place({e.lane, e.position});
        file_ << ' ' << e.task;
        return after(fences, num_fences);
    case What::start:
        file_ << "start ";
        task(e.task);
        return after(fences, num_fences);
    case What::returned:
        file_ << "returned ";
        place({e.lane, e.position});
        file_ << ' ' << e.task;
        return;
    default:  // ran
        file_ << "ran ";
        place({e.lane, e.position});
        file_ << " ns=" << static_cast<std::uint64_t>(std::max<std::int64_t>(0, e.end_ns - e.begin_ns));
    }
}

void RecordWriter::note(const Event& e, const Fence* fences, std::size_t num_fences, std::int64_t,
                        std::uint32_t) noexcept {
    switch (e.what) {
    case What::copy:
    case What::move:
    case What::launch:
    case What::start:
    case What::returned:
    case What::ran: line([&] { work(e, fences, num_fences); }); break;
    case What::evict:
        line([&] {
            file_ << "evict ";
            chunk(e);
            memory(e.from);
            file_ << (e.flag ? " saved" : " dropped");
        });
        break;
    case What::settled:
        line([&] {
            file_ << "settled ";
            task(e.task);
            if (!e.flag && e.other == e.task) file_ << " failed";
            if (!e.flag && e.other != e.task) file_ << " cancelled=" << e.other;
        });
        break;
    case What::wait_begins:
        line([&] {
            file_ << "waits ";
            task(e.task);
            file_ << " bytes=" << std::uint64_t{e.bytes};
        });
        break;
    case What::dropped: line([&] { file_ << "drop " << e.array; }); break;
    case What::array_freed: line([&] { file_ << "free " << e.array; }); break;
    default: break;  // times, and what follows from the lines above
    }
}

void RecordWriter::finish(std::uint64_t lost) noexcept {
    line([&] { file_ << "end lost=" << lost + num_dropped_; });
}

}  // namespace kmm::trace
