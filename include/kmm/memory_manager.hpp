// `MemoryManager`: one device, one stream, buffers by number.
//
// Owns: the names. This version has no MemoryManager yet: constructing one throws NotAvailable. C++17.
#pragma once

#include <cstddef>
#include <functional>

#include "kmm/api/runtime_handle.hpp"
#include "kmm/core/backends.hpp"
#include "kmm/core/config.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/detail/panic.hpp"

namespace kmm {

/// Device memory in numbered buffers, owned by the manager, ordered on its one stream. Each object may be used from any
/// thread; copies order with each other and with the work on `stream()` by call order.
class MemoryManager {
  public:
    using buffer_type = unsigned int;

    MemoryManager() { unavailable(); }
    explicit MemoryManager(int, const RuntimeConfig& = default_config_from_environment()) { unavailable(); }
    MemoryManager(RuntimeHandle, DeviceId) { unavailable(); }
    MemoryManager(MemoryManager&&) noexcept = default;
    MemoryManager& operator=(MemoryManager&&) noexcept = default;
    MemoryManager(const MemoryManager&) = delete;
    MemoryManager& operator=(const MemoryManager&) = delete;

    buffer_type allocate(std::size_t) { unavailable(); }
    /// Allocates and copies in; blocks until `host` was read.
    buffer_type allocate(std::size_t, const void*) { unavailable(); }
    /// Host to buffer; blocks until the host memory was read.
    void copy_to(buffer_type, std::size_t, const void*) { unavailable(); }
    void copy_in(buffer_type buffer, std::size_t bytes, const void* host) { copy_to(buffer, bytes, host); }
    /// Buffer to host, after all work on `stream()`; blocks until the host memory is filled.
    void copy_from(buffer_type, std::size_t, void*) { unavailable(); }
    void copy_out(buffer_type buffer, std::size_t bytes, void* host) { copy_from(buffer, bytes, host); }
    /// Frees after the work now on `stream()`; with a destination, copies out first.
    void release(buffer_type) { unavailable(); }
    void release(buffer_type, std::size_t, void*) { unavailable(); }
    GPUstream_t stream() const { unavailable(); }
    GPUstream_t* getStream() { unavailable(); }
    /// Device address, ready on `stream()`, fixed until `unpin` or `release`.
    void* pointer(buffer_type) { unavailable(); }
    void* getPointer(buffer_type buffer) { return pointer(buffer); }
    void unpin(buffer_type) { unavailable(); }
    /// Uses memory that the program already has.
    buffer_type adopt(void*, std::size_t, std::function<void(void*)>) { unavailable(); }
    std::size_t size(buffer_type) const { unavailable(); }
    std::size_t num_buffers() const { unavailable(); }

  private:
    [[noreturn]] static void unavailable() {
        detail::throw_not_available(
            "MemoryManager is not offered by this version of kmm; use rmm::device_buffer, or Array");
    }
};

}  // namespace kmm
