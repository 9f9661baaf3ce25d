// Work on streams: copies, fills, callbacks, kernels.
//
// Owns: how a copy of a box, a batch and a fill are cut into the vendor's calls. Must not know: rmm, kmm. Any thread;
// nothing here waits for the device (but the vendor may, for pageable memory).
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "driver/cuda/calls.hpp"
#include "driver/cuda/cuda_driver.hpp"
#include "driver/cuda/raw_launch.hpp"

namespace kmm::driver::vendor {

namespace {

char* at(void* base, std::size_t offset) noexcept { return static_cast<char*>(base) + offset; }
const char* at(const void* base, std::size_t offset) noexcept { return static_cast<const char*>(base) + offset; }

}  // namespace

Status VendorDriver::copy(void* destination, const void* source, std::size_t bytes, StreamHandle stream) noexcept {
    if (bytes == 0) return {};
    return runtime_status(vendor::copy(destination, source, bytes, native(stream)));
}

Status VendorDriver::copy_peer(void* destination, int destination_device, const void* source, int source_device,
                               std::size_t bytes, StreamHandle stream) noexcept {
    if (!is_device(destination_device) || !is_device(source_device)) return no_such_device;
    if (bytes == 0) return {};
    return runtime_status(
        vendor::copy_peer(destination, destination_device, source, source_device, bytes, native(stream)));
}

// ---- boxes

namespace {

/// The vendor refuses larger pitches (a device attribute, which is this on every device so far).
constexpr std::size_t max_pitch_bytes = 0x7fffffff;

bool rows_touch(const BoxCopy& box) noexcept {
    return box.destination_row_pitch == box.width_bytes && box.source_row_pitch == box.width_bytes;
}

/// For a box whose planes are of one row.
void planes_become_rows(BoxCopy& box) noexcept {
    box.height = box.depth;
    box.destination_row_pitch = box.destination_plane_pitch;
    box.source_row_pitch = box.source_plane_pitch;
    box.depth = 1;
}

/// Joins what touches, so that most boxes become one plain or one 2-D copy.
BoxCopy simplified(BoxCopy box) noexcept {
    if (box.height > 1 && rows_touch(box)) {
        box.width_bytes *= box.height;
        box.height = 1;
    }
    if (box.height == 1) planes_become_rows(box);
    if (box.height > 1 && box.depth == 1 && rows_touch(box)) {
        box.width_bytes *= box.height;
        box.height = 1;
    }
    return box;
}

Result copy_rows(void* destination, const void* source, const BoxCopy& box, Stream stream) noexcept {
    if (box.height == 1) return vendor::copy(destination, source, box.width_bytes, stream);
    if (box.destination_row_pitch <= max_pitch_bytes && box.source_row_pitch <= max_pitch_bytes) {
        return copy_2d(destination, box.destination_row_pitch, source, box.source_row_pitch, box.width_bytes,
                       box.height, stream);
    }
    for (std::size_t row = 0; row < box.height; ++row) {
        if (const Result failed = vendor::copy(at(destination, row * box.destination_row_pitch),
                                               at(source, row * box.source_row_pitch), box.width_bytes, stream)) {
            return failed;
        }
    }
    return 0;
}

/// The vendor knows the distance of planes only as a number of rows.
bool has_whole_planes(const BoxCopy& box) noexcept {
    return box.destination_row_pitch != 0 && box.source_row_pitch != 0 &&
           box.destination_row_pitch <= max_pitch_bytes && box.source_row_pitch <= max_pitch_bytes &&
           box.destination_plane_pitch % box.destination_row_pitch == 0 &&
           box.source_plane_pitch % box.source_row_pitch == 0;
}

}  // namespace

Status VendorDriver::copy_box(const BoxCopy& request, StreamHandle stream) noexcept {
    if (request.width_bytes == 0 || request.height == 0 || request.depth == 0) return {};
    const BoxCopy box = simplified(request);
    if (box.depth == 1) return runtime_status(copy_rows(box.destination, box.source, box, native(stream)));
    if (has_whole_planes(box)) {
        const Pitched to{box.destination, box.destination_row_pitch,
                         box.destination_plane_pitch / box.destination_row_pitch};
        const Pitched from{const_cast<void*>(box.source), box.source_row_pitch,
                           box.source_plane_pitch / box.source_row_pitch};
        return runtime_status(copy_3d(to, from, box.width_bytes, box.height, box.depth, native(stream)));
    }
    for (std::size_t plane = 0; plane < box.depth; ++plane) {
        if (const Result failed = copy_rows(at(box.destination, plane * box.destination_plane_pitch),
                                            at(box.source, plane * box.source_plane_pitch), box, native(stream))) {
            return runtime_status(failed);
        }
    }
    return {};
}

// ---- batches

namespace {

/// Pieces of one driver call: the vendor wants three arrays, which are made on the stack (6 KiB).
constexpr std::size_t pieces_per_batch = 256;

Result copy_pieces_one_by_one(const CopyPiece* pieces, std::size_t num_pieces, Stream stream) noexcept {
    for (std::size_t i = 0; i < num_pieces; ++i) {
        if (pieces[i].size_bytes == 0) continue;
        if (const Result failed = vendor::copy(pieces[i].destination, pieces[i].source, pieces[i].size_bytes, stream)) {
            return failed;
        }
    }
    return 0;
}

}  // namespace

Status VendorDriver::copy_batch(const CopyPiece* pieces, std::size_t num_pieces, StreamHandle stream) noexcept {
    bool one_by_one =
        !capabilities_.batch_copies || num_pieces < 2 || stream == StreamHandle{} || stream == legacy_stream();
    if (!one_by_one) {
        // A batch would invalidate the capture.
        const Status asked = library_call([&] { return is_capturing(native(stream), &one_by_one); });
        if (!asked.ok()) return asked;
    }
    if (one_by_one) return runtime_status(copy_pieces_one_by_one(pieces, num_pieces, native(stream)));

    void* destinations[pieces_per_batch];
    const void* sources[pieces_per_batch];
    std::size_t sizes[pieces_per_batch];
    std::size_t next = 0;
    while (next < num_pieces) {
        std::size_t count = 0;
        for (; next < num_pieces && count < pieces_per_batch; ++next) {
            if (pieces[next].size_bytes == 0) continue;
            destinations[count] = pieces[next].destination;
            sources[count] = pieces[next].source;
            sizes[count] = pieces[next].size_bytes;
            ++count;
        }
        if (count == 0) break;
        if (const Result failed = vendor::copy_batch(destinations, sources, sizes, count, native(stream))) {
            return runtime_status(failed);
        }
    }
    return {};
}

// ---- fills

namespace {

constexpr std::size_t max_pattern_bytes = 64;
/// Elements of a long pattern that are written at a stride before doubling copies take over.
constexpr std::size_t seed_elements = 4096;

struct Pattern {
    std::uint8_t bytes[max_pattern_bytes];
    std::size_t size;
    std::size_t count;

    template<typename Word>
    Word word(std::size_t index) const noexcept {
        Word value;
        std::memcpy(&value, bytes + index * sizeof(Word), sizeof(Word));
        return value;
    }
};

/// The shortest pattern that gives the same bytes by halving: eight zeros are one zero, eight times as often.
Pattern shortest(const void* bytes, std::size_t size, std::size_t count) noexcept {
    Pattern pattern{};
    std::memcpy(pattern.bytes, bytes, size);
    while (size % 2 == 0 && std::memcmp(pattern.bytes, pattern.bytes + size / 2, size / 2) == 0) {
        size /= 2;
        count *= 2;
    }
    pattern.size = size;
    pattern.count = count;
    return pattern;
}

bool is_aligned(const void* pointer, std::size_t bytes) noexcept {
    return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

/// The largest word that divides the pattern and that the address allows.
std::size_t word_bytes(const void* destination, std::size_t pattern_bytes) noexcept {
    for (const std::size_t word : {std::size_t{4}, std::size_t{2}}) {
        if (pattern_bytes % word == 0 && is_aligned(destination, word)) return word;
    }
    return 1;
}

Result fill_words(void* destination, const Pattern& pattern, Stream stream) noexcept {
    switch (pattern.size) {
    case 1: return fill_8(destination, pattern.word<std::uint8_t>(0), pattern.count, stream);
    case 2: return fill_16(destination, pattern.word<std::uint16_t>(0), pattern.count, stream);
    default: return fill_32(destination, pattern.word<std::uint32_t>(0), pattern.count, stream);
    }
}

Result fill_strided(void* destination, const Pattern& pattern, std::size_t word, std::size_t count,
                    Stream stream) noexcept {
    for (std::size_t i = 0; i < pattern.size / word; ++i) {
        void* first = at(destination, i * word);
        Result result = 0;
        switch (word) {
        case 1: result = fill_strided_8(first, pattern.size, pattern.word<std::uint8_t>(i), count, stream); break;
        case 2: result = fill_strided_16(first, pattern.size, pattern.word<std::uint16_t>(i), count, stream); break;
        default: result = fill_strided_32(first, pattern.size, pattern.word<std::uint32_t>(i), count, stream);
        }
        if (result != 0) return result;
    }
    return 0;
}

}  // namespace

Status VendorDriver::fill(void* destination, const void* bytes, std::size_t pattern_bytes, std::size_t count,
                          StreamHandle stream) noexcept {
    if (pattern_bytes == 0 || pattern_bytes > max_pattern_bytes) return invalid_argument;
    if (count > SIZE_MAX / pattern_bytes) return invalid_argument;
    if (count == 0) return {};
    const Pattern pattern = shortest(bytes, pattern_bytes, count);
    const std::size_t word = word_bytes(destination, pattern.size);
    if (word == pattern.size) return library_call([&] { return fill_words(destination, pattern, native(stream)); });

    std::size_t filled = std::min(pattern.count, seed_elements);
    const Status seeded =
        library_call([&] { return fill_strided(destination, pattern, word, filled, native(stream)); });
    if (!seeded.ok()) return seeded;
    while (filled < pattern.count) {
        const std::size_t more = std::min(filled, pattern.count - filled);
        if (const Result failed = vendor::copy(at(destination, filled * pattern.size), destination, more * pattern.size,
                                               native(stream))) {
            return runtime_status(failed);
        }
        filled += more;
    }
    return {};
}

// ---- callbacks and kernels

Status VendorDriver::host_callback(StreamHandle stream, HostCallback callback, void* user) noexcept {
    if (callback == nullptr) return invalid_argument;
    return runtime_status(vendor::host_callback(native(stream), callback, user));
}

Status VendorDriver::launch(const KernelLaunch& launch, StreamHandle stream) noexcept {
    if (launch.function == nullptr) [[unlikely]]
        return {Code::invalid_handle, 400};
    const RawLaunch raw = raw_launch(launch);
    return library_call([&] { return vendor::launch(raw, native(stream)); });
}

Status VendorDriver::prepare_kernel(const void* function, std::uint32_t shared_bytes) noexcept {
    // Every kernel may use this much without asking, on every architecture.
    constexpr std::uint32_t shared_without_opt_in = 48u * 1024u;
    if (function == nullptr) return {Code::invalid_handle, 400};
    RelaxedInteraction relaxed;
    if (const Status loaded = library_call([&] { return load_kernel(function); }); !loaded.ok()) return loaded;
    if (shared_bytes <= shared_without_opt_in) return {};
    int device = 0;
    if (const Status status = current_device(&device); !status.ok()) return status;
    int opt_in = 0;
    if (const Result failed = shared_memory_opt_in(&opt_in, device)) return runtime_status(failed);
    int used = 0;
    const Status asked = library_call([&] { return static_shared_bytes(&used, function, device); });
    if (!asked.ok()) return asked;
    if (shared_bytes > static_cast<std::uint32_t>(std::max(0, opt_in - used))) return invalid_argument;
    // All that is left is allowed at once, whatever is asked for: two threads with different wishes cannot then lower
    // each other's, and what a launch really uses is its own number.
    return library_call([&] { return set_max_dynamic_shared(function, opt_in - used, device); });
}

}  // namespace kmm::driver::vendor
