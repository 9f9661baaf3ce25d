// Boxes that are copied between chunks, and regions that lie in several chunks.
//
// Owns: plain values, parts of a task's record. Must not know: where chunks are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/detail/runtime_core.hpp"

namespace kmm::graph {

/// One box that is moved: runs that are contiguous on both sides, repeated along axes, slowest first. Records keep none
/// of them: they follow from the boxes of chunks (memory::MovedBoxes).
struct BoxTransfer {
    std::uint32_t source = 0;  ///< uses of the task
    std::uint32_t destination = 0;
    detail::Box box;                           ///< in the array's indices
    std::size_t source_offset_bytes = 0;       ///< of the first element from the start of the chunk
    std::size_t destination_offset_bytes = 0;  ///< likewise
    std::size_t run_bytes = 0;
    std::uint32_t num_axes = 0;
    std::int64_t counts[detail::max_rank] = {};
    std::int64_t source_steps[detail::max_rank] = {};  ///< bytes
    std::int64_t destination_steps[detail::max_rank] = {};

    /// The box, which lies in both chunks: where it is in them. Chunks and temporaries are packed, row-major.
    void set_shape(std::size_t rank, const detail::Box& source_chunk, const detail::Box& destination_chunk,
                   std::size_t element_bytes) noexcept;
    std::size_t size_bytes() const noexcept {
        std::size_t bytes = run_bytes;
        for (std::uint32_t k = 0; k < num_axes; ++k) bytes *= static_cast<std::size_t>(counts[k]);
        return bytes;
    }
};

/// A region that lies in several chunks and is only read. In which form it is met is decided when the task is placed,
/// because only then is known where the chunks are: a task reads either the chunks themselves or a copy of the region.
struct Across {
    enum class Form : std::uint8_t {
        gather,    ///< its parts are copied, from wherever they are, into a temporary
        gathered,  ///< the temporary holds them already, for another task
        in_place,  ///< the chunks lie side by side in the task's memory
    };
    static constexpr std::size_t most_parts = 64;

    detail::Box region;            ///< in the array's indices
    std::uint32_t use = 0;         ///< of the temporary
    std::uint32_t first_part = 0;  ///< in ColdPart::parts
    std::uint32_t num_parts = 0;
    bool may_be_in_place = false;  ///< the chunks are neighbours along the slowest axis
    Form form = Form::gather;      ///< valid once the task is placed
    /// in_place: a bit for each part of which only the part is brought to the chunk's place (memory::Ghosts).
    std::uint64_t ghosts = 0;
    std::size_t offset_from_first_part = 0;  ///< in_place: bytes to the region's first element

    bool is_ghost(std::uint32_t part) const noexcept { return (ghosts >> part & 1) != 0; }
};

}  // namespace kmm::graph
