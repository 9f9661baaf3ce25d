// Counts what is allocated through it.
#pragma once

#include <cstddef>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include <rmm/mr/detail/statistics_adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Forwards to `Upstream` and counts blocks and bytes, as asked of this adaptor: how many there are, how many there
/// were at most, and how many there ever were. A request of 0 bytes counts as one block of 0 bytes; a null that stands
/// for more bytes than 0 does not count when it is freed. Memory of another resource may be freed here: values can be
/// negative.
///
/// - Counters stand on a stack: `push_counters` begins a section of the program, `pop_counters` ends it and adds what
///   it counted to the section around it. The stack is the adaptor's, not the thread's: threads that push at the same
///   time must agree.
/// - A failed request changes nothing; what upstream throws passes through. A free is counted before upstream is
///   called, so that no other thread counts the same memory twice.
/// - Thread-safe. Equal to an adaptor of the same type over an equal upstream. Not copyable or movable.
template<typename Upstream>
class statistics_resource_adaptor final : public detail::adaptor_over<Upstream, detail::statistics_adaptor> {
    using base = detail::adaptor_over<Upstream, detail::statistics_adaptor>;

  public:
    using read_lock_t = std::shared_lock<std::shared_mutex>;
    using write_lock_t = std::unique_lock<std::shared_mutex>;
    using counter = detail::statistics_counter;

    /// Throws rmm::logic_error for a null upstream.
    statistics_resource_adaptor(device_async_resource_ref upstream) : base(upstream) {}
    statistics_resource_adaptor(Upstream* upstream) : base(upstream) {}

    statistics_resource_adaptor() = delete;
    ~statistics_resource_adaptor() override = default;
    statistics_resource_adaptor(statistics_resource_adaptor const&) = delete;
    statistics_resource_adaptor& operator=(statistics_resource_adaptor const&) = delete;

    /// Of the innermost section.
    [[nodiscard]] counter get_bytes_counter() const noexcept { return base::get_bytes_counter(); }
    [[nodiscard]] counter get_allocations_counter() const noexcept { return base::get_allocations_counter(); }
    /// Begins a section; {bytes, blocks} of the one around it, as they are.
    std::pair<counter, counter> push_counters() { return base::push_counters(); }
    /// Ends the innermost section; its {bytes, blocks}. Throws std::out_of_range for the last one, which stays.
    std::pair<counter, counter> pop_counters() { return base::pop_counters(); }

  private:
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override {
        return detail::equal_adaptors(*this, other);
    }
};

/// The factory of 23.12.
template<typename Upstream>
statistics_resource_adaptor<Upstream> make_statistics_adaptor(Upstream* upstream) {
    return statistics_resource_adaptor<Upstream>{upstream};
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
