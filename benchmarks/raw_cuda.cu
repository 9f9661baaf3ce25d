// raw_cuda.hpp with CUDA: what a careful person would write by hand for the one purpose, and nothing of ours.
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>

#include "common.hpp"
#include "raw_cuda.hpp"

namespace kmm::bench::raw {

namespace {

// ---- errors and owners

void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    (void)cudaGetLastError();
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(error) + " (" + cudaGetErrorString(error) +
                             ")");
}

void expect(bool right, const std::string& what) {
    if (!right) throw std::runtime_error("wrong result: " + what);
}

/// Restores the device that was current.
class CurrentDevice {
  public:
    explicit CurrentDevice(int device) {
        check(cudaGetDevice(&previous_), "cudaGetDevice");
        check(cudaSetDevice(device), "cudaSetDevice");
    }
    ~CurrentDevice() { (void)cudaSetDevice(previous_); }
    CurrentDevice(const CurrentDevice&) = delete;
    CurrentDevice& operator=(const CurrentDevice&) = delete;

  private:
    int previous_ = 0;
};

template<typename T>
class DeviceArray {
  public:
    explicit DeviceArray(std::size_t count) : count_(count) {
        check(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), "cudaMalloc");
        check(cudaMemset(data_, 0, count * sizeof(T)), "cudaMemset");
    }
    ~DeviceArray() { (void)cudaFree(data_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    T* data() { return data_; }
    T element(std::size_t index) const {
        T value{};
        check(cudaMemcpy(&value, data_ + index, sizeof(T), cudaMemcpyDefault), "cudaMemcpy");
        return value;
    }
    void set_all(T value) {
        const std::vector<T> host(count_, value);
        check(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyDefault), "cudaMemcpy");
    }

  private:
    std::size_t count_;
    T* data_ = nullptr;
};

/// Pinned memory the fast way: huge pages touched by several threads, then registered.
class PinnedArray {
  public:
    explicit PinnedArray(std::size_t bytes) : bytes_(bytes) {
        void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("mmap of " + std::to_string(bytes) + " bytes failed");
        data_ = static_cast<char*>(memory);
        (void)::madvise(data_, bytes, MADV_HUGEPAGE);
        constexpr std::size_t page = 4096;
        const int num_threads = std::max(1, std::min(16, static_cast<int>(std::thread::hardware_concurrency())));
        const std::size_t share = (bytes / num_threads / page + 1) * page;
        time_threads(num_threads, [&](int thread) {
            const std::size_t end = std::min(bytes, share * (thread + 1));
            for (std::size_t at = share * thread; at < end; at += page) data_[at] = 0;
        });
        const cudaError_t error = cudaHostRegister(data_, bytes, cudaHostRegisterPortable);
        if (error != cudaSuccess) ::munmap(data_, bytes);
        check(error, "cudaHostRegister");
    }
    ~PinnedArray() {
        (void)cudaHostUnregister(data_);
        ::munmap(data_, bytes_);
    }
    PinnedArray(const PinnedArray&) = delete;
    PinnedArray& operator=(const PinnedArray&) = delete;

    char* data() { return data_; }
    float* floats() { return reinterpret_cast<float*>(data_); }

  private:
    std::size_t bytes_;
    char* data_ = nullptr;
};

class Stream {
  public:
    Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
    ~Stream() { (void)cudaStreamDestroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    operator cudaStream_t() const { return stream_; }
    void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  private:
    cudaStream_t stream_ = nullptr;
};

class Event {
  public:
    Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
    ~Event() { (void)cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    operator cudaEvent_t() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

/// Everything that can fail runs in here: a failure becomes text.
template<typename Work>
Measured measured(Work work) {
    Measured result;
    if (!available(&result.error)) return result;
    try {
        CurrentDevice device(0);
        result.seconds = work();
    } catch (const std::exception& failure) {
        result = {{}, failure.what()};
    }
    return result;
}

Samples divided(Samples samples, double by) {
    for (double& sample : samples) sample /= by;
    return samples;
}

// ---- kernels

__global__ void empty() {}

__global__ void spin(long long cycles) {
    const long long begin = clock64();
    while (clock64() - begin < cycles) {}
}

__global__ void spin_for(long long nanoseconds) {
    long long begin = 0, now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}

__global__ void increment(float* data, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) data[i] += 1;
}

__global__ void add(std::size_t count, const float* a, const float* b, float* c) {
    const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < count) c[i] = a[i] + b[i];
}

__global__ void axpy4(std::size_t count, float a, const float4* x, float4* y) {
    const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float4 from = x[i];
    float4 to = y[i];
    to.x += a * from.x;
    to.y += a * from.y;
    to.z += a * from.z;
    to.w += a * from.w;
    y[i] = to;
}

/// One more than the largest of three neighbours: after n steps from zeros every element is n.
__global__ void relax(const float* left, const float* middle, const float* right, float* out, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) out[i] = fmaxf(fmaxf(left[i], middle[i]), right[i]) + 1;
}

constexpr unsigned block_threads = 256;

unsigned blocks_for(std::size_t threads) {
    return static_cast<unsigned>((threads + block_threads - 1) / block_threads);
}

void launch_axpy(std::size_t chunk_bytes, const void* x, void* y, cudaStream_t stream) {
    const std::size_t count = chunk_bytes / sizeof(float4);
    axpy4<<<blocks_for(count), block_threads, 0, stream>>>(count, 0.5f, static_cast<const float4*>(x),
                                                           static_cast<float4*>(y));
}

}  // namespace

// ---- what there is

bool available(std::string* reason) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (error == cudaSuccess && count > 0) return true;
    if (reason) *reason = std::string("not available: ") + cudaGetErrorString(error);
    return false;
}

int num_devices() {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    return error == cudaSuccess ? count : 0;
}

// ---- bandwidth of kernels

Measured vector_add(std::size_t count, int pieces, int rounds, int repetitions) {
    return measured([&] {
        DeviceArray<float> a(count), b(count), c(count);
        a.set_all(1);
        b.set_all(2);
        Stream stream;
        const std::size_t share = (count + pieces - 1) / pieces;
        const Samples samples = time_each(repetitions, [&] {
            for (int round = 0; round < rounds; ++round) {
                for (std::size_t first = 0; first < count; first += share) {
                    const std::size_t size = std::min(share, count - first);
                    add<<<blocks_for(size), block_threads, 0, stream>>>(size, a.data() + first, b.data() + first,
                                                                        c.data() + first);
                }
            }
            check(cudaGetLastError(), "launch");
            stream.wait();
        });
        expect(c.element(0) == 3 && c.element(count - 1) == 3, "vector_add");
        return divided(samples, rounds);
    });
}

Measured axpy(std::size_t chunk_bytes, int num_chunks, int passes, int repetitions) {
    return measured([&] {
        const std::size_t floats = chunk_bytes * num_chunks / sizeof(float);
        DeviceArray<float> x(floats), y(floats);
        Stream stream;
        const Samples samples = time_each(repetitions, [&] {
            for (int pass = 0; pass < passes; ++pass) {
                for (int chunk = 0; chunk < num_chunks; ++chunk) {
                    const std::size_t first = chunk_bytes / sizeof(float) * chunk;
                    launch_axpy(chunk_bytes, x.data() + first, y.data() + first, stream);
                }
            }
            check(cudaGetLastError(), "launch");
            stream.wait();
        });
        return samples;
    });
}

Measured axpy_streamed(std::size_t chunk_bytes, int num_chunks, int passes, int repetitions) {
    constexpr int num_slots = 4;  // one being fetched, one computed, one written back, one to spare
    return measured([&] {
        PinnedArray x(chunk_bytes * num_chunks), y(chunk_bytes * num_chunks);
        const std::size_t floats = chunk_bytes * num_chunks / sizeof(float);
        std::fill(x.floats(), x.floats() + floats, 1.0f);
        DeviceArray<char> x_slots(chunk_bytes * num_slots), y_slots(chunk_bytes * num_slots);
        Stream up, compute, down;
        Event fetched[num_slots], computed[num_slots], written[num_slots];
        const Samples samples = time_each(repetitions, [&] {
            for (int chunk = 0; chunk < num_chunks; ++chunk) {
                const int slot = chunk % num_slots;
                const std::size_t in_slots = chunk_bytes * slot;
                const std::size_t in_host = chunk_bytes * chunk;
                check(cudaStreamWaitEvent(up, written[slot], 0), "wait");
                check(
                    cudaMemcpyAsync(x_slots.data() + in_slots, x.data() + in_host, chunk_bytes, cudaMemcpyDefault, up),
                    "copy");
                check(
                    cudaMemcpyAsync(y_slots.data() + in_slots, y.data() + in_host, chunk_bytes, cudaMemcpyDefault, up),
                    "copy");
                check(cudaEventRecord(fetched[slot], up), "record");
                check(cudaStreamWaitEvent(compute, fetched[slot], 0), "wait");
                for (int pass = 0; pass < passes; ++pass) {
                    launch_axpy(chunk_bytes, x_slots.data() + in_slots, y_slots.data() + in_slots, compute);
                }
                check(cudaEventRecord(computed[slot], compute), "record");
                check(cudaStreamWaitEvent(down, computed[slot], 0), "wait");
                check(cudaMemcpyAsync(y.data() + in_host, y_slots.data() + in_slots, chunk_bytes, cudaMemcpyDefault,
                                      down),
                      "copy");
                check(cudaEventRecord(written[slot], down), "record");
            }
            down.wait();
        });
        const float right = 0.5f * static_cast<float>(passes) * static_cast<float>(repetitions + 1);
        expect(y.floats()[0] == right && y.floats()[floats - 1] == right, "axpy_streamed");
        return samples;
    });
}

// ---- tiny kernels

namespace {

constexpr int tiny_elements = 1024;  // 4 KiB
constexpr int num_arrays = 64;
constexpr int num_chunks = 16;

/// The arrays of a shape and the order of its tasks; task numbers go on from one call to the next.
class TinyTasks {
  public:
    explicit TinyTasks(Shape shape) : shape_(shape), data_(std::size_t{tiny_elements} * num_arrays) {}

    void issue(long task) {
        if (shape_ == Shape::stencil) {
            const int chunk = static_cast<int>(task % num_chunks);
            const Stream& stream = streams_[chunk % 2];
            // Both neighbours are on the other stream, in order, and the right one is the later of the two there.
            check(cudaStreamWaitEvent(stream, events_[(chunk + 1) % num_chunks], 0), "wait");
            relax<<<tiny_elements / block_threads, block_threads, 0, stream>>>(
                old_chunk(task, -1), old_chunk(task, 0), old_chunk(task, 1), new_chunk(task), tiny_elements);
            check(cudaEventRecord(events_[chunk], stream), "record");
        } else {
            increment<<<tiny_elements / block_threads, block_threads, 0, streams_[0]>>>(array(task), tiny_elements);
        }
    }

    void wait() const {
        check(cudaGetLastError(), "launch");
        streams_[0].wait();
        streams_[1].wait();
    }

    /// Adds the task to a graph, after what it depends on.
    void add_node(cudaGraph_t graph, long task, std::vector<cudaGraphNode_t>& nodes) {
        const float* left = old_chunk(task, -1);
        const float* middle = old_chunk(task, 0);
        const float* right = old_chunk(task, 1);
        float* out = shape_ == Shape::stencil ? new_chunk(task) : array(task);
        int count = tiny_elements;
        void* three_to_one[] = {&left, &middle, &right, &out, &count};
        void* in_place[] = {&out, &count};
        cudaKernelNodeParams parameters{};
        parameters.func =
            shape_ == Shape::stencil ? reinterpret_cast<void*>(relax) : reinterpret_cast<void*>(increment);
        parameters.kernelParams = shape_ == Shape::stencil ? three_to_one : in_place;
        parameters.gridDim = dim3(tiny_elements / block_threads);
        parameters.blockDim = dim3(block_threads);
        std::vector<cudaGraphNode_t> after;
        for (const long earlier : dependencies(task)) {
            if (earlier >= 0) after.push_back(nodes[earlier]);
        }
        cudaGraphNode_t node = nullptr;
        check(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &parameters), "cudaGraphAddKernelNode");
        nodes.push_back(node);
    }

    void expect_done(long tasks) const {
        const long per_array = shape_ == Shape::chain     ? tasks
                               : shape_ == Shape::stencil ? tasks / num_chunks
                                                          : tasks / num_arrays;
        const std::size_t first = shape_ == Shape::stencil ? half(per_array - 1) : 0;
        expect(data_.element(first) == static_cast<float>(per_array) &&
                   data_.element(first + tiny_elements - 1) == static_cast<float>(per_array),
               "tiny kernels left " + std::to_string(data_.element(first)) + " instead of " +
                   std::to_string(per_array));
    }
    cudaStream_t first_stream() const { return streams_[0]; }

  private:
    float* array(long task) { return data_.data() + (shape_ == Shape::chain ? 0 : task % num_arrays * tiny_elements); }
    /// The steps of a stencil alternate between two halves of the memory.
    static std::size_t half(long step) { return step % 2 == 0 ? 0 : std::size_t{num_chunks} * tiny_elements; }
    float* old_chunk(long task, int offset) {
        const long chunk = (task + offset + num_chunks) % num_chunks;
        return data_.data() + half(task / num_chunks + 1) + chunk * tiny_elements;
    }
    float* new_chunk(long task) { return data_.data() + half(task / num_chunks) + task % num_chunks * tiny_elements; }
    std::vector<long> dependencies(long task) const {
        if (shape_ == Shape::chain) return {task - 1};
        if (shape_ == Shape::independent) return {task - num_arrays};
        const long chunk = task % num_chunks;
        const long before = task - chunk - num_chunks;
        if (before < 0) return {};
        return {before + (chunk + num_chunks - 1) % num_chunks, before + chunk, before + (chunk + 1) % num_chunks};
    }

    Shape shape_;
    DeviceArray<float> data_;
    Stream streams_[2];
    Event events_[num_chunks];
};

/// Whole rounds over the arrays, so that every array has had the same number of tasks.
int rounded(int num_tasks) { return std::max(1, num_tasks / num_arrays) * num_arrays; }

Samples run_tiny(Shape shape, int num_tasks, int repetitions, bool with_wait) {
    const int tasks = rounded(num_tasks);
    TinyTasks tiny(shape);
    long next = 0;
    Samples samples;
    for (int i = 0; i <= repetitions; ++i) {
        const auto begin = Clock::now();
        for (int task = 0; task < tasks; ++task) tiny.issue(next++);
        const double enqueued = seconds_since(begin);
        tiny.wait();
        if (i > 0) samples.push_back((with_wait ? seconds_since(begin) : enqueued) / tasks);
    }
    tiny.expect_done(next);
    return samples;
}

}  // namespace

Measured tiny_kernels(Shape shape, int num_tasks, int repetitions) {
    return measured([&] { return run_tiny(shape, num_tasks, repetitions, true); });
}

Measured tiny_kernels_enqueue(Shape shape, int num_tasks, int repetitions) {
    return measured([&] { return run_tiny(shape, num_tasks, repetitions, false); });
}

Measured tiny_graph_replay(Shape shape, int num_tasks, int repetitions) {
    constexpr int nodes_per_graph = 16 * num_arrays;
    return measured([&] {
        TinyTasks tiny(shape);
        cudaGraph_t graph = nullptr;
        check(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
        std::vector<cudaGraphNode_t> nodes;
        for (int task = 0; task < nodes_per_graph; ++task) tiny.add_node(graph, task, nodes);
        cudaGraphExec_t exec = nullptr;
        check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
        const int replays = std::max(1, num_tasks / nodes_per_graph);
        const Samples samples = time_each(repetitions, [&] {
            for (int replay = 0; replay < replays; ++replay)
                check(cudaGraphLaunch(exec, tiny.first_stream()), "cudaGraphLaunch");
            tiny.wait();
        });
        (void)cudaGraphExecDestroy(exec);
        (void)cudaGraphDestroy(graph);
        tiny.expect_done(long{replays} * (repetitions + 1) * nodes_per_graph);
        return divided(samples, double(replays) * nodes_per_graph);
    });
}

Measured tiny_kernels_threads(int num_threads, int tasks_per_thread, int repetitions) {
    return measured([&] {
        const int tasks = rounded(tasks_per_thread);
        std::vector<std::unique_ptr<TinyTasks>> work;
        for (int thread = 0; thread < num_threads; ++thread)
            work.push_back(std::make_unique<TinyTasks>(Shape::independent));
        std::vector<std::string> failures(num_threads);
        Samples samples;
        for (int i = 0; i <= repetitions; ++i) {
            std::latch ready(num_threads), start(1), done(num_threads);
            std::vector<std::thread> threads;
            for (int thread = 0; thread < num_threads; ++thread) {
                threads.emplace_back([&, thread] {
                    ready.count_down();
                    start.wait();
                    try {
                        for (int task = 0; task < tasks; ++task) work[thread]->issue(task);
                        work[thread]->wait();
                    } catch (const std::exception& failure) {
                        failures[thread] = failure.what();
                    }
                    done.count_down();
                });
            }
            ready.wait();
            const auto begin = Clock::now();
            start.count_down();
            done.wait();
            const double elapsed = seconds_since(begin);
            for (std::thread& thread : threads) thread.join();
            for (const std::string& failure : failures) {
                if (!failure.empty()) throw std::runtime_error(failure);
            }
            if (i > 0) samples.push_back(elapsed / (double(num_threads) * tasks));
        }
        for (const auto& tiny : work) tiny->expect_done(long{tasks} * (repetitions + 1));
        return samples;
    });
}

// ---- copies

Measured pinned_copy(Direction direction, std::size_t bytes, std::size_t piece_bytes, int repetitions) {
    return measured([&] {
        const bool up = direction != Direction::down;
        const bool down = direction != Direction::up;
        PinnedArray host_up(up ? bytes : 4096), host_down(down ? bytes : 4096);
        DeviceArray<char> device_up(up ? bytes : 4096), device_down(down ? bytes : 4096);
        Stream stream_up, stream_down;
        return time_each(repetitions, [&] {
            for (std::size_t at = 0; at < bytes; at += piece_bytes) {
                const std::size_t size = std::min(piece_bytes, bytes - at);
                if (up)
                    check(
                        cudaMemcpyAsync(device_up.data() + at, host_up.data() + at, size, cudaMemcpyDefault, stream_up),
                        "copy");
                if (down)
                    check(cudaMemcpyAsync(host_down.data() + at, device_down.data() + at, size, cudaMemcpyDefault,
                                          stream_down),
                          "copy");
            }
            stream_up.wait();
            stream_down.wait();
        });
    });
}

namespace {

cudaError_t copy_strided(const StridedCopy& copy, cudaStream_t stream) {
    if (copy.height == 1 && copy.depth == 1)
        return cudaMemcpyAsync(copy.destination, copy.source, copy.width_bytes, cudaMemcpyDefault, stream);
    if (copy.depth == 1)
        return cudaMemcpy2DAsync(copy.destination, copy.destination_pitch, copy.source, copy.source_pitch,
                                 copy.width_bytes, copy.height, cudaMemcpyDefault, stream);
    cudaMemcpy3DParms parameters{};
    parameters.dstPtr = {copy.destination, copy.destination_pitch, copy.width_bytes, copy.destination_rows};
    parameters.srcPtr = {const_cast<void*>(copy.source), copy.source_pitch, copy.width_bytes, copy.source_rows};
    parameters.extent = {copy.width_bytes, copy.height, copy.depth};
    parameters.kind = cudaMemcpyDefault;
    return cudaMemcpy3DAsync(&parameters, stream);
}

}  // namespace

Measured strided_copies(const StridedCopy* copies, std::size_t num_copies, int rounds, int repetitions) {
    return measured([&] {
        const CurrentDevice current(0);
        Stream stream;
        Samples samples = time_each(repetitions, [&] {
            for (int round = 0; round < rounds; ++round)
                for (std::size_t i = 0; i < num_copies; ++i) check(copy_strided(copies[i], stream), "a strided copy");
            stream.wait();
        });
        for (double& sample : samples) sample /= rounds;
        return samples;
    });
}

namespace {

void open_peer(int device, int peer) {
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, device, peer), "cudaDeviceCanAccessPeer");
    if (!can) return;
    CurrentDevice current(device);
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    (void)cudaGetLastError();
    if (error != cudaErrorPeerAccessAlreadyEnabled) check(error, "cudaDeviceEnablePeerAccess");
}

/// Memory and a stream of one device.
struct Side {
    explicit Side(int number, std::size_t bytes) : device(number), current(number), out(bytes), in(bytes) {}
    int device;
    CurrentDevice current;
    DeviceArray<char> out, in;
    Stream stream;
};

}  // namespace

Measured peer_copy(int source, int destination, bool both_ways, std::size_t bytes, int repetitions) {
    if (available(nullptr) && (source >= num_devices() || destination >= num_devices() || source == destination)) {
        return {{}, "not available: needs two devices, and there are " + std::to_string(num_devices())};
    }
    return measured([&] {
        open_peer(source, destination);
        open_peer(destination, source);
        Side from(source, bytes), to(destination, bytes);
        return time_each(repetitions, [&] {
            check(cudaMemcpyPeerAsync(to.in.data(), to.device, from.out.data(), from.device, bytes, from.stream),
                  "copy");
            if (both_ways) {
                check(cudaMemcpyPeerAsync(from.in.data(), from.device, to.out.data(), to.device, bytes, to.stream),
                      "copy");
            }
            from.stream.wait();
            to.stream.wait();
        });
    });
}

// ---- single calls

namespace {

CallCosts all_call_costs(int repetitions) {
    constexpr int calls = 1000;  // less than the driver's queue, so that no call waits for room
    constexpr std::size_t bytes = 4096;
    Event event;
    DeviceArray<char> a(bytes), b(bytes);
    const auto each = [&](auto call) {
        return measured([&] {
            Stream stream;
            Samples samples;
            for (int i = 0; i <= repetitions; ++i) {
                const auto begin = Clock::now();
                for (int j = 0; j < calls; ++j) check(call(stream), "call");
                const double elapsed = seconds_since(begin);
                stream.wait();
                if (i > 0) samples.push_back(elapsed / calls);
            }
            return samples;
        });
    };
    CallCosts costs;
    costs.launch = each([](cudaStream_t stream) { return empty<<<1, 1, 0, stream>>>(), cudaGetLastError(); });
    costs.launch_and_wait = each([](cudaStream_t stream) {
        empty<<<1, 1, 0, stream>>>();
        return cudaStreamSynchronize(stream);
    });
    costs.event_record = each([&](cudaStream_t stream) { return cudaEventRecord(event, stream); });
    costs.event_query = each([&](cudaStream_t) { return cudaEventQuery(event); });
    costs.stream_wait_event = each([&](cudaStream_t stream) { return cudaStreamWaitEvent(stream, event, 0); });
    costs.event_create_destroy = each([](cudaStream_t) {
        cudaEvent_t made = nullptr;
        const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
        return error != cudaSuccess ? error : cudaEventDestroy(made);
    });
    costs.copy_enqueue = each(
        [&](cudaStream_t stream) { return cudaMemcpyAsync(a.data(), b.data(), bytes, cudaMemcpyDefault, stream); });
    costs.fill_enqueue = each([&](cudaStream_t stream) { return cudaMemsetAsync(a.data(), 1, bytes, stream); });
    costs.malloc_async_free_async = each([](cudaStream_t stream) {
        void* made = nullptr;
        const cudaError_t error = cudaMallocAsync(&made, bytes, stream);
        return error != cudaSuccess ? error : cudaFreeAsync(made, stream);
    });
    return costs;
}

const void* handle_of(const void* symbol) {
    if (!available(nullptr)) return nullptr;
    cudaFunction_t function = nullptr;
    const cudaError_t error = cudaGetFuncBySymbol(&function, symbol);
    (void)cudaGetLastError();
    return error == cudaSuccess ? reinterpret_cast<const void*>(function) : nullptr;
}

}  // namespace

CallCosts call_costs(int repetitions) {
    Measured none;
    if (available(&none.error)) {
        try {
            return all_call_costs(repetitions);
        } catch (const std::exception& failure) {
            none.error = failure.what();
        }
    }
    return {none, none, none, none, none, none, none, none, none};
}

bool keep_busy(void* stream, double microseconds) {
    spin_for<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<long long>(microseconds * 1000));
    return cudaGetLastError() == cudaSuccess;
}

const void* empty_kernel() { return handle_of(reinterpret_cast<const void*>(empty)); }
const void* increment_kernel() { return handle_of(reinterpret_cast<const void*>(increment)); }
const void* spin_kernel() { return handle_of(reinterpret_cast<const void*>(spin)); }

}  // namespace kmm::bench::raw
