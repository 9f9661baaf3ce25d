// What allocators are measured with: subjects, sizes that suit the machine, and the churn of blocks on which most
// figures stand.
//
// Owns: no memory but that of the blocks in a churn. Must not know: any library of ours, nor CUDA: allocators.cpp
// measures ours, allocators_rival.cpp RAPIDS' with the same code. The same seeds give every subject the same requests
// in the same order. One measurement at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common.hpp"

namespace kmm::bench {

/// The device's stream handle.
using RawStream = void*;

/// What the workloads need of a device beside the subject.
class Machine {
  public:
    virtual ~Machine() = default;
    virtual RawStream create_stream() = 0;  ///< does not synchronise with the default stream
    virtual void destroy_stream(RawStream) = 0;
    virtual void synchronize() = 0;
    /// Keeps the stream busy for about so long, beginning soon; false: cannot.
    virtual bool spin(RawStream, double microseconds) = 0;
    virtual std::size_t free_bytes() = 0;
};

/// How a subject is made for a workload.
struct Shape {
    std::size_t initial_bytes = 0;
    std::optional<std::size_t> maximum_bytes;
};

enum class Takes {
    everything,
    all_but_growth,  ///< cannot grow
    all_but_limits,  ///< knows no maximum size
    churn_and_holes,
    churn_only,  ///< to see what an adaptor adds
};

// A subject is a class with
//   void* allocate(std::size_t bytes, RawStream)              throws what derives from std::exception
//   void deallocate(void*, std::size_t bytes, RawStream)
//   bool make_current(bool on)                                false: no containers to be had
//   void make_and_drop_buffer(std::size_t bytes, RawStream)   a device_buffer of the current resource
//   std::uint64_t growths()                                   changes when it grows or maps; 0 if it cannot tell

template<typename Subject>
struct Maker {
    std::string name;
    std::function<std::unique_ptr<Subject>(const Shape&)> make;
    Takes takes = Takes::everything;
};

/// Sizes that suit the machine. The default is for GPUs with 64 GiB or more.
struct Scale {
    std::size_t pool_bytes = std::size_t{8} << 30;
    std::size_t largest_bytes = std::size_t{4} << 20;
    std::size_t buffer_pool_bytes = std::size_t{2} << 30;
    std::size_t limit_bytes = std::size_t{40} << 30;  ///< of the workloads about fragmentation
    std::size_t busy_bytes = std::size_t{64} << 20;   ///< freed while the stream is busy
    std::size_t num_live = 1000;
    std::size_t num_small = 200'000;  ///< blocks of 4 KiB, of which every second one is freed
    double sample_seconds = 0.2;
    int num_seeds = 15;
    std::size_t efficiency_operations = 20'000;
    std::size_t steps_per_rise = 200;
    std::uint64_t tail_requests = 10'000'000;  ///< of each thread
    std::vector<std::size_t> holes{1'000, 10'000, 100'000};
};

/// What these programs take beside the arguments of every benchmark:
///   --subjects=NAME,...   only these
///   --limit=GiB           of the workloads about fragmentation
///   --seeds=N             of the same, in place of 15
///   --large               on the host driver the sizes of a large GPU; its memory is only addresses, of which
///                         KMM_VIRTUAL_DEVICE_MEM must give enough
class AllocatorArguments {
  public:
    AllocatorArguments(int argc, char** argv) {
        for (int i = 0; i < argc; ++i) {
            if (std::strncmp(argv[i], "--subjects=", 11) == 0)
                subjects_ = std::string(",") + (argv[i] + 11) + ",";
            else if (std::strncmp(argv[i], "--limit=", 8) == 0)
                limit_gib_ = std::atof(argv[i] + 8);
            else if (std::strncmp(argv[i], "--seeds=", 8) == 0)
                num_seeds_ = std::atoi(argv[i] + 8);
            else if (std::strcmp(argv[i], "--large") == 0)
                large_ = true;
            else
                rest_.push_back(argv[i]);
        }
    }
    /// The other arguments.
    int count() const { return static_cast<int>(rest_.size()); }
    char** values() { return rest_.data(); }

    bool names(const std::string& subject) const { return subjects_.find("," + subject + ",") != std::string::npos; }
    bool wants(const std::string& subject) const { return subjects_.empty() || names(subject); }
    bool large() const { return large_; }
    bool usual_sizes() const { return limit_gib_ == 0 && num_seeds_ == 0; }
    Scale apply_to(Scale scale) const {
        if (limit_gib_ > 0) scale.limit_bytes = static_cast<std::size_t>(limit_gib_ * 1024 * 1024 * 1024);
        if (num_seeds_ > 0) scale.num_seeds = num_seeds_;
        return scale;
    }

  private:
    std::string subjects_;
    double limit_gib_ = 0;
    int num_seeds_ = 0;
    bool large_ = false;
    std::vector<char*> rest_;
};

/// The same numbers everywhere (splitmix64).
class Draw {
  public:
    explicit Draw(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15u;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    std::size_t below(std::size_t end) { return next() % end; }
    std::size_t log_uniform(std::size_t least, std::size_t most) {
        const double low = std::log(static_cast<double>(least));
        return static_cast<std::size_t>(std::exp(low + unit() * (std::log(static_cast<double>(most)) - low)));
    }

  private:
    std::uint64_t state_;
};

/// Streams of the program's own for the length of a scope.
class Streams {
  public:
    Streams(Machine& machine, std::size_t count) : machine_(machine) {
        for (std::size_t i = 0; i < count; ++i) streams_.push_back(machine.create_stream());
    }
    ~Streams() {
        machine_.synchronize();
        for (RawStream stream : streams_) machine_.destroy_stream(stream);
    }
    Streams(const Streams&) = delete;
    Streams& operator=(const Streams&) = delete;
    RawStream operator[](std::size_t i) const { return streams_[i]; }
    const std::vector<RawStream>& all() const { return streams_; }
    std::size_t size() const { return streams_.size(); }

  private:
    Machine& machine_;
    std::vector<RawStream> streams_;
};

struct Block {
    void* pointer = nullptr;
    std::size_t bytes = 0;
    std::size_t stream = 0;  ///< the number of the stream on which it was allocated
};

enum class FreedOn { own_stream, another_stream };

/// A number of live blocks of which one after the other, at random, is freed and replaced. What is drawn is drawn
/// before the clock starts.
template<typename Subject>
class Churn {
  public:
    Churn(Subject& subject, const std::vector<RawStream>& streams, FreedOn freed_on, std::size_t num_live,
          std::size_t least, std::size_t most, std::uint64_t seed)
        : subject_(subject), streams_(streams) {
        Draw draw(seed);
        for (std::size_t i = 0; i < num_turns; ++i) {
            Turn turn;
            turn.slot = static_cast<std::uint32_t>(draw.below(num_live));
            turn.bytes = draw.log_uniform(least, most);
            turn.stream = static_cast<std::uint32_t>(draw.below(streams.size()));
            turn.leap = 0;
            if (freed_on == FreedOn::another_stream && streams.size() > 1)
                turn.leap = static_cast<std::uint32_t>(1 + draw.below(streams.size() - 1));
            turns_.push_back(turn);
        }
        try {
            for (std::size_t i = 0; i < num_live; ++i) {
                const Turn& turn = turns_[i % num_turns];
                live_.push_back({subject_.allocate(turn.bytes, streams_[turn.stream]), turn.bytes, turn.stream});
            }
        } catch (...) {
            free_all();
            throw;
        }
    }
    ~Churn() { free_all(); }
    Churn(const Churn&) = delete;
    Churn& operator=(const Churn&) = delete;

    /// One free and one allocate: two operations.
    void step() {
        step([] {});
    }
    /// The same; `note` is called after each.
    template<typename Note>
    void step(Note&& note) {
        const Turn& turn = turns_[next_];
        next_ = (next_ + 1) % num_turns;
        Block& block = live_[turn.slot];
        std::size_t stream = block.stream + turn.leap;
        if (stream >= streams_.size()) stream -= streams_.size();
        subject_.deallocate(block.pointer, block.bytes, streams_[stream]);
        block.pointer = nullptr;
        block.bytes = turn.bytes;
        block.stream = turn.stream;
        note();
        block.pointer = subject_.allocate(turn.bytes, streams_[turn.stream]);
        note();
    }

    void steps(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) step();
    }

  private:
    struct Turn {
        std::size_t bytes;
        std::uint32_t slot, stream, leap;
    };
    static constexpr std::size_t num_turns = std::size_t{1} << 14;

    void free_all() {
        for (const Block& block : live_) {
            if (block.pointer != nullptr) subject_.deallocate(block.pointer, block.bytes, streams_[block.stream]);
        }
        live_.clear();
    }

    Subject& subject_;
    std::vector<RawStream> streams_;
    std::vector<Turn> turns_;
    std::vector<Block> live_;
    std::size_t next_ = 0;
};

/// Blocks that live on any of the streams.
template<typename Subject>
class Live {
  public:
    Live(Subject& subject, const Streams& streams) : subject_(subject), streams_(streams) {}
    ~Live() {
        for (const Block& block : blocks_) subject_.deallocate(block.pointer, block.bytes, streams_[block.stream]);
    }
    Live(const Live&) = delete;
    Live& operator=(const Live&) = delete;

    /// False where the subject refuses.
    bool add(std::size_t bytes, std::size_t stream) {
        void* pointer = nullptr;
        try {
            pointer = subject_.allocate(bytes, streams_[stream]);
        } catch (const std::exception&) {
            return false;
        }
        blocks_.push_back({pointer, bytes, stream});
        bytes_ += bytes;
        return true;
    }
    void drop(std::size_t random) {
        const std::size_t i = random % blocks_.size();
        const Block block = blocks_[i];
        blocks_[i] = blocks_.back();
        blocks_.pop_back();
        bytes_ -= block.bytes;
        subject_.deallocate(block.pointer, block.bytes, streams_[block.stream]);
    }
    /// Every second block, from high to low addresses.
    void drop_every_second_from_the_top() {
        std::sort(blocks_.begin(), blocks_.end(), [](const Block& a, const Block& b) { return a.pointer < b.pointer; });
        std::vector<Block> kept;
        for (std::size_t i = blocks_.size(); i > 0; --i) {
            const Block& block = blocks_[i - 1];
            if (i % 2 == 1) {
                kept.push_back(block);
                continue;
            }
            bytes_ -= block.bytes;
            subject_.deallocate(block.pointer, block.bytes, streams_[block.stream]);
        }
        blocks_ = std::move(kept);
    }
    std::size_t bytes() const { return bytes_; }
    std::size_t size() const { return blocks_.size(); }

  private:
    Subject& subject_;
    const Streams& streams_;
    std::vector<Block> blocks_;
    std::size_t bytes_ = 0;
};

/// Runs `work(thread)` on threads that start together; seconds from the start to the end of the last. Rethrows.
template<typename Work>
inline double together(std::size_t num_threads, Work work) {
    std::latch ready(static_cast<std::ptrdiff_t>(num_threads) + 1);
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> errors(num_threads);
    for (std::size_t thread = 0; thread < num_threads; ++thread) {
        threads.emplace_back([&, thread] {
            ready.arrive_and_wait();
            try {
                work(thread);
            } catch (...) {
                errors[thread] = std::current_exception();
            }
        });
    }
    ready.arrive_and_wait();
    const auto begin = Clock::now();
    for (std::thread& thread : threads) thread.join();
    const double elapsed = seconds_since(begin);
    for (const std::exception_ptr& error : errors) {
        if (error) std::rethrow_exception(error);
    }
    return elapsed;
}

}  // namespace kmm::bench
