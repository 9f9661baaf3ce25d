// Random programs against a sequential interpreter: submits of random reads and writes over random chunkings, inside
// chunks and across them, of what the same submit writes, in tiles with halos, dealt to several devices; host and
// device tasks mixed, stencils whose neighbours are on other devices; 1, 2 and 4 devices, device memory just above the
// largest task, several submitting threads.
//
// A program is a number: the same seed gives the same submits. KMM_TEST_PROGRAMS sets how many run (default 10 000; 500
// with KMM_TEST_SHORT=1, 200 000 with KMM_TEST_LONG=1), KMM_TEST_SEED the first one, KMM_TEST_DRIVER the driver.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kmm/kmm.hpp"

namespace {

using Element = std::int64_t;

KMM_HOST_DEVICE Element mix(Element a, Element b) {
    const auto x =
        static_cast<std::uint64_t>(a) * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(b) + 0x7f4a7c15ull;
    return static_cast<Element>((x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull >> 3);
}

// One element of a task: what it becomes from its old value (0 for overwrite), its place, and one element of each read.
KMM_HOST_DEVICE Element step(Element old, Element place, Element left, Element right, Element seed) {
    return mix(mix(old, place + seed), mix(left, right));
}

constexpr int reads_of_a_task = 2;
// 512 elements of 8 bytes: with three chunks, or regions beside them, of a task a device limit of 12 KiB is just as
// much as the largest task needs.
constexpr std::int64_t most_elements_of_a_chunk = 512;
constexpr std::int64_t most_elements_of_a_region = most_elements_of_a_chunk;
constexpr std::size_t tight_limit = 3 * 512 * 8;

/// The k-th element of a region in row-major order (k modulo its volume), as a place.
template<typename V> KMM_HOST_DEVICE Element element_of(const V& view, std::int64_t k) {
    std::int64_t volume = 1;
    for (std::size_t axis = 0; axis < V::rank; axis++) volume *= view.size(axis);
    if (volume == 0) return 0;
    k %= volume;
    const Element* p = view.data();
    std::int64_t offset = 0;
    for (std::size_t axis = V::rank; axis-- > 0;) {
        offset += (k % view.size(axis)) * view.stride(axis);
        k /= view.size(axis);
    }
    return p[offset];
}

template<typename W, typename R> KMM_HOST_DEVICE void apply(W& out, const R& left, const R& right, std::int64_t k,
                                                            Element seed, bool keeps) {
    std::int64_t rest = k, offset = 0;
    for (std::size_t axis = W::rank; axis-- > 0;) {
        offset += (rest % out.size(axis)) * out.stride(axis);
        rest /= out.size(axis);
    }
    Element* p = out.data() + offset;
    *p = step(keeps ? *p : 0, k, element_of(left, k), element_of(right, k + 1), seed);
}

template<std::size_t N>
__global__ void apply_kernel(kmm::GPUSubviewMut<Element, N> out, kmm::GPUSubview<Element, N> left,
                             kmm::GPUSubview<Element, N> right, std::int64_t volume, Element seed, bool keeps) {
    const std::int64_t k = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k < volume) apply(out, left, right, k, seed, keeps);
}

/// The same for a tile of a submit, whose views tell how much there is.
template<std::size_t N>
__global__ void apply_to_tile(kmm::GPUSubviewMut<Element, N> out, kmm::GPUSubview<Element, N> left,
                              kmm::GPUSubview<Element, N> right, Element seed, bool keeps) {
    std::int64_t volume = 1;
    for (std::size_t axis = 0; axis < N; axis++) volume *= out.size(axis);
    const std::int64_t k = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k < volume) apply(out, left, right, k, seed, keeps);
}

/// What `element_of` is of the interpreter's values of a region.
Element element_of(const std::vector<Element>& values, std::int64_t k) {
    return values.empty() ? 0 : values[static_cast<std::size_t>(k) % values.size()];
}

template<std::size_t N> struct Modelled {
    kmm::Array<Element, N> array;
    kmm::Dim<N> shape;
    kmm::Dim<N> chunk;
    std::vector<Element> values;  // the interpreter's, row-major
};

template<std::size_t N> kmm::Bounds<N> box(const std::array<std::int64_t, N>& begin,
                                           const std::array<std::int64_t, N>& end) {
    kmm::Bounds<N> b;
    for (std::size_t k = 0; k < N; k++) b[k] = kmm::Range<kmm::default_index_type>(begin[k], end[k]);
    return b;
}

template<std::size_t N> class Program {
  public:
    Program(kmm::RuntimeHandle rt, std::uint64_t seed) : rt_(rt), random_(seed) {}

    void run() {
        const std::int64_t count = pick(2, 4);
        for (std::int64_t i = 0; i < count; i++) arrays_.push_back(make());
        const std::int64_t steps = pick(5, 30);
        for (std::int64_t i = 0; i < steps && !::testing::Test::HasFailure(); i++) one_step();
        compare_copies();
        for (auto& a : arrays_) compare(a, "at the end");
    }

  private:
    std::int64_t pick(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }

    std::int64_t volume(const kmm::Dim<N>& d) {
        std::int64_t v = 1;
        for (std::size_t k = 0; k < N; k++) v *= d[k];
        return v;
    }

    /// Sizes of an array and its chunks: often one that is cut along its slowest axis alone, in chunks whose blocks can
    /// lie side by side; and often those of an array before it.
    void choose_shape(Modelled<N>& m) {
        if (!arrays_.empty() && pick(0, 2) == 0) {
            const Modelled<N>& other = any_array();
            m.shape = other.shape;
            m.chunk = other.chunk;
            return;
        }
        std::int64_t left = most_elements_of_a_chunk;
        for (std::size_t k = 0; k < N; k++) {
            m.chunk[k] = pick(1, std::min<std::int64_t>(left, N == 1 ? 512 : N == 2 ? 24 : 9));
            left /= m.chunk[k];
            m.shape[k] = pick(1, 4 * m.chunk[k]);
        }
        if (pick(0, 1) == 0) return;
        constexpr std::int64_t elements_of_a_step = 256 / sizeof(Element);
        const std::int64_t columns = N == 1 ? 1 : std::int64_t{1} << pick(0, 3);
        for (std::size_t k = 1; k < N; k++) m.chunk[k] = m.shape[k] = k == 1 ? columns : 2;
        const std::int64_t row = N == 3 ? 2 * columns : columns;
        m.chunk[0] = elements_of_a_step / row * pick(1, 6);
        m.shape[0] = pick(m.chunk[0], 8 * m.chunk[0]);
    }

    Modelled<N> make() {
        Modelled<N> m;
        choose_shape(m);
        m.values.resize(static_cast<std::size_t>(volume(m.shape)));
        for (auto& v : m.values) v = pick(-1000, 1000);
        m.array = rt_.template array<Element, N>(m.shape, m.chunk);
        switch (pick(0, 2)) {
        case 0: m.array.copy_from(m.values); break;
        case 1: {
            std::fill(m.values.begin(), m.values.end(), m.values[0]);
            m.array.fill(m.values[0]);
            break;
        }
        default: {
            // Written chunk by chunk, by tasks.
            m.array.copy_from(m.values);
            for_each_chunk(m, [&](const kmm::Bounds<N>& region) { submit_on(m, region, false); });
        }
        }
        return m;
    }

    template<typename F> void for_each_chunk(const Modelled<N>& m, F&& f) {
        std::array<std::int64_t, N> begin{}, end{};
        for (;;) {
            for (std::size_t k = 0; k < N; k++) end[k] = std::min<std::int64_t>(begin[k] + m.chunk[k], m.shape[k]);
            f(box<N>(begin, end));
            std::size_t k = N;
            while (k-- > 0) {
                begin[k] += m.chunk[k];
                if (begin[k] < m.shape[k]) break;
                begin[k] = 0;
            }
            if (k == static_cast<std::size_t>(-1)) return;
        }
    }

    kmm::Bounds<N> random_region(const Modelled<N>& m, bool whole) {
        std::array<std::int64_t, N> begin{}, end{};
        for (std::size_t k = 0; k < N; k++) {
            const std::int64_t first = pick(0, (m.shape[k] - 1) / m.chunk[k]) * m.chunk[k];
            const std::int64_t last = std::min<std::int64_t>(first + m.chunk[k], m.shape[k]);
            begin[k] = whole ? first : pick(first, last - 1);
            end[k] = whole ? last : pick(begin[k] + 1, last);
        }
        return box<N>(begin, end);
    }

    /// Anywhere in the array, across chunks or not.
    kmm::Bounds<N> random_box(const Modelled<N>& m) {
        std::array<std::int64_t, N> begin{}, end{};
        std::int64_t left = most_elements_of_a_region;
        for (std::size_t k = 0; k < N; k++) {
            begin[k] = pick(0, m.shape[k] - 1);
            end[k] = pick(begin[k] + 1, std::min(m.shape[k], begin[k] + left));
            left /= end[k] - begin[k];
        }
        return box<N>(begin, end);
    }
    kmm::Bounds<N> any_region(const Modelled<N>& m) {
        return pick(0, 2) == 0 ? random_box(m) : random_region(m, pick(0, 1) == 0);
    }
    Modelled<N>& any_array() {
        return arrays_[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(arrays_.size()) - 1))];
    }

    // ---- the interpreter

    std::vector<Element> values_of(const Modelled<N>& m, const kmm::Bounds<N>& region) {
        std::vector<Element> out;
        for_each_index(m, region, [&](std::size_t i) { out.push_back(m.values[i]); });
        return out;
    }
    template<typename F> void for_each_index(const Modelled<N>& m, const kmm::Bounds<N>& region, F&& f) {
        for (std::size_t k = 0; k < N; k++)
            if (region[k].begin >= region[k].end) return;
        std::array<std::int64_t, N> at;
        for (std::size_t k = 0; k < N; k++) at[k] = region[k].begin;
        for (;;) {
            std::int64_t i = 0;
            for (std::size_t k = 0; k < N; k++) i = i * m.shape[k] + at[k];
            f(static_cast<std::size_t>(i));
            std::size_t k = N;
            while (k-- > 0) {
                if (++at[k] < region[k].end) break;
                at[k] = region[k].begin;
            }
            if (k == static_cast<std::size_t>(-1)) return;
        }
    }
    /// The elements of `out` in the region, from old values of what is read.
    void interpret(Modelled<N>& out, const kmm::Bounds<N>& region, const std::vector<Element>& left,
                   const std::vector<Element>& right, Element seed, bool keeps) {
        std::int64_t k = 0;
        for_each_index(out, region, [&](std::size_t i) {
            Element& v = out.values[i];
            v = step(keeps ? v : 0, k, element_of(left, k), element_of(right, k + 1), seed);
            k++;
        });
    }

    // ---- steps

    static auto region_of(const kmm::Bounds<N>& b) {
        if constexpr (N == 1)
            return kmm::bounds(kmm::range(b[0].begin, b[0].end));
        else if constexpr (N == 2)
            return kmm::bounds(kmm::range(b[0].begin, b[0].end), kmm::range(b[1].begin, b[1].end));
        else
            return kmm::bounds(kmm::range(b[0].begin, b[0].end), kmm::range(b[1].begin, b[1].end),
                               kmm::range(b[2].begin, b[2].end));
    }

    void submit_on(Modelled<N>& out, const kmm::Bounds<N>& region, bool keeps) {
        // What a task reads may be what it writes: it sees what was there before.
        Modelled<N>* from[reads_of_a_task];
        kmm::Bounds<N> read[reads_of_a_task];
        for (int r = 0; r < reads_of_a_task; r++) {
            from[r] = arrays_.empty() || pick(0, 3) == 0 ? &out : &any_array();
            read[r] = any_region(*from[r]);
        }
        const Element seed = pick(0, 1 << 20);
        const auto left = values_of(*from[0], read[0]);
        const auto right = values_of(*from[1], read[1]);
        interpret(out, region, left, right, seed, keeps);
        std::int64_t count = 1;
        for (std::size_t k = 0; k < N; k++) count *= region[k].end - region[k].begin;
        const auto a = region_of(read[0]);
        const auto b = region_of(read[1]);
        const auto w = region_of(region);
        const auto devices = static_cast<std::int64_t>(rt_.info().num_devices());
        const kmm::ResourceId device(kmm::DeviceId(pick(0, devices - 1)));
        const auto submit = [&](kmm::ResourceId where, auto launcher) {
            if (keeps)
                rt_.submit(where, launcher, write(out.array, w), read_(*from[0], a), read_(*from[1], b), count, seed,
                           keeps);
            else
                rt_.submit(where, launcher, overwrite(out.array, w), read_(*from[0], a), read_(*from[1], b), count,
                           seed, keeps);
        };
        switch (pick(0, 3)) {
        case 0:
            submit(kmm::ResourceId::host(),
                   kmm::Host([](kmm::SubviewMut<Element, N> o, kmm::Subview<Element, N> l, kmm::Subview<Element, N> r,
                                std::int64_t n, Element s, bool kept) {
                       for (std::int64_t i = 0; i < n; i++) apply(o, l, r, i, s, kept);
                   }));
            break;
        case 1:
            submit(device,
                   kmm::GPU([](kmm::DeviceResource& d, kmm::GPUSubviewMut<Element, N> o, kmm::GPUSubview<Element, N> l,
                               kmm::GPUSubview<Element, N> r, std::int64_t n, Element s, bool kept) {
                       d.launch(dim3(static_cast<unsigned>((n + 63) / 64)), dim3(64), 0, apply_kernel<N>, o, l, r, n, s,
                                kept);
                   }));
            break;
        default:
            submit(device,
                   kmm::GPUKernel(apply_kernel<N>, dim3(64)).grid(dim3(static_cast<unsigned>((count + 63) / 64))));
        }
    }
    // Axis by axis the range of a tile, made wider on both sides.
    static auto tile_mapping(std::int64_t low, std::int64_t high) {
        using namespace kmm::placeholders;
        if constexpr (N == 1)
            return kmm::bounds(kmm::range(_x - low, _x + high));
        else if constexpr (N == 2)
            return kmm::bounds(kmm::range(_x - low, _x + high), kmm::range(_y - low, _y + high));
        else
            return kmm::bounds(kmm::range(_x - low, _x + high), kmm::range(_y - low, _y + high),
                               kmm::range(_z - low, _z + high));
    }
    /// A tile with its halo, as far as it is inside the array.
    static kmm::Bounds<N> clipped(const kmm::Bounds<N>& tile, std::int64_t halo, const Modelled<N>& m) {
        std::array<std::int64_t, N> begin, end;
        for (std::size_t k = 0; k < N; k++) {
            begin[k] = std::max<std::int64_t>(0, tile[k].begin - halo);
            end[k] = std::min<std::int64_t>(m.shape[k], tile[k].end + halo);
            if (end[k] < begin[k]) begin[k] = end[k] = 0;
        }
        return box<N>(begin, end);
    }

    /// Tiles of a box of an array, and the device of each.
    struct Tiles {
        std::array<std::int64_t, N> first, last, size;
        std::function<std::int64_t(std::int64_t tile)> device;
    };

    /// Tiles of a box of the array, cut without regard to its chunks and dealt to devices, in one submit. Each reads
    /// itself and a halo of arrays, of which any may be the one that is written.
    void submit_tiles(Modelled<N>& out, bool keeps) {
        std::int64_t halos[reads_of_a_task] = {pick(0, 1) * pick(0, 4), pick(0, 2)};
        Tiles t;
        for (bool fits = false; !fits;) {
            std::int64_t tiles = 1, most = 1;
            for (std::size_t k = 0; k < N; k++) {
                t.first[k] = pick(0, 3) == 0 ? pick(0, out.shape[k] - 1) : 0;
                t.last[k] =
                    pick(0, 3) == 0 ? pick(t.first[k] + 1, out.shape[k]) : static_cast<std::int64_t>(out.shape[k]);
                t.size[k] = pick(1, t.last[k] - t.first[k]);
                tiles *= (t.last[k] - t.first[k] + t.size[k] - 1) / t.size[k];
                most *= t.size[k] + 2 * std::max(halos[0], halos[1]);
            }
            fits = tiles <= 24 && most <= most_elements_of_a_region;
            if (!fits && pick(0, 3) == 0) halos[0] = halos[1] = 0;
            if (!fits && pick(0, 7) == 0) return;
        }
        const auto devices = static_cast<std::int64_t>(rt_.info().num_devices());
        t.device = [this, devices](std::int64_t) { return pick(0, devices - 1); };
        Modelled<N>* const from[] = {pick(0, 1) == 0 ? &out : &any_array(), pick(0, 1) == 0 ? &out : &any_array()};
        submit_domain(out, t, from, halos, keeps);
    }

    /// Steps of a stencil between two arrays of one shape: a task for each chunk, always on the same device. What it
    /// reads of the neighbours may be on another one.
    void submit_stencil() {
        Modelled<N>& a = any_array();
        Modelled<N>* b = nullptr;
        for (auto& other : arrays_)
            if (&other != &a && other.shape == a.shape && other.chunk == a.chunk) b = &other;
        std::int64_t halos[reads_of_a_task] = {pick(1, 2), pick(0, 1)};
        Tiles t;
        std::int64_t tiles = 1, most = 1;
        for (std::size_t k = 0; k < N; k++) {
            t.first[k] = 0;
            t.last[k] = a.shape[k];
            t.size[k] = a.chunk[k];
            tiles *= (a.shape[k] + a.chunk[k] - 1) / a.chunk[k];
            most *= std::min<std::int64_t>(a.shape[k], a.chunk[k] + 4);
        }
        if (b == nullptr || tiles > 64 || most > most_elements_of_a_region) return;
        const auto devices = static_cast<std::int64_t>(rt_.info().num_devices());
        const bool in_rows = pick(0, 2) != 0;
        const std::int64_t shift = pick(0, devices - 1);
        t.device = [=](std::int64_t tile) { return in_rows ? tile * devices / tiles : (tile + shift) % devices; };
        const std::int64_t steps = pick(2, 6);
        for (std::int64_t s = 0; s < steps; s++) {
            Modelled<N>* const from[] = {s % 2 == 0 ? &a : b, pick(0, 3) == 0 ? &any_array() : s % 2 == 0 ? &a : b};
            submit_domain(s % 2 == 0 ? *b : a, t, from, halos, pick(0, 3) == 0);
        }
    }

    void submit_domain(Modelled<N>& out, const Tiles& t, Modelled<N>* const* from, const std::int64_t* halos,
                       bool keeps) {
        const Element seed = pick(0, 1 << 20);
        std::vector<kmm::DomainChunk> domain;
        std::vector<Element> before[reads_of_a_task];
        const Modelled<N> old[] = {*from[0], *from[1]};
        std::array<std::int64_t, N> begin = t.first, end{};
        for (bool more = true; more;) {
            for (std::size_t k = 0; k < N; k++) end[k] = std::min(begin[k] + t.size[k], t.last[k]);
            const kmm::Bounds<N> tile = box<N>(begin, end);
            kmm::DomainChunk chunk;
            const std::int64_t device = t.device(static_cast<std::int64_t>(domain.size()));
            chunk.owner_id = kmm::ResourceId(kmm::DeviceId(static_cast<std::uint8_t>(device)));
            for (std::size_t k = 0; k < N; k++) {
                chunk.offset[k] = begin[k];
                chunk.size[k] = end[k] - begin[k];
            }
            domain.push_back(chunk);
            for (int r = 0; r < reads_of_a_task; r++) before[r] = values_of(old[r], clipped(tile, halos[r], old[r]));
            interpret(out, tile, before[0], before[1], seed, keeps);
            std::size_t k = N;
            while (k-- > 0) {
                begin[k] += t.size[k];
                if (begin[k] < t.last[k]) break;
                begin[k] = t.first[k];
            }
            more = k != static_cast<std::size_t>(-1);
        }
        const auto w = tile_mapping(0, 0 + 1);
        const auto left = read_(*from[0], tile_mapping(halos[0], halos[0] + 1));
        const auto right = read_(*from[1], tile_mapping(halos[1], halos[1] + 1));
        const auto submit = [&](auto launcher) {
            if (keeps)
                rt_.parallel_submit(domain, launcher, write(out.array, w), left, right, seed, keeps);
            else
                rt_.parallel_submit(domain, launcher, overwrite(out.array, w), left, right, seed, keeps);
        };
        if (pick(0, 3) == 0)
            submit(kmm::Host([](kmm::SubviewMut<Element, N> o, kmm::Subview<Element, N> l, kmm::Subview<Element, N> r,
                                Element s, bool kept) {
                std::int64_t volume = 1;
                for (std::size_t axis = 0; axis < N; axis++) volume *= o.size(axis);
                for (std::int64_t i = 0; i < volume; i++) apply(o, l, r, i, s, kept);
            }));
        else
            submit(kmm::GPUKernel(apply_to_tile<N>, dim3(64)).grid(dim3(most_elements_of_a_region / 64)));
    }
    template<typename M> auto read_(const Modelled<N>& m, const M& region) { return kmm::read(m.array, region); }

    void compare(Modelled<N>& m, const char* when) {
        const auto got = m.array.copy_to_vector();
        ASSERT_EQ(got.size(), m.values.size());
        for (std::size_t i = 0; i < got.size(); i++)
            ASSERT_EQ(got[i], m.values[i]) << "element " << i << " of " << m.values.size() << " " << when;
    }

    // Asynchronous copies: the buffer stays until the program looks at it.
    void copy_out_beside(Modelled<N>& m) {
        const kmm::Bounds<N> region = any_region(m);
        Copy& copy = copies_.emplace_back();
        copy.expected = values_of(m, region);
        copy.buffer.assign(copy.expected.size(), 0);
        copy.done = m.array.copy_to_async(copy.buffer.data(), region);
    }
    void copy_in_beside(Modelled<N>& m) {
        if (pick(0, 2) == 0) {
            for (auto& v : m.values) v = pick(-50, 50);
            m.array.copy_from_async(std::vector<Element>(m.values));
            return;
        }
        const kmm::Bounds<N> region = any_region(m);
        Copy& copy = copies_.emplace_back();
        for_each_index(m, region, [&](std::size_t i) { copy.buffer.push_back(m.values[i] = pick(-50, 50)); });
        copy.expected = copy.buffer;
        copy.done = m.array.copy_from_async(copy.buffer.data(), region);
    }
    void compare_copies() {
        for (const Copy& copy : copies_) {
            rt_.wait(copy.done);
            ASSERT_EQ(copy.buffer, copy.expected) << "of an asynchronous copy";
        }
        copies_.clear();
    }

    void one_step() {
        auto& m = arrays_[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(arrays_.size()) - 1))];
        switch (pick(0, 19)) {
        case 0: compare(m, "in between"); break;
        case 1:
            for (auto& v : m.values) v = pick(-50, 50);
            m.array.copy_from(m.values);
            break;
        case 2: {
            const Element v = pick(-50, 50);
            std::fill(m.values.begin(), m.values.end(), v);
            m.array.fill(v);
            break;
        }
        case 3: {
            Modelled<N> fresh = make();  // the old array goes while its tasks may still run
            m = std::move(fresh);
            break;
        }
        case 4: rt_.wait(rt_.barrier()); break;
        case 5:
        case 6: {
            const bool keeps = pick(0, 1) == 0;
            for_each_chunk(m, [&](const kmm::Bounds<N>& region) { submit_on(m, region, keeps); });
            break;
        }
        case 7:
        case 8:
        case 9: submit_tiles(m, pick(0, 1) == 0); break;
        case 10:
        case 11: submit_stencil(); break;
        case 12: copy_out_beside(m); break;
        case 13: copy_in_beside(m); break;
        default: submit_on(m, any_region(m), pick(0, 1) == 0);
        }
    }

    kmm::RuntimeHandle rt_;
    std::mt19937_64 random_;
    std::vector<Modelled<N>> arrays_;
    struct Copy {
        std::vector<Element> buffer, expected;
        kmm::EventId done;
    };
    std::list<Copy> copies_;
};

void run_program(const kmm::RuntimeHandle& rt, std::uint64_t seed) {
    switch (seed % 3) {
    case 0: Program<1>(rt, seed).run(); break;
    case 1: Program<2>(rt, seed).run(); break;
    default: Program<3>(rt, seed).run();
    }
}

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text != nullptr && *text != 0 ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::vector<kmm::RuntimeHandle> make_runtimes() {
    std::vector<kmm::RuntimeHandle> out;
    kmm::RuntimeConfig config = kmm::default_config_from_environment();
#if KMM_USE_CUDA
    config.driver = kmm::DriverKind::CUDA;
    const std::size_t present = kmm::make_runtime(config).info().num_devices();
#else
    config.driver = kmm::DriverKind::Host;
    const std::size_t present = 4;
#endif
    for (const std::size_t devices : {1u, 2u, 4u}) {
        if (devices > present) break;
        for (const bool tight : {true, false}) {
            config.virtual_devices = devices;
            config.virtual_device_memory = 16u << 20;
            config.devices.clear();
            for (std::size_t i = 0; i < devices; i++) config.devices.push_back(static_cast<int>(i));
            config.device_memory_limit = tight ? tight_limit : (8u << 20);
            config.host_threads = 2;
            out.push_back(kmm::make_runtime(config));
        }
    }
    return out;
}

TEST(RandomPrograms, agree_with_a_sequential_interpreter) {
    const bool is_short = number_from("KMM_TEST_SHORT", 0) != 0;
    const bool is_long = number_from("KMM_TEST_LONG", 0) != 0;
    const std::uint64_t count = number_from("KMM_TEST_PROGRAMS", is_short ? 500 : is_long ? 200000 : 10000);
    const std::uint64_t first = number_from("KMM_TEST_SEED", 1);
    const auto runtimes = make_runtimes();
    ASSERT_FALSE(runtimes.empty());
    std::uint64_t seed = first;
    while (seed < first + count) {
        const auto& rt = runtimes[seed / 3 % runtimes.size()];
        // Every eighth round three threads submit at once, each a program of its own on the same runtime.
        const std::uint64_t threads = seed % 8 == 0 ? 3 : 1;
        if (threads == 1) {
            run_program(rt, seed);
        } else {
            std::vector<std::thread> pool;
            for (std::uint64_t t = 0; t < threads; t++) pool.emplace_back([&, t] { run_program(rt, seed + t); });
            for (auto& t : pool) t.join();
        }
        ASSERT_FALSE(::testing::Test::HasFailure())
            << "program " << seed << " on " << rt.info().num_devices() << " device(s) with "
            << rt.info().device(kmm::DeviceId(0)).memory_limit() << " bytes each";
        seed += threads;
    }
    for (const auto& rt : runtimes) {
        rt.synchronize();
        const auto stats = rt.stats();
        EXPECT_EQ(stats.tasks_failed, 0u);
        for (const auto& m : stats.memories) {
            EXPECT_LE(m.peak_bytes, m.limit_bytes);
            EXPECT_EQ(m.current_bytes, 0u) << "arrays are gone, their memory is not";
        }
    }
}

}  // namespace
