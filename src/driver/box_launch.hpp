// How boxes become launches of a kernel: which of them it moves, in which form, and by how many blocks.
//
// Owns: these decisions, as plain arithmetic. Must not know: `Driver`, any vendor. Any thread. What the kernel does
// with a list is box_items.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver/box_items.hpp"
#include "driver/driver.hpp"

namespace kmm::driver::boxes {

/// Whether the box moves nothing.
bool is_empty(const BoxMove& box) noexcept;
/// Whether the box keeps the contract of `BoxMove`, and its last byte has an offset of 63 bits from its first.
bool is_valid(const BoxMove& box) noexcept;

/// The same bytes with the longest run and the fewest axes: no axis of one, none that goes on where the next one ends.
/// Of a valid box that is not empty.
BoxMove joined(const BoxMove& box) noexcept;

/// Bytes from the first that the box touches to behind the last. Of a valid box that is not empty.
std::size_t destination_reach(const BoxMove& box) noexcept;
std::size_t source_reach(const BoxMove& box) noexcept;

/// Where one side of a box is, seen from a kernel.
enum class Place : std::uint8_t {
    own,   ///< memory of the kernel's device
    peer,  ///< memory of another device, which the kernel's can read and write
    host,  ///< page-locked, and the kernel's device can read and write it
    out_of_reach,
};

/// From this length on a run is left to copy engines, which then reach their full speed and take nothing from kernels.
inline constexpr std::size_t engine_run_bytes = std::size_t{1} << 20;
/// Over the link to the host copy engines are fast with shorter runs too: from these sizes of run and box on, a strided
/// copy takes less time than the kernel (H100, 4096 rows of 4 KiB: 314 us, the kernel 344 us, or 428 us if rows are
/// aligned to 4 bytes only), and no multiprocessor.
inline constexpr std::size_t link_run_bytes = 2048;
inline constexpr std::size_t link_box_bytes = std::size_t{256} << 10;

enum class Way : std::uint8_t { kernel, copies };
/// Of a joined box.
Way way_of(const BoxMove& box, Place destination, Place source) noexcept;

/// A joined box of more items than a kernel counts is two, which may be too large again. False: it is not, or it is a
/// single run.
bool cut_if_large(const BoxMove& box, BoxMove* lower_part, BoxMove* upper_part) noexcept;

/// Boxes of one launch. They are not to overlap: they are moved in any order. About 8 KiB, meant for the stack.
class BoxList {
  public:
    /// The parameters of a kernel may have 4 KiB everywhere. Few boxes make do with less, which is handed over sooner.
    static constexpr std::size_t max_words = 512;
    static constexpr std::size_t few_words = 128;

    BoxList() noexcept { clear(); }  // leaves the words as they are

    void clear() noexcept;
    bool empty() const noexcept { return num_boxes_ == 0; }
    /// A joined box in reach that is not to be cut, with a run below `engine_run_bytes`. False: there is no room, and
    /// nothing has changed. An empty list has room for any box.
    bool add(const BoxMove& box, Place destination, Place source) noexcept;

    struct Launch {
        const Word* words = nullptr;  ///< the list for box_items.hpp; of the `BoxList`, until it changes
        std::size_t num_words = 0;    ///< `few_words` or `max_words`
        std::uint32_t num_blocks = 0;
    };
    /// For a device with `multiprocessors`. The list must not be empty, and takes no more boxes until `clear`.
    Launch finish(int multiprocessors) noexcept;

  private:
    Word* entry(std::size_t i) noexcept { return words_ + first_entry + i * entry_words; }
    Word make_shape(const BoxMove& box) noexcept;

    Word words_[max_words];
    Word shapes_[max_words];  ///< behind the entries when the list is finished
    std::size_t num_boxes_ = 0;
    std::size_t num_shape_words_ = 0;
    Word most_own_blocks_ = 0;  ///< for each multiprocessor; 0: no box lies in the device's own memory alone
    Word most_far_blocks_ = 0;
};

}  // namespace kmm::driver::boxes
