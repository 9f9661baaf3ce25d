// What the host keeps of a pending task that reads a halo of 27 bricks: bytes of heap for each, at n tasks and at 2 n.
// Host driver, host tasks that do nothing, behind a task that ends when everything was counted. Output: common.hpp.
//
// Two 3-D arrays in bricks. A task reads its brick of one array with a border of 1, and overwrites its brick of the
// other. `one_step` is the first step of all tasks over n and 2 n bricks: it pays for what histories of chunks keep
// until the next write too. `later_steps` is a task of the steps after the second, which find that in its place.
#include <malloc.h>

#include <atomic>
#include <optional>
#include <vector>

#include "kmm_runtime.hpp"

namespace {

using namespace kmm::bench;
using namespace kmm::placeholders;
using kmm::Array;
using kmm::Dim;
using kmm::Host;
using kmm::range;
using kmm::ResourceId;
using kmm::RuntimeHandle;

using Volume = Array<float, 3>;

constexpr std::int64_t side = 4;  // of a brick, in elements

RuntimeHandle start_runtime() {
    kmm::RuntimeConfig config = config_for(1, std::size_t{64} << 20);
    config.driver = kmm::DriverKind::Host;
    config.devices.clear();
    config.host_threads = 2;  // one is held
    config.max_pending_tasks = std::size_t{1} << 30;
    return kmm::make_runtime(config);
}

/// Of the process's heap, once the schedule knows all that was submitted.
double held_bytes(const RuntimeHandle& rt) {
    rt.wait(rt.submit(ResourceId::host(), Host([] {})));
    const struct mallinfo2 heap = mallinfo2();
    return static_cast<double>(heap.uordblks + heap.hblkhd);
}

/// Two arrays of `x * y * z` bricks with one layer more on each side, which is read and not written.
class Bricks {
  public:
    Bricks(const RuntimeHandle& rt, std::int64_t x, std::int64_t y, std::int64_t z) : rt_(rt), bricks_{x, y, z} {
        const Dim<3> size((x + 2) * side, (y + 2) * side, (z + 2) * side);
        for (int i = 0; i < 2; ++i) {
            arrays_.push_back(rt_.array<float, 3>(size, Dim<3>(side, side, side)));
            arrays_.back().fill(0.0f);
        }
        rt_.synchronize();
    }
    std::int64_t num_tasks() const { return bricks_[0] * bricks_[1] * bricks_[2]; }
    /// All content is that of tasks that come after this one, which ends with `open`.
    void close() {
        Array<float> gate = rt_.array<float, 1>(1, Dim<1>(1));
        rt_.submit(ResourceId::host(), Host([this](kmm::ViewMut<float>) { is_open_.wait(false); }), overwrite(gate));
        for (Volume& array : arrays_)
            for (std::int64_t i = 0; i < bricks_[0] + 2; ++i)
                for (std::int64_t j = 0; j < bricks_[1] + 2; ++j)
                    for (std::int64_t k = 0; k < bricks_[2] + 2; ++k)
                        rt_.submit(ResourceId::host(), Host([](kmm::SubviewMut<float, 3>, kmm::View<float>) {}),
                                   overwrite(array[of(i)][of(j)][of(k)]), gate);
    }
    void open() {
        is_open_.store(true);
        is_open_.notify_all();
        rt_.synchronize();
    }
    void submit_step(int step) {
        const Volume& in = arrays_[static_cast<std::size_t>(step % 2)];
        Volume& out = arrays_[static_cast<std::size_t>(1 - step % 2)];
        for (std::int64_t i = 1; i <= bricks_[0]; ++i)
            for (std::int64_t j = 1; j <= bricks_[1]; ++j)
                for (std::int64_t k = 1; k <= bricks_[2]; ++k)
                    rt_.submit(ResourceId::host(), Host([](kmm::SubviewMut<float, 3>, kmm::Subview<float, 3>) {}),
                               overwrite(out[of(i)][of(j)][of(k)]), in[around(i)][around(j)][around(k)]);
    }

  private:
    static kmm::IndexMap of(std::int64_t i) { return range(i * side, (i + 1) * side); }
    static kmm::IndexMap around(std::int64_t i) { return range(i * side - 1, (i + 1) * side + 1); }

    RuntimeHandle rt_;
    std::int64_t bricks_[3];
    std::vector<Volume> arrays_;
    std::atomic<bool> is_open_{false};
};

void run(Report& report) {
    const kmm::bench::Unit bytes{"bytes", Better::lower, 1};
    const std::optional<double> must = report.quick() ? std::nullopt : std::optional<double>(2000);
    const auto length = report.size<std::int64_t>(20, 6);
    for (const std::int64_t times : {1, 2}) {
        const RuntimeHandle rt = start_runtime();
        Bricks bricks(rt, times * length, length, length);
        const auto num_tasks = static_cast<double>(bricks.num_tasks());
        bricks.close();
        std::vector<double> held{held_bytes(rt)};
        for (int step = 0; step < 4; ++step) {
            bricks.submit_step(step);
            held.push_back(held_bytes(rt));
        }
        bricks.open();
        const std::string size = "/" + std::to_string(bricks.num_tasks());
        report.add("pending_tasks/halo_of_27/one_step" + size, {(held[1] - held[0]) / num_tasks}, bytes,
                   {.must = must, .note = "of heap, for each task of the first step"});
        report.add("pending_tasks/halo_of_27/later_steps" + size, {(held[4] - held[2]) / (2 * num_tasks)}, bytes,
                   {.must = must, .note = "likewise of the third and fourth step"});
    }
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }
