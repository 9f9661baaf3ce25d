// Owns: graphs of the scripted driver: the inner driver builds them, a launch is one piece of work.
#include "scripted_driver.hpp"

namespace kmm::driver::testing {

Status ScriptedDriver::begin_capture(StreamHandle, CaptureMode) noexcept { return {Code::not_supported}; }
Status ScriptedDriver::end_capture(StreamHandle, GraphHandle*) noexcept { return {Code::not_supported}; }
Status ScriptedDriver::capture_status(StreamHandle, CaptureStatus* out, std::uint64_t* id) noexcept {
    *out = CaptureStatus::none;
    if (id != nullptr) *id = 0;
    return {};
}
Status ScriptedDriver::keep_with_capture(StreamHandle, HostCallback, void*) noexcept { return {Code::capture_error}; }
Status ScriptedDriver::create_graph(GraphHandle* out) noexcept {
    return forward(entry_of("create_graph"), [&] { return inner_->create_graph(out); });
}
Status ScriptedDriver::destroy_graph(GraphHandle graph) noexcept {
    return forward(entry_of("destroy_graph"), [&] { return inner_->destroy_graph(graph); });
}
Status ScriptedDriver::add_empty_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                      GraphNodeHandle* out) noexcept {
    return forward(entry_of("add_empty_node"), [&] { return inner_->add_empty_node(graph, after, num_after, out); });
}
Status ScriptedDriver::add_kernel_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                       const KernelLaunch& launch, GraphNodeHandle* out) noexcept {
    return forward(entry_of("add_kernel_node"),
                   [&] { return inner_->add_kernel_node(graph, after, num_after, launch, out); });
}
Status ScriptedDriver::add_copy_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                     const CopyPiece& piece, GraphNodeHandle* out) noexcept {
    return forward(entry_of("add_copy_node", -1, piece.size_bytes),
                   [&] { return inner_->add_copy_node(graph, after, num_after, piece, out); });
}
Status ScriptedDriver::add_fill_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                     void* destination, std::uint32_t value, std::size_t value_bytes, std::size_t count,
                                     GraphNodeHandle* out) noexcept {
    return forward(entry_of("add_fill_node", -1, value_bytes * count), [&] {
        return inner_->add_fill_node(graph, after, num_after, destination, value, value_bytes, count, out);
    });
}
Status ScriptedDriver::add_host_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                     HostCallback function, void* user, GraphNodeHandle* out) noexcept {
    return forward(entry_of("add_host_node"),
                   [&] { return inner_->add_host_node(graph, after, num_after, function, user, out); });
}
Status ScriptedDriver::instantiate(GraphHandle graph, GraphExecHandle* out) noexcept {
    return forward(entry_of("instantiate"), [&] { return inner_->instantiate(graph, out); });
}

Status ScriptedDriver::destroy_exec(GraphExecHandle exec) noexcept {
    Lock lock(mutex_);
    if (const Status status = enter(entry_of("destroy_exec")); !status.ok()) return status;
    // Launches that wait in the queues still name it.
    for (int device = 0; device < options_.num_devices; ++device)
        if (const Status status = wait_for_device(lock, device); status.code == Code::not_ready) return status;
    return finish(inner_->destroy_exec(exec));
}

Status ScriptedDriver::update_kernel_node(GraphExecHandle exec, GraphNodeHandle node,
                                          const KernelLaunch& launch) noexcept {
    return forward(entry_of("update_kernel_node"), [&] { return inner_->update_kernel_node(exec, node, launch); });
}
Status ScriptedDriver::update_exec(GraphExecHandle exec, GraphHandle graph) noexcept {
    return forward(entry_of("update_exec"), [&] { return inner_->update_exec(exec, graph); });
}
Status ScriptedDriver::launch_graph(GraphExecHandle exec, StreamHandle stream) noexcept {
    return enqueue(entry_of("launch_graph"), stream, [this, exec] {
        const Status status = inner_->launch_graph(exec, inner_stream_);
        const Status end = inner_->synchronize_stream(inner_stream_);
        return status.ok() ? end : status;
    });
}

}  // namespace kmm::driver::testing
