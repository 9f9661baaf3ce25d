// Implements <rmm/detail/stack_trace.hpp>. Any thread, no lock of ours.
#include "rmm/detail/stack_trace.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ostream>

#include "driver/format.hpp"
#include "rmm/status.hpp"

#if __has_include(<execinfo.h>)
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#define RMM_HAS_STACK_TRACES 1
#endif

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

#ifdef RMM_HAS_STACK_TRACES
namespace {

constexpr int max_frames = 64;

struct freed_by_c {
    void operator()(void* memory) const noexcept { std::free(memory); }
};

/// The line of a frame behind its number.
std::string frame_text(void* frame) {
    // A frame is where the call returns to, which may be the next function already.
    Dl_info found{};
    if (dladdr(static_cast<char*>(frame) - 1, &found) != 0 && found.dli_sname != nullptr) {
        int status = 0;
        const std::unique_ptr<char, freed_by_c> name{abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status)};
        return driver::format("{} from {}", name != nullptr ? name.get() : found.dli_sname, found.dli_fname);
    }
    const std::unique_ptr<char*, freed_by_c> lines{backtrace_symbols(&frame, 1)};
    return lines != nullptr ? *lines : address_text(frame);
}

}  // namespace

stack_trace::stack_trace() {
    // Drops the frames of this constructor and of a sanitizer's wrapper of `backtrace`.
    constexpr int most_inner_frames = 4;
    void* frames[max_frames + most_inner_frames];
    const int num_frames = backtrace(frames, max_frames + most_inner_frames);
    void* const caller = __builtin_extract_return_addr(__builtin_return_address(0));
    void** const end = frames + num_frames;
    void** begin = std::find(frames, end, caller);
    if (begin == end) begin = frames;
    frames_.assign(begin, std::min(end, begin + max_frames));
}

std::string stack_trace::to_string() const {
    std::string text;
    for (std::size_t i = 0; i < frames_.size(); ++i) text += driver::format("#{} in {}\n", i, frame_text(frames_[i]));
    return text;
}

#else

stack_trace::stack_trace() = default;

std::string stack_trace::to_string() const { return "stack traces disabled\n"; }

#endif

std::ostream& operator<<(std::ostream& os, stack_trace const& trace) { return os << trace.to_string(); }

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
