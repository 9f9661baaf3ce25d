// Debug mode: memory without content (Task::unset, schedule::Fill) is filled with a pattern before the task runs, so
// that a kernel which reads unwritten elements gives conspicuous values.
//
// Owns: nothing. Must not know: lanes, threads. Costs one fill for each contiguous run of a region.
#pragma once

#include <span>

#include "driver/driver.hpp"
#include "kmm/schedule/instruction.hpp"

namespace kmm::engine {

/// Repeated from the start of each region: as any floating-point type (half, bfloat16, float, double) not a number, as
/// integers negative and easy to recognise. Elements of odd size get single bytes 0xFC.
inline constexpr std::uint32_t debug_pattern = 0xFFFCFFEE;

/// Enqueues the fills on `stream`.
driver::Status fill_unset(std::span<const schedule::Fill> fills, driver::Driver& driver, driver::StreamHandle stream);
/// For a device function.
driver::Status fill_unset(const graph::Task& task, driver::Driver& driver, driver::StreamHandle stream);
/// For a task on the host: fills now.
void fill_unset_on_host(const graph::Task& task);

}  // namespace kmm::engine
