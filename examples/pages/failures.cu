// What errors look like: refused submits, a task that throws, what depends on it, and how the program goes on.
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <vector>

#define KMM_BOUNDS_CHECK 1  // every access to an element is checked; better as an option of the compiler
#include "kmm/kmm.hpp"

using namespace kmm::placeholders;

void set_to_one(kmm::SubviewMut<float> a) {
    for (int64_t i = a.begin(); i < a.end(); i++) a[i] = 1.0f;
}

void load(kmm::Range<int64_t> range, kmm::SubviewMut<float> a) {
    if (range.begin == 50) throw std::runtime_error("cannot open part2.bin");
    set_to_one(a);
}

void copy(kmm::Subview<float> from, kmm::SubviewMut<float> to) {
    for (int64_t i = to.begin(); i < to.end(); i++) to[i] = from[i];
}

template<typename F>
void attempt(const char* what, F f) {
    try {
        f();
        std::printf("%s: fine\n", what);
    } catch (const kmm::Error& error) {
        std::printf("%s: %s\n%s\n\n", what, kmm::to_string(error.code()), error.what());
    }
}

int main() {
    kmm::RuntimeConfig config = kmm::default_config_from_environment();
    config.device_memory_limit = kmm::parse_byte_size("16MiB");
    auto rt = kmm::make_runtime(config);
    auto a = kmm::Array<float>{100}.named("a"), b = kmm::Array<float>{100}.named("b");
    auto big = kmm::Array<float>{8 << 20}.named("big");
    const auto set = kmm::Host(set_to_one).named("set");

    attempt("read before a write", [&] { rt.parallel_submit(100, 25, kmm::Host(copy), a[_x], overwrite(b[_x])); });
    attempt("two tasks write one element", [&] { rt.parallel_submit(100, 25, set, overwrite(a[range(_x, _x + 2)])); });
    attempt("a task larger than the GPU", [&] {
        const auto one_task = kmm::GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<float>) {}).named("fill big");
        rt.parallel_submit(8 << 20, 8 << 20, one_task, overwrite(big[_x]));
    });

    rt.parallel_submit(100, 25, kmm::Host(load).named("load"), _x, overwrite(a[_x]));
    rt.parallel_submit(100, 100, kmm::Host(copy).named("copy"), a[_x], overwrite(b[_x]));
    attempt("synchronize after a task threw", [&] { rt.synchronize(); });
    attempt("result of a task that needed it", [&] { b.copy_to_vector(); });
    attempt("a part that is not affected", [&] {
        std::vector<float> part(25);
        a.copy_to(part.data(), kmm::Point<1>(0), kmm::Dim<1>(25));
    });

    attempt("replaced and computed again", [&] {
        rt.parallel_submit(100, 25, set, overwrite(a[_x]));
        rt.parallel_submit(100, 100, kmm::Host(copy).named("copy"), a[_x], overwrite(b[_x]));
        b.copy_to_vector();
    });
    attempt("an index outside of the region", [&] {
        const auto shift = [](kmm::Subview<float> from, kmm::SubviewMut<float> to) { to[0] = from[25]; };
        rt.wait(rt.parallel_submit(25, 25, kmm::Host(shift).named("shift"), b[_x], write(a[_x])));
    });
    return b.copy_to_vector() == std::vector<float>(100, 1.0f) ? 0 : 1;
}
