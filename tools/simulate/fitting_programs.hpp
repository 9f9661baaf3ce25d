// Random programs that make and drop arrays, and whether they fit: a program fits if, for each task in the order of
// submission, the content that the program holds then and the working set of the task, once more, fit into all memories
// together, less one largest block for each memory. No order of execution may let such a program run out of memory.
//
// Owns: the description of a program, as plain values. Must not know: the library; a test runs the programs on a
// runtime, the simulator plays them. Pure: a program is a number, its seed. C++17, also from nvcc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kmm::simulate::fitting {

/// Blocks are multiples of 256 bytes, so that memories lose nothing to alignment.
inline constexpr std::size_t element_bytes = 8;
inline constexpr std::int64_t elements_of_a_step = 32;
/// No block of a program is larger, be it a chunk or the copy of a region that crosses chunks.
inline constexpr std::size_t largest_block_bytes = 6144;

/// The limits of the memories.
struct Machine {
    std::uint32_t num_devices = 1;
    std::size_t device_bytes = 0;  ///< of each
    std::size_t host_bytes = 0;
    std::size_t all_bytes() const noexcept { return num_devices * device_bytes + host_bytes; }
};
/// The machines of the programs: the device alone (with the least host memory that the host driver leaves beside it),
/// device and host, much host memory, little of both, and the host alone; each with 1, 2 and 4 devices.
inline constexpr std::size_t num_machines = 15;
Machine machine_of(std::size_t index);
inline std::size_t machine_index(std::uint64_t seed) noexcept { return static_cast<std::size_t>(seed % num_machines); }

struct Array {
    std::int64_t elements = 0;
    std::int64_t chunk_elements = 0;
    std::uint32_t num_chunks() const noexcept {
        return static_cast<std::uint32_t>((elements + chunk_elements - 1) / chunk_elements);
    }
};

struct Range {
    std::int64_t begin = 0, end = 0;
};

/// Of each task of a submit: the range that the task writes, wider by `halo` on both sides; or `fixed`, if not empty.
struct Read {
    std::uint32_t array = 0;
    std::int64_t halo = 0;
    Range fixed;
};

/// A task: it writes one whole chunk.
struct Part {
    std::uint32_t chunk = 0;
    std::uint32_t device = 0;  ///< not of host tasks
};

enum class How : std::uint8_t { host, kernel, function };
inline constexpr std::size_t most_reads = 4;

/// One parallel submit.
struct Submit {
    How how = How::kernel;
    std::uint32_t out = 0;
    bool keeps = false;  ///< the old content is read too
    std::int64_t seed = 0;
    std::vector<Read> reads;
    std::vector<Part> parts;
};

struct Step {
    enum class What : std::uint8_t {
        submit,
        drop,         ///< the last handle of `array`
        synchronize,  ///< wait for all tasks
        slowly        ///< let other threads run first
    } what = What::submit;
    std::uint32_t array = 0;
    Submit submit;
};

/// What one thread does with its own arrays. Arrays that are not dropped are read at the end.
struct Thread {
    std::vector<Array> arrays;
    std::vector<Step> steps;
};

struct Program {
    std::uint64_t seed = 0;
    std::string kinds;  ///< for people
    Machine machine;
    std::vector<Thread> threads;
    bool fits = false;
    std::size_t made_bytes = 0;    ///< of all arrays ever
    std::size_t needed_bytes = 0;  ///< most that it holds, with the working set of the task, at any task
    std::size_t usable_bytes = 0;  ///< all memories, less one largest block for each
};

/// Nearly all of them fit. `num_threads`: 0: as many as the seed says.
Program make_program(std::uint64_t seed, std::size_t num_threads = 0);

Range range_of(const Array& array, std::uint32_t chunk) noexcept;
/// What a task reads, inside the array.
Range range_of(const Thread& thread, const Submit& submit, const Part& part, const Read& read) noexcept;
/// The range does not lie in one chunk.
bool crosses(const Array& array, const Range& range) noexcept;

}  // namespace kmm::simulate::fitting
