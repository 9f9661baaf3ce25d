// Owns: capture and graph calls of the host driver. Any thread.
#include <algorithm>

#include "driver/host/host_driver.hpp"
#include "driver/host/limits.hpp"

namespace kmm::driver::host {

/// The legacy stream would have to wait for work that is only captured.
Status HostDriver::refuse_implicit(Stream& legacy) {
    if (num_captures_.load(std::memory_order_acquire) == 0) return {};
    const locks::Guard lock(captures_mutex_);
    bool refused = false;
    for (Capture& capture : captures_) {
        if (!capture.holds_blocking_stream(legacy.device)) continue;
        capture.invalidate();
        refused = true;
    }
    return {refused ? Code::capture_error : Code::ok};
}

/// For calls that make no sense on a stream that is captured.
Status HostDriver::refuse_captured(Stream& stream) {
    if (stream.legacy) return refuse_implicit(stream);
    if (stream.capture.load(std::memory_order_acquire) == nullptr) return {};
    const locks::Guard lock(captures_mutex_);
    if (Capture* capture = stream.capture.load(std::memory_order_acquire)) capture->invalidate();
    return {Code::capture_error};
}

Capture* HostDriver::find_capture(std::uint64_t id) noexcept {
    for (Capture& capture : captures_)
        if (capture.id() == id) return &capture;
    return nullptr;
}

Status HostDriver::wait_event_in_capture(Stream& stream, Event& event) {
    const locks::Guard lock(captures_mutex_);
    Capture* own = stream.capture.load(std::memory_order_acquire);
    const locks::Guard event_lock(event.mutex);
    if (event.capture_id == 0 && !event.recorded) return {};  // never recorded: nothing to wait for
    Capture* of_event = event.capture_id != 0 ? find_capture(event.capture_id) : nullptr;
    const bool fits =
        of_event != nullptr && !of_event->invalidated() && (own == nullptr || own == of_event) && !stream.legacy;
    if (!fits) {
        if (own != nullptr) own->invalidate();
        if (of_event != nullptr) of_event->invalidate();
        return {Code::capture_error};
    }
    of_event->join(stream, event.nodes);
    return {};
}

Status HostDriver::begin_capture(StreamHandle handle, CaptureMode mode) noexcept {
    return guarded([&]() -> Status {
        Stream* stream = resolve(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        const locks::Guard lock(captures_mutex_);
        if (stream->legacy || stream->capture.load(std::memory_order_acquire) != nullptr) return {Code::capture_error};
        Graph& graph = graphs_.take();
        try {
            captures_.emplace_back(next_capture_id_, mode, *stream, graph);
        } catch (...) {
            graphs_.recycle(graph);
            throw;
        }
        ++next_capture_id_;
        num_captures_.fetch_add(1, std::memory_order_release);
        return {};
    });
}

Status HostDriver::end_capture(StreamHandle handle, GraphHandle* out) noexcept {
    return guarded([&]() -> Status {
        *out = {};
        Stream* stream = resolve(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        const locks::Guard lock(captures_mutex_);
        Capture* capture = stream->capture.load(std::memory_order_acquire);
        if (capture == nullptr) return {Code::capture_error};
        const bool wrong_thread =
            capture->mode() != CaptureMode::relaxed && capture->thread() != std::this_thread::get_id();
        if (&capture->origin() != stream || wrong_thread) {
            capture->invalidate();
            return {Code::capture_error};
        }
        const bool good = !capture->invalidated() && capture->all_joined();
        Graph& graph = capture->graph();
        capture->detach();
        captures_.remove_if([&](const Capture& c) { return &c == capture; });
        num_captures_.fetch_sub(1, std::memory_order_release);
        if (good) {
            Slots<Graph>::revive(graph);
            *out = {graphs_.handle(graph)};
            return {};
        }
        {
            const locks::Guard graph_lock(graph.mutex);
            graph.clear();
        }
        graphs_.recycle(graph);
        return {Code::capture_error};
    });
}

Status HostDriver::capture_status(StreamHandle handle, CaptureStatus* out, std::uint64_t* id) noexcept {
    return guarded([&]() -> Status {
        Stream* stream = resolve(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        *out = CaptureStatus::none;
        if (id != nullptr) *id = 0;
        // As a GPU's driver: the legacy stream cannot say while streams that wait for it are captured.
        if (stream->legacy && num_captures_.load(std::memory_order_acquire) != 0) {
            const locks::Guard lock(captures_mutex_);
            for (const Capture& capture : captures_)
                if (capture.holds_blocking_stream(stream->device)) return {Code::capture_error};
        }
        if (stream->capture.load(std::memory_order_acquire) == nullptr) return {};
        const locks::Guard lock(captures_mutex_);
        const Capture* capture = stream->capture.load(std::memory_order_acquire);
        if (capture != nullptr) *out = capture->invalidated() ? CaptureStatus::invalidated : CaptureStatus::active;
        if (id != nullptr) *id = capture != nullptr ? capture->id() : 0;
        return {};
    });
}

Status HostDriver::keep_with_capture(StreamHandle handle, HostCallback on_end, void* user) noexcept {
    return guarded([&]() -> Status {
        Stream* stream = resolve(handle);
        if (stream == nullptr) return {Code::invalid_handle};
        const locks::Guard lock(captures_mutex_);
        Capture* capture = stream->capture.load(std::memory_order_acquire);
        if (capture == nullptr || capture->invalidated()) return {Code::capture_error};
        auto keep = std::make_shared<Keep>(nullptr, user);
        Graph& graph = capture->graph();
        const locks::Guard graph_lock(graph.mutex);
        graph.keeps.push_back(keep);
        keep->on_end = on_end;
        return {};
    });
}

Status HostDriver::create_graph(GraphHandle* out) noexcept {
    return guarded([&]() -> Status {
        Graph& graph = graphs_.take();
        Slots<Graph>::revive(graph);
        *out = {graphs_.handle(graph)};
        return {};
    });
}

Status HostDriver::destroy_graph(GraphHandle handle) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    Graph* graph = graphs_.find(handle.native);
    if (graph == nullptr) return fail(Code::invalid_handle);
    Slots<Graph>::retire(*graph);
    {
        const locks::Guard lock(graph->mutex);
        graph->clear();
    }
    graphs_.recycle(*graph);
    return {};
}

template<typename Set>
Status HostDriver::add_node(GraphHandle handle, const GraphNodeHandle* after, std::size_t num_after, Set&& set,
                            GraphNodeHandle* out) noexcept {
    return guarded([&]() -> Status {
        Graph* graph = graphs_.find(handle.native);
        if (graph == nullptr) return {Code::invalid_handle};
        const locks::Guard lock(graph->mutex);
        Work filled;
        set(filled);
        Node* node = graph->add(after, num_after);
        if (node == nullptr) return {Code::invalid_argument};
        try {
            node->work.copy_from(filled);
        } catch (...) {
            graph->index.erase(node);
            graph->nodes.pop_back();
            throw;
        }
        if (out != nullptr) *out = {node};
        return {};
    });
}

Status HostDriver::add_empty_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                  GraphNodeHandle* out) noexcept {
    return add_node(graph, after, num_after, [](Work& work) { work.kind = WorkKind::none; }, out);
}

Status HostDriver::add_kernel_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                   const KernelLaunch& launch, GraphNodeHandle* out) noexcept {
    if (!valid_launch(launch)) return fail(Code::invalid_argument);
    return add_node(graph, after, num_after, [&](Work& work) { work.set_kernel(launch); }, out);
}

Status HostDriver::add_copy_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                 const CopyPiece& piece, GraphNodeHandle* out) noexcept {
    const Memory::CopyEnds ends = memory_.classify(piece.destination, piece.size_bytes, piece.source, piece.size_bytes);
    if (piece.size_bytes == 0 || piece.destination == nullptr || piece.source == nullptr || !ends.in_bounds)
        return fail(Code::invalid_argument);
    return add_node(graph, after, num_after, [&](Work& work) { work.set_copy(piece); }, out);
}

Status HostDriver::add_fill_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                 void* destination, std::uint32_t value, std::size_t value_bytes, std::size_t count,
                                 GraphNodeHandle* out) noexcept {
    std::size_t total = 0;
    if (destination == nullptr || (value_bytes != 1 && value_bytes != 2 && value_bytes != 4) || count == 0 ||
        !multiply(value_bytes, count, &total))
        return fail(Code::invalid_argument);
    // Little endian, as every machine with a GPU is: the low bytes of the value come first.
    return add_node(
        graph, after, num_after, [&](Work& work) { work.set_fill(destination, &value, value_bytes, count); }, out);
}

Status HostDriver::add_host_node(GraphHandle graph, const GraphNodeHandle* after, std::size_t num_after,
                                 HostCallback function, void* user, GraphNodeHandle* out) noexcept {
    if (function == nullptr) return fail(Code::invalid_argument);
    return add_node(graph, after, num_after, [&](Work& work) { work.set_callback(function, user); }, out);
}

Status HostDriver::instantiate(GraphHandle handle, GraphExecHandle* out) noexcept {
    return guarded([&]() -> Status {
        Graph* graph = graphs_.find(handle.native);
        if (graph == nullptr) return {Code::invalid_handle};
        Exec& exec = execs_.take();
        const locks::Guard lock(exec.mutex);
        try {
            const locks::Guard graph_lock(graph->mutex);
            exec.build(*graph);
            const int device = thread_state().device;
            for (std::size_t lane = 1; lane < exec.lanes.size(); ++lane)
                exec.lanes[lane] = &take_stream(device, false, false);
        } catch (...) {
            for (Stream* lane : exec.lanes)
                if (lane != nullptr) retire_stream(*lane);
            exec.clear();
            execs_.recycle(exec);
            throw;
        }
        Slots<Exec>::revive(exec);
        *out = {execs_.handle(exec)};
        return {};
    });
}

Status HostDriver::destroy_exec(GraphExecHandle handle) noexcept {
    if (lost_in_fork()) return {Code::shut_down};
    Exec* exec = execs_.find(handle.native);
    if (exec == nullptr) return fail(Code::invalid_handle);
    Slots<Exec>::retire(*exec);
    {
        const locks::Guard lock(exec->mutex);
        for (Stream* lane : exec->lanes)
            if (lane != nullptr) retire_stream(*lane);
        exec->clear();
    }
    execs_.recycle(*exec);
    return {};
}

Status HostDriver::update_kernel_node(GraphExecHandle handle, GraphNodeHandle node,
                                      const KernelLaunch& launch) noexcept {
    if (!valid_launch(launch)) return fail(Code::invalid_argument);
    return guarded([&]() -> Status {
        Exec* exec = execs_.find(handle.native);
        if (exec == nullptr) return {Code::invalid_handle};
        const locks::Guard lock(exec->mutex);
        const auto at = exec->index.find(static_cast<const Node*>(node.native));
        if (at == exec->index.end()) return {Code::invalid_argument};
        Work& work = exec->items[at->second]->work;
        if (work.kind != WorkKind::kernel) return {Code::invalid_argument};
        work.set_kernel(launch);
        return {};
    });
}

Status HostDriver::update_exec(GraphExecHandle handle, GraphHandle graph_handle) noexcept {
    return guarded([&]() -> Status {
        Exec* exec = execs_.find(handle.native);
        Graph* graph = graphs_.find(graph_handle.native);
        if (exec == nullptr || graph == nullptr) return {Code::invalid_handle};
        const locks::Guard lock(exec->mutex);
        const locks::Guard graph_lock(graph->mutex);
        return {exec->update(*graph) ? Code::ok : Code::invalid_argument};
    });
}

Status HostDriver::launch_graph(GraphExecHandle handle, StreamHandle stream_handle) noexcept {
    return guarded([&]() -> Status {
        Stream* stream = resolve(stream_handle);
        Exec* exec = execs_.find(handle.native);
        if (stream == nullptr || exec == nullptr) return {Code::invalid_handle};
        if (stream->capture.load(std::memory_order_acquire) != nullptr) return {Code::not_supported};
        if (stream->legacy)
            if (const Status status = refuse_implicit(*stream); !status.ok()) return status;
        Keeps keeps;
        {
            const locks::Guard lock(exec->mutex);
            // All queues stay locked, so that other threads' work comes before or after the graph and never into it.
            std::vector<std::unique_ptr<Queue>> lanes;
            Queue queue(*this, *stream);
            for (std::size_t lane = 1; lane < exec->lanes.size(); ++lane)
                lanes.push_back(std::make_unique<Queue>(*this, *exec->lanes[lane]));
            exec->enqueue(*stream, streams_.size());
            keeps = exec->keeps;
        }
        if (keeps.empty()) return {};
        // What lives with the graph lives until the launch is done, even if the graph is destroyed before.
        auto* const held = new Keeps(std::move(keeps));
        const Status status = host_callback(stream_handle, [](void* user) { delete static_cast<Keeps*>(user); }, held);
        if (!status.ok()) delete held;
        return {};
    });
}

}  // namespace kmm::driver::host
