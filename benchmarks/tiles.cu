// Matrices in tiles that do not fit into a device's memory: a product of 10 x 10 x 10 tiles that is submitted in the
// worst order, with k outermost, and a Cholesky factorisation of 20 x 20. What counts is how many tiles move. The
// kernels combine tiles element by element: which tiles they use, and in which order, is that of the real thing, and
// the result is compared with the same on the host. Output: common.hpp.
#include "kmm_runtime.hpp"

#include <vector>

namespace {

using namespace kmm::bench;
using kmm::Array;
using kmm::GPUKernel;
using kmm::GPUSubview;
using kmm::GPUSubviewMut;
using kmm::RuntimeHandle;
using Value = std::uint32_t;

constexpr unsigned threads = 256;

KMM_HOST_DEVICE Value combine(Value c, Value a, Value b) { return c * 5 + a * 3 + b; }

// Of `used` elements, every `step`-th.
__global__ void update(std::int64_t used, std::int64_t step, GPUSubviewMut<Value> c, GPUSubview<Value> a,
                       GPUSubview<Value> b) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= used) return;
    Value& value = c[c.begin() + i * step];
    value = combine(value, a[a.begin() + i * step], b[b.begin() + i * step]);
}

__global__ void scale(std::int64_t used, std::int64_t step, GPUSubviewMut<Value> c, GPUSubview<Value> a) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < used) c[c.begin() + i * step] = combine(c[c.begin() + i * step], a[a.begin() + i * step], 1);
}

__global__ void factor(std::int64_t used, std::int64_t step, GPUSubviewMut<Value> c) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < used) c[c.begin() + i * step] = combine(c[c.begin() + i * step], 2, 1);
}

/// Tiles of one array, row by row, and their values on the host: one for each tile, since all elements are alike.
class Tiles {
  public:
    Tiles(const RuntimeHandle& rt, std::int64_t count, std::int64_t elements, Value seed)
        : elements_(elements), values_(static_cast<std::size_t>(count)) {
        array_ = rt.array<Value>(count * elements, kmm::Dim<1>(elements));
        std::vector<Value> all(static_cast<std::size_t>(count * elements));
        for (std::size_t t = 0; t < values_.size(); ++t) {
            values_[t] = seed + static_cast<Value>(t);
            std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(t) * elements, elements, values_[t]);
        }
        array_.copy_from(all);
    }
    auto range(std::int64_t tile) const { return kmm::range(tile * elements_, (tile + 1) * elements_); }
    Array<Value>& array() { return array_; }
    Value& value(std::int64_t tile) { return values_[static_cast<std::size_t>(tile)]; }
    /// The first element of each tile.
    void expect_equal(const char* name) const {
        const std::vector<Value> found = array_.copy_to_vector();
        for (std::size_t t = 0; t < values_.size(); ++t)
            if (found[t * static_cast<std::size_t>(elements_)] != values_[t])
                Report::stop(std::string(name) + ": tile " + std::to_string(t) + " is wrong");
    }

  private:
    std::int64_t elements_;
    Array<Value> array_;
    std::vector<Value> values_;
};

/// Submits tasks, and does the same on the host.
class Program {
  public:
    Program(RuntimeHandle rt, std::int64_t elements)
        : rt_(std::move(rt)), step_(on_gpu ? 1 : elements), used_((elements + step_ - 1) / step_) {}
    void update_tile(Tiles& out, std::int64_t c, Tiles& left, std::int64_t a, Tiles& right, std::int64_t b) {
        rt_.submit(device(0), kernel(update), used_, step_, kmm::write(out.array()[out.range(c)]),
                   left.array()[left.range(a)], right.array()[right.range(b)]);
        out.value(c) = combine(out.value(c), left.value(a), right.value(b));
    }
    void scale_tile(Tiles& out, std::int64_t c, std::int64_t a) {
        rt_.submit(device(0), kernel(scale), used_, step_, kmm::write(out.array()[out.range(c)]),
                   out.array()[out.range(a)]);
        out.value(c) = combine(out.value(c), out.value(a), 1);
    }
    void factor_tile(Tiles& out, std::int64_t c) {
        rt_.submit(device(0), kernel(factor), used_, step_, kmm::write(out.array()[out.range(c)]));
        out.value(c) = combine(out.value(c), 2, 1);
    }

  private:
    template<typename F>
    GPUKernel<F> kernel(F function) const {
        const auto blocks = static_cast<unsigned>((used_ + threads - 1) / threads);
        return GPUKernel<F>(function, dim3(threads)).grid(dim3(blocks));
    }

    RuntimeHandle rt_;
    std::int64_t step_;  ///< an emulated kernel touches one element alone: tiles move as a whole all the same
    std::int64_t used_;
};

kmm::RuntimeConfig with_room_for(std::size_t tiles, std::size_t tile_bytes) {
    kmm::RuntimeConfig config = config_for(1, 4 * tiles * tile_bytes);
    config.device_memory_limit = tiles * tile_bytes;
    return config;
}

template<typename Submit>
void measure(Report& report, const std::string& name, const RuntimeHandle& rt, std::size_t tile_bytes, double must,
             const std::string& note, Submit&& submit) {
    const auto before = rt.stats();
    int runs = 0;
    const Samples elapsed = time_each(1, [&] {
        ++runs;
        submit();
        rt.synchronize();
    });
    const auto moved = rt.stats() - before;
    const double bytes = static_cast<double>(moved.host_to_device.bytes + moved.device_to_host.bytes);
    report.add(name + "_tiles_moved", Samples{bytes / static_cast<double>(tile_bytes) / runs},
               {"tiles", Better::lower, 1}, {std::nullopt, must, note_of(note)});
    report.add(name, elapsed, kmm::bench::seconds(), {std::nullopt, std::nullopt, note_of("the same tasks")});
}

void run_product(Report& report, std::size_t tile_bytes) {
    if (!report.wants("tiles/product")) return;
    constexpr std::int64_t n = 10;
    const auto elements = static_cast<std::int64_t>(tile_bytes / sizeof(Value));
    const RuntimeHandle rt = kmm::make_runtime(with_room_for(30, tile_bytes));
    Tiles a(rt, n * n, elements, 1), b(rt, n * n, elements, 1000), c(rt, n * n, elements, 0);
    Program program(rt, elements);
    measure(report, "tiles/product", rt, tile_bytes, 1100, "both ways; 10 x 10 x 10 tiles, room for 30", [&] {
        for (std::int64_t k = 0; k < n; ++k)
            for (std::int64_t i = 0; i < n; ++i)
                for (std::int64_t j = 0; j < n; ++j) program.update_tile(c, i * n + j, a, i * n + k, b, k * n + j);
    });
    c.expect_equal("tiles/product");
}

void run_cholesky(Report& report, std::size_t tile_bytes) {
    if (!report.wants("tiles/cholesky")) return;
    constexpr std::int64_t n = 20;
    const auto elements = static_cast<std::int64_t>(tile_bytes / sizeof(Value));
    const RuntimeHandle rt = kmm::make_runtime(with_room_for(50, tile_bytes));
    Tiles a(rt, n * (n + 1) / 2, elements, 1);
    Program program(rt, elements);
    const auto tile = [](std::int64_t row, std::int64_t column) { return row * (row + 1) / 2 + column; };
    measure(report, "tiles/cholesky", rt, tile_bytes, 900, "both ways; 20 x 20 tiles, room for 50", [&] {
        for (std::int64_t k = 0; k < n; ++k) {
            program.factor_tile(a, tile(k, k));
            for (std::int64_t i = k + 1; i < n; ++i) program.scale_tile(a, tile(i, k), tile(k, k));
            for (std::int64_t i = k + 1; i < n; ++i) {
                for (std::int64_t j = k + 1; j < i; ++j)
                    program.update_tile(a, tile(i, j), a, tile(i, k), a, tile(j, k));
                program.scale_tile(a, tile(i, i), tile(i, k));
            }
        }
    });
    a.expect_equal("tiles/cholesky");
}

void run(Report& report) {
    const std::string missing = why_not(1);
    if (!missing.empty()) {
        report.skip("tiles/product", missing);
        report.skip("tiles/cholesky", missing);
        return;
    }
    const auto tile_bytes =
        sized<std::size_t>(report, std::size_t{64} << 20, std::size_t{8} << 20, std::size_t{1} << 20);
    run_product(report, tile_bytes);
    run_cholesky(report, tile_bytes);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }
