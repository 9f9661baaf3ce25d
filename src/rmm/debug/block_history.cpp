// Implements block_history.hpp. Any thread.
#include "rmm/debug/block_history.hpp"

#include <cstring>

#include "driver/format.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

using kmm::driver::count_text;

std::string hexadecimal(std::uintptr_t value) {
    return value == 0 ? "0x0" : rmm::detail::address_text(reinterpret_cast<void*>(value));
}

/// "block 0x.. of 1000 bytes, allocated on stream .."
std::string name_of(const block_history& b) {
    return kmm::driver::format("block {} of {}, allocated on {}", hexadecimal(b.address), count_text(b.bytes, "byte"),
                               rmm::detail::stream_name(b.allocated_on));
}

std::string stacks_of(const block_history& b, bool was_freed, const checked_resource& of) {
    if (b.allocated_at == nullptr)
        return kmm::driver::format("\n  stacks were not taken: {} to see where it was allocated{}", of.to_get_stacks,
                                   was_freed ? " and freed" : "");
    std::string lines = "\n  allocated at\n" + b.allocated_at->to_string();
    if (was_freed && b.freed_at != nullptr) lines += "  freed at\n" + b.freed_at->to_string();
    if (!lines.empty() && lines.back() == '\n') lines.pop_back();
    return lines;
}

debug_finding finding_of(debug_error error, const block_history& b) {
    debug_finding f;
    f.error = error;
    f.block = reinterpret_cast<const void*>(b.address);
    f.block_bytes = b.bytes;
    f.allocated_on = b.allocated_on;
    f.freed_on = b.freed_on;
    return f;
}

}  // namespace

wrong_bytes compare_with_pattern(const unsigned char* bytes, std::size_t size, unsigned char pattern) noexcept {
    wrong_bytes wrong;
    // All bytes equal the first, and the first the pattern: one fast comparison where nothing is wrong.
    if (size == 0 || (bytes[0] == pattern && std::memcmp(bytes, bytes + 1, size - 1) == 0)) return wrong;
    for (std::size_t i = 0; i < size; ++i) {
        if (bytes[i] == pattern) continue;
        wrong.last = i;
        wrong.last_found = bytes[i];
        if (wrong.count++ != 0) continue;
        wrong.first = i;
        wrong.found = bytes[i];
    }
    return wrong;
}

debug_finding describe_write(debug_error error, const block_history& block, std::ptrdiff_t offset,
                             const wrong_bytes& wrong, unsigned char expected, const checked_resource& of) {
    debug_finding f = finding_of(error, block);
    f.offset = offset + static_cast<std::ptrdiff_t>(wrong.first);
    f.expected = expected;
    f.found = wrong.found;
    f.wrong_bytes = wrong.count;
    const bool freed = error == debug_error::write_after_free;
    std::string place;
    const char* what = "";
    const char* advice = "";
    switch (error) {
    case debug_error::write_before:
        what = "a write in front of a block";
        place = kmm::driver::format("{} bytes in front of it", -f.offset);
        advice = "look for negative indices; compute-sanitizer with RMM_DEBUG=nvtx names the kernel";
        break;
    case debug_error::write_behind: {
        what = "a write past the end of a block";
        const auto past = static_cast<std::size_t>(f.offset) - block.bytes;
        place =
            past == 0 ? "the first byte behind it" : kmm::driver::format("{} past its end", count_text(past, "byte"));
        advice = "look for indices that are too large; compute-sanitizer with RMM_DEBUG=nvtx names the kernel";
        break;
    }
    default:
        what = "a write into a block after it was freed";
        place = "in it";
        advice = "look for a stream that still used it, or a pointer that was kept; stacks say who freed it";
        break;
    }
    f.text = kmm::driver::format("{} of {}\n  {}", what, of.name, name_of(block));
    if (freed) f.text += ", freed on " + rmm::detail::stream_name(block.freed_on);
    f.text += kmm::driver::format("\n  byte {} ({}, address {}) is {} and should be {}; {}{} wrong{}\n"
                                  "  try: {}",
                                  f.offset, place, hexadecimal(block.address + static_cast<std::uintptr_t>(f.offset)),
                                  hexadecimal(f.found), hexadecimal(expected), count_text(wrong.count, "byte"),
                                  wrong.count == 1 ? " is" : " are", stacks_of(block, freed, of), advice);
    return f;
}

debug_finding describe_wrong_free(debug_error error, const block_history& block, std::size_t given_bytes,
                                  cuda_stream_view stream, const checked_resource& of) {
    debug_finding f = finding_of(error, block);
    f.given_bytes = given_bytes;
    const std::string call =
        kmm::driver::format("deallocate({}, {}) of {} on {}", hexadecimal(block.address),
                            count_text(given_bytes, "byte"), of.name, rmm::detail::stream_name(stream));
    switch (error) {
    case debug_error::double_free:
        f.text = kmm::driver::format(
            "a block was freed twice: {}\n"
            "  {}, freed before on {}{}\n"
            "  try: one owner for each block, such as a device buffer; the second free is ignored",
            call, name_of(block), rmm::detail::stream_name(block.freed_on), stacks_of(block, true, of));
        break;
    case debug_error::wrong_size:
        f.freed_on = stream;
        f.text = kmm::driver::format("a block was freed with a wrong size: {}\n"
                                     "  {}{}\n"
                                     "  try: the size that was given to allocate; the block is freed whole",
                                     call, name_of(block), stacks_of(block, false, of));
        break;
    default:
        f.block_bytes = 0;
        f.freed_on = stream;
        f.text = kmm::driver::format("a pointer was freed that is no block of this resource: {}\n"
                                     "  it was not allocated here, or long freed, or points into a block\n"
                                     "  try: freeing with the resource that allocated; the free is ignored",
                                     call);
        break;
    }
    return f;
}

debug_finding describe_leak(const block_history& block, const checked_resource& of) {
    debug_finding f = finding_of(debug_error::leak, block);
    f.text = kmm::driver::format("a block is still in use at the end of {}\n"
                                 "  {}{}\n"
                                 "  try: freeing it before, or a resource that lives longer than what it gives out",
                                 of.name, name_of(block), stacks_of(block, false, of));
    return f;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
