#include "kmm/api/device_reader.hpp"

#include <algorithm>

#include "kmm/api/array_record.hpp"
#include "kmm/engine/device_error.hpp"

namespace kmm::detail {

namespace {

constexpr char copying_out[] = "a copy to the program's memory";
// Of pieces in a half: kernels that move boxes use the widest loads that the addresses allow.
constexpr std::size_t piece_alignment = 16;

std::size_t count_of(const std::int64_t* sizes) noexcept {
    std::size_t count = 1;
    for (std::size_t k = 0; k < max_rank; ++k) count *= static_cast<std::size_t>(sizes[k]);
    return count;
}

std::int64_t offset_of(const std::int64_t* index, const std::int64_t* strides) noexcept {
    std::int64_t offset = 0;
    for (std::size_t k = 0; k < max_rank; ++k) offset += index[k] * strides[k];
    return offset;
}

}  // namespace

DeviceReader::DeviceReader(const Platform& platform, CopyBuffers& buffers, std::size_t element_bytes) noexcept
    : platform_(platform), buffers_(buffers), element_bytes_(element_bytes), buffer_(buffers) {}

DeviceReader::~DeviceReader() {
    if (any_on_its_way_) (void)platform_.driver().synchronize_stream(buffers_.stream(on_its_way().device));
}

/// Cuts the box into pieces that fit into a half: whole inner axes, and a range of the axis before them.
void DeviceReader::add(std::uint32_t device, const StridedCopy& copy) {
    std::size_t inner_bytes = element_bytes_, axis = max_rank;
    while (axis > 0 && inner_bytes * static_cast<std::size_t>(copy.sizes[axis - 1]) <= CopyBuffers::half_bytes)
        inner_bytes *= static_cast<std::size_t>(copy.sizes[--axis]);
    const auto most = static_cast<std::int64_t>(std::max<std::size_t>(1, CopyBuffers::half_bytes / inner_bytes));
    std::int64_t index[max_rank] = {}, sizes[max_rank];
    std::copy_n(copy.sizes, max_rank, sizes);
    std::fill_n(sizes, axis, 1);
    for (bool more = true; more;) {
        if (axis > 0) sizes[axis - 1] = std::min(most, copy.sizes[axis - 1] - index[axis - 1]);
        for (std::size_t byte = 0; byte < element_bytes_; byte += CopyBuffers::half_bytes)
            add_piece(device, copy, index, sizes, byte, std::min(CopyBuffers::half_bytes, element_bytes_ - byte));
        std::size_t k = axis;
        while (k-- > 0) {
            index[k] += sizes[k];
            if (index[k] < copy.sizes[k]) break;
            index[k] = 0;
        }
        more = k < axis;
    }
}

void DeviceReader::add_piece(std::uint32_t device, const StridedCopy& copy, const std::int64_t* first,
                             const std::int64_t* sizes, std::size_t first_byte, std::size_t element_bytes) {
    const std::size_t bytes = count_of(sizes) * element_bytes;
    const auto offset_in_half = [this] {
        return (filled().bytes + piece_alignment - 1) / piece_alignment * piece_alignment;
    };
    const bool fits = filled().num_pieces == 0 || (filled().device == device && filled().num_pieces < most_pieces &&
                                                   offset_in_half() + bytes <= CopyBuffers::half_bytes);
    if (!fits) begin_next();
    Half& half = filled();
    half.device = device;
    Piece& piece = half.pieces[half.num_pieces++];
    const auto step = static_cast<std::int64_t>(element_bytes_);
    piece.to = copy.to + offset_of(first, copy.to_strides) * step + first_byte;
    piece.to_strides = copy.to_strides;
    std::copy_n(sizes, max_rank, piece.sizes);
    piece.element_bytes = element_bytes;
    piece.offset_bytes = half.num_pieces == 1 ? 0 : offset_in_half();
    half.bytes = piece.offset_bytes + bytes;
    add_box(half.num_pieces - 1, copy.from + offset_of(first, copy.from_strides) * step + first_byte, copy);
}

/// Never together with the box before: chunks can lie side by side in different allocations, which drivers refuse to
/// copy from at once.
void DeviceReader::add_box(std::size_t i, const std::byte* from, const StridedCopy& copy) {
    const Piece& piece = filled().pieces[i];
    std::int64_t packed[max_rank], steps[max_rank];  // bytes: a piece may be a part of an element
    std::int64_t packed_step = static_cast<std::int64_t>(piece.element_bytes);
    for (std::size_t k = max_rank; k-- > 0;) {
        packed[k] = packed_step;
        steps[k] = copy.from_strides[k] * static_cast<std::int64_t>(element_bytes_);
        packed_step *= piece.sizes[k];
    }
    driver::BoxMove& box = filled().boxes[i];
    (void)innermost_box(piece.sizes, packed, steps, piece.element_bytes, &box);
    box.source = from;
    box.destination = buffer_.half(current_) + piece.offset_bytes;
}

/// The device fills the half that was described, while this thread empties the one before.
void DeviceReader::begin_next() {
    driver::Driver& driver = platform_.driver();
    const auto check = [&](std::uint32_t device, driver::Status status) {
        check_device(driver, platform_.ordinals()[device], status, copying_out);
    };
    if (any_on_its_way_) check(on_its_way().device, driver.synchronize_stream(buffers_.stream(on_its_way().device)));
    const bool is_there = any_on_its_way_;
    Half& next = filled();
    driver::StreamHandle stream;
    if (next.num_pieces != 0) stream = buffers_.stream(next.device);
    any_on_its_way_ = next.num_pieces != 0;
    current_ = 1 - current_;
    if (any_on_its_way_) {
        const driver::BoxMove& box = next.boxes[0];
        check(next.device, next.num_pieces == 1 && box.num_axes == 0
                               ? driver.copy(box.destination, box.source, box.run_bytes, stream)
                               : driver.move_boxes(next.boxes, next.num_pieces, stream));
    }
    if (is_there) end_last();
}

void DeviceReader::end_last() {
    Half& half = filled();
    for (std::size_t i = 0; i < half.num_pieces; ++i) {
        const Piece& piece = half.pieces[i];
        std::int64_t packed[max_rank];
        std::int64_t count = 1;
        for (std::size_t k = max_rank; k-- > 0;) {
            packed[k] = count;
            count *= piece.sizes[k];
        }
        copy_box_on_host(piece.to, piece.to_strides, buffer_.half(current_) + piece.offset_bytes, packed, piece.sizes,
                         piece.element_bytes);
    }
    half.bytes = half.num_pieces = 0;
}

void DeviceReader::finish() {
    if (filled().num_pieces != 0) begin_next();
    if (any_on_its_way_) begin_next();
}

}  // namespace kmm::detail
