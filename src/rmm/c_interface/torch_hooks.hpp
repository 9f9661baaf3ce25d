// The allocator hooks of PyTorch: each block goes back to the resource that made it, whichever is set by then.
//
// Owns: which resource each block came from, and a reference to what keeps that alive. Must not know: PyTorch. Any
// thread.
#pragma once

#include <cstddef>

#include "rmm/cuda_stream_view.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace c_interface {

/// From the resource of the device, which is current during the call. Null for 0 bytes. Throws what the resource
/// throws.
void* allocate_for_torch(std::size_t bytes, int device, cudaStream_t stream);
/// Throws what a resource of the program throws; the block then counts as freed. Memory that was not given is reported.
void deallocate_for_torch(void* pointer, std::size_t bytes, int device, cudaStream_t stream);

/// The stream uses the block: whoever gets its memory after the free comes after what is queued on the stream then. A
/// block that was not given is ignored.
void record_stream_for_torch(void* pointer, cudaStream_t stream);
/// The bytes of the block; 0 of one that was not given.
std::size_t size_for_torch(void* pointer);
/// What pools that are set for the devices do not use goes back to the driver.
void trim_for_torch();

}  // namespace c_interface
}  // namespace kmm_v0
}  // namespace rmm
