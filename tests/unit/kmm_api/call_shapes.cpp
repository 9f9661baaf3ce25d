// Every call shape of the public API, compiled as C++17, 20 and 23 without a warning; the static assertions are the
// rest of the test. The functions are not run.
#include <chrono>
#include <type_traits>
#include <vector>

#include "kmm/kmm.hpp"

using namespace kmm::placeholders;

namespace call_shapes {

__global__ void add(kmm::Range<int64_t> range, kmm::GPUSubviewMut<float> output, kmm::GPUSubview<float> left,
                    kmm::GPUSubview<float> right) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x + range.begin;
    if (i >= range.end) return;
    output[i] = left[i] + right[i];
}
__global__ void shapes(kmm::Bounds<2, int>, kmm::GPUSubviewMut<float, 2>, kmm::GPUViewMut<float, 2>, const float*,
                       kmm::GPUSubviewStrided<float, 2>, float) {}

struct OwnLauncher {
    static constexpr kmm::ExecutionSpace execution_space = kmm::ExecutionSpace::Host;
    void operator()(kmm::Resource&, kmm::DomainChunk, int, kmm::Range<int64_t>) const {}
};
struct AlmostLauncher {
    static constexpr int execution_space = 0;
};
static_assert(kmm::detail::is_launcher_v<OwnLauncher> && !kmm::detail::is_launcher_v<AlmostLauncher>);
static_assert(!kmm::detail::is_launcher_v<int> && !kmm::detail::is_launcher_v<void>);

// ---- what a task receives: one function for each row of the table, which binds nothing else
template<typename Wanted>
struct Exactly {
    template<typename T>
    void operator()(T&&) const {
        static_assert(std::is_same_v<std::decay_t<T>, Wanted>);
    }
};
template<typename Wanted>
auto host_gets() {
    return kmm::Host(Exactly<Wanted>());
}
template<typename Wanted>
auto gpu_gets() {
    return kmm::GPU([](kmm::DeviceResource&, auto&& argument) { Exactly<Wanted>()(argument); });
}

inline void what_tasks_receive(const kmm::RuntimeHandle& rt, kmm::Array<float> a, kmm::Array<double, 2> m,
                               kmm::Scalar<int> s) {
    rt.parallel_submit(1, host_gets<kmm::View<float>>(), a);
    rt.parallel_submit(1, host_gets<kmm::View<float>>(), read(a));
    rt.parallel_submit(1, host_gets<kmm::Subview<float>>(), a[_x]);
    rt.parallel_submit(1, host_gets<kmm::Subview<float>>(), a(_x));
    rt.parallel_submit(1, host_gets<kmm::Subview<double, 2>>(), read(m, one_to_one));
    rt.parallel_submit(1, host_gets<kmm::ViewMut<double, 2>>(), write(m));
    rt.parallel_submit(1, host_gets<kmm::ViewMut<double, 2>>(), overwrite(m));
    rt.parallel_submit(1, host_gets<kmm::SubviewMut<double, 2>>(), write(m[_y][_x]));
    rt.parallel_submit(1, host_gets<kmm::SubviewMut<double, 2>>(), overwrite(m(_y, _)));
    rt.parallel_submit(1, host_gets<kmm::ViewMut<float>>(), reduce(kmm::Reduction::Sum, a));
    rt.parallel_submit(1, host_gets<kmm::SubviewMut<float>>(), accumulate(kmm::Reduction::Max, a[_x]));
    rt.parallel_submit(1, host_gets<kmm::SubviewMut<float, 2>>(), reduce(kmm::Reduction::Sum, privatize(_y), a[_x]));
    rt.parallel_submit(1, host_gets<kmm::View<int, 0>>(), s);
    rt.parallel_submit(1, host_gets<kmm::ViewMut<int, 0>>(), write(s));
    rt.parallel_submit(1, host_gets<kmm::Range<int64_t>>(), _x);
    rt.parallel_submit(1, host_gets<kmm::Range<int64_t>>(), 2 * _x + 1);
    rt.parallel_submit(1, host_gets<kmm::Range<int64_t>>(), range(_x, _x + 2));
    rt.parallel_submit(1, host_gets<kmm::Bounds<2>>(), bounds(_y, _x));
    rt.parallel_submit(1, host_gets<kmm::Bounds<1>>(), kmm::tile(4));
    rt.parallel_submit(1, host_gets<kmm::Bounds<2>>(), _xy);
    rt.parallel_submit(1, host_gets<kmm::Bounds<3>>(), one_to_one);
    rt.parallel_submit(1, host_gets<kmm::Bounds<2>>(), [](kmm::DomainChunk) { return kmm::Bounds<2>(3, 4); });
    rt.parallel_submit(1, host_gets<const float*>(), static_cast<const float*>(nullptr));
    rt.parallel_submit(1, host_gets<kmm::Range<int>>(), kmm::Range<int>(3));
    rt.parallel_submit(1, gpu_gets<kmm::GPUView<float>>(), a);
    rt.parallel_submit(1, gpu_gets<kmm::GPUSubview<float>>(), a[_x]);
    rt.parallel_submit(1, gpu_gets<kmm::GPUViewMut<float>>(), write(a));
    rt.parallel_submit(1, gpu_gets<kmm::GPUSubviewMut<double, 2>>(), write(m[_y][_x]));
    rt.parallel_submit(1, gpu_gets<kmm::GPUView<int, 0>>(), s);
}

inline void submits(const kmm::RuntimeHandle& rt, kmm::Array<float> a, kmm::Array<float> b, kmm::Array<float> c,
                    kmm::Array<float, 2> m) {
    const long n = 1000;
    const long chunk_size = n / 10;
    const dim3 block_size = 256;
    const auto nothing = kmm::Host([](auto&&...) {});
    kmm::EventId event =
        rt.parallel_submit(n, chunk_size, kmm::GPUKernel(add, block_size), _x, write(c[_x]), a[_x], b[_x]);
    event = rt.parallel_submit(
        {n, n}, {1, 1},
        kmm::GPUKernel(shapes, {16, 16}).shared_memory(10).grid(1).elements_per_block(4).named("shapes"),
        bounds(_y, _x), write(m[_y][_x]), overwrite(m), read(a), read(m[range(_y - 1, _y + 2)][_]), 3.0);
    event = rt.parallel_submit({n, n}, nothing, _x);
    event = rt.parallel_submit(n, nothing, _x);
    event = rt.parallel_submit(kmm::TileDomain(10, 2), OwnLauncher(), 1, _x);
    event = rt.parallel_submit(kmm::BlockDomain({10, 10}).tiles({5, 5}), nothing);
    event = rt.parallel_submit(kmm::CyclicDomain(10, 2), nothing);
    event = rt.parallel_submit(kmm::Dim<2>{3, 4}, nothing);
    event = rt.parallel_submit(kmm::DomainDim(3, 4, 5), nothing);
    event = rt.parallel_submit(std::vector<kmm::DomainChunk>(), nothing);
    event = rt.parallel_submit(kmm::Domain(), nothing);
    event = rt.parallel_submit(follow(10, 2, a[_x]), nothing);
    event = rt.parallel_submit(chunks_of(a), nothing);
    event = rt.submit(kmm::ResourceId::host(), nothing, a);
    event =
        rt.submit(kmm::DeviceId(0),
                  kmm::GPU([](const kmm::DeviceResource& device, kmm::GPUView<float> from, kmm::GPUViewMut<float> to) {
                      device.copy(from, to);
                      device.fill(to, 3);
                      device.launch(1, 2, 0, add, kmm::Range<int64_t>(3), to, from, from);
                  })
                      .scratch(0)
                      .named("copy"),
                  a, write(b));
    static_cast<void>(event);
}

inline void arrays(const kmm::RuntimeHandle& rt) {
    const long n = 10;
    kmm::Array<float> a{n};
    kmm::Array<int> zero{0}, zeros{{0}}, one{{256}}, round(n);
    kmm::Array<float, 2> m{{n, n}};
    kmm::Scalar<float> s;
    auto t = kmm::Scalar<float>();
    kmm::Array<float, 8> deep({1, 2, 3, 4, 5, 6, 7, 8});
    std::vector<float> v(10);
    a = rt.allocate(v);
    a = rt.allocate({1.0F, 2.0F});
    a = rt.allocate(v.data(), n);
    m = rt.allocate(v.data(), 2, 5);
    m = rt.allocate(v.data(), kmm::Dim<2>(2, 5));
    m = rt.allocate(v.data(), kmm::Dim<2>(2, 5), kmm::MemoryId::host());
    m = rt.allocate<2>(v.data(), kmm::Dim<2>(2, 5), kmm::Distribution<2>::single({2, 5}));
    const kmm::View<float, 2> view(v.data(), kmm::views::dynamic_domain<2>(kmm::Dim<2>(2, 5)));
    const kmm::ViewMut<float, 2> view_mut(v.data(), kmm::views::dynamic_domain<2>(kmm::Dim<2>(2, 5)));
    m = rt.allocate(view);
    m = rt.allocate(view_mut);
    a = rt.array<float>(n);
    a = rt.array<float>(n, 5);
    m = rt.array<float, 2>({n, n});
    m = rt.array<float, 2>({n, n}, {3, 3});
    m = rt.array<float, 2>({n, n}, kmm::Distribution<2>::blocks({n, n}, rt.info()));
    a = kmm::Array<float>(a.instance());
    a = kmm::Array<float>(
        kmm::ArrayInstance<1>::create(rt.worker(), kmm::Distribution<1>::single(n), kmm::DataType::of<float>()));

    a.copy_to(v.data());
    a.copy_to(v.data(), v.size());
    a.copy_to(v.data(), 10);
    a.copy_to(v);
    v = a.copy_to_vector();
    a.copy_bytes_to(v.data(), 40);
    a.copy_to(v.data(), kmm::Bounds<1>(kmm::Range<>(3, 4)));
    a.copy_to(v.data(), kmm::Point<1>(3), kmm::Dim<1>(4));
    m.copy_to(view_mut);
    m.copy_to(kmm::ViewStridedMut<float, 2>(view_mut));
    a.copy_from(v.data());
    a.copy_from(v.data(), 10U);
    a.copy_from(v);
    a.copy_bytes_from(v.data(), 40);
    a.copy_from(v.data(), kmm::Bounds<1>(kmm::Range<>(3, 4)));
    a.copy_from(v.data(), kmm::Point<1>(3), kmm::Dim<1>(4));
    m.copy_from(view);
    m.copy_from(view_mut);
    static_cast<void>(a.copy_to_async(v.data()));
    static_cast<void>(a.copy_to_async(v.data(), kmm::Point<1>(3), kmm::Dim<1>(4)));
    static_cast<void>(m.copy_to_async(view_mut));
    static_cast<void>(m.copy_from_async(view));
    static_cast<void>(a.copy_from_async(v.data(), 10));
    static_cast<void>(a.copy_from_async(v.data(), kmm::Bounds<1>(kmm::Range<>(3, 4))));
    static_cast<void>(a.copy_from_async(std::move(v)));
    static_cast<void>(a.fill(3));
    static_assert(std::is_same_v<decltype(s.get()), float>);
    a.named("a").reset();
    const kmm::ArrayBase& base = a;
    static_cast<void>(base.size(0) + a.volume() + a.chunk_size(0) + a.size().volume());
    static_cast<void>(zero.is_empty() || zeros.is_empty() || one.is_empty() || round.is_empty() || t.is_empty() ||
                      deep.is_empty());

    auto lease = rt.lease(write(a[3]), kmm::MemoryId::host());
    static_assert(std::is_same_v<decltype(lease), kmm::Lease<float, 1>>);
    static_assert(std::is_same_v<decltype(rt.lease_chunk(m, 0)), kmm::Lease<const float, 2>>);
    static_assert(!std::is_copy_constructible_v<decltype(lease)> && std::is_move_constructible_v<decltype(lease)>);
    float* memory = nullptr;
    kmm::Array<float, 2> adopted = rt.adopt<2>(memory, {2, 5}, kmm::MemoryId::host());
    adopted = rt.adopt<2>(memory, {2, 5});
    a = rt.redistribute(a, kmm::Distribution<1>::single(n));
    static_cast<void>(rt.copy(a, a));
}

inline void events(const kmm::RuntimeHandle& rt, kmm::EventId e) {
    rt.wait(rt.join(e, e));
    rt.wait(rt.join({e, e}));
    rt.wait(rt.join());
    static_assert(std::is_same_v<decltype(rt.wait_for(e, std::chrono::hours::max())), bool>);
    static_cast<void>(rt.wait_until(e, std::chrono::system_clock::now()));
    static_cast<void>(rt.wait_until(e, std::chrono::steady_clock::now() + std::chrono::minutes(1)));
    static_cast<void>(rt.is_done(e) || rt.status(e) == kmm::EventStatus::Failed || rt.error(e) != nullptr);
    static_cast<void>(rt.constrain_to(kmm::DeviceId(0))
                          .constrain_to(kmm::ResourceId::host())
                          .constrain_to({kmm::DeviceId(0), kmm::DeviceId(1)}));
    static_cast<void>(rt.record_stream(kmm::DeviceId(0), nullptr));
    rt.stream_wait(kmm::DeviceId(0), nullptr, e);
    kmm::Runtime& worker = rt.worker();
    static_cast<void>(worker.is_idle() || worker.query_event(e, std::chrono::system_clock::now()));
    worker.make_progress();
    static_cast<void>(rt.report(kmm::ReportFormat::Json));
    static_cast<void>(rt.plan_text() + rt.plan_text(kmm::PlanFormat::Dot));
}

}  // namespace call_shapes

// ---- struct arguments
struct Pair {
    kmm::Array<float> left;
    int factor;
};
struct PairView {
    kmm::GPUSubview<float> left;
    kmm::Range<int64_t> where;
    int factor;
};
KMM_DEFINE_STRUCT_ARGUMENT(Pair, it.left[_x], _x, it.factor)
KMM_DEFINE_STRUCT_VIEW(Pair, PairView)

namespace call_shapes {
__global__ void takes_pair(PairView) {}
inline void struct_arguments(const kmm::RuntimeHandle& rt, const Pair& pair) {
    rt.parallel_submit(10, kmm::Host(Exactly<PairView>()), pair);
    rt.parallel_submit(10, kmm::GPUKernel(takes_pair, 1), pair);
}
}  // namespace call_shapes
