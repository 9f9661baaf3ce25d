#include "simulate/generators.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "kmm/boxes/box.hpp"
#include "simulate/fitting_programs.hpp"

namespace kmm::simulate {

namespace {

using detail::AccessKind;
using detail::Box;

/// Writes tasks down with what they come after: for each chunk whoever wrote it last, and who has read it since.
class Builder {
  public:
    explicit Builder(trace::Machine machine) { program_.machine = std::move(machine); }

    /// Chunks are cut along the first axis. Returns the array's number.
    trace::Number array(const std::string& name, std::size_t element_bytes, const std::vector<std::int64_t>& extents,
                        std::size_t chunks) {
        trace::Array& a = new_array(name, element_bytes, extents.size());
        for (std::size_t i = 0; i < extents.size(); ++i) a.box.end[i] = extents[i];
        const std::int64_t count = static_cast<std::int64_t>(chunks);
        for (std::int64_t c = 0; c < count; ++c) {
            Box box = a.box;
            box.begin[0] = extents[0] * c / count;
            box.end[0] = extents[0] * (c + 1) / count;
            a.chunks.push_back(box);
        }
        return a.number;
    }
    /// Of one axis, with chunks of so many bytes.
    trace::Number bytes(const std::string& name, std::size_t chunks, std::size_t chunk_bytes) {
        return array(name, 1, {static_cast<std::int64_t>(chunks * chunk_bytes)}, chunks);
    }
    /// Gives every chunk of every array content.
    void fill(const Runs& runs = {}) {
        const std::size_t num_arrays = program_.arrays.size();
        for (std::size_t a = 1; a <= num_arrays; ++a) fill(a, runs);
    }
    void fill(trace::Number array, const Runs& runs) {
        for (std::uint32_t c = 0; c < program_.arrays[array - 1].chunks.size(); ++c) {
            if (runs.are_made_on_device)
                kernel("fill");
            else
                begin(trace::TaskKind::host, "fill", {});
            use(array, c, AccessKind::overwrite);
            end();
        }
    }
    /// What comes next waits for all that there is, where the program does.
    void begin_run(const Runs& runs) {
        if (runs.are_waited_for) program_.waited_for_all.insert(num_tasks_ + 1);
    }

    void begin(trace::TaskKind kind, const std::string& name, trace::Memory memory) {
        task_ = {};
        task_.number = kind == trace::TaskKind::transfer ? graph::first_helper + ++num_helpers_ : ++num_tasks_;
        task_.kind = kind;
        task_.name = name;
        task_.memory = memory;
        task_.num_chunks = 1;
        task_.grid[0] = 1024;
        task_.grid[1] = task_.grid[2] = 1;
        task_.block[0] = 256;
        task_.block[1] = task_.block[2] = 1;
    }
    void kernel(const std::string& name, std::uint32_t device = 0) {
        begin(trace::TaskKind::kernel, name, trace::Memory::of_device(device));
    }
    void use(trace::Number array, std::uint32_t chunk, AccessKind kind) {
        const trace::Array& a = program_.arrays[array - 1];
        trace::Use& u = new_use(array, chunk, kind, a.chunks[chunk]);
        u.needs_content = kind != AccessKind::overwrite;
        u.writes_chunk = kind != AccessKind::read;
        u.replaces_chunk = kind == AccessKind::overwrite;
        depend(array, chunk, u.writes_chunk);
    }
    /// Chunks of a region of an array that is only read, as a temporary or where they are.
    void use_across(trace::Number array, const Box& region) {
        const trace::Number temporary = new_temporary(array, region);
        trace::Use& whole = new_use(temporary, 0, AccessKind::read, region);
        whole.needs_content = whole.gathers = true;
        across_.emplace_back(array, temporary);
    }
    /// A transfer copies a region together, for a task that comes next. Returns the temporary.
    trace::Number gather(trace::Number array, const Box& region, trace::Memory memory) {
        const trace::Number temporary = new_temporary(array, region);
        begin(trace::TaskKind::transfer, "gather", memory);
        use(temporary, 0, AccessKind::overwrite);
        for_each_piece(array, temporary, [](trace::Use& piece) { piece.anywhere = true; });
        end();
        return temporary;
    }
    /// The last handle is dropped.
    void drop(trace::Number array) { program_.drops.emplace_back(program_.tasks.size(), array); }
    void end() {
        for (const auto& [array, temporary] : across_)
            for_each_piece(array, temporary, [](trace::Use& piece) { piece.is_piece = true; });
        across_.clear();
        for (const auto& [number, data] : predecessors_) task_.predecessors.push_back({number, data});
        predecessors_.clear();
        program_.tasks.push_back(std::move(task_));
    }
    Program take() { return std::move(program_); }

  private:
    struct History {
        trace::Number writer = 0;
        std::vector<trace::Number> readers;
    };

    trace::Array& new_array(const std::string& name, std::size_t element_bytes, std::size_t rank) {
        trace::Array& a = program_.arrays.emplace_back();
        a.number = program_.arrays.size();
        a.name = name;
        a.is_named = !name.empty();
        a.rank = static_cast<std::uint32_t>(rank);
        a.element_bytes = element_bytes;
        return a;
    }
    trace::Number new_temporary(trace::Number array, const Box& region) {
        trace::Array& temporary = new_array("", program_.arrays[array - 1].element_bytes, 0);
        temporary.rank = program_.arrays[array - 1].rank;
        temporary.box = region;
        temporary.chunks = {region};
        return temporary.number;
    }
    /// Reads of the chunks that the temporary's region lies in.
    template<typename F> void for_each_piece(trace::Number array, trace::Number number, F&& f) {
        const trace::Array& a = program_.arrays[array - 1];
        trace::Array& temporary = program_.arrays[number - 1];
        for (std::uint32_t c = 0; c < a.chunks.size(); ++c) {
            const Box part = boxes::intersection(a.chunks[c], temporary.box);
            if (part.begin[0] >= part.end[0]) continue;
            trace::Use& piece = new_use(array, c, AccessKind::read, part);
            piece.needs_content = true;
            f(piece);
            ++temporary.num_pieces;
            depend(array, c, false);
        }
    }
    trace::Use& new_use(trace::Number array, std::uint32_t chunk, AccessKind kind, const Box& region) {
        trace::Use& u = task_.uses.emplace_back();
        u.array = array;
        u.chunk = chunk;
        u.kind = kind;
        u.rank = program_.arrays[array - 1].rank;
        u.region = region;
        u.first_of_chunk = true;
        return u;
    }
    void depend(trace::Number array, std::uint32_t chunk, bool writes) {
        History& h = histories_[{array, chunk}];
        if (h.writer != 0) predecessors_[h.writer] |= true;
        if (!writes) {
            h.readers.push_back(task_.number);
            return;
        }
        for (const trace::Number reader : h.readers) predecessors_[reader] |= false;
        h.readers.clear();
        h.writer = task_.number;
    }

    Program program_;
    trace::Task task_;
    trace::Number num_tasks_ = 0, num_helpers_ = 0;
    std::map<trace::Number, bool> predecessors_;
    std::vector<std::pair<trace::Number, trace::Number>> across_;  ///< array, temporary
    std::map<std::pair<trace::Number, std::uint32_t>, History> histories_;
};

/// Steps of one thread of a program that fits, one at a time.
class FittingThread {
  public:
    FittingThread(Builder& builder, const fitting::Thread& thread, std::size_t scale)
        : builder_(builder),
          thread_(thread),
          element_bytes_(fitting::element_bytes * scale),
          numbers_(thread.arrays.size()) {}
    bool is_over() const noexcept { return next_ == thread_.steps.size(); }
    void step() {
        const fitting::Step& step = thread_.steps[next_++];
        if (step.what == fitting::Step::What::drop) builder_.drop(numbers_[step.array]);
        if (step.what == fitting::Step::What::submit) submit(step.submit);
    }

  private:
    void submit(const fitting::Submit& s) {
        const fitting::Array& out = thread_.arrays[s.out];
        if (numbers_[s.out] == 0)
            numbers_[s.out] =
                builder_.array("array " + std::to_string(s.out), element_bytes_, {out.elements}, out.num_chunks());
        for (const fitting::Part& part : s.parts) submit(s, part);
    }
    /// Host tasks find regions across chunks copied together, others choose when they have their place.
    void submit(const fitting::Submit& s, const fitting::Part& part) {
        const bool is_on_host = s.how == fitting::How::host;
        std::vector<std::pair<trace::Number, std::uint32_t>> chunks;
        std::vector<std::pair<trace::Number, Box>> across;
        for (const fitting::Read& read : s.reads) {
            const fitting::Array& array = thread_.arrays[read.array];
            const fitting::Range range = fitting::range_of(thread_, s, part, read);
            Box region;
            region.begin[0] = range.begin;
            region.end[0] = range.end;
            const trace::Number number = numbers_[read.array];
            const auto chunk = static_cast<std::uint32_t>(range.begin / array.chunk_elements);
            if (!fitting::crosses(array, range))
                chunks.emplace_back(number, chunk);
            else if (is_on_host)
                chunks.emplace_back(builder_.gather(number, region, trace::Memory::host()), 0);
            else
                across.emplace_back(number, region);
        }
        std::sort(chunks.begin(), chunks.end());
        chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
        if (is_on_host)
            builder_.begin(trace::TaskKind::host, "host", trace::Memory::host());
        else if (s.how == fitting::How::function)
            builder_.begin(trace::TaskKind::function, "function", trace::Memory::of_device(part.device));
        else
            builder_.kernel("kernel", part.device);
        builder_.use(numbers_[s.out], part.chunk, s.keeps ? AccessKind::write : AccessKind::overwrite);
        for (const auto& [array, chunk] : chunks) builder_.use(array, chunk, AccessKind::read);
        for (const auto& [array, region] : across) builder_.use_across(array, region);
        builder_.end();
    }

    Builder& builder_;
    const fitting::Thread& thread_;
    std::size_t element_bytes_;
    std::vector<trace::Number> numbers_;  ///< of arrays; 0: not used yet
    std::size_t next_ = 0;
};

}  // namespace

trace::Machine machine_with(std::size_t device_bytes, std::size_t host_bytes, std::uint32_t num_devices) {
    constexpr std::uint32_t compute_lanes = 8;
    trace::Machine machine;
    machine.driver = "none";
    machine.memories.resize_for_devices(num_devices);
    machine.limits_bytes.resize_for_devices(num_devices);
    for (const trace::Memory m : machine.limits_bytes.memories()) {
        machine.memories[m] = m.is_host() ? "host" : "g" + std::to_string(m.device());
        machine.limits_bytes[m] = m.is_host() ? host_bytes : device_bytes;
    }
    for (std::uint32_t d = 0; d < num_devices; ++d) {
        for (std::uint32_t i = 0; i < compute_lanes; ++i) machine.lanes.push_back({d, graph::LaneRole::compute, i});
        machine.lanes.push_back({d, graph::LaneRole::up, 0});
        machine.lanes.push_back({d, graph::LaneRole::down, 0});
        machine.lanes.push_back({d, graph::LaneRole::peer, 0});
        for (std::uint32_t i = 0; i < 2; ++i) machine.lanes.push_back({d, graph::LaneRole::launcher, i});
    }
    return machine;
}

Program axpy(trace::Machine machine, std::size_t chunks, std::size_t passes, std::size_t chunk_bytes,
             const Runs& runs) {
    Builder b(std::move(machine));
    const trace::Number x = b.bytes("x", chunks, chunk_bytes);
    const trace::Number y = b.bytes("y", chunks, chunk_bytes);
    b.fill(runs);
    for (std::size_t p = 0; p < runs.count * passes; ++p) {
        if (p % passes == 0) b.begin_run(runs);
        for (std::uint32_t c = 0; c < chunks; ++c) {
            b.kernel("axpy");
            b.use(x, c, AccessKind::read);
            b.use(y, c, AccessKind::write);
            b.end();
        }
    }
    return b.take();
}

Program product(trace::Machine machine, std::size_t size, std::size_t tile_bytes, const Runs& runs) {
    Builder builder(std::move(machine));
    const trace::Number a = builder.bytes("A", size * size, tile_bytes);
    const trace::Number b = builder.bytes("B", size * size, tile_bytes);
    const trace::Number c = builder.bytes("C", size * size, tile_bytes);
    builder.fill(runs);
    const auto tile = [size](std::size_t row, std::size_t column) {
        return static_cast<std::uint32_t>(row * size + column);
    };
    for (std::size_t run = 0; run < runs.count; ++run) {
        builder.begin_run(runs);
        for (std::size_t task = 0; task < size * size * size; ++task) {
            const std::size_t k = task / (size * size), i = task / size % size, j = task % size;
            builder.kernel("multiply");
            builder.use(a, tile(i, k), AccessKind::read);
            builder.use(b, tile(k, j), AccessKind::read);
            builder.use(c, tile(i, j), AccessKind::write);
            builder.end();
        }
    }
    return builder.take();
}

Program cholesky(trace::Machine machine, std::size_t size, std::size_t tile_bytes, const Runs& runs) {
    Builder builder(std::move(machine));
    const trace::Number a = builder.bytes("A", size * (size + 1) / 2, tile_bytes);
    builder.fill(runs);
    const auto tile = [](std::size_t row, std::size_t column) {
        return static_cast<std::uint32_t>(row * (row + 1) / 2 + column);
    };
    for (std::size_t column = 0; column < runs.count * size; ++column) {
        const std::size_t k = column % size;
        if (k == 0) builder.begin_run(runs);
        builder.kernel("potrf");
        builder.use(a, tile(k, k), AccessKind::write);
        builder.end();
        for (std::size_t i = k + 1; i < size; ++i) {
            builder.kernel("trsm");
            builder.use(a, tile(k, k), AccessKind::read);
            builder.use(a, tile(i, k), AccessKind::write);
            builder.end();
        }
        for (std::size_t i = k + 1; i < size; ++i)
            for (std::size_t j = k + 1; j <= i; ++j) {
                builder.kernel(i == j ? "syrk" : "gemm");
                builder.use(a, tile(i, k), AccessKind::read);
                if (i != j) builder.use(a, tile(j, k), AccessKind::read);
                builder.use(a, tile(i, j), AccessKind::write);
                builder.end();
            }
    }
    return builder.take();
}

Program stencil(trace::Machine machine, const std::vector<std::int64_t>& extents, std::size_t chunks, std::int64_t halo,
                std::size_t steps, const Runs& runs) {
    Builder b(std::move(machine));
    const trace::Number arrays[] = {b.array("a", sizeof(float), extents, chunks),
                                    b.array("b", sizeof(float), extents, chunks)};
    b.fill(arrays[0], runs);
    if (!runs.are_made_on_device) b.fill(arrays[1], runs);
    const std::int64_t count = static_cast<std::int64_t>(chunks);
    for (std::size_t s = 0; s < runs.count * steps; ++s) {
        if (s % steps == 0) b.begin_run(runs);
        for (std::int64_t c = 0; c < count; ++c) {
            Box region;
            for (std::size_t i = 0; i < extents.size(); ++i) region.end[i] = extents[i];
            region.begin[0] = std::max<std::int64_t>(0, extents[0] * c / count - halo);
            region.end[0] = std::min(extents[0], extents[0] * (c + 1) / count + halo);
            b.kernel("step");
            if (chunks > 1) b.use_across(arrays[s % 2], region);
            b.use(arrays[(s + 1) % 2], static_cast<std::uint32_t>(c), AccessKind::overwrite);
            if (chunks == 1) b.use(arrays[s % 2], 0, AccessKind::read);
            b.end();
        }
    }
    return b.take();
}

Program map_reduce(trace::Machine machine, std::size_t chunks, std::size_t chunk_bytes) {
    constexpr std::size_t few = 4096;
    Builder b(std::move(machine));
    const trace::Number coefficients = b.bytes("coefficients", 1, few);
    b.fill();
    const trace::Number x = b.bytes("x", chunks, chunk_bytes);
    const trace::Number sums = b.bytes("sums", chunks, few);
    for (std::uint32_t c = 0; c < chunks; ++c) {
        b.kernel("map");
        b.use(x, c, AccessKind::overwrite);
        b.end();
    }
    for (std::uint32_t c = 0; c < chunks; ++c) {
        b.kernel("reduce");
        b.use(coefficients, 0, AccessKind::read);
        b.use(x, c, AccessKind::read);
        b.use(sums, c, AccessKind::overwrite);
        b.end();
    }
    return b.take();
}

Program random_tasks(trace::Machine machine, std::size_t chunks, std::size_t tasks, std::size_t chunk_bytes,
                     std::uint64_t seed) {
    Builder b(std::move(machine));
    const trace::Number x = b.bytes("x", chunks, chunk_bytes);
    b.fill();
    std::mt19937_64 random(seed);
    for (std::size_t t = 0; t < tasks; ++t) {
        b.kernel("task");
        std::vector<std::uint32_t> used = {static_cast<std::uint32_t>(random() % chunks)};
        b.use(x, used.front(), AccessKind::write);
        for (std::uint64_t reads = random() % 4; reads > 0; --reads) {
            const auto chunk = static_cast<std::uint32_t>(random() % chunks);
            if (std::find(used.begin(), used.end(), chunk) != used.end()) continue;
            used.push_back(chunk);
            b.use(x, chunk, AccessKind::read);
        }
        b.end();
    }
    return b.take();
}

Program pipeline(trace::Machine machine, std::size_t blocks, std::size_t chunk_bytes) {
    Builder b(std::move(machine));
    const trace::Number sum = b.bytes("sum", 1, chunk_bytes);
    b.fill();
    for (std::size_t i = 0; i < blocks; ++i) {
        const trace::Number x = b.bytes("x", 1, chunk_bytes), y = b.bytes("y", 1, chunk_bytes);
        b.kernel("load");
        b.use(x, 0, AccessKind::overwrite);
        b.end();
        b.kernel("compute");
        b.use(x, 0, AccessKind::read);
        b.use(y, 0, AccessKind::overwrite);
        b.end();
        b.kernel("add");
        b.use(y, 0, AccessKind::read);
        b.use(sum, 0, AccessKind::write);
        b.end();
        b.drop(y);
        b.drop(x);
    }
    return b.take();
}

Program temporaries(trace::Machine machine, std::size_t chunks, std::size_t turns, std::size_t chunk_bytes) {
    Builder b(std::move(machine));
    const trace::Number result = b.bytes("result", chunks, chunk_bytes);
    b.fill();
    for (std::size_t turn = 0; turn < turns; ++turn) {
        const trace::Number made[] = {b.bytes("t", chunks, chunk_bytes), b.bytes("u", chunks, chunk_bytes)};
        for (const trace::Number array : made)
            for (std::uint32_t c = 0; c < chunks; ++c) {
                b.kernel("make");
                b.use(array, c, AccessKind::overwrite);
                b.end();
            }
        for (std::uint32_t c = 0; c < chunks; ++c) {
            b.kernel("join");
            b.use(made[0], c, AccessKind::read);
            b.use(made[1], c, AccessKind::write);
            b.end();
        }
        b.drop(made[0]);
        for (std::uint32_t c = 0; c < chunks; ++c) {
            b.kernel("add");
            b.use(made[1], c, AccessKind::read);
            b.use(result, c, AccessKind::write);
            b.end();
        }
        b.drop(made[1]);
    }
    return b.take();
}

Program fitting_program(const fitting::Program& made, std::size_t scale) {
    Builder b(
        machine_with(made.machine.device_bytes * scale, made.machine.host_bytes * scale, made.machine.num_devices));
    std::vector<FittingThread> threads;
    for (const fitting::Thread& t : made.threads) threads.emplace_back(b, t, scale);
    for (bool any = true; any;) {
        any = false;
        for (FittingThread& t : threads) {
            if (t.is_over()) continue;
            t.step();
            any = true;
        }
    }
    return b.take();
}

}  // namespace kmm::simulate
