// Implements block_history.hpp. Any thread.
#include "rmm/debug/block_history.hpp"

#include <cstring>

#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

std::string hexadecimal(std::uintptr_t value) {
    return value == 0 ? "0x0" : rmm::detail::address_text(reinterpret_cast<void*>(value));
}

std::string number(std::size_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// "block 0x.. of 1000 bytes, allocated on stream .."
std::string name_of(const block_history& b) {
    return "block " + hexadecimal(b.address) + " of " + number(b.bytes, "byte") + ", allocated on " +
           rmm::detail::stream_name(b.allocated_on);
}

std::string stacks_of(const block_history& b, bool was_freed, const checked_resource& of) {
    if (b.allocated_at == nullptr)
        return std::string("\n  stacks were not taken: ") + of.to_get_stacks + " to see where it was allocated" +
               (was_freed ? " and freed" : "");
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
        place = std::to_string(-f.offset) + " bytes in front of it";
        advice = "look for negative indices; compute-sanitizer with RMM_DEBUG=nvtx names the kernel";
        break;
    case debug_error::write_behind: {
        what = "a write past the end of a block";
        const auto past = static_cast<std::size_t>(f.offset) - block.bytes;
        place = past == 0 ? "the first byte behind it" : number(past, "byte") + " past its end";
        advice = "look for indices that are too large; compute-sanitizer with RMM_DEBUG=nvtx names the kernel";
        break;
    }
    default:
        what = "a write into a block after it was freed";
        place = "in it";
        advice = "look for a stream that still used it, or a pointer that was kept; stacks say who freed it";
        break;
    }
    f.text = std::string(what) + " of " + of.name + "\n  " + name_of(block);
    if (freed) f.text += ", freed on " + rmm::detail::stream_name(block.freed_on);
    f.text += "\n  byte " + std::to_string(f.offset) + " (" + place + ", address " +
              hexadecimal(block.address + static_cast<std::uintptr_t>(f.offset)) + ") is " + hexadecimal(f.found) +
              " and should be " + hexadecimal(expected) + "; " + number(wrong.count, "byte") +
              (wrong.count == 1 ? " is" : " are") + " wrong" + stacks_of(block, freed, of) + "\n  try: " + advice;
    return f;
}

debug_finding describe_wrong_free(debug_error error, const block_history& block, std::size_t given_bytes,
                                  cuda_stream_view stream, const checked_resource& of) {
    debug_finding f = finding_of(error, block);
    f.given_bytes = given_bytes;
    const std::string call = "deallocate(" + hexadecimal(block.address) + ", " + number(given_bytes, "byte") + ") of " +
                             of.name + " on " + rmm::detail::stream_name(stream);
    switch (error) {
    case debug_error::double_free:
        f.text = "a block was freed twice: " + call + "\n  " + name_of(block) + ", freed before on " +
                 rmm::detail::stream_name(block.freed_on) + stacks_of(block, true, of) +
                 "\n  try: one owner for each block, such as a device buffer; the second free is ignored";
        break;
    case debug_error::wrong_size:
        f.freed_on = stream;
        f.text = "a block was freed with a wrong size: " + call + "\n  " + name_of(block) +
                 stacks_of(block, false, of) + "\n  try: the size that was given to allocate; the block is freed whole";
        break;
    default:
        f.block_bytes = 0;
        f.freed_on = stream;
        f.text = "a pointer was freed that is no block of this resource: " + call +
                 "\n  it was not allocated here, or long freed, or points into a block" +
                 "\n  try: freeing with the resource that allocated; the free is ignored";
        break;
    }
    return f;
}

debug_finding describe_leak(const block_history& block, const checked_resource& of) {
    debug_finding f = finding_of(debug_error::leak, block);
    f.text = "a block is still in use at the end of " + of.name + "\n  " + name_of(block) +
             stacks_of(block, false, of) +
             "\n  try: freeing it before, or a resource that lives longer than what it gives out";
    return f;
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
