// Who holds memory of a device, as text and as JSON.
#pragma once

#include <string>

#include <rmm/cuda_device.hpp>
#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// Text for people, some lines: what the device has in all, what is free, what this process holds through this library,
/// and what is in use elsewhere (other processes, the driver, the program's own calls of the driver: the driver does
/// not tell them apart); then each resource that takes memory from the driver or keeps some for others, and what is in
/// use by rmm::memory_tag. A resource is named as it was by `set_name`.
///
/// Of a pool over another resource, what it holds is in that resource's figures too; `held here` counts it once.
/// Managed memory is listed but not counted: its location is unknown. Thread-safe; does not stop allocations of other
/// threads, so figures of different lines may belong to slightly different instants. O(blocks in use) if tags are in
/// use. Throws rmm::cuda_error for a device that does not exist.
[[nodiscard]] RMM_EXPORT std::string memory_report(cuda_device_id device = get_current_cuda_device());

enum class snapshot_blocks : bool { no, yes };

/// Report of all devices, in bytes, as JSON:
///
/// {"devices": [{"device", "name", "total_bytes", "free_bytes", "held_bytes", "elsewhere_bytes",
///   "holders": [{"name", "kind", "takes_from_driver", "held_bytes", "in_use_bytes", "largest_free_bytes",
///   "peak_bytes",
///     "maximum_bytes" (null: none), "num_blocks", "blocks": [{"address" ("0x.."), "size_bytes", "tag"}]}],
///   "by_tag": [{"tag", "in_use_bytes", "num_blocks"}]}]}
///
/// "blocks", in the order of addresses, only with `snapshot_blocks::yes`, and of resources that know them (not of the
/// driver's own pools). Figures that the driver does not tell are null. New keys may be added. A class has its name of
/// C++, also where Python has imported rmm.
[[nodiscard]] RMM_EXPORT std::string memory_snapshot(snapshot_blocks blocks = snapshot_blocks::no);

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
