// A lock around a resource of a program that is not thread-safe. No resource of this library needs it.
#pragma once

#include <cstddef>
#include <mutex>

#include <rmm/mr/detail/adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Calls `Upstream` under one mutex, which is not held while others are asked to make room (reclaimer.hpp). Throws what
/// upstream throws. Equal to an adaptor of the same type over an equal upstream. Not copyable or movable.
template<typename Upstream>
class thread_safe_resource_adaptor final : public detail::adaptor_over<Upstream, detail::adaptor> {
    using base = detail::adaptor_over<Upstream, detail::adaptor>;

  public:
    using lock_t = std::lock_guard<std::mutex>;

    /// Throws rmm::logic_error for a null upstream.
    explicit thread_safe_resource_adaptor(device_async_resource_ref upstream) : base(upstream) {}
    explicit thread_safe_resource_adaptor(Upstream* upstream) : base(upstream) {}

    thread_safe_resource_adaptor() = delete;
    ~thread_safe_resource_adaptor() override = default;
    thread_safe_resource_adaptor(thread_safe_resource_adaptor const&) = delete;
    thread_safe_resource_adaptor& operator=(thread_safe_resource_adaptor const&) = delete;

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override {
        return this->allocate_alone(
            [](void* self, std::size_t wanted, cuda_stream_view on) {
                auto& me = *static_cast<thread_safe_resource_adaptor*>(self);
                lock_t const lock{me.mutex_};
                return me.upstream_allocate(wanted, on);
            },
            this, bytes, stream);
    }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        if (base::lost_in_fork()) return;
        lock_t const lock{mutex_};
        this->upstream_deallocate(ptr, bytes, stream);
    }
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override {
        return detail::equal_adaptors(*this, other);
    }

    std::mutex mutex_;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
