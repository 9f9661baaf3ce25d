// A trace as a runtime would write it, of a program that was never run: y = a x + y in steps, on devices whose memory
// holds half of the chunks, with a reduction on the host after each step and a failure at the end. Owns: the made-up
// times. One thread.
#pragma once

#include <cstddef>
#include <string>

/// The text of the file. About ten events for each task; the same for the same arguments.
std::string synthetic_trace(std::size_t num_tasks, std::size_t num_devices);
