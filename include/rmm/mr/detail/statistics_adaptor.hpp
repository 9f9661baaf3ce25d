// The statistics adaptor without its template face. The work is compiled (src/rmm/statistics_adaptor.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <rmm/mr/detail/adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// A number that goes up and down: now, at most, and all that was ever added.
struct statistics_counter {
    std::int64_t value{0};
    std::int64_t peak{0};
    std::int64_t total{0};

    statistics_counter& operator+=(std::int64_t added) {
        value += added;
        total += added;
        if (value > peak) peak = value;
        return *this;
    }
    statistics_counter& operator-=(std::int64_t removed) {
        value -= removed;
        return *this;
    }
    /// As if what `block` counted had been counted here, after what was counted here so far.
    void add_counters_from_tracked_sub_block(statistics_counter const& block) {
        if (value + block.peak > peak) peak = value + block.peak;
        value += block.value;
        total += block.total;
    }
};

/// Contract: statistics_resource_adaptor.
class RMM_EXPORT statistics_adaptor : public adaptor {
  public:
    using counter = statistics_counter;

    [[nodiscard]] counter get_bytes_counter() const noexcept;
    [[nodiscard]] counter get_allocations_counter() const noexcept;
    std::pair<counter, counter> push_counters();
    std::pair<counter, counter> pop_counters();
    ~statistics_adaptor() override;
    statistics_adaptor(statistics_adaptor const&) = delete;
    statistics_adaptor& operator=(statistics_adaptor const&) = delete;

  protected:
    explicit statistics_adaptor(device_async_resource_ref upstream);

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;

    struct state;
    std::unique_ptr<state> state_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
