// A driver for tests that count the calls which move or fill memory.
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
    std::size_t most_boxes = 0;  ///< in one call

    Status copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) noexcept override {
        ++num_calls;
        return ForwardingDriver::copy(to, from, bytes, stream);
    }
    Status fill(void* to, const void* pattern, std::size_t pattern_bytes, std::size_t count,
                StreamHandle stream) noexcept override {
        ++num_calls;
        return ForwardingDriver::fill(to, pattern, pattern_bytes, count, stream);
    }
    Status move_boxes(const BoxMove* boxes, std::size_t num_boxes, StreamHandle stream) noexcept override {
        ++num_calls;
        most_boxes = std::max(most_boxes, num_boxes);
        return ForwardingDriver::move_boxes(boxes, num_boxes, stream);
    }
    void called(const char*) noexcept override {}
};

}  // namespace kmm::driver::testing
