// Programs that are made, not recorded: for questions about order and memory at any size.
//
// Owns: nothing. What is made is what a runtime with one device would record: first one host function for each chunk,
// which gives it content, then the kernels. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simulate/fitting_programs.hpp"
#include "simulate/program.hpp"

namespace kmm::simulate {

/// A host, and a device with room for so many bytes.
trace::Machine machine_with(std::size_t device_bytes, std::size_t host_bytes, std::uint32_t num_devices = 1);

/// How often a program does the same: each run finds in memory what the one before has left.
struct Runs {
    std::size_t count = 1;
    bool are_waited_for = false;      ///< by the program, and that there is content before the first
    bool are_made_on_device = false;  ///< the chunks that have content before the first, by a kernel each
};

/// `y = a x + y` on arrays of so many chunks, so often.
Program axpy(trace::Machine machine, std::size_t chunks, std::size_t passes, std::size_t chunk_bytes,
             const Runs& runs = {});

/// C += A B, three arrays of `size` times `size` tiles, one task for each product of two tiles: for each k, all of C.
Program product(trace::Machine machine, std::size_t size, std::size_t tile_bytes, const Runs& runs = {});

/// The lower half of a matrix of `size` times `size` tiles: potrf, trsm, syrk and gemm of tiles, column by column, each
/// column's updates as soon as they can be (right-looking).
Program cholesky(trace::Machine machine, std::size_t size, std::size_t tile_bytes, const Runs& runs = {});

/// Two arrays of `extents` floats cut along the slowest axis into `chunks`; each step reads a chunk and `halo` planes
/// beside it of one array and replaces the chunk of the other.
Program stencil(trace::Machine machine, const std::vector<std::int64_t>& extents, std::size_t chunks, std::int64_t halo,
                std::size_t steps, const Runs& runs = {});

/// Each chunk of an array is made by one task and read by another, which leaves a few bytes and reads a few of the
/// host's; all of the former are submitted first.
Program map_reduce(trace::Machine machine, std::size_t chunks, std::size_t chunk_bytes);

/// Tasks that read up to three chunks of some arrays and write one.
Program random_tasks(trace::Machine machine, std::size_t chunks, std::size_t tasks, std::size_t chunk_bytes,
                     std::uint64_t seed);

/// Block after block is loaded, worked on and added to a sum; handles are dropped at once. It needs three chunks and
/// the sum, however many blocks there are.
Program pipeline(trace::Machine machine, std::size_t blocks, std::size_t chunk_bytes);

/// Each turn makes two arrays of so many chunks, joins them, adds them to a result, and drops them.
Program temporaries(trace::Machine machine, std::size_t chunks, std::size_t turns, std::size_t chunk_bytes);

/// With bytes of chunks and memories `scale` times those of the program. Its threads take turns, a step each; what they
/// wait for is left out.
Program fitting_program(const fitting::Program& made, std::size_t scale);

}  // namespace kmm::simulate
