// A fixed set of streams, handed out in turn.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {

/// Streams that live as long as the pool. All queries are thread-safe.
class cuda_stream_pool {
  public:
    static constexpr std::size_t default_size{16};

    /// Throws rmm::logic_error for a pool of 0 streams, rmm::cuda_error if a stream cannot be created.
    explicit cuda_stream_pool(std::size_t pool_size = default_size,
                              cuda_stream::flags flags = cuda_stream::flags::sync_default);
    cuda_stream_pool(cuda_stream_pool const&) = delete;
    cuda_stream_pool& operator=(cuda_stream_pool const&) = delete;
    cuda_stream_pool(cuda_stream_pool&&) = delete;
    cuda_stream_pool& operator=(cuda_stream_pool&&) = delete;
    ~cuda_stream_pool() = default;

    /// The next stream in turn, beginning with stream 0.
    [[nodiscard]] rmm::cuda_stream_view get_stream() const noexcept {
        return streams_[next_.fetch_add(1, std::memory_order_relaxed) % streams_.size()].view();
    }
    /// Stream `stream_id % get_pool_size()`.
    [[nodiscard]] rmm::cuda_stream_view get_stream(std::size_t stream_id) const {
        return streams_[stream_id % streams_.size()].view();
    }
    [[nodiscard]] std::size_t get_pool_size() const noexcept { return streams_.size(); }

  private:
    std::vector<rmm::cuda_stream> streams_;
    mutable std::atomic_size_t next_{};
};

}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
