// A fuzz target: any sequence of operations on a pool, over an upstream that refuses now and then. No byte is in two
// hands, every pointer is aligned and inside memory of upstream, counters add up, a failure leaves the pool usable, and
// at the end upstream has everything back.
//
// With clang and KMM_FUZZ=ON it is a libFuzzer program; else it feeds itself (pool_operations_main.cpp). Upstream
// invents addresses: nothing is ever touched.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "driver/registry.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/error.hpp"
#include "rmm/mr/device_memory_resource.hpp"
#include "rmm/pool/engine.hpp"

namespace {

using kmm::driver::process_default;
using rmm::cuda_stream_view;
using rmm::mr::detail::pool_engine;
using rmm::mr::detail::pool_options;

constexpr std::size_t MiB = std::size_t{1} << 20;

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "pool_operations: %s\n", what);
    std::abort();
}
void require(bool condition, const char* what) {
    if (!condition) fail(what);
}

/// Bytes of the input, zeros behind its end.
class input {
  public:
    input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
    bool is_over() const { return at_ == end_; }
    unsigned byte() { return at_ == end_ ? 0u : *at_++; }
    std::size_t number(std::size_t below) {
        const std::size_t n = byte() | byte() << 8;
        return n % below;
    }

  private:
    const std::uint8_t* at_;
    const std::uint8_t* end_;
};

/// Memory that is only numbers.
class inventing_resource final : public rmm::mr::device_memory_resource {
  public:
    std::size_t limit = 1024 * MiB;
    bool refuses = false;
    std::map<std::uintptr_t, std::size_t> given;
    std::size_t in_use = 0;

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view) override {
        if (refuses || bytes > limit - in_use) throw rmm::out_of_memory("the fuzzer's upstream has no more");
        const std::uintptr_t address = next_;
        // Blocks touch, or nearly.
        next_ += bytes + (bytes % 512 == 0 ? 0 : 256);
        given[address] = bytes;
        in_use += bytes;
        return reinterpret_cast<void*>(address);
    }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view) override {
        const auto at = given.find(reinterpret_cast<std::uintptr_t>(ptr));
        require(at != given.end() && at->second == bytes, "upstream got back what it never gave");
        in_use -= bytes;
        given.erase(at);
    }
    // Where no program has memory, and where AddressSanitizer, which is told of pools, has room for its notes.
    std::uintptr_t next_ = std::uintptr_t{1} << 45;
};

/// Streams of every kind; two of them are replaced now and then.
class streams {
  public:
    streams() {
        for (auto& f : foreign_) f = make();
    }
    ~streams() {
        for (auto& f : foreign_) (void)process_default().destroy_stream(f);
    }
    streams(const streams&) = delete;
    streams& operator=(const streams&) = delete;
    cuda_stream_view operator[](std::size_t i) {
        switch (i % 6) {
        case 0: return cuda_stream_view{};
        case 1: return rmm::cuda_stream_per_thread;
        case 2:
        case 3: return owned_[i % 2]->view();
        default: return cuda_stream_view{static_cast<cudaStream_t>(foreign_[i % 2].native)};
        }
    }
    void replace(std::size_t i) {
        if (i % 2 != 0) {
            owned_[i / 2 % 2] = std::make_unique<rmm::cuda_stream>();
        } else {
            (void)process_default().destroy_stream(foreign_[i / 2 % 2]);
            foreign_[i / 2 % 2] = make();
        }
    }

  private:
    static kmm::driver::StreamHandle make() {
        kmm::driver::StreamHandle s;
        require(process_default().create_stream(0, true, 0, &s).ok(), "no stream");
        return s;
    }
    std::unique_ptr<rmm::cuda_stream> owned_[2] = {std::make_unique<rmm::cuda_stream>(),
                                                   std::make_unique<rmm::cuda_stream>()};
    kmm::driver::StreamHandle foreign_[2];
};

struct block {
    std::size_t bytes;
    std::size_t size;
};

class world {
  public:
    explicit world(input& in) : in_(in) {
        pool_options options;
        options.ordered_upstream = in_.byte() % 2 != 0;
        switch (in_.byte() % 4) {
        case 0:  // grows
            options.initial_bytes = 0;
            break;
        case 1:  // large enough for arenas, up to a maximum
            options.initial_bytes = 64 * MiB;
            options.maximum_bytes = 256 * MiB;
            break;
        case 2:  // blocks of one size
            options.block_bytes = std::size_t{256} << in_.byte() % 14;
            options.initial_bytes = options.growth_bytes = options.block_bytes * (1 + in_.byte() % 32);
            break;
        default:  // never grows
            options.initial_bytes = 128 * MiB;
            options.maximum_bytes = options.initial_bytes;
            options.grows = false;
        }
        block_bytes_ = options.block_bytes;
        pool_ = std::make_unique<pool_engine>(rmm::device_async_resource_ref{upstream_}, options);
    }

    void run() {
        while (!in_.is_over()) step();
        while (!live_.empty()) free_block(live_.begin(), streams_[0]);
        const auto s = pool_->statistics();
        require(s.in_use_bytes == 0 && s.num_blocks == 0, "something is in use that nobody has");
        require(s.free_bytes == pool_->held_bytes(), "free and held do not add up");
        pool_.reset();
        require(upstream_.given.empty(), "upstream did not get everything back");
    }

  private:
    void step() {
        switch (in_.byte() % 16) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
        case 5:
        case 6: return allocate();
        case 7:
        case 8:
        case 9:
        case 10:
        case 11:
            if (!live_.empty())
                free_block(std::next(live_.begin(), static_cast<long>(in_.number(live_.size()))), streams_[in_.byte()]);
            return;
        case 12: return streams_.replace(in_.byte());
        case 13:
            if (in_.byte() % 4 == 0) pool_->trim(in_.number(128) * MiB);
            return;
        case 14: upstream_.refuses = in_.byte() % 4 == 0; return;
        default: return check();
        }
    }

    void allocate() {
        const std::size_t bytes = 1 + (in_.number(1 << 16) << in_.byte() % 11);
        rmm::mr::detail::refusal why;
        void* const ptr = pool_->try_allocate(bytes, streams_[in_.byte()], &why);
        if (ptr == nullptr) {
            require(why.why != rmm::mr::detail::refusal::cause::none, "a refusal without a cause");
            return;
        }
        const std::size_t size = block_bytes_ != 0 ? block_bytes_ : (bytes + 255) / 256 * 256;
        const auto address = reinterpret_cast<std::uintptr_t>(ptr);
        require(address % 256 == 0, "a pointer is not aligned");
        const auto next = live_.lower_bound(address);
        require(next == live_.end() || next->first >= address + size, "a block overlaps the next one");
        require(next == live_.begin() || std::prev(next)->first + std::prev(next)->second.size <= address,
                "a block overlaps the one before");
        const auto region = upstream_.given.upper_bound(address);
        require(region != upstream_.given.begin() &&
                    address + size <= std::prev(region)->first + std::prev(region)->second,
                "a block is not inside one block of upstream");
        live_[address] = {bytes, size};
        in_use_ += size;
    }

    void free_block(std::map<std::uintptr_t, block>::iterator at, cuda_stream_view stream) {
        const cuda_stream_view both[] = {stream, cuda_stream_view{}};
        const std::size_t how_many = in_.byte() % 8 == 0 ? in_.byte() % 3 : 1;
        in_use_ -= at->second.size;
        pool_->free(reinterpret_cast<void*>(at->first), at->second.bytes, {both, how_many});
        live_.erase(at);
    }

    void check() {
        const auto s = pool_->statistics();
        require(s.in_use_bytes == in_use_, "bytes in use are counted wrongly");
        require(s.num_blocks == live_.size(), "blocks are counted wrongly");
        require(s.held_bytes == upstream_.in_use, "held bytes are counted wrongly");
        require(s.largest_free_bytes <= s.free_bytes, "the largest free piece is larger than all of them");
    }

    input& in_;
    inventing_resource upstream_;
    streams streams_;
    std::unique_ptr<pool_engine> pool_;
    std::size_t block_bytes_ = 0;
    std::map<std::uintptr_t, block> live_;
    std::size_t in_use_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    input in(data, size);
    world(in).run();
    return 0;
}
