// A driver for tests that count the calls which move or fill memory, or let one of them fail.
//
// Owns: nothing. Must not know: what is being tested. One thread at a time.
#pragma once

#include <algorithm>

#include "forwarding_driver.hpp"

namespace kmm::driver::testing {

class CountingDriver final : public ForwardingDriver {
  public:
    using ForwardingDriver::ForwardingDriver;
    int num_calls = 0;
    int fails_at = 0;            ///< the call with this number fails
    std::size_t most_boxes = 0;  ///< in one call
    std::size_t most_bytes = 0;  ///< that a call, or a box of it, writes in one run

    Status copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) noexcept override {
        return counted(bytes, [&] { return ForwardingDriver::copy(to, from, bytes, stream); });
    }
    Status fill(void* to, const void* pattern, std::size_t pattern_bytes, std::size_t count,
                StreamHandle stream) noexcept override {
        return counted(pattern_bytes * count,
                       [&] { return ForwardingDriver::fill(to, pattern, pattern_bytes, count, stream); });
    }
    Status move_boxes(const BoxMove* boxes, std::size_t num_boxes, StreamHandle stream) noexcept override {
        most_boxes = std::max(most_boxes, num_boxes);
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < num_boxes; ++i) bytes = std::max(bytes, boxes[i].run_bytes);
        return counted(bytes, [&] { return ForwardingDriver::move_boxes(boxes, num_boxes, stream); });
    }
    void called(const char*) noexcept override {}

  private:
    template<typename F> Status counted(std::size_t bytes, F&& call) {
        most_bytes = std::max(most_bytes, bytes);
        return ++num_calls == fails_at ? Status{Code::invalid_argument} : call();
    }
};

}  // namespace kmm::driver::testing
