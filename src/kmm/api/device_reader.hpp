// Brings boxes of chunks on devices to memory of the host, piece by piece through a buffer.
//
// Owns: one of the runtime's buffers (runtime/copy_buffers.hpp). Must not know: tasks, arrays. The thread that
// runs a copy, while the chunks are pinned where they are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kmm/api/strided_copy.hpp"
#include "kmm/runtime/copy_buffers.hpp"

namespace kmm::detail {

class DeviceReader {
  public:
    DeviceReader(const Platform& platform, CopyBuffers& buffers, std::size_t element_bytes) noexcept;
    /// Waits for copies that are still under way.
    ~DeviceReader();
    DeviceReader(const DeviceReader&) = delete;
    DeviceReader& operator=(const DeviceReader&) = delete;

    /// What `to` and `from` point to stays until `finish`, `from` with positive strides. DE.
    void add(std::uint32_t device, const StridedCopy& copy);
    /// All is there when this returns. DE.
    void finish();

  private:
    // Most boxes in one call of the driver. A group of 64 small chunks has fewer bytes than a half holds.
    static constexpr std::size_t most_pieces = 64;

    /// A box that fits into a half: its elements, or some bytes of a single one.
    struct Piece {
        std::byte* to;
        const std::int64_t* to_strides;
        std::int64_t sizes[max_rank];
        std::size_t element_bytes;
        std::size_t offset_bytes;  ///< in the half
    };
    struct Half {
        std::uint32_t device = 0;
        std::size_t bytes = 0;
        std::size_t num_pieces = 0;
        Piece pieces[most_pieces];
        driver::BoxMove boxes[most_pieces];  ///< one of each piece
    };

    void add_piece(std::uint32_t device, const StridedCopy& copy, const std::int64_t* first, const std::int64_t* sizes,
                   std::size_t first_byte, std::size_t element_bytes);
    void add_box(std::size_t i, const std::byte* from, const StridedCopy& copy);
    void begin_next();
    void end_last();
    Half& filled() noexcept { return halves_[current_]; }
    Half& on_its_way() noexcept { return halves_[1 - current_]; }

    const Platform& platform_;
    CopyBuffers& buffers_;
    const std::size_t element_bytes_;
    const CopyBuffers::Buffer buffer_;
    std::size_t current_ = 0;
    bool any_on_its_way_ = false;
    Half halves_[2];
};

}  // namespace kmm::detail
