// copy_to and copy_from with strided device memory of the program: rows with gaps between them, planes of such rows.
// Raw: cudaMemcpy2DAsync and cudaMemcpy3DAsync of the same memory. Output: common.hpp.
#include "driver/registry.hpp"
#include "kmm/dynamic.hpp"
#include "kmm_runtime.hpp"

namespace {

using namespace kmm::bench;
using kmm::DriverKind;
using kmm::RuntimeHandle;

struct Shape {
    const char* name;
    std::int64_t planes, rows, columns;
    std::int64_t row_stride, plane_stride;  ///< of the program's memory, in elements of four bytes
};

/// Device memory of the program.
class OnDevice {
  public:
    explicit OnDevice(std::size_t bytes) {
        if (!driver_.allocate(0, bytes, &data_).ok()) Report::stop("no device memory for the program");
    }
    ~OnDevice() { (void)driver_.free(data_); }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;
    float* data() const { return static_cast<float*>(data_); }

  private:
    kmm::driver::Driver& driver_ = kmm::driver::process_default();
    void* data_ = nullptr;
};

void measure(Report& report, const Shape& s) {
    const std::string out = std::string("strided_copies/to_") + s.name,
                      in = std::string("strided_copies/from_") + s.name;
    if (!report.wants(out) && !report.wants(in)) return;
    const std::size_t bytes = static_cast<std::size_t>(s.planes * s.rows * s.columns) * sizeof(float);
    const std::size_t user_bytes = static_cast<std::size_t>(s.planes * s.plane_stride) * sizeof(float);
    kmm::RuntimeConfig config = config_for(1, 4 * (bytes + user_bytes));
    config.driver =
        kmm::driver::process_default().kind() == kmm::driver::Kind::host ? DriverKind::Host : DriverKind::CUDA;
    const RuntimeHandle rt = kmm::make_runtime(config);
    const OnDevice user(user_bytes), beside(bytes);
    const auto array = rt.array<float, 3>({s.planes, s.rows, s.columns}, {s.planes, s.rows, s.columns});
    const kmm::dynamic::Array same(array);
    const auto box = kmm::dynamic::box({0, 0, 0}, {s.planes, s.rows, s.columns});
    const std::int64_t strides[] = {s.plane_stride, s.row_stride, 1};
    array.fill(1.0f);  // at home on the device
    rt.synchronize();
    const Samples to = time_each(report.repetitions(9), [&] { same.copy_to(user.data(), box, strides); });
    const Samples from = time_each(report.repetitions(9), [&] { same.copy_from(user.data(), box, strides); });
    raw::StridedCopy copy;
    copy.destination = user.data();
    copy.source = beside.data();
    copy.width_bytes = static_cast<std::size_t>(s.columns) * sizeof(float);
    copy.height = static_cast<std::size_t>(s.rows);
    copy.depth = static_cast<std::size_t>(s.planes);
    copy.destination_pitch = static_cast<std::size_t>(s.row_stride) * sizeof(float);
    copy.destination_rows = static_cast<std::size_t>(s.plane_stride / s.row_stride);
    copy.source_pitch = copy.width_bytes;
    copy.source_rows = copy.height;
    const raw::Measured measured = raw::strided_copies(&copy, 1, 1, report.repetitions(9));
    const kmm::bench::Unit unit = gigabytes_per_second(static_cast<double>(bytes));
    report.add(out, to, unit, {samples_of(measured), std::nullopt, with_raw_error("", measured)});
    report.add(in, from, unit, {std::nullopt, std::nullopt, "the chunk comes to the host first"});
}

void run(Report& report) {
    const bool is_gpu = kmm::driver::process_default().kind() != kmm::driver::Kind::host;
    const std::int64_t rows = is_gpu && !report.quick() ? 10'000 : 500;
    measure(report, {"rows_of_1_kib", 1, rows, 256, 320, rows * 320});
    measure(report, {"rows_of_16_kib", 1, rows, 4096, 4160, rows * 4160});
    measure(report, {"planes", 10, rows / 10, 256, 320, (rows / 10 + 8) * 320});
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }
