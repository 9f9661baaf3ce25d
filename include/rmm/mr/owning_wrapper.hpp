// A resource that owns the resources below it.
#pragma once

#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>

#include <rmm/mr/device_memory_resource.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Forwards to a `Resource` that it owns together with its upstreams, and frees it before them.
///
/// Equal to a wrapper of the same type whose resource is equal, and to any other resource to which the wrapped one is.
/// Thread-safe where `Resource` is. Movable, not copyable; a moved-from wrapper can be destroyed or assigned to.
template<typename Resource, typename... Upstreams>
class owning_wrapper : public device_memory_resource {
  public:
    using upstream_tuple = std::tuple<std::shared_ptr<Upstreams>...>;

    /// Makes `Resource(upstream.get()..., args...)`; throws what its constructor throws.
    template<typename... Args>
    owning_wrapper(upstream_tuple upstreams, Args&&... args)
        : upstreams_{std::move(upstreams)}, wrapped_{make(upstreams_, std::forward<Args>(args)...)} {}

    ~owning_wrapper() override = default;
    owning_wrapper(owning_wrapper const&) = delete;
    owning_wrapper& operator=(owning_wrapper const&) = delete;
    owning_wrapper(owning_wrapper&&) noexcept = default;
    owning_wrapper& operator=(owning_wrapper&& other) noexcept {
        if (this != &other) {
            // The old resource goes while its upstreams are still there.
            wrapped_ = std::move(other.wrapped_);
            upstreams_ = std::move(other.upstreams_);
        }
        return *this;
    }

    [[nodiscard]] Resource const& wrapped() const noexcept { return *wrapped_; }
    [[nodiscard]] Resource& wrapped() noexcept { return *wrapped_; }

    [[nodiscard]] bool supports_streams() const noexcept override { return wrapped().supports_streams(); }
    [[nodiscard]] bool supports_get_mem_info() const noexcept override { return wrapped().supports_get_mem_info(); }

  private:
    template<typename... Args>
    static std::unique_ptr<Resource> make(upstream_tuple const& upstreams, Args&&... args) {
        return std::apply(
            [&](std::shared_ptr<Upstreams> const&... upstream) {
                return std::make_unique<Resource>(upstream.get()..., std::forward<Args>(args)...);
            },
            upstreams);
    }

    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return wrapped().allocate(bytes, stream); }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        wrapped().deallocate(ptr, bytes, stream);
    }
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override {
        auto const* wrapper = dynamic_cast<owning_wrapper const*>(&other);
        return wrapper != nullptr ? wrapped().is_equal(wrapper->wrapped()) : wrapped().is_equal(other);
    }
    [[nodiscard]] std::pair<std::size_t, std::size_t> do_get_mem_info(cuda_stream_view stream) const override {
        return wrapped().get_mem_info(stream);
    }

    upstream_tuple upstreams_;  // destroyed after the resource that stands on them
    std::unique_ptr<Resource> wrapped_;
};

/// Makes `Resource<Upstreams...>` over the upstreams, and owns all of it:
/// `make_owning_wrapper<pool_memory_resource>(..)`.
template<template<typename...> class Resource, typename... Upstreams, typename... Args>
auto make_owning_wrapper(std::tuple<std::shared_ptr<Upstreams>...> upstreams, Args&&... args) {
    return std::make_shared<owning_wrapper<Resource<Upstreams...>, Upstreams...>>(std::move(upstreams),
                                                                                  std::forward<Args>(args)...);
}
template<template<typename> class Resource, typename Upstream, typename... Args>
auto make_owning_wrapper(std::shared_ptr<Upstream> upstream, Args&&... args) {
    return std::make_shared<owning_wrapper<Resource<Upstream>, Upstream>>(std::make_tuple(std::move(upstream)),
                                                                          std::forward<Args>(args)...);
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
