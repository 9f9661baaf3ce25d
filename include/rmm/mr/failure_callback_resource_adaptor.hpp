// A last chance to make room before an allocation fails.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include <rmm/error.hpp>
#include <rmm/fwd.hpp>
#include <rmm/mr/detail/adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Gets the bytes asked for and the argument of the adaptor; true: try again, false: fail.
using failure_callback_t = std::function<bool(std::size_t, void*)>;

/// Forwards to `Upstream`. Where that throws `ExceptionType`, or a class derived from it, the callback decides: the
/// request is made again, any number of times, or the exception goes on as it is. Other exceptions pass without a call,
/// and so do those of the callback, and those of requests that a pool can do without (see fixed_size_memory_resource).
///
/// The callback runs on the allocating thread, with no lock held, and may free memory of this resource. Thread-safe
/// where the callback is. Equal to an adaptor of the same type over an equal upstream. Movable, not copyable.
template<typename Upstream, typename ExceptionType>  // default: rmm::out_of_memory (rmm/fwd.hpp)
class failure_callback_resource_adaptor final : public detail::adaptor_over<Upstream, detail::adaptor> {
    using base = detail::adaptor_over<Upstream, detail::adaptor>;

  public:
    using exception_type = ExceptionType;

    /// Throws rmm::logic_error for a null upstream.
    failure_callback_resource_adaptor(device_async_resource_ref upstream, failure_callback_t callback,
                                      void* callback_arg)
        : base(upstream), callback_{std::move(callback)}, callback_arg_{callback_arg} {}
    failure_callback_resource_adaptor(Upstream* upstream, failure_callback_t callback, void* callback_arg)
        : base(upstream), callback_{std::move(callback)}, callback_arg_{callback_arg} {}

    failure_callback_resource_adaptor() = delete;
    ~failure_callback_resource_adaptor() override = default;
    failure_callback_resource_adaptor(failure_callback_resource_adaptor const&) = delete;
    failure_callback_resource_adaptor& operator=(failure_callback_resource_adaptor const&) = delete;
    failure_callback_resource_adaptor(failure_callback_resource_adaptor&&) noexcept = default;
    failure_callback_resource_adaptor& operator=(failure_callback_resource_adaptor&&) noexcept = default;

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override {
        while (true) {
            try {
                return this->upstream_allocate(bytes, stream);
            } catch (ExceptionType const&) {
                if (detail::is_optional_request() || !callback_(bytes, callback_arg_)) throw;
            }
        }
    }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        this->upstream_deallocate(ptr, bytes, stream);
    }
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override {
        return detail::equal_adaptors(*this, other);
    }

    failure_callback_t callback_;
    void* callback_arg_;
};

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
