// Every CUDA name that the driver uses, behind names without a vendor; third part: streams, events, copies, fills,
// kernels, graphs. Same rules as vendor_cuda.hpp.
#pragma once

#include "driver/cuda/vendor_cuda_virtual.hpp"

namespace kmm::driver::vendor {

// ---- streams and events

inline Result create_stream(Stream* out, bool non_blocking, int priority) noexcept {
    return cudaStreamCreateWithPriority(out, non_blocking ? cudaStreamNonBlocking : cudaStreamDefault, priority);
}
inline Result destroy_stream(Stream stream) noexcept { return cudaStreamDestroy(stream); }
inline Result synchronize_stream(Stream stream) noexcept { return cudaStreamSynchronize(stream); }
inline Result query_stream(Stream stream) noexcept { return entry.stream_query(stream); }
inline Result stream_id(Stream stream, std::uint64_t* out) noexcept {
    unsigned long long id = 0;
    const CUresult result = entry.stream_get_id(stream, &id);
    *out = id;
    return result;
}
inline Result stream_device(Stream stream, int* out) noexcept {
#if CUDART_VERSION >= 12080
    return cudaStreamGetDevice(stream, out);
#else
    CUcontext before = nullptr;
    CUcontext context = nullptr;
    if (const CUresult result = entry.stream_get_context(stream, &context)) return result;
    if (const CUresult result = entry.context_get_current(&before)) return result;
    if (const CUresult result = entry.context_set_current(context)) return result;
    const CUresult result = entry.context_get_device(out);
    (void)entry.context_set_current(before);
    return result;
#endif
}
inline Result wait_event(Stream stream, Event event) noexcept { return entry.stream_wait_event(stream, event, 0); }

inline Result create_event(Event* out, bool timing, bool blocking_sync) noexcept {
    const unsigned flags = (timing ? 0u : cudaEventDisableTiming) | (blocking_sync ? cudaEventBlockingSync : 0u);
    return cudaEventCreateWithFlags(out, flags);
}
inline Result destroy_event(Event event) noexcept { return cudaEventDestroy(event); }
inline Result record_event(Event event, Stream stream) noexcept { return entry.event_record(event, stream); }
inline Result query_event(Event event) noexcept { return entry.event_query(event); }
inline Result synchronize_event(Event event) noexcept { return cudaEventSynchronize(event); }
inline Result elapsed_ms(float* out, Event begin, Event end) noexcept { return cudaEventElapsedTime(out, begin, end); }
inline Result record_context(Event event, void* context) noexcept {
    return entry.context_record_event(static_cast<CUcontext>(context), event);
}

// ---- capture

enum class RawCaptureStatus { none, active, invalidated };

inline Result begin_capture(Stream stream, int mode) noexcept {
    static_assert(cudaStreamCaptureModeGlobal == 0 && cudaStreamCaptureModeThreadLocal == 1 &&
                  cudaStreamCaptureModeRelaxed == 2);
    return cudaStreamBeginCapture(stream, static_cast<cudaStreamCaptureMode>(mode));
}
inline Result end_capture(Stream stream, Graph* out) noexcept { return cudaStreamEndCapture(stream, out); }
inline Result capture_info(Stream stream, RawCaptureStatus* out, std::uint64_t* id) noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long number = 0;
    const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &number);
    *out = status == cudaStreamCaptureStatusActive        ? RawCaptureStatus::active
           : status == cudaStreamCaptureStatusInvalidated ? RawCaptureStatus::invalidated
                                                          : RawCaptureStatus::none;
    *id = number;
    return error;
}
/// The graph that a captured stream's work goes into; null if it is not captured.
inline Result capture_graph(Stream stream, Graph* out) noexcept {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long number = 0;
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, &status, &number, out);
#else
    return cudaStreamGetCaptureInfo_v2(stream, &status, &number, out);
#endif
}
/// Ends with the last of the graph, what is instantiated from it, and their launches.
inline Result keep_with_graph(Graph graph, void (*on_end)(void*), void* user) noexcept {
    cudaUserObject_t object{};
    // The count of 1 goes over to the graph.
    if (const cudaError_t error = cudaUserObjectCreate(&object, user, on_end, 1, cudaUserObjectNoDestructorSync))
        return error;
    return cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
}
inline Result is_capturing(Stream stream, bool* out) noexcept {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = entry.stream_is_capturing(stream, &status);
    *out = status != CU_STREAM_CAPTURE_STATUS_NONE;
    return result;
}
using CaptureInteraction = CUstreamCaptureMode;
inline constexpr CaptureInteraction relaxed_interaction = CU_STREAM_CAPTURE_MODE_RELAXED;
/// Swaps the calling thread's mode; it is the driver library's, and thus the same in every copy of the runtime.
inline Result exchange_capture_interaction(CaptureInteraction* mode) noexcept {
    return entry.exchange_capture_mode(mode);
}

// ---- copies and fills

inline Result copy(void* destination, const void* source, std::size_t bytes, Stream stream) noexcept {
    return cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream);
}
inline Result copy_peer(void* destination, int destination_device, const void* source, int source_device,
                        std::size_t bytes, Stream stream) noexcept {
    return cudaMemcpyPeerAsync(destination, destination_device, source, source_device, bytes, stream);
}
inline Result copy_2d(void* destination, std::size_t destination_pitch, const void* source, std::size_t source_pitch,
                      std::size_t width, std::size_t height, Stream stream) noexcept {
    return cudaMemcpy2DAsync(destination, destination_pitch, source, source_pitch, width, height, cudaMemcpyDefault,
                             stream);
}
/// `*_rows` are the rows from one plane to the next.
struct Pitched {
    void* pointer;
    std::size_t pitch;
    std::size_t rows;
};
inline Result copy_3d(const Pitched& destination, const Pitched& source, std::size_t width, std::size_t height,
                      std::size_t depth, Stream stream) noexcept {
    cudaMemcpy3DParms parameters{};
    parameters.dstPtr = {destination.pointer, destination.pitch, width, destination.rows};
    parameters.srcPtr = {source.pointer, source.pitch, width, source.rows};
    parameters.extent = {width, height, depth};
    parameters.kind = cudaMemcpyDefault;
    return cudaMemcpy3DAsync(&parameters, stream);
}
inline Result max_pitch(int* out, int device) noexcept {
    return cudaDeviceGetAttribute(out, cudaDevAttrMaxPitch, device);
}

/// The CUDA version of the installed driver from which `copy_batch` works; 0: this build has no such call.
#if CUDART_VERSION >= 12080
inline constexpr int copy_batch_version = CUDART_VERSION >= 13000 ? 13000 : 12080;
#else
inline constexpr int copy_batch_version = 0;
#endif
/// Not for the legacy default stream, nor during a capture.
inline Result copy_batch([[maybe_unused]] void** destinations, [[maybe_unused]] const void** sources,
                         [[maybe_unused]] std::size_t* sizes, [[maybe_unused]] std::size_t count,
                         [[maybe_unused]] Stream stream) noexcept {
#if CUDART_VERSION >= 12080
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync(destinations, sources, sizes, count, &attributes, &first, 1, stream);
#else
    std::size_t failed = 0;
    return cudaMemcpyBatchAsync(destinations, const_cast<void**>(sources), sizes, count, &attributes, &first, 1,
                                &failed, stream);
#endif
#else
    return cudaErrorNotSupported;
#endif
}

inline Result fill_8(void* destination, std::uint8_t value, std::size_t count, Stream stream) noexcept {
    return entry.memset_8(address_of(destination), value, count, stream);
}
inline Result fill_16(void* destination, std::uint16_t value, std::size_t count, Stream stream) noexcept {
    return entry.memset_16(address_of(destination), value, count, stream);
}
inline Result fill_32(void* destination, std::uint32_t value, std::size_t count, Stream stream) noexcept {
    return entry.memset_32(address_of(destination), value, count, stream);
}
/// One element every `pitch` bytes.
inline Result fill_strided_8(void* destination, std::size_t pitch, std::uint8_t value, std::size_t count,
                             Stream stream) noexcept {
    return entry.memset_2d_8(address_of(destination), pitch, value, 1, count, stream);
}
inline Result fill_strided_16(void* destination, std::size_t pitch, std::uint16_t value, std::size_t count,
                              Stream stream) noexcept {
    return entry.memset_2d_16(address_of(destination), pitch, value, 1, count, stream);
}
inline Result fill_strided_32(void* destination, std::size_t pitch, std::uint32_t value, std::size_t count,
                              Stream stream) noexcept {
    return entry.memset_2d_32(address_of(destination), pitch, value, 1, count, stream);
}

inline Result host_callback(Stream stream, Callback callback, void* user) noexcept {
    return cudaLaunchHostFunc(stream, callback, user);
}

// ---- kernels

struct RawLaunch {
    const void* function;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    const void* parameters;
    std::size_t parameter_bytes;
};
// A kernel's handle is one device's function (cudaGetFuncBySymbol) or a kernel of every device (cudaGetKernel).
// Launches take both; for the other calls the second kind is found out by the refusal of the first.
inline CUfunction function_of(const void* function) noexcept {
    return reinterpret_cast<CUfunction>(const_cast<void*>(function));
}
inline CUkernel kernel_of(const void* function) noexcept {
    return reinterpret_cast<CUkernel>(const_cast<void*>(function));
}

/// The `extra` argument of launches and kernel nodes: packed parameters, copied by the call that gets it.
class PackedParameters {
  public:
    explicit PackedParameters(const RawLaunch& launch) noexcept
        : bytes_(launch.parameter_bytes),
          extra_{CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<void*>(launch.parameters), CU_LAUNCH_PARAM_BUFFER_SIZE,
                 &bytes_, CU_LAUNCH_PARAM_END} {}
    PackedParameters(const PackedParameters&) = delete;
    PackedParameters& operator=(const PackedParameters&) = delete;
    void** extra() noexcept { return bytes_ == 0 ? nullptr : extra_; }

  private:
    std::size_t bytes_;
    void* extra_[5];
};

inline Result launch(const RawLaunch& launch, Stream stream) noexcept {
    PackedParameters parameters(launch);
    return entry.launch_kernel(function_of(launch.function), launch.grid[0], launch.grid[1], launch.grid[2],
                               launch.block[0], launch.block[1], launch.block[2], launch.shared_bytes, stream, nullptr,
                               parameters.extra());
}
/// The handle, for every device, of a kernel that is compiled into this library.
inline Result kernel_handle(const void** out, const void* symbol) noexcept {
    cudaKernel_t kernel = nullptr;
    const cudaError_t error = cudaGetKernel(&kernel, symbol);
    *out = kernel;
    return error;
}
inline Result static_shared_bytes(int* out, const void* function, int device) noexcept {
    const CUresult result =
        entry.function_get_attribute(out, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function_of(function));
    if (result != CUDA_ERROR_INVALID_HANDLE) return result;
    return entry.kernel_get_attribute(out, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel_of(function), device);
}
/// Drivers before 12.4 load what is asked about.
inline bool loads_functions() noexcept {
    return entry.function_load != nullptr && entry.kernel_get_function != nullptr;
}
inline Result load_by_asking(const void* function) noexcept {
    int device = 0, bytes = 0;
    if (const cudaError_t error = cudaGetDevice(&device)) return error;
    return static_shared_bytes(&bytes, function, device);
}
/// Brings the code of a kernel that `kernel_handle` gave to the current device now rather than at the first launch.
inline Result load_own_kernel(const void* kernel) noexcept {
    if (!loads_functions()) return load_by_asking(kernel);
    CUfunction here = nullptr;
    if (const CUresult result = entry.kernel_get_function(&here, kernel_of(kernel))) return result;
    return entry.function_load(here);
}
/// Loads any kernel: tries it as a function of one device, then as a handle of `kernel_handle`.
inline Result load_kernel(const void* function) noexcept {
    if (!loads_functions()) return load_by_asking(function);
    const CUresult loaded = entry.function_load(function_of(function));
    return loaded != CUDA_ERROR_INVALID_HANDLE ? Result(loaded) : load_own_kernel(function);
}
inline Result set_max_dynamic_shared(const void* function, int bytes, int device) noexcept {
    constexpr CUfunction_attribute attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    const CUresult result = entry.function_set_attribute(function_of(function), attribute, bytes);
    if (result != CUDA_ERROR_INVALID_HANDLE) return result;
    return entry.kernel_set_attribute(attribute, bytes, kernel_of(function), device);
}

// ---- graphs

inline Result create_graph(Graph* out) noexcept { return cudaGraphCreate(out, 0); }
inline Result destroy_graph(Graph graph) noexcept { return cudaGraphDestroy(graph); }
inline Result add_empty_node(GraphNode* out, Graph graph, const GraphNode* after, std::size_t num_after) noexcept {
    return cudaGraphAddEmptyNode(out, graph, after, num_after);
}
/// Calls with the parameters of a kernel node, first as one device's function, then as a kernel of the current context.
template<typename Call> Result with_kernel_node(const RawLaunch& launch, Call call) noexcept {
    PackedParameters parameters(launch);
    CUDA_KERNEL_NODE_PARAMS_v2 node{};
    node.func = function_of(launch.function);
    node.gridDimX = launch.grid[0];
    node.gridDimY = launch.grid[1];
    node.gridDimZ = launch.grid[2];
    node.blockDimX = launch.block[0];
    node.blockDimY = launch.block[1];
    node.blockDimZ = launch.block[2];
    node.sharedMemBytes = launch.shared_bytes;
    node.extra = parameters.extra();
    const CUresult result = call(node);
    if (result != CUDA_ERROR_INVALID_HANDLE) return result;
    node.func = nullptr;
    node.kern = kernel_of(launch.function);
    return call(node);
}
inline Result add_kernel_node(GraphNode* out, Graph graph, const GraphNode* after, std::size_t num_after,
                              const RawLaunch& launch) noexcept {
    return with_kernel_node(launch, [&](const CUDA_KERNEL_NODE_PARAMS_v2& node) {
        return entry.graph_add_kernel_node(out, graph, after, num_after, &node);
    });
}
inline Result update_kernel_node(GraphExec exec, GraphNode node, const RawLaunch& launch) noexcept {
    return with_kernel_node(launch, [&](const CUDA_KERNEL_NODE_PARAMS_v2& changed) {
        return entry.graph_exec_kernel_node_set_params(exec, node, &changed);
    });
}
inline Result add_copy_node(GraphNode* out, Graph graph, const GraphNode* after, std::size_t num_after,
                            void* destination, const void* source, std::size_t bytes) noexcept {
    return cudaGraphAddMemcpyNode1D(out, graph, after, num_after, destination, source, bytes, cudaMemcpyDefault);
}
inline Result add_fill_node(GraphNode* out, Graph graph, const GraphNode* after, std::size_t num_after,
                            void* destination, std::uint32_t value, std::size_t value_bytes,
                            std::size_t count) noexcept {
    cudaMemsetParams parameters{};
    parameters.dst = destination;
    parameters.value = value;
    parameters.elementSize = static_cast<unsigned>(value_bytes);
    parameters.width = count;
    parameters.height = 1;
    return cudaGraphAddMemsetNode(out, graph, after, num_after, &parameters);
}
inline Result add_host_node(GraphNode* out, Graph graph, const GraphNode* after, std::size_t num_after,
                            Callback callback, void* user) noexcept {
    cudaHostNodeParams parameters{};
    parameters.fn = callback;
    parameters.userData = user;
    return cudaGraphAddHostNode(out, graph, after, num_after, &parameters);
}
inline Result instantiate(GraphExec* out, Graph graph) noexcept { return cudaGraphInstantiate(out, graph, 0); }
inline Result destroy_exec(GraphExec exec) noexcept { return cudaGraphExecDestroy(exec); }
inline Result update_exec(GraphExec exec, Graph graph) noexcept {
    cudaGraphExecUpdateResultInfo info{};
    return cudaGraphExecUpdate(exec, graph, &info);
}
inline Result launch_graph(GraphExec exec, Stream stream) noexcept { return cudaGraphLaunch(exec, stream); }

}  // namespace kmm::driver::vendor
