// Owned streams.
#pragma once

#include <rmm/cuda_stream_view.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

namespace detail {
class owned_stream;  // src/rmm/stream_registry.hpp
}  // namespace detail

/// Owns one stream of the device that was current when it was made. The destructor returns at once; queued work still
/// runs. Memory freed on the stream may be freed before or after the stream is destroyed. Move-only; a moved-from
/// stream is invalid and can only be asked so, assigned or destroyed.
class cuda_stream {
  public:
    enum class flags : unsigned int {
        sync_default = 0x0,  ///< cudaStreamDefault: ordered with the legacy default stream
        non_blocking = 0x1,  ///< cudaStreamNonBlocking
    };

    /// Throws rmm::cuda_error if the driver cannot create a stream.
    cuda_stream(cuda_stream::flags flags = cuda_stream::flags::sync_default);
    cuda_stream(cuda_stream&& other) noexcept : stream_{other.stream_}, record_{other.record_} {
        other.stream_ = nullptr;
        other.record_ = nullptr;
    }
    cuda_stream& operator=(cuda_stream&& other) noexcept {
        if (this != &other) {
            close();
            stream_ = other.stream_;
            record_ = other.record_;
            other.stream_ = nullptr;
            other.record_ = nullptr;
        }
        return *this;
    }
    cuda_stream(cuda_stream const&) = delete;
    cuda_stream& operator=(cuda_stream const&) = delete;
    ~cuda_stream() { close(); }

    [[nodiscard]] bool is_valid() const { return stream_ != nullptr; }
    [[nodiscard]] cudaStream_t value() const { return stream_; }
    explicit operator cudaStream_t() const noexcept { return stream_; }
    [[nodiscard]] cuda_stream_view view() const { return cuda_stream_view{stream_}; }
    operator cuda_stream_view() const { return view(); }

    /// Blocks until the work queued on the stream is done. Throws rmm::cuda_error.
    void synchronize() const { detail::synchronize_stream(stream_); }
    void synchronize_no_throw() const noexcept { detail::synchronize_stream_no_throw(stream_); }

  private:
    void close() noexcept;

    cudaStream_t stream_{};
    detail::owned_stream* record_{};
};

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
