// How many requests of a churn take long, each timed by itself.
//
// Owns: nothing. Must not know: any library of ours, nor CUDA (see allocator_workloads.hpp). One Tail for each thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "allocator_workloads.hpp"

namespace kmm::bench {

/// The requests of one thread, or the sum over several.
struct Tail {
    std::uint64_t requests = 0;
    std::uint64_t above_20us = 0;  ///< without those that grew
    std::uint64_t above_50us = 0;  ///< the same
    std::uint64_t grew = 0;        ///< above 20 us while the subject grew or mapped
    double longest_seconds = 0;    ///< of those that did not
    double seconds = 0;            ///< of the loop

    Tail& operator+=(const Tail& other) {
        requests += other.requests;
        above_20us += other.above_20us;
        above_50us += other.above_50us;
        grew += other.grew;
        longest_seconds = std::max(longest_seconds, other.longest_seconds);
        seconds = std::max(seconds, other.seconds);
        return *this;
    }
    double share(std::uint64_t count) const { return static_cast<double>(count) / static_cast<double>(requests); }
};

/// `request(note)` makes a request or several, and calls note() after each. Until there have been `most_requests`, or
/// `most_seconds` have gone by. `growths()` is a number that changes when the subject grows or maps; it is asked after
/// slow requests and every 1024, so that a slow one counts as grown if the subject grew a moment ago.
template<typename Request, typename Growths>
Tail time_each_request(Request request, Growths growths, std::uint64_t most_requests, double most_seconds) {
    constexpr auto long_time = std::chrono::microseconds(20);
    constexpr auto very_long_time = std::chrono::microseconds(50);
    constexpr std::uint64_t requests_per_look = 1024;
    Tail tail;
    std::uint64_t growths_seen = growths();
    std::uint64_t next_look = requests_per_look;
    const auto begin = Clock::now();
    auto last = begin;
    while (tail.requests < most_requests) {
        request([&] {
            const auto now = Clock::now();
            const auto elapsed = now - last;
            last = now;
            ++tail.requests;
            if (elapsed <= long_time && tail.requests < next_look) return;
            next_look = tail.requests + requests_per_look;
            const std::uint64_t seen = growths();
            const bool has_grown = seen != growths_seen;
            growths_seen = seen;
            if (elapsed > long_time) {
                if (has_grown) {
                    ++tail.grew;
                } else {
                    ++tail.above_20us;
                    tail.above_50us += elapsed > very_long_time ? 1u : 0u;
                    tail.longest_seconds =
                        std::max(tail.longest_seconds, std::chrono::duration<double>(elapsed).count());
                }
            }
            last = Clock::now();
        });
        if (std::chrono::duration<double>(last - begin).count() >= most_seconds) break;
    }
    tail.seconds = seconds_since(begin);
    return tail;
}

/// Takes no memory and no time.
struct NoAllocator {
    void* allocate(std::size_t, RawStream) { return this; }
    void deallocate(void*, std::size_t, RawStream) {}
    std::uint64_t growths() { return 0; }
};

/// A churn on each of the streams, in a thread of its own; the live blocks are divided among them.
template<typename Subject>
Tail churn_timed(Subject& subject, const Streams& streams, const Scale& scale, std::uint64_t most_requests,
                 double most_seconds) {
    const std::size_t num_threads = streams.size();
    std::vector<std::unique_ptr<Churn<Subject>>> work;
    for (std::size_t thread = 0; thread < num_threads; ++thread) {
        work.push_back(std::make_unique<Churn<Subject>>(subject, std::vector<RawStream>{streams[thread]},
                                                        FreedOn::own_stream, scale.num_live / num_threads, 256,
                                                        scale.largest_bytes, 1 + thread));
    }
    std::vector<Tail> tails(num_threads);
    together(num_threads, [&](std::size_t thread) {
        tails[thread] = time_each_request([&](auto&& note) { work[thread]->step(note); },
                                          [&] { return subject.growths(); }, most_requests, most_seconds);
    });
    Tail sum;
    for (const Tail& tail : tails) sum += tail;
    return sum;
}

struct Tails {
    Tail with;
    Tail without;  ///< as many requests
    Tail as_long;  ///< without an allocator, for as long as with it: what the machine does to a thread in that time
};

template<typename Subject>
Tails measure_tails(Subject& subject, const Streams& streams, const Scale& scale, std::uint64_t requests) {
    NoAllocator nothing;
    Tails result;
    result.without = churn_timed(nothing, streams, scale, requests, std::numeric_limits<double>::infinity());
    result.with = churn_timed(subject, streams, scale, requests, std::numeric_limits<double>::infinity());
    result.as_long =
        churn_timed(nothing, streams, scale, std::numeric_limits<std::uint64_t>::max(), result.with.seconds);
    return result;
}

struct TailFigure {
    const char* name;
    Unit unit;
    const char* note;
    double (*value)(const Tails&);
};

/// Counts are for a million requests of the loop with the allocator.
inline const std::vector<TailFigure>& tail_figures() {
    static const Unit per_million{"per million", Better::lower, 1e6};
    static const char* const usual = "without those that grew or mapped";
    static const char* const nothing = "an allocator that does nothing, as many requests";
    static const char* const as_long = "an allocator that does nothing, for as long as the loop with one";
    static const std::vector<TailFigure> list{
        {"above_50us", per_million, usual, [](const Tails& t) { return t.with.share(t.with.above_50us); }},
        {"without_allocator_above_50us", per_million, nothing,
         [](const Tails& t) { return t.without.share(t.without.above_50us); }},
        {"without_allocator_as_long_above_50us", per_million, as_long,
         [](const Tails& t) { return t.with.share(t.as_long.above_50us); }},
        {"above_20us", per_million, usual, [](const Tails& t) { return t.with.share(t.with.above_20us); }},
        {"without_allocator_above_20us", per_million, nothing,
         [](const Tails& t) { return t.without.share(t.without.above_20us); }},
        {"without_allocator_as_long_above_20us", per_million, as_long,
         [](const Tails& t) { return t.with.share(t.as_long.above_20us); }},
        {"grown_above_20us", per_million, "those that grew or mapped",
         [](const Tails& t) { return t.with.share(t.with.grew); }},
        {"longest", microseconds(), usual, [](const Tails& t) { return t.with.longest_seconds; }},
        {"without_allocator_as_long_longest", microseconds(), as_long,
         [](const Tails& t) { return t.as_long.longest_seconds; }},
    };
    return list;
}

}  // namespace kmm::bench
