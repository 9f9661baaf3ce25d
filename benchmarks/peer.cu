// Chunks of 256 MiB that move from one device to another and back: the rate of the runtime's copies between devices.
// Raw: the same bytes by cudaMemcpyPeerAsync. Tasks touch one element of each chunk, so that copies alone take time.
// Output: common.hpp.
#include "kmm_runtime.hpp"

namespace {

using namespace kmm::bench;
using kmm::Array;
using kmm::GPUKernel;
using kmm::RuntimeHandle;

constexpr int num_chunks = 8;

__global__ void set_zero(kmm::GPUViewMut<float> data) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    const auto end = static_cast<std::int64_t>(data.size());
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < end; i += step) data[i] = 0;
}

__global__ void touch(kmm::GPUViewMut<float> data) {
    data[0] += 1;
    data[data.size() - 1] += 1;
}

/// Arrays of one chunk each that go from device to device.
class Traffic {
  public:
    Traffic(RuntimeHandle rt, std::size_t chunk_bytes, bool both_ways) : rt_(std::move(rt)) {
        for (int i = 0; i < (both_ways ? 2 : 1) * num_chunks; ++i) {
            arrays_.emplace_back(static_cast<std::int64_t>(chunk_bytes / sizeof(float)));
            rt_.submit(device(side(arrays_.size() - 1)), GPUKernel(set_zero, 256).grid(1024),
                       overwrite(arrays_.back()));
        }
        rt_.synchronize();
    }

    /// Every array moves to the other device once.
    void swap() {
        ++hops_;
        for (std::size_t i = 0; i < arrays_.size(); ++i)
            rt_.submit(device(side(i)), GPUKernel(touch, 1), write(arrays_[i]));
        rt_.synchronize();
    }

    void verify() const {
        for (const Array<float>& array : arrays_) {
            const std::vector<float> values = array.copy_to_vector();
            const auto right = static_cast<float>(hops_);
            if (values.front() != right || values.back() != right || values[values.size() / 2] != 0)
                Report::stop("peer: " + std::to_string(values.front()) + " instead of " + std::to_string(right));
        }
    }
    std::size_t hops() const { return hops_; }

  private:
    /// The second half of the arrays begins on device 1.
    std::size_t side(std::size_t array) const { return (array / num_chunks + hops_) % 2; }

    RuntimeHandle rt_;
    std::vector<Array<float>> arrays_;
    std::size_t hops_ = 0;
};

void measure(Report& report, std::size_t chunk_bytes, bool both_ways) {
    const std::string name = std::string("peer/") + (both_ways ? "both_ways" : "one_way");
    if (!report.wants(name)) return;
    const std::size_t bytes_each_way = chunk_bytes * num_chunks;
    const std::size_t bytes = bytes_each_way * (both_ways ? 2 : 1);
    Samples samples;
    std::string note = "chunks of " + std::to_string(chunk_bytes) + " bytes";
    {
        const RuntimeHandle rt = kmm::make_runtime(config_for(2, 4 * bytes));
        Traffic traffic(rt, chunk_bytes, both_ways);
        traffic.swap();  // the copies' places are allocated
        const auto before = rt.stats();
        samples = time_each(report.repetitions(9), [&] { traffic.swap(); });
        const auto moved = rt.stats() - before;
        const std::uint64_t expected = bytes * (traffic.hops() - 1);
        if (moved.device_to_device.bytes != expected) {
            note += "; " + std::to_string(moved.device_to_device.bytes) +
                    " bytes went from device to device instead of " + std::to_string(expected) + ", " +
                    std::to_string(moved.device_to_host.bytes) + " down";
        }
        traffic.verify();
    }
    const raw::Measured beside = raw::peer_copy(0, 1, both_ways, bytes_each_way, report.repetitions(9));
    report.add(name, samples, gigabytes_per_second(static_cast<double>(bytes)),
               {samples_of(beside), std::nullopt, with_raw_error(note_of(note), beside)});
}

void run(Report& report) {
    const std::string missing = why_not(2);
    if (!missing.empty()) {
        report.skip("peer/one_way", missing);
        report.skip("peer/both_ways", missing);
        return;
    }
    const std::size_t chunk_bytes =
        sized<std::size_t>(report, std::size_t{256} << 20, std::size_t{16} << 20, std::size_t{256} << 10);
    measure(report, chunk_bytes, false);
    measure(report, chunk_bytes, true);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }
