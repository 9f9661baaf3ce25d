#include "kmm/api/fill_pieces.hpp"

#include <algorithm>
#include <cstring>

#include "kmm/api/chunk_groups.hpp"

namespace kmm::detail {

namespace {

constexpr std::size_t largest_pattern = 64;         // of Driver::fill
constexpr std::size_t host_copy_bytes = 16 * 1024;  // the copied part stays in the cache

driver::Status fill_piece(const FillPiece& piece, const std::byte* element, std::size_t element_bytes,
                          driver::Driver& driver, driver::StreamHandle stream) noexcept {
    if (element_bytes <= largest_pattern) return driver.fill(piece.at, element, element_bytes, piece.count, stream);
    // Fills the first element part by part, then doubles what is filled by copies.
    for (std::size_t at = 0; at < element_bytes; at += largest_pattern) {
        const std::size_t bytes = std::min(largest_pattern, element_bytes - at);
        if (const auto status = driver.fill(piece.at + at, element + at, bytes, 1, stream); !status.ok()) return status;
    }
    for (std::size_t done = 1; done < piece.count; done *= 2) {
        const std::size_t bytes = std::min(done, piece.count - done) * element_bytes;
        if (const auto status = driver.copy(piece.at + done * element_bytes, piece.at, bytes, stream); !status.ok())
            return status;
    }
    return {};
}

}  // namespace

void fill_on_host(const FillPiece& piece, const std::byte* element, std::size_t element_bytes) noexcept {
    if (piece.count == 0) return;
    const std::size_t most = std::max<std::size_t>(host_copy_bytes / element_bytes, 1);
    std::memcpy(piece.at, element, element_bytes);
    for (std::size_t done = 1; done < piece.count;) {
        const std::size_t count = std::min({done, piece.count - done, most});
        std::memcpy(piece.at + done * element_bytes, piece.at, count * element_bytes);
        done += count;
    }
}

driver::Status put_fill_on_stream(std::span<const FillPiece> pieces, const std::byte* element,
                                  std::size_t element_bytes, driver::Driver& driver,
                                  driver::StreamHandle stream) noexcept {
    if (pieces.empty()) return {};
    const FillPiece& largest = *std::ranges::max_element(pieces, {}, &FillPiece::count);
    if (largest.count == 0) return {};
    if (const auto status = fill_piece(largest, element, element_bytes, driver, stream); !status.ok()) return status;
    driver::BoxMove boxes[most_parts];
    std::size_t num_boxes = 0;
    for (const FillPiece& p : pieces) {
        if (&p == &largest || p.count == 0) continue;
        driver::BoxMove& box = boxes[num_boxes++];
        box.destination = p.at;
        box.source = largest.at;
        box.run_bytes = p.count * element_bytes;
    }
    return num_boxes == 0 ? driver::Status{} : driver.move_boxes(boxes, num_boxes, stream);
}

}  // namespace kmm::detail
