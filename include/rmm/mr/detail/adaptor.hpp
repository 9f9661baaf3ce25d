// What the adaptors have in common, without their template faces. The work is compiled (src/rmm/adaptor.cpp); programs
// use the classes in <rmm/mr/*_resource_adaptor.hpp>.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

/// Whether the request that this thread makes now is one which a pool does without where it is refused: nothing is to
/// be given up for it.
[[nodiscard]] RMM_EXPORT bool is_optional_request() noexcept;

/// A resource over another, which it does not own. Answers for its upstream what it does not decide itself.
class RMM_EXPORT adaptor : public device_memory_resource {
  public:
    [[nodiscard]] device_async_resource_ref get_upstream_resource() const noexcept { return upstream_; }
    [[nodiscard]] bool supports_streams() const noexcept override;
    [[nodiscard]] bool supports_get_mem_info() const noexcept override;
    ~adaptor() override;

  protected:
    /// Throws rmm::logic_error where the reference was made from null.
    explicit adaptor(device_async_resource_ref upstream);
    adaptor(adaptor const&) = default;
    adaptor(adaptor&&) noexcept = default;
    adaptor& operator=(adaptor const&) = default;
    adaptor& operator=(adaptor&&) noexcept = default;

    void* upstream_allocate(std::size_t bytes, cuda_stream_view stream) {
        return upstream_.allocate_async(bytes, CUDA_ALLOCATION_ALIGNMENT, stream);
    }
    /// `allocate(self, bytes, stream)`, which may hold a lock: it asks no reclaimer and no other pool. Where it throws
    /// rmm::out_of_memory they are asked afterwards, and it is tried again.
    static void* allocate_alone(void* (*allocate)(void* self, std::size_t bytes, cuda_stream_view stream), void* self,
                                std::size_t bytes, cuda_stream_view stream);
    /// Whether this process is the child of a fork that has no driver: nothing is freed there, and no lock is taken.
    static bool lost_in_fork() noexcept;
    void upstream_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) {
        upstream_.deallocate_async(ptr, bytes, CUDA_ALLOCATION_ALIGNMENT, stream);
    }
    /// Undoes `upstream_allocate` while another exception is on its way: what upstream throws is reported.
    void undo_upstream_allocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept;

  private:
    [[nodiscard]] std::pair<std::size_t, std::size_t> do_get_mem_info(cuda_stream_view stream) const override;

    device_async_resource_ref upstream_;
};

/// An adaptor named by its upstream's type. `Base` is one of the compiled adaptors.
template<typename Upstream, typename Base>
class adaptor_over : public Base {
  public:
    /// Null when the adaptor was made from a reference.
    [[nodiscard]] Upstream* get_upstream() const noexcept { return typed_upstream_; }

  protected:
    template<typename... Args>
    explicit adaptor_over(device_async_resource_ref upstream, Args&&... args)
        : Base(upstream, std::forward<Args>(args)...) {}
    template<typename... Args>
    explicit adaptor_over(Upstream* upstream, Args&&... args)
        : Base(to_device_async_resource_ref_checked(upstream), std::forward<Args>(args)...),
          typed_upstream_{upstream} {}

  private:
    Upstream* typed_upstream_{};
};

/// The rule for adaptors: the same class, and upstreams that are equal.
template<class Adaptor>
bool equal_adaptors(Adaptor const& a, device_memory_resource const& b) noexcept {
    auto const* other = dynamic_cast<Adaptor const*>(&b);
    return other != nullptr && a.get_upstream_resource() == other->get_upstream_resource();
}

/// Contract: limiting_resource_adaptor.
class RMM_EXPORT limiting_adaptor : public adaptor {
  public:
    [[nodiscard]] std::size_t get_allocated_bytes() const noexcept {
        return allocated_bytes_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] std::size_t get_allocation_limit() const noexcept { return limit_bytes_; }
    ~limiting_adaptor() override;
    limiting_adaptor(limiting_adaptor const&) = delete;
    limiting_adaptor& operator=(limiting_adaptor const&) = delete;

  protected:
    limiting_adaptor(device_async_resource_ref upstream, std::size_t allocation_limit, std::size_t alignment);

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;
    std::size_t find_room(std::size_t bytes, std::size_t counted, cuda_stream_view stream) const;
    [[noreturn]] void refuse(std::size_t bytes, std::size_t allocated) const;
    void give_back(std::size_t bytes) noexcept;

    std::size_t limit_bytes_;
    std::size_t alignment_;
    std::atomic<std::size_t> allocated_bytes_{0};
};

struct moved_blocks;  // src/rmm/adaptor.cpp

/// Contract: aligned_resource_adaptor.
class RMM_EXPORT aligned_adaptor : public adaptor {
  public:
    ~aligned_adaptor() override;
    aligned_adaptor(aligned_adaptor const&) = delete;
    aligned_adaptor& operator=(aligned_adaptor const&) = delete;

  protected:
    aligned_adaptor(device_async_resource_ref upstream, std::size_t alignment, std::size_t alignment_threshold);
    [[nodiscard]] bool has_parameters_of(aligned_adaptor const& other) const noexcept {
        return alignment_ == other.alignment_ && threshold_bytes_ == other.threshold_bytes_;
    }

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;
    [[nodiscard]] bool passes(std::size_t bytes) const noexcept;
    [[nodiscard]] std::size_t upstream_bytes(std::size_t bytes) const noexcept;

    std::size_t alignment_;
    std::size_t threshold_bytes_;
    moved_blocks* moved_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
