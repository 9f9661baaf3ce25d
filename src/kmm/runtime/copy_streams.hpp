// Streams for copies between chunks and device memory of the program: making one costs more than a small copy.
//
// Owns: a bounded number of streams without work. Must not know: what is copied. Any thread; streams are made and ended
// without the lock.
#pragma once

#include <cstddef>
#include <optional>

#include "driver/driver.hpp"
#include "driver/locks.hpp"

namespace kmm::detail {

class CopyStreams {
  public:
    static constexpr std::size_t most_kept = 16;

    /// `driver` must outlive it.
    explicit CopyStreams(driver::Driver& driver) noexcept : driver_(driver) {}
    ~CopyStreams() { trim(); }
    CopyStreams(const CopyStreams&) = delete;
    CopyStreams& operator=(const CopyStreams&) = delete;

    /// A stream that no other copy uses, non-blocking. Kept for the next one unless it has work then.
    class Lease {
      public:
        /// DE.
        Lease(CopyStreams& streams, int ordinal);
        ~Lease() { streams_.give(ordinal_, stream_); }
        Lease(const Lease&) = delete;
        Lease& operator=(const Lease&) = delete;
        driver::StreamHandle handle() const noexcept { return stream_; }

      private:
        CopyStreams& streams_;
        const int ordinal_;
        driver::StreamHandle stream_;
    };

    /// Ends those that are kept.
    void trim() noexcept;

  private:
    struct Kept {
        int ordinal = 0;
        driver::StreamHandle stream;
    };
    std::optional<driver::StreamHandle> take(int ordinal) noexcept;
    void give(int ordinal, driver::StreamHandle stream) noexcept;

    driver::Driver& driver_;
    locks::Mutex mutex_;
    std::size_t num_kept_ KMM_GUARDED_BY(mutex_) = 0;
    Kept kept_[most_kept] KMM_GUARDED_BY(mutex_);
};

}  // namespace kmm::detail
