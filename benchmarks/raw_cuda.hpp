// The same work as our benchmarks do, written directly against CUDA, to be measured beside ours in the same run.
//
// Owns: its own memory, streams and events, for the length of a call. Must not know: any library of ours, and no CUDA
// type shows here, so that plain C++ programs can use it. In a build without CUDA every function says "not available".
// Calls measure alone: one at a time. Device 0 unless a parameter says otherwise; the device that was current is
// restored.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kmm::bench::raw {

/// Seconds of each repetition, or why there are none.
struct Measured {
    std::vector<double> seconds;
    std::string error;  ///< empty: measured, and the results of the kernels were checked
    bool ok() const { return error.empty(); }
};

/// Whether a device answers; if not, `*reason` says why. `reason` may be null.
bool available(std::string* reason);
/// 0 where none is available.
int num_devices();

/// c = a + b over `count` floats, one float a thread, in `pieces` launches on one stream, `rounds` times without
/// waiting in between. A sample is one round (12 * count bytes moved).
Measured vector_add(std::size_t count, int pieces, int rounds, int repetitions);

/// y = a * x + y, float4 a thread, over `num_chunks` chunks of `chunk_bytes` of x and of y, all on the device, `passes`
/// times on one stream. A sample is all passes (3 * chunk_bytes * num_chunks * passes bytes moved).
Measured axpy(std::size_t chunk_bytes, int num_chunks, int passes, int repetitions);

/// The same with x and y in pinned host memory and room on the device for a few chunks: each chunk is fetched, computed
/// `passes` times, and its y written back; the three overlap. A sample is everything once.
Measured axpy_streamed(std::size_t chunk_bytes, int num_chunks, int passes, int repetitions);

enum class Shape {
    independent,  ///< 64 arrays in turn
    chain,        ///< one array
    stencil,      ///< 16 chunks; a task reads three chunks and writes one
};

/// Kernels over 4 KiB each, launched one by one: `num_tasks` in the order of the shape. One stream; for the stencil
/// two, with events between them. A sample is the seconds of one task, the wait at the end included.
Measured tiny_kernels(Shape shape, int num_tasks, int repetitions);
/// The time until the last launch has returned, without the wait; otherwise the same.
Measured tiny_kernels_enqueue(Shape shape, int num_tasks, int repetitions);
/// The same tasks as a graph of about a thousand nodes that was built before and is replayed.
Measured tiny_graph_replay(Shape shape, int num_tasks, int repetitions);
/// As `independent`, from several threads with a stream each; seconds of one task over all threads.
Measured tiny_kernels_threads(int num_threads, int tasks_per_thread, int repetitions);

enum class Direction { up, down, both };

/// Copies between pinned host memory and device 0, in pieces, on one stream a direction. A sample is `bytes` in the
/// direction; for `both` it is `bytes` in each.
Measured pinned_copy(Direction direction, std::size_t bytes, std::size_t piece_bytes, int repetitions);

/// Copies from one device to another, and back at the same time if `both_ways`. A sample is `bytes` each way.
Measured peer_copy(int source, int destination, bool both_ways, std::size_t bytes, int repetitions);

/// Rows of `width_bytes`, `height` of them a plane and `depth` planes; pitches in bytes, planes whole rows apart.
struct StridedCopy {
    void* destination = nullptr;
    const void* source = nullptr;
    std::size_t width_bytes = 0, height = 1, depth = 1;
    std::size_t destination_pitch = 0, destination_rows = 1;
    std::size_t source_pitch = 0, source_rows = 1;
};

/// A call for each copy: cudaMemcpyAsync, cudaMemcpy2DAsync or cudaMemcpy3DAsync, whichever does, on one stream of
/// device 0; `rounds` times without waiting in between. The memory is the caller's. A sample is all copies once.
Measured strided_copies(const StridedCopy* copies, std::size_t num_copies, int rounds, int repetitions);

/// Host seconds of single calls of the CUDA runtime.
struct CallCosts {
    Measured launch;  ///< an empty kernel by <<<>>>
    Measured launch_and_wait;
    Measured event_record;
    Measured event_query;  ///< of a completed event
    Measured stream_wait_event;
    Measured event_create_destroy;
    Measured copy_enqueue;             ///< 4 KiB, device to device
    Measured fill_enqueue;             ///< 4 KiB
    Measured malloc_async_free_async;  ///< 4 KiB, a pair
};
CallCosts call_costs(int repetitions);

/// Keeps a stream of device 0 busy for about so long; false: not available. `stream` may be another CUDA runtime's.
bool keep_busy(void* stream, double microseconds);

/// The handle of a kernel without parameters that does nothing, for launches through the driver layer. Null where none.
const void* empty_kernel();
/// The handle of a kernel (float* data, int count) that adds 1 to each element.
const void* increment_kernel();
/// The handle of a kernel (long long cycles) that runs for so many cycles of the device's clock.
const void* spin_kernel();

}  // namespace kmm::bench::raw
