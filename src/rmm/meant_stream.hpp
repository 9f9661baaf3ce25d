// Handle 0 on its way into a resource of this library and out again (<rmm/detail/stream_meaning.hpp>).
//
// A resource that uses the stream itself works with the handle that is meant; one that only forwards hands on what it
// was given. Owns: the thread's mark. Must not know: resources. Any thread.
#pragma once

#include <atomic>

#include "rmm/detail/stream_meaning.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

extern constinit thread_local default_stream default_stream_now;
/// Whether some thread's mark ever was another. A thread's own is a call to find: most programs never need it.
extern constinit std::atomic<bool> any_default_stream_marked;

/// Whether `given` stands for another stream than the one it names.
inline bool means_another(cuda_stream_view given) noexcept {
    return given.value() == nullptr && any_default_stream_marked.load(std::memory_order_relaxed) &&
           default_stream_now == default_stream::per_thread;
}

/// The stream that `given` stands for, in a resource that does not pass it on.
inline cuda_stream_view meant(cuda_stream_view given) noexcept {
    if (means_another(given)) [[unlikely]]
        return cuda_stream_view{per_thread_stream_handle()};
    return given;
}

/// As `meant`, in a resource that asks others for memory: while it lives, handle 0 means the legacy stream.
class meant_stream {
  public:
    explicit meant_stream(cuda_stream_view given) noexcept
        : stream_(meant(given)), marked_(stream_.value() != given.value()) {
        if (marked_) [[unlikely]]
            default_stream_now = default_stream::named;
    }
    ~meant_stream() {
        if (marked_) [[unlikely]]
            default_stream_now = default_stream::per_thread;
    }
    meant_stream(const meant_stream&) = delete;
    meant_stream& operator=(const meant_stream&) = delete;
    operator cuda_stream_view() const noexcept { return stream_; }

  private:
    const cuda_stream_view stream_;
    const bool marked_;
};

/// The stream argument for resources and callbacks that are asked for memory on behalf of a call: the handle that this
/// call was given, with its original meaning.
class onward_stream {
  public:
    explicit onward_stream(cuda_stream_view used) noexcept : stream_(used) {
        if (used.value() != per_thread_stream_handle() || default_stream_now != default_stream::named) [[likely]]
            return;
        stream_ = cuda_stream_view{};
        default_stream_now = default_stream::per_thread;
        marked_ = true;
    }
    ~onward_stream() {
        if (marked_) [[unlikely]]
            default_stream_now = default_stream::named;
    }
    onward_stream(const onward_stream&) = delete;
    onward_stream& operator=(const onward_stream&) = delete;
    operator cuda_stream_view() const noexcept { return stream_; }

  private:
    cuda_stream_view stream_;
    bool marked_ = false;
};

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
