// What fragmentation leaves of an allocator's memory, and what a request costs meanwhile: one run of a workload for one
// seed.
//
// Owns: nothing. Must not know: any library of ours, nor CUDA (see allocator_workloads.hpp). One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator_workloads.hpp"

namespace kmm::bench {

struct Filling {
    double seconds_per_operation = 0;  ///< of an allocate or a deallocate while half of the limit is live
    std::size_t live_bytes = 0;        ///< at the first request that was refused
};

/// The largest request is a fortieth of the limit (1 GiB of 40).
inline std::size_t largest_of_limit(const Scale& scale) { return scale.limit_bytes / 40; }

/// Sizes and streams of the requests are drawn, whichever subject it is, in the same order.
template<typename Subject>
class Filler {
  public:
    Filler(Subject& subject, const Streams& streams, const Scale& scale, int seed)
        : draw_(static_cast<std::uint64_t>(seed)),
          live_(subject, streams),
          num_streams_(streams.size()),
          half_(scale.limit_bytes / 2),
          largest_(largest_of_limit(scale)),
          num_operations_(scale.efficiency_operations),
          rise_(scale.limit_bytes / 160),
          steps_per_rise_(scale.steps_per_rise) {}

    /// Half of the limit live and churned; then growth, three allocations to two frees.
    Filling three_to_two() {
        Filling result;
        bool fits = true;
        while (fits && live_.bytes() < half_) fits = add();
        std::size_t operations = 0;
        const auto begin = Clock::now();
        for (; fits && operations < num_operations_; ++operations) {
            if (live_.bytes() < half_)
                fits = add();
            else
                live_.drop(draw_.next());
        }
        if (operations > 0) result.seconds_per_operation = seconds_since(begin) / static_cast<double>(operations);
        while (fits) {
            if (draw_.below(5) < 2)
                live_.drop(draw_.next());
            else
                fits = add();
        }
        result.live_bytes = live_.bytes();
        return result;
    }

    /// Each step frees at random until a new block fits under the target, and allocates it. The target is half of the
    /// limit at first, which is churned; then it rises by a small part of the limit at a time.
    Filling ramp() {
        Filling result;
        bool fits = true;
        while (fits && live_.bytes() + largest_ < half_) fits = add();
        operations_ = 0;
        const auto begin = Clock::now();
        for (std::size_t step = 0; fits && step < num_operations_; ++step) fits = add_below(half_);
        if (operations_ > 0) result.seconds_per_operation = seconds_since(begin) / static_cast<double>(operations_);
        for (std::size_t target = half_ + rise_; fits; target += rise_)
            for (std::size_t step = 0; fits && step < steps_per_rise_; ++step) fits = add_below(target);
        result.live_bytes = live_.bytes();
        return result;
    }

    /// From nothing to half of the limit, three allocations to two frees. False after a refusal.
    bool grow_to_half() {
        while (live_.bytes() < half_) {
            if (live_.size() > 0 && draw_.below(5) < 2)
                live_.drop(draw_.next());
            else if (!add())
                return false;
        }
        return true;
    }
    std::size_t live_bytes() const { return live_.bytes(); }

  private:
    bool add() {
        const std::size_t bytes = draw_.log_uniform(1024, largest_);
        return live_.add(bytes, draw_.below(num_streams_));
    }
    bool add_below(std::size_t target) {
        const std::size_t bytes = draw_.log_uniform(1024, largest_);
        for (; live_.bytes() + bytes > target; ++operations_) live_.drop(draw_.next());
        ++operations_;
        return live_.add(bytes, draw_.below(num_streams_));
    }

    Draw draw_;
    Live<Subject> live_;
    std::size_t num_streams_, half_, largest_, num_operations_, rise_, steps_per_rise_;
    std::size_t operations_ = 0;
};

}  // namespace kmm::bench
