// What handle 0 means to the resources of this library. They are compiled, and so cannot see that a unit of the program
// was built with CUDA_API_PER_THREAD_DEFAULT_STREAM. Such a unit hands handle 0 on as it is, for the program's own
// resources and callbacks on the way, and says beside it what it meant: in a mark of the calling thread, for as long as
// the call lasts.
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_types.hpp>
#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// What a resource of this library takes handle 0 for.
enum class default_stream : unsigned char {
    legacy,
    per_thread,
    named,  ///< the legacy stream; the call that is served had said 0 for the thread's own (src/rmm/meant_stream.hpp)
};

/// Of the calling thread.
RMM_EXPORT default_stream& default_stream_of_calls() noexcept;

/// A call with handle `given`, by which `meant` is meant. Units without per-thread default streams mark nothing: a
/// resource of theirs may be on the way of a call that did. Costs nothing where the two are the same handle.
class stream_meaning {
  public:
    RMM_UNIT_INLINE stream_meaning(cuda_stream_view given, cuda_stream_view meant) noexcept {
        if (given.value() != nullptr || meant.value() == nullptr) return;
        mark_ = &default_stream_of_calls();
        before_ = *mark_;
        *mark_ = default_stream::per_thread;
    }
    RMM_UNIT_INLINE ~stream_meaning() {
        if (mark_ != nullptr) *mark_ = before_;
    }
    stream_meaning(stream_meaning const&) = delete;
    stream_meaning& operator=(stream_meaning const&) = delete;

  private:
    default_stream* mark_ = nullptr;
    default_stream before_ = default_stream::legacy;
};

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
