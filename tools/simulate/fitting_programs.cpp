#include "simulate/fitting_programs.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace kmm::simulate::fitting {

namespace {

std::size_t block_bytes(const Range& range) noexcept {
    const auto elements = static_cast<std::size_t>(range.end - range.begin);
    constexpr std::size_t step = elements_of_a_step;
    return (elements + step - 1) / step * step * element_bytes;
}

constexpr std::size_t most_tasks = 2000;  // of a program, about

/// What one thread holds, in the order of submission.
class Books {
  public:
    explicit Books(const Thread& thread) : thread_(thread) {}

    struct Demand {
        std::size_t needed_bytes = 0;  ///< held and working set, at the task of the submit with the largest sum
        std::size_t most_on_host = 0, most_on_device = 0;  ///< largest working sets
        std::size_t largest_block = 0;
    };
    Demand demand(const Submit& s) const {
        Demand d;
        const Array& out = thread_.arrays[s.out];
        std::size_t held = held_bytes_;
        for (const Part& part : s.parts) {
            const std::size_t set = working_set(s, part, &d.largest_block);
            d.needed_bytes = std::max(d.needed_bytes, held + set);
            std::size_t& most = s.how == How::host ? d.most_on_host : d.most_on_device;
            most = std::max(most, set);
            if (!has_content(s.out, part.chunk)) held += block_bytes(range_of(out, part.chunk));
        }
        return d;
    }
    void add(const Submit& s) {
        const Demand d = demand(s);
        most_needed_ = std::max(most_needed_, d.needed_bytes);
        most_on_host_ = std::max(most_on_host_, d.most_on_host);
        most_on_device_ = std::max(most_on_device_, d.most_on_device);
        largest_block_ = std::max(largest_block_, d.largest_block);
        content_.resize(thread_.arrays.size());
        std::vector<bool>& chunks = content_[s.out];
        chunks.resize(thread_.arrays[s.out].num_chunks());
        for (const Part& part : s.parts) {
            if (chunks[part.chunk]) continue;
            chunks[part.chunk] = true;
            held_bytes_ += block_bytes(range_of(thread_.arrays[s.out], part.chunk));
        }
        most_held_ = std::max(most_held_, held_bytes_);
    }
    void drop(std::uint32_t array) {
        held_bytes_ -= bytes_of(array);
        if (array < content_.size()) content_[array].clear();
    }
    /// The content is copied out through the host, chunk by chunk.
    void read_out(std::uint32_t array) {
        for (std::uint32_t c = 0; array < content_.size() && c < content_[array].size(); ++c) {
            const std::size_t bytes = block_bytes(range_of(thread_.arrays[array], c));
            most_needed_ = std::max(most_needed_, held_bytes_ + bytes);
            most_on_host_ = std::max(most_on_host_, bytes);
        }
    }
    bool has_content(std::uint32_t array, std::uint32_t chunk) const {
        return array < content_.size() && chunk < content_[array].size() && content_[array][chunk];
    }
    std::size_t bytes_of(std::uint32_t array) const {
        std::size_t bytes = 0;
        for (std::uint32_t c = 0; array < content_.size() && c < content_[array].size(); ++c)
            if (content_[array][c]) bytes += block_bytes(range_of(thread_.arrays[array], c));
        return bytes;
    }
    std::size_t most_needed() const noexcept { return most_needed_; }
    std::size_t most_held() const noexcept { return most_held_; }
    std::size_t largest_block() const noexcept { return largest_block_; }
    std::size_t most_on_host() const noexcept { return most_on_host_; }
    std::size_t most_on_device() const noexcept { return most_on_device_; }

  private:
    /// Chunks that the task uses, each once, and a copy of each region that crosses chunks.
    std::size_t working_set(const Submit& s, const Part& part, std::size_t* largest_block) const {
        std::vector<std::pair<std::uint32_t, std::uint32_t>> chunks = {{s.out, part.chunk}};
        std::size_t bytes = 0;
        const auto add_block = [&](const Range& range) {
            const std::size_t block = block_bytes(range);
            *largest_block = std::max(*largest_block, block);
            bytes += block;
        };
        add_block(range_of(thread_.arrays[s.out], part.chunk));
        for (const Read& read : s.reads) {
            const Array& array = thread_.arrays[read.array];
            const Range range = range_of(thread_, s, part, read);
            if (range.begin >= range.end) continue;
            if (crosses(array, range)) {
                add_block(range);
                continue;
            }
            const auto chunk = static_cast<std::uint32_t>(range.begin / array.chunk_elements);
            if (std::find(chunks.begin(), chunks.end(), std::make_pair(read.array, chunk)) != chunks.end()) continue;
            chunks.emplace_back(read.array, chunk);
            add_block(range_of(array, chunk));
        }
        return bytes;
    }

    const Thread& thread_;
    std::vector<std::vector<bool>> content_;  ///< by array and chunk
    std::size_t held_bytes_ = 0, most_held_ = 0, most_needed_ = 0, most_on_host_ = 0, most_on_device_ = 0;
    std::size_t largest_block_ = 0;
};

std::size_t usable(const Machine& m, std::size_t largest_block) noexcept {
    const auto room = [&](std::size_t bytes) { return bytes - std::min(bytes, largest_block); };
    return m.num_devices * room(m.device_bytes) + room(m.host_bytes);
}

/// What a thread may make.
struct Bounds {
    Machine machine;
    std::size_t share_bytes = 0;  ///< that it holds, with the working set of a task
    std::size_t goal_bytes = 0;   ///< of all its arrays
    std::size_t most_tasks = 0;
    std::int64_t chunk_steps = 1;  ///< of its largest chunks
    bool has_halos = false;
    bool checks = true;  ///< else it holds what it likes
};

/// Writes the steps of one thread.
class Maker {
  public:
    Maker(std::uint64_t seed, const Bounds& bounds)
        : random_(seed), bounds_(bounds), machine_(bounds.machine), books_(thread_) {}

    Thread take(std::string* kinds) {
        on_host_ = machine_.device_bytes < 4 * largest_block_bytes ? 100 : chance(40) ? 0 : pick(5, 60);
        synchronizes_ = chance(25) ? pick(1, 10) : 0;
        is_slow_ = chance(20);
        sizes_differ_ = chance(50);
        result_ = new_array(pick(1, 3));
        if (!fill(result_)) return std::move(thread_);
        const std::int64_t phases = pick(1, 3);
        for (std::int64_t i = 1; i <= phases; ++i) {
            phase_bytes_ = bounds_.goal_bytes * static_cast<std::size_t>(i) / static_cast<std::size_t>(phases);
            phase_tasks_ = bounds_.most_tasks * static_cast<std::size_t>(i) / static_cast<std::size_t>(phases);
            using Kind = void (Maker::*)();
            static constexpr std::pair<const char*, Kind> all[] = {
                {"pipeline", &Maker::pipeline}, {"temporaries", &Maker::temporaries},
                {"fan-in", &Maker::fan_in},     {"fan-out", &Maker::fan_out},
                {"chain", &Maker::chain},       {"mixed", &Maker::mixed}};
            const auto& [name, kind] = all[pick(0, 5)];
            *kinds += (kinds->empty() ? "" : ", ") + std::string(name);
            (this->*kind)();
        }
        return std::move(thread_);
    }

  private:
    std::int64_t pick(std::int64_t low, std::int64_t high) {
        return low >= high ? low : std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }
    bool chance(std::int64_t percent) { return pick(0, 99) < percent; }
    bool goes_on() const { return made_bytes_ < phase_bytes_ && num_tasks_ < phase_tasks_; }

    std::int64_t any_chunk_steps() { return sizes_differ_ ? pick(1, bounds_.chunk_steps) : bounds_.chunk_steps; }
    std::uint32_t new_array(std::int64_t chunks) { return new_array(chunks, any_chunk_steps()); }
    std::uint32_t new_array(std::int64_t chunks, std::int64_t chunk_steps) {
        Array a;
        a.chunk_elements = chunk_steps * elements_of_a_step;
        a.elements = std::max<std::int64_t>(1, chunks) * a.chunk_elements;
        thread_.arrays.push_back(a);
        return static_cast<std::uint32_t>(thread_.arrays.size() - 1);
    }
    std::uint32_t like(std::uint32_t array) {
        thread_.arrays.push_back(Array(thread_.arrays[array]));
        return static_cast<std::uint32_t>(thread_.arrays.size() - 1);
    }

    /// Of the same elements, with a halo sometimes.
    Read aligned(std::uint32_t array) {
        Read r;
        r.array = array;
        const Array& a = thread_.arrays[array];
        if (bounds_.has_halos && a.num_chunks() > 1 && chance(40)) r.halo = pick(1, a.chunk_elements / 4);
        return r;
    }
    /// Of any range, up to so many elements as a chunk has; across chunks or not.
    Read somewhere(std::uint32_t array) {
        Read r;
        r.array = array;
        const Array& a = thread_.arrays[array];
        const auto chunk = static_cast<std::uint32_t>(pick(0, a.num_chunks() - 1));
        r.fixed = range_of(a, chunk);
        if (a.num_chunks() > 1 && chance(40)) {
            r.fixed.begin = pick(0, a.elements - a.chunk_elements);
            r.fixed.end = r.fixed.begin + pick(1, a.chunk_elements);
        }
        return r;
    }
    Read read(std::uint32_t out, std::uint32_t array) {
        const Array &o = thread_.arrays[out], &a = thread_.arrays[array];
        return o.elements == a.elements && o.chunk_elements == a.chunk_elements ? aligned(array) : somewhere(array);
    }

    /// False: the program would not fit any more; nothing is added.
    bool submit(std::uint32_t out, bool keeps, std::vector<Read> reads) {
        Step step;
        Submit& s = step.submit;
        s.how = chance(on_host_) ? How::host : chance(20) ? How::function : How::kernel;
        s.out = out;
        s.keeps = keeps;
        s.seed = pick(0, 1 << 20);
        s.reads = std::move(reads);
        const bool dealt_round = chance(50);
        const auto shift = static_cast<std::uint32_t>(pick(0, machine_.num_devices - 1));
        for (std::uint32_t c = 0; c < thread_.arrays[out].num_chunks(); ++c) {
            Part part;
            part.chunk = c;
            part.device = (shift + (dealt_round ? c : 0)) % machine_.num_devices;
            s.parts.push_back(part);
        }
        const Books::Demand d = books_.demand(s);
        const bool fits = d.needed_bytes <= bounds_.share_bytes && d.most_on_host <= machine_.host_bytes &&
                          d.most_on_device <= machine_.device_bytes;
        if (bounds_.checks && !fits) return false;
        const std::size_t before = books_.bytes_of(out);
        books_.add(s);
        made_bytes_ += books_.bytes_of(out) - before;
        num_tasks_ += s.parts.size();
        thread_.steps.push_back(std::move(step));
        if (chance(synchronizes_)) pause(Step::What::synchronize);
        if (is_slow_ && chance(30)) pause(Step::What::slowly);
        return true;
    }
    bool fill(std::uint32_t array) { return submit(array, false, {}); }
    /// A new array of what tasks make of others; `none` if it would not fit.
    std::uint32_t made_from(std::uint32_t shape, const std::vector<std::uint32_t>& from) {
        const std::uint32_t array = like(shape);
        std::vector<Read> reads;
        for (const std::uint32_t f : from) reads.push_back(read(array, f));
        if (submit(array, false, std::move(reads))) return array;
        thread_.arrays.pop_back();
        return none;
    }
    std::uint32_t loaded(std::int64_t chunks) {
        const std::uint32_t array = new_array(chunks);
        if (fill(array)) return array;
        thread_.arrays.pop_back();
        return none;
    }
    std::uint32_t loaded_like(std::uint32_t shape) {
        const std::uint32_t array = like(shape);
        if (fill(array)) return array;
        thread_.arrays.pop_back();
        return none;
    }
    void accumulate(std::uint32_t array) { submit(result_, true, {read(result_, array)}); }
    void drop(std::uint32_t array) {
        if (array == none) return;
        books_.drop(array);
        Step step;
        step.what = Step::What::drop;
        step.array = array;
        thread_.steps.push_back(std::move(step));
    }
    void pause(Step::What what) {
        Step step;
        step.what = what;
        thread_.steps.push_back(std::move(step));
    }

    // ---- kinds of programs. Each turn makes at least one array, or ends the phase.

    /// Block after block: loaded, worked on in stages, added to the result; some turns late.
    void pipeline() {
        const std::int64_t chunks = pick(1, 4), stages = pick(0, 3), late = chance(50) ? 0 : pick(1, 8);
        std::vector<std::uint32_t> held;
        while (goes_on()) {
            std::uint32_t x = loaded(chunks);
            for (std::int64_t i = 0; i < stages && x != none; ++i) {
                const std::uint32_t y = made_from(x, {x});
                drop(x);
                x = y;
            }
            if (x == none && held.empty()) break;
            if (x != none) held.push_back(x);
            while (!held.empty() && (x == none || static_cast<std::int64_t>(held.size()) > late)) {
                accumulate(held.front());
                drop(held.front());
                held.erase(held.begin());
            }
        }
        for (const std::uint32_t x : held) {
            accumulate(x);
            drop(x);
        }
    }
    /// One to three arrays a turn, joined by one that uses them.
    void temporaries() {
        const std::uint32_t shape = new_array(pick(1, 6));
        while (goes_on()) {
            const std::uint32_t t = loaded_like(shape);
            if (t == none) break;
            const std::uint32_t u = chance(50) ? loaded_like(shape) : none;
            if (u != none) submit(u, true, {read(u, t)});
            for (std::int64_t times = pick(1, 3); times > 0; --times) accumulate(u != none && chance(70) ? u : t);
            drop(t);
            drop(u);
        }
    }
    /// Many arrays, made first, then joined up to four at a time.
    void fan_in() {
        while (goes_on()) {
            const std::uint32_t shape = new_array(pick(1, 2));
            std::vector<std::uint32_t> leaves;
            for (std::int64_t n = chance(30) ? pick(5, 60) : pick(2, 8); n > 0; --n)
                if (const std::uint32_t leaf = loaded_like(shape); leaf != none) leaves.push_back(leaf);
            if (leaves.empty()) break;
            while (leaves.size() > 1) {
                const auto n = std::min<std::size_t>(leaves.size(), static_cast<std::size_t>(pick(2, 4)));
                const std::vector<std::uint32_t> some(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(n));
                const std::uint32_t sum = made_from(shape, some);
                if (sum == none) accumulate(some.front());
                for (std::size_t i = 0; i < (sum == none ? 1 : n); ++i) drop(some[i]);
                leaves.erase(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(sum == none ? 1 : n));
                if (sum != none) leaves.push_back(sum);
            }
            accumulate(leaves.front());
            drop(leaves.front());
        }
    }
    /// One array that many others are made from; dropped before these are used.
    void fan_out() {
        while (goes_on()) {
            const std::uint32_t x = loaded(pick(1, 3));
            if (x == none) break;
            std::vector<std::uint32_t> made;
            for (std::int64_t n = chance(30) ? pick(5, 60) : pick(2, 6); n > 0; --n)
                if (const std::uint32_t y = made_from(x, {x}); y != none) made.push_back(y);
            drop(x);
            for (const std::uint32_t y : made) {
                accumulate(y);
                drop(y);
            }
        }
    }
    /// x = f(x), with a new array each turn.
    void chain() {
        std::uint32_t x = loaded(pick(1, 6));
        while (x != none && goes_on()) {
            const std::uint32_t y = made_from(x, {x});
            if (y == none) break;
            drop(x);
            x = y;
        }
        if (x == none) return;
        accumulate(x);
        drop(x);
    }
    /// Arrays are made from any others that are held, added to any, and dropped at any time.
    void mixed() {
        std::vector<std::uint32_t> held;
        const auto any = [&] {
            return held[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(held.size()) - 1))];
        };
        const auto drop_any = [&] {
            const std::uint32_t x = any();
            if (chance(70)) accumulate(x);
            drop(x);
            held.erase(std::find(held.begin(), held.end(), x));
        };
        const std::int64_t most = pick(3, 40);
        while (goes_on()) {
            while (static_cast<std::int64_t>(held.size()) > most) drop_any();
            std::vector<std::uint32_t> from;
            for (std::int64_t n = pick(0, most_reads); n > 0 && !held.empty(); --n) from.push_back(any());
            std::uint32_t x = none;
            if (from.empty() || chance(30)) {
                x = loaded(pick(1, 3));
            } else if (chance(60)) {
                x = made_from(from.front(), from);
            } else if (const std::uint32_t other = any(); std::find(from.begin(), from.end(), other) == from.end()) {
                std::vector<Read> reads;
                for (const std::uint32_t f : from) reads.push_back(read(other, f));
                submit(other, true, std::move(reads));
                x = loaded(1);
            }
            if (x != none) held.push_back(x);
            if (held.empty()) break;
            if (x == none) drop_any();
        }
        while (!held.empty()) drop_any();
    }

    static constexpr std::uint32_t none = UINT32_MAX;
    std::mt19937_64 random_;
    Bounds bounds_;
    Machine machine_;
    std::size_t phase_bytes_ = 0;
    Thread thread_;
    Books books_;
    std::size_t made_bytes_ = 0, num_tasks_ = 0, phase_tasks_ = 0;
    std::uint32_t result_ = 0;
    std::int64_t on_host_ = 0, synchronizes_ = 0;
    bool is_slow_ = false, sizes_differ_ = false;
};

/// The steps of several threads may meet in any order: then the most that each holds counts, and the largest working
/// set beside it.
void judge(Program& p) {
    std::size_t held = 0, largest_set = 0, most_needed = 0, largest_block = 0;
    bool each_task_fits = true;
    for (const Thread& thread : p.threads) {
        Books books(thread);
        std::vector<bool> is_dropped(thread.arrays.size());
        for (const Step& step : thread.steps) {
            if (step.what == Step::What::submit) {
                const std::size_t before = books.bytes_of(step.submit.out);
                books.add(step.submit);
                p.made_bytes += books.bytes_of(step.submit.out) - before;
            } else if (step.what == Step::What::drop) {
                books.drop(step.array);
                is_dropped[step.array] = true;
            }
        }
        for (std::uint32_t a = 0; a < thread.arrays.size(); ++a)
            if (!is_dropped[a]) books.read_out(a);
        held += books.most_held();
        largest_set = std::max({largest_set, books.most_on_host(), books.most_on_device()});
        most_needed = std::max(most_needed, books.most_needed());
        largest_block = std::max(largest_block, books.largest_block());
        each_task_fits = each_task_fits && books.most_on_host() <= p.machine.host_bytes &&
                         books.most_on_device() <= p.machine.device_bytes;
    }
    p.needed_bytes = p.threads.size() == 1 ? most_needed : held + largest_set;
    p.usable_bytes = usable(p.machine, largest_block);
    p.fits = each_task_fits && p.needed_bytes <= p.usable_bytes;
}

}  // namespace

Range range_of(const Array& array, std::uint32_t chunk) noexcept {
    const std::int64_t begin = chunk * array.chunk_elements;
    return {begin, std::min(begin + array.chunk_elements, array.elements)};
}

Range range_of(const Thread& thread, const Submit& submit, const Part& part, const Read& read) noexcept {
    if (read.fixed.begin < read.fixed.end) return read.fixed;
    const Range own = range_of(thread.arrays[submit.out], part.chunk);
    return {std::max<std::int64_t>(0, own.begin - read.halo),
            std::min(thread.arrays[read.array].elements, own.end + read.halo)};
}

bool crosses(const Array& array, const Range& range) noexcept {
    return range.begin / array.chunk_elements != (range.end - 1) / array.chunk_elements;
}

Machine machine_of(std::size_t index) {
    Machine m;
    m.num_devices = 1u << (index % 3);
    constexpr std::size_t b = largest_block_bytes;
    switch (index / 3 % 5) {
    case 0: m.device_bytes = 24 * b; break;                         // the device alone
    case 1: m.device_bytes = 12 * b, m.host_bytes = 40 * b; break;  // both
    case 2: m.device_bytes = 10 * b, m.host_bytes = 300 * b; break;
    case 3: m.device_bytes = 6 * b, m.host_bytes = 5 * b; break;  // little
    default: m.device_bytes = 256, m.host_bytes = 16 * b; break;  // the host alone
    }
    // The host driver takes devices out of the machine's memory and leaves a quarter for the host.
    m.host_bytes = std::max(m.host_bytes, (m.num_devices * m.device_bytes + 2) / 3 / 256 * 256 + 256);
    return m;
}

Program make_program(std::uint64_t seed, std::size_t num_threads) {
    std::mt19937_64 random(seed * 0x9e3779b97f4a7c15ull + 1);
    const auto chance = [&](int percent) { return std::uniform_int_distribution<int>(0, 99)(random) < percent; };
    Program p;
    p.seed = seed;
    p.machine = machine_of(machine_index(seed));
    if (num_threads == 0)
        num_threads = chance(85) ? 1 : static_cast<std::size_t>(std::uniform_int_distribution<int>(2, 8)(random));
    Bounds bounds;
    bounds.machine = p.machine;
    bounds.checks = !chance(4);
    bounds.has_halos = chance(50);
    bounds.chunk_steps = std::uniform_int_distribution<int>(chance(20) ? 1 : 5, 16)(random);
    const auto chunk = static_cast<std::size_t>(bounds.chunk_steps * elements_of_a_step) * element_bytes;
    const std::size_t largest_block = bounds.has_halos ? chunk + (chunk / 2 + 511) / 256 * 256 : chunk;
    // From a fifth of all memory to fifty times as much, with one scale for small and large.
    const double times = std::exp(std::uniform_real_distribution<double>(std::log(0.2), std::log(50.0))(random));
    const auto goal = static_cast<std::size_t>(times * static_cast<double>(p.machine.all_bytes()));
    // The largest working set of any thread stands beside what all of them hold.
    const std::size_t all = usable(p.machine, largest_block), largest_set = (most_reads + 1) * largest_block;
    num_threads = std::min(num_threads, (all - std::min(all, largest_set)) / (4 * largest_block));
    num_threads = std::max<std::size_t>(num_threads, 1);
    bounds.share_bytes = num_threads == 1 ? all : (all - largest_set) / num_threads;
    bounds.goal_bytes = goal / num_threads;
    bounds.most_tasks = most_tasks / num_threads;
    for (std::size_t t = 0; t < num_threads; ++t) {
        Maker maker(seed * 16 + t, bounds);
        std::string kinds;
        p.threads.push_back(maker.take(&kinds));
        p.kinds += (t == 0 ? "" : " | ") + kinds;
    }
    judge(p);
    return p;
}

}  // namespace kmm::simulate::fitting
