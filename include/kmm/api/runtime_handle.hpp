// The runtime as a program sees it: `make_runtime`, `RuntimeHandle`, `Runtime`.
//
// Owns: a share of a running runtime. Must not know: how it works. Every member may be called from any thread. C++17.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kmm/api/array.hpp"
#include "kmm/api/parallel_submit.hpp"
#include "kmm/api/runtime.hpp"
#include "kmm/core/config.hpp"
#include "kmm/core/distribution.hpp"
#include "kmm/core/domain.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/stats.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/core/view.hpp"
#include "kmm/detail/array_handler.hpp"
#include "kmm/detail/deadline.hpp"
#include "kmm/detail/meta.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/error.hpp"
#include "kmm/lease.hpp"

namespace kmm {

namespace detail {

template<typename D>
struct IsDim : std::false_type {};
template<std::size_t N, typename T>
struct IsDim<Dim<N, T>> : std::true_type {};

/// A shape of N axes: numbers in braces, one number, a Dim of this rank, or what converts to one. A Dim of another rank
/// does not convert, and no Dim deduces N.
template<std::size_t N>
struct ShapeArgument {
    Dim<N> dim;
    ShapeArgument() = default;
    template<typename... Us, typename = enable_elements_t<default_index_type, N, Us...>>
    ShapeArgument(const Us&... sizes) : dim(sizes...) {}
    ShapeArgument(const Dim<N>& that) : dim(that) {}
    template<typename T, typename = std::enable_if_t<std::is_convertible<Dim<N, T>, Dim<N>>::value>>
    ShapeArgument(const Dim<N, T>& that) : dim(that) {}
    template<typename D, std::enable_if_t<!IsDim<D>::value && !std::is_arithmetic<D>::value &&
                                              std::is_convertible<const D&, Dim<N>>::value,
                                          int> = 0>
    ShapeArgument(const D& that) : dim(static_cast<Dim<N>>(that)) {}
};

}  // namespace detail

/// A share of a runtime; copies share it. The runtime lives until the last handle, bound array and unfinished task is
/// gone.
class RuntimeHandle {
  public:
    RuntimeHandle(Runtime& runtime);
    RuntimeHandle(std::shared_ptr<Runtime> runtime);
    explicit RuntimeHandle(std::shared_ptr<detail::RuntimeCore> core) noexcept : core_(std::move(core)) {}

    // ---- submitting: returns at once unless the limit of pending tasks is reached; IA CA UR IR OM NA

    /// Queues one task on `target`, with chunk offset 0 and size (1, 1, 1).
    template<typename L, typename... Args, typename = std::enable_if_t<detail::is_launcher_v<L>>>
    EventId submit(ResourceId target, L&& launcher, Args&&... args) const {
        return detail::submit_one(*core_, info(), target, launcher, std::forward<Args>(args)...);
    }
    template<typename... Args, typename = std::enable_if_t<!detail::is_launcher_v<detail::nth_type_t<1, Args...>>>,
             typename = void>
    EventId submit(Args&&...) const {
        static_assert(detail::always_false_v<Args...>,
                      "submit needs a launcher as its second argument: submit(resource, Host(f), args...), GPU(f) or "
                      "GPUKernel(f, block)");
        return EventId();
    }

    /// Queues one task for each chunk of a domain: TileDomain, BlockDomain, a list of chunks, a size.
    template<
        typename D = DomainDim, typename L, typename... Args,
        typename = std::enable_if_t<detail::is_launcher_v<L> && !detail::is_launcher_v<detail::nth_type_t<0, Args...>>>>
    EventId parallel_submit(D&& domain, L&& launcher, Args&&... args) const {
        return detail::submit_domain(*core_, info(), std::forward<D>(domain), launcher, std::forward<Args>(args)...);
    }
    /// The same over `TileDomain(size, chunk)`.
    template<typename L, typename... Args, typename = std::enable_if_t<detail::is_launcher_v<L>>>
    EventId parallel_submit(DomainDim size, DomainDim chunk, L&& launcher, Args&&... args) const {
        return detail::submit_domain(*core_, info(), TileDomain(size, chunk), launcher, std::forward<Args>(args)...);
    }
    template<typename... Args, typename = std::enable_if_t<!detail::is_launcher_v<detail::nth_type_t<1, Args...>> &&
                                                           !detail::is_launcher_v<detail::nth_type_t<2, Args...>>>>
    EventId parallel_submit(Args&&...) const {
        static_assert(detail::always_false_v<Args...>,
                      "parallel_submit needs a launcher: parallel_submit(domain, Host(f), args...) or "
                      "parallel_submit(size, chunk, "
                      "Host(f), args...); the others are GPU(f) and GPUKernel(f, block)");
        return EventId();
    }

    // ---- arrays

    /// An array of one chunk with these elements, row-major, from host or device memory; blocks until `data` was read.
    /// The chunk lies in `memory`, or where `data` is. Device memory is read in the order of the calling thread's
    /// default stream (inside GPU(f): of the task's stream). IA OM DE.
    template<typename T, std::size_t N>
    KMM_INLINE Array<T, N> allocate(const T* data, Dim<N> shape, MemoryId memory) const {
        Array<T, N> result =
            Array<T, N>::bound(*core_, shape, Distribution<N>::single(Array<T, N>::checked(shape), memory));
        result.copy_from(data);
        return result;
    }
    template<typename T, std::size_t N>
    KMM_INLINE Array<T, N> allocate(const T* data, Dim<N> shape) const {
        return allocate(data, shape, memory_affinity_for_address(data));
    }
    /// With a shape in braces the rank is said, or 1: allocate<2>(p, {h, w}), allocate(p, {n}).
    template<std::size_t N = 1, typename T>
    KMM_INLINE Array<T, N> allocate(const T* data, detail::NonDeduced<detail::ShapeArgument<N>> shape,
                                    MemoryId memory) const {
        return allocate<T, N>(data, shape.dim, memory);
    }
    template<std::size_t N = 1, typename T>
    KMM_INLINE Array<T, N> allocate(const T* data, detail::NonDeduced<detail::ShapeArgument<N>> shape) const {
        return allocate<T, N>(data, shape.dim);
    }
    template<typename T, typename... Sizes, typename = std::enable_if_t<(std::is_integral_v<Sizes> && ...)>>
    KMM_INLINE Array<T, sizeof...(Sizes)> allocate(const T* data, Sizes... sizes) const {
        return allocate(data, Dim<sizeof...(Sizes)>(sizes...));
    }
    template<typename T>
    Array<T, 1> allocate(const std::vector<T>& data) const {
        return allocate(data.data(), Dim<1>(data.size()));
    }
    template<typename T>
    Array<T, 1> allocate(std::initializer_list<T> data) const {
        return allocate(data.begin(), Dim<1>(data.size()));
    }
    /// From a view of any layout, on the host or on a device.
    template<typename T, typename D, typename L, typename A>
    KMM_INLINE Array<std::remove_const_t<T>, AbstractView<T, D, L, A>::rank>
    allocate(const AbstractView<T, D, L, A>& data) const {
        constexpr std::size_t N = AbstractView<T, D, L, A>::rank;
        using Result = Array<std::remove_const_t<T>, N>;
        const Dim<N> shape = Result::checked(detail::view_shape(data));
        Result result = Result::bound(
            *core_, shape,
            Distribution<N>::single(shape, memory_affinity_for_address(static_cast<const void*>(data.data()))));
        result.copy_from(data);
        return result;
    }
    template<std::size_t N, typename T>
    KMM_INLINE Array<T, N> allocate(const T* data, Dim<N> shape, const Distribution<N>& distribution) const {
        Array<T, N> result = array<T, N>(shape, distribution);
        result.copy_from(data);
        return result;
    }

    /// A bound array without content: one block for each device along axis 0; with `chunk`, chunks of that size dealt
    /// to the devices in turn; or as `distribution` says. Takes no memory before the first use. IA.
    template<typename T, std::size_t N = 1>
    Array<T, N> array(detail::NonDeduced<detail::ShapeArgument<N>> shape) const {
        return Array<T, N>::bound(*core_, shape.dim, Distribution<N>::blocks(Array<T, N>::checked(shape.dim), info()));
    }
    template<typename T, std::size_t N = 1>
    Array<T, N> array(detail::NonDeduced<detail::ShapeArgument<N>> shape,
                      detail::NonDeduced<detail::ShapeArgument<N>> chunk) const {
        return Array<T, N>::bound(*core_, shape.dim,
                                  Distribution<N>::tiles(Array<T, N>::checked(shape.dim), chunk.dim, info()));
    }
    template<typename T, std::size_t N = 1>
    Array<T, N> array(detail::NonDeduced<detail::ShapeArgument<N>> shape,
                      const detail::NonDeduced<Distribution<N>>& distribution) const {
        return Array<T, N>::bound(*core_, shape.dim, distribution);
    }

    /// Makes the program's memory an array. NA: not offered by this version.
    template<std::size_t N = 1, typename T>
    Array<std::remove_const_t<T>, N> adopt(T*, detail::NonDeduced<detail::ShapeArgument<N>>, MemoryId,
                                           AdoptOptions = {}) const {
        throw_no_adoption();
    }
    template<std::size_t N = 1, typename T>
    Array<std::remove_const_t<T>, N> adopt(T*, detail::NonDeduced<detail::ShapeArgument<N>>, AdoptOptions = {}) const {
        throw_no_adoption();
    }
    /// Pins a region for the program. NA: not offered by this version.
    template<typename Access>
    typename detail::LeaseOf<Access>::type lease(const Access&, std::optional<MemoryId> = {}) const {
        detail::throw_no_leases();
    }
    template<typename Access>
    typename detail::LeaseOf<Access>::type lease_chunk(const Access&, std::size_t, std::optional<MemoryId> = {}) const {
        detail::throw_no_leases();
    }
    EventId record_stream(DeviceId, GPUstream_t) const { throw_no_foreign_streams(); }
    void stream_wait(DeviceId, GPUstream_t, EventId) const { throw_no_foreign_streams(); }
    /// Copies between arrays of equal shape. NA: not offered by this version.
    template<typename T, std::size_t N>
    EventId copy(const Array<T, N>&, const Array<T, N>&) const {
        detail::throw_not_available(
            "RuntimeHandle::copy is not offered by this version of kmm; submit a task that copies");
    }
    template<typename T, std::size_t N>
    Array<T, N> redistribute(const Array<T, N>&, const Distribution<N>&) const {
        detail::throw_not_available(
            "RuntimeHandle::redistribute is not offered by this version of kmm; copy_to and copy_from a new array");
    }

    /// The device memory in which an address lies, else the host.
    MemoryId memory_affinity_for_address(const void* address) const {
        return detail::runtime_memory_for_address(*core_, address);
    }

    // ---- events. What a failed task was to write is poisoned; its event fails, and so does what needs the poisoned
    // elements. A region that crosses chunks may be brought into them after the task, and that can fail too: then the
    // event fails and that region is poisoned, but not what the task wrote in place. The task has run, these elements
    // are what it computed, and who reads them need not wait for chunks that they do not touch.

    /// Done when all of them are; of nothing: done. IA.
    EventId join(const EventList& events) const { return detail::runtime_join(*core_, events.data(), events.size()); }
    template<typename... Es, typename = std::enable_if_t<(std::is_same_v<Es, EventId> && ...)>>
    EventId join(Es... events) const {
        const EventId list[sizeof...(Es) + 1] = {events..., EventId()};
        return detail::runtime_join(*core_, list, sizeof...(Es));
    }
    /// Done when everything submitted before is finished.
    EventId barrier() const { return detail::runtime_barrier(*core_); }
    /// Whether it is finished, well or not. Never blocks. IA.
    bool is_done(EventId event) const { return detail::runtime_is_done(*core_, event); }
    EventStatus status(EventId event) const { return detail::runtime_status(*core_, event); }
    /// The failure, or null. Counts as delivered.
    std::exception_ptr error(EventId event) const { return detail::runtime_error(*core_, event); }
    /// Blocks until done. TE IA DL.
    void wait(EventId event) const { static_cast<void>(detail::runtime_wait(*core_, event, nullptr)); }
    /// False when the time was up first; true when done well. TE IA DL.
    template<typename Rep, typename Period>
    bool wait_for(EventId event, std::chrono::duration<Rep, Period> timeout) const {
        const detail::Deadline deadline = detail::deadline_after(timeout);
        return detail::runtime_wait(*core_, event, deadline.bounded ? &deadline.time : nullptr);
    }
    template<typename Clock, typename Duration>
    bool wait_until(EventId event, std::chrono::time_point<Clock, Duration> time) const {
        return detail::wait_until_clock(
            [&](const std::chrono::steady_clock::time_point* deadline) {
                return detail::runtime_wait(*core_, event, deadline);
            },
            time);
    }
    /// Waits for everything submitted before; throws the earliest failure not delivered yet. TE DL.
    void synchronize() const { detail::runtime_synchronize(*core_); }

    // ---- the runtime

    /// A handle to the same runtime that submits only to these resources: domains deal to its devices in this order,
    /// device functions and kernels on any other device throw IR, and of a device with a set of streams its kernels use
    /// those compute streams (GPU(f) uses streams of its own). Host functions are always allowed. It does not limit
    /// where data may be, nor copies. A device with all streams stands for those that this handle has. IA for an empty
    /// list, IR for what this handle has not.
    RuntimeHandle constrain_to(const std::vector<ResourceId>& resources) const {
        RuntimeHandle result = *this;
        result.info_ = std::make_shared<const SystemInfo>(info().constrain_to(resources));
        return result;
    }
    RuntimeHandle constrain_to(ResourceId resource) const { return constrain_to(std::vector<ResourceId>{resource}); }
    RuntimeHandle constrain_to(DeviceId device) const { return constrain_to(ResourceId(device)); }
    /// What this handle may use. Valid while the handle lives.
    const SystemInfo& info() const noexcept { return info_ ? *info_ : detail::runtime_info(*core_); }
    Runtime& worker() const noexcept;
    RuntimeStats stats() const { return detail::runtime_stats(*core_); }
    /// What the runtime did and holds, for people: tasks, waits for memory, links, evictions and what was fetched
    /// again, and per memory the largest arrays. GB/s are bytes over the time in which at least one copy was on its
    /// way. O(chunks that have memory). Any thread, does not wait for tasks.
    std::string report(ReportFormat format = ReportFormat::Text) const {
        return detail::runtime_report(*core_, format);
    }
    /// What is pending, in the order of submission: each task that has not finished, and each transfer and join of the
    /// library's own (numbers with an h): its number and name, where it runs, how far it is, the chunks that it uses,
    /// and which pending tasks it comes after: because it needs their data, or in order only (a write after a read).
    /// `Dot` is a digraph for Graphviz: edges of data are solid, those of order only dashed. All of one moment, and all
    /// of it: O(pending tasks + their uses and edges + numbers since the oldest one). The runtime schedules nothing
    /// while they are collected. Any thread, also in a task; does not wait for tasks; throws nothing of its own.
    std::string plan_text(PlanFormat format = PlanFormat::Text) const {
        return detail::runtime_plan_text(*core_, format);
    }
    /// Gives memory that no array uses back to the driver and the system: pinned segments, the end of each device's
    /// range, records of tasks, what threads keep for their next submit. Blocks for them; tasks go on meanwhile, and
    /// what is needed later is taken again. CL.
    void trim_memory() const { detail::runtime_trim(*core_); }
    /// Begins a trace of what happens from now on, in the trace-event format (Perfetto, `kmm trace view`), and ends the
    /// one that was being written; an empty path only ends that, as does the end of the runtime. What was submitted
    /// before is called by its number. Blocks for the file. IA (where it cannot be written) CL.
    void trace(const std::string& path) const { detail::runtime_trace(*core_, path); }
    /// Waits for everything, then refuses further submits; arrays lose their data. TE DL.
    void close() const { detail::runtime_close(*core_); }

  private:
    [[noreturn]] static void throw_no_adoption() {
        detail::throw_not_available(
            "RuntimeHandle::adopt is not offered by this version of kmm; use allocate, which copies");
    }
    [[noreturn]] static void throw_no_foreign_streams() {
        detail::throw_not_available(
            "record_stream and stream_wait are not offered by this version of kmm; synchronize the stream instead");
    }
    std::shared_ptr<detail::RuntimeCore> core_;
    std::shared_ptr<const SystemInfo> info_;  ///< null: everything
};

/// Starts a runtime. Takes the time of starting drivers. IA NA DE OM.
inline RuntimeHandle make_runtime(const RuntimeConfig& config = default_config_from_environment()) {
    return RuntimeHandle(detail::start_runtime(config));
}

/// As `make_runtime`; the handles and arrays made of it share it.
std::shared_ptr<Runtime> make_worker(const RuntimeConfig& config = default_config_from_environment());

/// What all runtimes of the process did and hold, for people: one report after the other; as JSON a list.
std::string report(ReportFormat format = ReportFormat::Text);

}  // namespace kmm
