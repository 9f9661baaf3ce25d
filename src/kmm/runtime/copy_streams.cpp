#include "kmm/runtime/copy_streams.hpp"

#include <algorithm>
#include <utility>

#include "kmm/engine/device_error.hpp"

namespace kmm::detail {

CopyStreams::Lease::Lease(CopyStreams& streams, int ordinal) : streams_(streams), ordinal_(ordinal) {
    if (const auto kept = streams.take(ordinal)) {
        stream_ = *kept;
        return;
    }
    driver::Driver& driver = streams.driver_;
    check_device(driver, ordinal, driver.create_stream(ordinal, true, 0, &stream_), "creating a stream for a copy");
}

std::optional<driver::StreamHandle> CopyStreams::take(int ordinal) noexcept {
    const locks::Guard guard(mutex_);
    for (std::size_t i = num_kept_; i-- > 0;) {
        if (kept_[i].ordinal != ordinal) continue;
        const driver::StreamHandle stream = kept_[i].stream;
        kept_[i] = kept_[--num_kept_];
        return stream;
    }
    return std::nullopt;
}

/// One that still waits, for what the program had put on its own stream, would hold up the next copy.
void CopyStreams::give(int ordinal, driver::StreamHandle stream) noexcept {
    if (driver_.query_stream(stream).ok()) {
        const locks::Guard guard(mutex_);
        if (num_kept_ != most_kept) {
            kept_[num_kept_++] = {ordinal, stream};
            return;
        }
    }
    (void)driver_.destroy_stream(stream);
}

void CopyStreams::trim() noexcept {
    Kept ended[most_kept];
    std::size_t count = 0;
    {
        const locks::Guard guard(mutex_);
        count = std::exchange(num_kept_, 0);
        std::copy_n(kept_, count, ended);
    }
    for (std::size_t i = 0; i < count; ++i) (void)driver_.destroy_stream(ended[i].stream);
}

}  // namespace kmm::detail
