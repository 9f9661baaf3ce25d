// Graphs built node by node, and their replay.
//
// Owns: nothing. Must not know: rmm, kmm. Any thread; a graph is used by one thread at a time, as the vendor demands.
#include "driver/cuda/calls.hpp"
#include "driver/cuda/cuda_driver.hpp"
#include "driver/cuda/raw_launch.hpp"

namespace kmm::driver::vendor {

// A list of handles is handed to the vendor as it is.
static_assert(sizeof(GraphNodeHandle) == sizeof(GraphNode) && alignof(GraphNodeHandle) == alignof(GraphNode));

namespace {

const GraphNode* native(const GraphNodeHandle* nodes) noexcept { return reinterpret_cast<const GraphNode*>(nodes); }

}  // namespace

Status VendorDriver::create_graph(GraphHandle* out) noexcept {
    Graph graph{};
    const Status status = runtime_status(vendor::create_graph(&graph));
    out->native = graph;
    return status;
}

Status VendorDriver::destroy_graph(GraphHandle graph) noexcept {
    return runtime_status(vendor::destroy_graph(vendor::native(graph)));
}

Status VendorDriver::add_empty_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                    GraphNodeHandle* out) noexcept {
    GraphNode node{};
    const Status status =
        runtime_status(vendor::add_empty_node(&node, vendor::native(graph), native(after), num_after));
    out->native = node;
    return status;
}

Status VendorDriver::add_kernel_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                     const KernelLaunch& launch, GraphNodeHandle* out) noexcept {
    if (launch.function == nullptr) return {Code::invalid_handle, 400};
    GraphNode node{};
    const RawLaunch raw = raw_launch(launch);
    const Status status = library_call(
        [&] { return vendor::add_kernel_node(&node, vendor::native(graph), native(after), num_after, raw); });
    out->native = node;
    return status;
}

Status VendorDriver::add_copy_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                   const CopyPiece& piece, GraphNodeHandle* out) noexcept {
    GraphNode node{};
    const Status status = runtime_status(vendor::add_copy_node(&node, vendor::native(graph), native(after), num_after,
                                                               piece.destination, piece.source, piece.size_bytes));
    out->native = node;
    return status;
}

Status VendorDriver::add_fill_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                   void* destination, std::uint32_t value, std::size_t value_bytes, std::size_t count,
                                   GraphNodeHandle* out) noexcept {
    if (value_bytes != 1 && value_bytes != 2 && value_bytes != 4) return invalid_argument;
    GraphNode node{};
    const Status status = runtime_status(vendor::add_fill_node(&node, vendor::native(graph), native(after), num_after,
                                                               destination, value, value_bytes, count));
    out->native = node;
    return status;
}

Status VendorDriver::add_host_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                   HostCallback callback, void* user, GraphNodeHandle* out) noexcept {
    if (callback == nullptr) return invalid_argument;
    GraphNode node{};
    const Status status =
        runtime_status(vendor::add_host_node(&node, vendor::native(graph), native(after), num_after, callback, user));
    out->native = node;
    return status;
}

Status VendorDriver::instantiate(GraphHandle graph, GraphExecHandle* out) noexcept {
    RelaxedInteraction relaxed;
    GraphExec exec{};
    const Status status = runtime_status(vendor::instantiate(&exec, vendor::native(graph)));
    out->native = exec;
    return status;
}

Status VendorDriver::destroy_exec(GraphExecHandle exec) noexcept {
    RelaxedInteraction relaxed;
    return runtime_status(vendor::destroy_exec(vendor::native(exec)));
}

Status VendorDriver::update_kernel_node(GraphExecHandle exec, GraphNodeHandle node,
                                        const KernelLaunch& launch) noexcept {
    if (launch.function == nullptr) return {Code::invalid_handle, 400};
    const RawLaunch raw = raw_launch(launch);
    return library_call([&] { return vendor::update_kernel_node(vendor::native(exec), vendor::native(node), raw); });
}

Status VendorDriver::update_exec(GraphExecHandle exec, GraphHandle graph) noexcept {
    return runtime_status(vendor::update_exec(vendor::native(exec), vendor::native(graph)));
}

Status VendorDriver::launch_graph(GraphExecHandle exec, StreamHandle stream) noexcept {
    return runtime_status(vendor::launch_graph(vendor::native(exec), vendor::native(stream)));
}

}  // namespace kmm::driver::vendor
