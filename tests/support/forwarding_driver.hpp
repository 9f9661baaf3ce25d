// A driver for tests that look at each call: does what another driver does, and says first which call it is.
//
// Owns: nothing. Must not know: what is being tested. Any thread.
#pragma once

#include "driver/driver.hpp"

namespace kmm::driver::testing {

class ForwardingDriver : public Driver {
  public:
    explicit ForwardingDriver(Driver& inner) : inner_(inner) {}

    Kind kind() const noexcept override { return inner_.kind(); }
    const char* name() const noexcept override { return inner_.name(); }
    int version() const noexcept override { return inner_.version(); }
    Capabilities capabilities() const noexcept override { return inner_.capabilities(); }
    const char* error_name(Status a0) const noexcept override { return inner_.error_name(a0); }
    const char* error_text(Status a0) const noexcept override { return inner_.error_text(a0); }
    Status take_last_error() noexcept override { return called("take_last_error"), inner_.take_last_error(); }
    int device_count() const noexcept override { return inner_.device_count(); }
    Status properties(int device, DeviceProperties* out) noexcept override {
        return called("properties"), inner_.properties(device, out);
    }
    Status attribute(int device, int number, int* out) noexcept override {
        return called("attribute"), inner_.attribute(device, number, out);
    }
    Status current_device(int* out) noexcept override { return called("current_device"), inner_.current_device(out); }
    Status set_current_device(int device) noexcept override {
        return called("set_current_device"), inner_.set_current_device(device);
    }
    Status memory_info(int device, std::size_t* free_bytes, std::size_t* total_bytes) noexcept override {
        return called("memory_info"), inner_.memory_info(device, free_bytes, total_bytes);
    }
    Status can_access_peer(int device, int peer, bool* out) noexcept override {
        return called("can_access_peer"), inner_.can_access_peer(device, peer, out);
    }
    Status enable_peer(int device, int peer) noexcept override {
        return called("enable_peer"), inner_.enable_peer(device, peer);
    }
    Status synchronize_device(int device) noexcept override {
        return called("synchronize_device"), inner_.synchronize_device(device);
    }
    Status allocate(int device, std::size_t bytes, void** out) noexcept override {
        return called("allocate"), inner_.allocate(device, bytes, out);
    }
    Status free(void* pointer) noexcept override { return called("free"), inner_.free(pointer); }
    Status allocate_managed(std::size_t bytes, void** out) noexcept override {
        return called("allocate_managed"), inner_.allocate_managed(bytes, out);
    }
    Status prefetch(const void* pointer, std::size_t bytes, int device_or_host, StreamHandle a3) noexcept override {
        return called("prefetch"), inner_.prefetch(pointer, bytes, device_or_host, a3);
    }
    Status prefer_location(const void* pointer, std::size_t bytes, int device_or_host) noexcept override {
        return called("prefer_location"), inner_.prefer_location(pointer, bytes, device_or_host);
    }
    Status allocate_pinned(std::size_t bytes, void** out) noexcept override {
        return called("allocate_pinned"), inner_.allocate_pinned(bytes, out);
    }
    Status free_pinned(void* pointer) noexcept override { return called("free_pinned"), inner_.free_pinned(pointer); }
    Status register_host(void* pointer, std::size_t bytes) noexcept override {
        return called("register_host"), inner_.register_host(pointer, bytes);
    }
    Status unregister_host(void* pointer) noexcept override {
        return called("unregister_host"), inner_.unregister_host(pointer);
    }
    Status pointer_info(const void* pointer, PointerInfo* out) noexcept override {
        return called("pointer_info"), inner_.pointer_info(pointer, out);
    }
    Status default_pool(int device, PoolHandle* out) noexcept override {
        return called("default_pool"), inner_.default_pool(device, out);
    }
    Status default_managed_pool(int device, PoolHandle* out) noexcept override {
        return called("default_managed_pool"), inner_.default_managed_pool(device, out);
    }
    Status create_pool(int device, const PoolOptions& a1, PoolHandle* out) noexcept override {
        return called("create_pool"), inner_.create_pool(device, a1, out);
    }
    Status destroy_pool(PoolHandle a0) noexcept override { return called("destroy_pool"), inner_.destroy_pool(a0); }
    Status set_pool_release_threshold(PoolHandle a0, std::uint64_t bytes) noexcept override {
        return called("set_pool_release_threshold"), inner_.set_pool_release_threshold(a0, bytes);
    }
    Status trim_pool(PoolHandle a0, std::size_t keep_bytes) noexcept override {
        return called("trim_pool"), inner_.trim_pool(a0, keep_bytes);
    }
    Status allocate_async(PoolHandle a0, std::size_t bytes, StreamHandle a2, void** out) noexcept override {
        return called("allocate_async"), inner_.allocate_async(a0, bytes, a2, out);
    }
    Status free_async(void* pointer, StreamHandle a1) noexcept override {
        return called("free_async"), inner_.free_async(pointer, a1);
    }
    Status physical_support(int device, PhysicalOptions* out) noexcept override {
        return called("physical_support"), inner_.physical_support(device, out);
    }
    Status granularity(int device, const PhysicalOptions& a1, std::size_t* out) noexcept override {
        return called("granularity"), inner_.granularity(device, a1, out);
    }
    Status reserve_addresses(std::size_t bytes, void** out) noexcept override {
        return called("reserve_addresses"), inner_.reserve_addresses(bytes, out);
    }
    Status release_addresses(void* address, std::size_t bytes) noexcept override {
        return called("release_addresses"), inner_.release_addresses(address, bytes);
    }
    Status create_physical(int device, std::size_t bytes, const PhysicalOptions& a2,
                           PhysicalHandle* out) noexcept override {
        return called("create_physical"), inner_.create_physical(device, bytes, a2, out);
    }
    Status release_physical(PhysicalHandle a0) noexcept override {
        return called("release_physical"), inner_.release_physical(a0);
    }
    Status map(void* address, std::size_t bytes, PhysicalHandle a2) noexcept override {
        return called("map"), inner_.map(address, bytes, a2);
    }
    Status unmap(void* address, std::size_t bytes) noexcept override {
        return called("unmap"), inner_.unmap(address, bytes);
    }
    Status set_access(void* address, std::size_t bytes, const int* devices, std::size_t num_devices) noexcept override {
        return called("set_access"), inner_.set_access(address, bytes, devices, num_devices);
    }
    Status create_stream(int device, bool non_blocking, int priority, StreamHandle* out) noexcept override {
        return called("create_stream"), inner_.create_stream(device, non_blocking, priority, out);
    }
    Status destroy_stream(StreamHandle a0) noexcept override {
        return called("destroy_stream"), inner_.destroy_stream(a0);
    }
    Status synchronize_stream(StreamHandle a0) noexcept override {
        return called("synchronize_stream"), inner_.synchronize_stream(a0);
    }
    Status query_stream(StreamHandle a0) noexcept override { return called("query_stream"), inner_.query_stream(a0); }
    Status stream_id(StreamHandle a0, std::uint64_t* out) noexcept override {
        return called("stream_id"), inner_.stream_id(a0, out);
    }
    Status stream_device(StreamHandle a0, int* out) noexcept override {
        return called("stream_device"), inner_.stream_device(a0, out);
    }
    Status wait_event(StreamHandle a0, EventHandle a1) noexcept override {
        return called("wait_event"), inner_.wait_event(a0, a1);
    }
    Status create_event(int device, bool timing, bool blocking_sync, EventHandle* out) noexcept override {
        return called("create_event"), inner_.create_event(device, timing, blocking_sync, out);
    }
    Status destroy_event(EventHandle a0) noexcept override { return called("destroy_event"), inner_.destroy_event(a0); }
    Status record_event(EventHandle a0, StreamHandle a1) noexcept override {
        return called("record_event"), inner_.record_event(a0, a1);
    }
    Status query_event(EventHandle a0) noexcept override { return called("query_event"), inner_.query_event(a0); }
    Status synchronize_event(EventHandle a0) noexcept override {
        return called("synchronize_event"), inner_.synchronize_event(a0);
    }
    Status elapsed_ms(EventHandle begin, EventHandle end, float* out) noexcept override {
        return called("elapsed_ms"), inner_.elapsed_ms(begin, end, out);
    }
    Status device_event_record(int device, EventHandle a1) noexcept override {
        return called("device_event_record"), inner_.device_event_record(device, a1);
    }
    Status copy(void* destination, const void* source, std::size_t bytes, StreamHandle a3) noexcept override {
        return called("copy"), inner_.copy(destination, source, bytes, a3);
    }
    Status copy_peer(void* destination, int destination_device, const void* source, int source_device,
                     std::size_t bytes, StreamHandle a5) noexcept override {
        return called("copy_peer"), inner_.copy_peer(destination, destination_device, source, source_device, bytes, a5);
    }
    Status copy_box(const BoxCopy& a0, StreamHandle a1) noexcept override {
        return called("copy_box"), inner_.copy_box(a0, a1);
    }
    Status move_boxes(const BoxMove* a0, std::size_t a1, StreamHandle a2) noexcept override {
        return called("move_boxes"), inner_.move_boxes(a0, a1, a2);
    }
    Status copy_batch(const CopyPiece* pieces, std::size_t num_pieces, StreamHandle a2) noexcept override {
        return called("copy_batch"), inner_.copy_batch(pieces, num_pieces, a2);
    }
    Status fill(void* destination, const void* pattern, std::size_t pattern_bytes, std::size_t count,
                StreamHandle a4) noexcept override {
        return called("fill"), inner_.fill(destination, pattern, pattern_bytes, count, a4);
    }
    Status host_callback(StreamHandle a0, HostCallback a1, void* user) noexcept override {
        return called("host_callback"), inner_.host_callback(a0, a1, user);
    }
    Status launch(const KernelLaunch& a0, StreamHandle a1) noexcept override {
        return called("launch"), inner_.launch(a0, a1);
    }
    Status prepare_kernel(const void* function, std::uint32_t shared_bytes) noexcept override {
        return called("prepare_kernel"), inner_.prepare_kernel(function, shared_bytes);
    }
    Status prepare_boxes(int device) noexcept override { return called("prepare_boxes"), inner_.prepare_boxes(device); }
    Status begin_capture(StreamHandle a0, CaptureMode a1) noexcept override {
        return called("begin_capture"), inner_.begin_capture(a0, a1);
    }
    Status end_capture(StreamHandle a0, GraphHandle* out) noexcept override {
        return called("end_capture"), inner_.end_capture(a0, out);
    }
    Status capture_status(StreamHandle a0, CaptureStatus* out, std::uint64_t* id) noexcept override {
        return called("capture_status"), inner_.capture_status(a0, out, id);
    }
    Status keep_with_capture(StreamHandle a0, HostCallback on_end, void* user) noexcept override {
        return called("keep_with_capture"), inner_.keep_with_capture(a0, on_end, user);
    }
    Status create_graph(GraphHandle* out) noexcept override { return called("create_graph"), inner_.create_graph(out); }
    Status destroy_graph(GraphHandle a0) noexcept override { return called("destroy_graph"), inner_.destroy_graph(a0); }
    Status add_empty_node(GraphHandle a0, const GraphNodeHandle* after, std::size_t num_after,
                          GraphNodeHandle* out) noexcept override {
        return called("add_empty_node"), inner_.add_empty_node(a0, after, num_after, out);
    }
    Status add_kernel_node(GraphHandle a0, const GraphNodeHandle* after, std::size_t num_after, const KernelLaunch& a3,
                           GraphNodeHandle* out) noexcept override {
        return called("add_kernel_node"), inner_.add_kernel_node(a0, after, num_after, a3, out);
    }
    Status add_copy_node(GraphHandle a0, const GraphNodeHandle* after, std::size_t num_after, const CopyPiece& a3,
                         GraphNodeHandle* out) noexcept override {
        return called("add_copy_node"), inner_.add_copy_node(a0, after, num_after, a3, out);
    }
    Status add_fill_node(GraphHandle a0, const GraphNodeHandle* after, std::size_t num_after, void* destination,
                         std::uint32_t value, std::size_t value_bytes, std::size_t count,
                         GraphNodeHandle* out) noexcept override {
        return called("add_fill_node"),
               inner_.add_fill_node(a0, after, num_after, destination, value, value_bytes, count, out);
    }
    Status add_host_node(GraphHandle a0, const GraphNodeHandle* after, std::size_t num_after, HostCallback a3,
                         void* user, GraphNodeHandle* out) noexcept override {
        return called("add_host_node"), inner_.add_host_node(a0, after, num_after, a3, user, out);
    }
    Status instantiate(GraphHandle a0, GraphExecHandle* out) noexcept override {
        return called("instantiate"), inner_.instantiate(a0, out);
    }
    Status destroy_exec(GraphExecHandle a0) noexcept override {
        return called("destroy_exec"), inner_.destroy_exec(a0);
    }
    Status update_kernel_node(GraphExecHandle a0, GraphNodeHandle a1, const KernelLaunch& a2) noexcept override {
        return called("update_kernel_node"), inner_.update_kernel_node(a0, a1, a2);
    }
    Status update_exec(GraphExecHandle a0, GraphHandle a1) noexcept override {
        return called("update_exec"), inner_.update_exec(a0, a1);
    }
    Status launch_graph(GraphExecHandle a0, StreamHandle a1) noexcept override {
        return called("launch_graph"), inner_.launch_graph(a0, a1);
    }

  protected:
    /// On the calling thread, before the call, which has this name in driver.hpp. Not told of what is constant.
    virtual void called(const char* call) noexcept = 0;

  private:
    Driver& inner_;
};

}  // namespace kmm::driver::testing
