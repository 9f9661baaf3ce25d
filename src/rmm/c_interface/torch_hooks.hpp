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

/// Notes that the stream uses the block: its memory is reused only behind the work queued on the stream when the block
/// is freed. An unknown block is ignored.
void record_stream_for_torch(void* pointer, cudaStream_t stream);
/// The bytes of the block; 0 of an unknown block.
std::size_t size_for_torch(void* pointer);
/// Trims the pools that are the resources of the devices: unused memory goes back to the driver.
void trim_for_torch();

}  // namespace c_interface
}  // namespace kmm_v0
}  // namespace rmm
