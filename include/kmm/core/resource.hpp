// What runs a task, as the task's code sees it: `Resource`, `HostResource`, `DeviceResource`.
//
// Owns: nothing; the objects belong to the runtime and exist only during a task. Must not know: arrays, the runtime.
// Used by the thread that runs the task. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kmm/core/backends.hpp"
#include "kmm/core/domain.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/core/view.hpp"
#include "kmm/detail/kernel_handle.hpp"
#include "kmm/detail/kernel_parameters.hpp"
#include "kmm/detail/meta.hpp"
#include "kmm/detail/strided_box.hpp"
#include "kmm/error.hpp"

namespace kmm {

namespace driver {
class Driver;
struct KernelHooks;
}  // namespace driver

class DeviceResource;

namespace detail {
/// A kernel whose parameters are built when it is launched (kmm/detail/late_kernel.hpp).
template<typename Signature, typename... S>
struct LateKernel;
/// How the runtime makes and moves a `DeviceResource` (src/kmm/engine/device_resource.hpp).
class DeviceResourceAccess;

/// "a task's resource is a <found>, not a <wanted>"; IR.
[[noreturn]] void throw_wrong_resource(const char* wanted);
/// Bytes of `n` elements; IA with both numbers if they do not fit 63 bits.
std::size_t checked_bytes(const char* what, std::size_t n, std::size_t element_bytes);
}  // namespace detail

/// What runs a task.
class Resource {
  public:
    virtual ~Resource();
    Resource(const Resource&) = delete;
    Resource& operator=(const Resource&) = delete;

    /// Whether this is a `T` (HostResource or DeviceResource).
    template<typename T>
    bool is() const noexcept {
        return dynamic_cast<const T*>(this) != nullptr;
    }
    /// This as a `T`, or null.
    template<typename T>
    T* cast_if() noexcept {
        return dynamic_cast<T*>(this);
    }
    template<typename T>
    const T* cast_if() const noexcept {
        return dynamic_cast<const T*>(this);
    }
    /// This as a `T`. IR if it is something else.
    template<typename T>
    T& cast() {
        T* result = cast_if<T>();
        if (result == nullptr) detail::throw_wrong_resource(std::is_same_v<T, DeviceResource> ? "device" : "host");
        return *result;
    }
    template<typename T>
    const T& cast() const {
        return const_cast<Resource*>(this)->cast<T>();
    }

  protected:
    Resource() = default;
};

/// A thread of the host pool. Only launchers of the program's own see it.
class HostResource final : public Resource {
  public:
    HostResource() = default;
    ~HostResource() override;
};

/// A device while a task runs on it. Work enqueued on `stream()` until the task's function returns belongs to the task,
/// which is done when the stream has finished it. All members are for the task that received the object.
class DeviceResource final : public Resource, public DeviceInfo {
  public:
    ~DeviceResource() override;

    /// The stream of the task. Never blocks. While the task's function waits for another runtime or another function,
    /// work of other tasks may come on it: a function that captures its stream must not wait meanwhile.
    GPUstream_t stream() const noexcept { return reinterpret_cast<GPUstream_t>(stream_); }
    operator GPUstream_t() const noexcept { return stream(); }
    void* native_stream() const noexcept { return stream_; }
    /// The part of the domain that this task works on.
    const DomainChunk& chunk() const noexcept { return *chunk_; }

#if defined(KMM_USE_CUDA) || defined(KMM_USE_HIP)
    /// The context of the device, which is current while the task's function runs.
    GPUContextHandle context() const { return GPUContextHandle(device_ordinal()); }
    GPUContextHandle context_handle() const { return context(); }
#endif

    /// A BLAS handle bound to `stream()`. NA: not offered by this version.
    blasHandle_t blas() const {
        detail::throw_not_available("DeviceResource::blas() is not offered by this version of kmm; call the BLAS "
                                    "library with a handle of your own, bound to stream()");
    }

    /// Waits for the work on `stream()`. DE.
    void synchronize() const;

    /// Launches a `__global__` function on `stream()`, each argument converted to the parameter type. IA DE NA.
    template<typename FileKind = detail::FileKind, typename... P, typename... Args>
    void launch(dim3 grid, dim3 block, unsigned shared, void (*kernel)(P...), Args&&... args) const {
        static_assert(sizeof...(P) == sizeof...(Args), "the number of arguments differs from the kernel's parameters");
        static_assert((std::is_convertible_v<Args&&, P> && ...),
                      "an argument does not convert to the kernel's parameter");
        require_kernel_mode(detail::kernel_mode);
        detail::PackedParameters<P...> packed(static_cast<P>(static_cast<Args&&>(args))...);
        const std::uint32_t grid_size[3] = {grid.x, grid.y, grid.z};
        const std::uint32_t block_size[3] = {block.x, block.y, block.z};
        launch_packed(detail::kernel_handle(kernel, device_ordinal()), grid_size, block_size, shared, packed.data(),
                      packed.size_bytes);
    }

    /// Stores `value` in `n` elements at `pointer`, in stream order. `sizeof(T)` is 1 to 64. IA DE.
    template<typename T>
    void fill(T* pointer, std::size_t n, typename detail::TypeIdentity<T>::type value) const {
        static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64,
                      "fill needs a trivially copyable type of 1 to 64 bytes");
        fill_elements(pointer, &value, sizeof(T), n);
    }
    /// The same for every element of a view of any layout.
    template<typename T, typename D, typename L>
    void fill(const AbstractView<T, D, L, views::device_accessor>& view,
              typename detail::TypeIdentity<T>::type value) const {
        using View = AbstractView<T, D, L, views::device_accessor>;
        static_assert(!std::is_const_v<T>, "fill needs a view of mutable elements");
        static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 64,
                      "fill needs a trivially copyable type of 1 to 64 bytes");
        if (view.is_empty()) return;
        std::int64_t sizes[detail::max_rank];
        detail::store_sizes(view, sizes);
        fill_box(View::rank, sizes, detail::strided_box(view), &value, sizeof(T));
    }

    /// Copies elements between views of equal sizes and any layouts, in stream order. Host memory must stay valid until
    /// the task's event is done. IA DE.
    template<typename T, typename D, typename L, typename A, typename U, typename E, typename M, typename B>
    void copy(const AbstractView<T, D, L, A>& from, const AbstractView<U, E, M, B>& to) const {
        using From = AbstractView<T, D, L, A>;
        using To = AbstractView<U, E, M, B>;
        static_assert(std::is_same_v<std::remove_const_t<T>, U>,
                      "copy needs equal element types and a mutable destination");
        static_assert(From::rank == To::rank, "copy needs views of equal rank");
        static_assert(std::is_trivially_copyable_v<U>, "copy needs a trivially copyable element type");
        std::int64_t from_sizes[detail::max_rank];
        std::int64_t to_sizes[detail::max_rank];
        detail::store_sizes(from, from_sizes);
        detail::store_sizes(to, to_sizes);
        copy_box(To::rank, to_sizes, from_sizes, detail::strided_box(to), detail::strided_box(from), sizeof(U));
    }
    template<typename T>
    void copy(const T* from, T* to, std::size_t n) const {
        static_assert(std::is_trivially_copyable_v<T>, "copy needs a trivially copyable element type");
        copy_bytes(from, to, detail::checked_bytes("copy", n, sizeof(T)));
    }

    /// Repeats a pattern of 1 to 64 bytes; `num_bytes` must be a multiple of `pattern_bytes`. IA DE.
    void fill_bytes(void* pointer, std::size_t num_bytes, const void* pattern, std::size_t pattern_bytes) const;
    /// Copies bytes between any two memories, in stream order. DE.
    void copy_bytes(const void* from, void* to, std::size_t num_bytes) const;

    /// Memory for the work of this task. NA: not offered by this version.
    void* scratch(std::size_t bytes, std::size_t alignment = 256) const {
        static_cast<void>(bytes);
        static_cast<void>(alignment);
        detail::throw_not_available("DeviceResource::scratch() is not offered by this version of kmm; pass an array to "
                                    "the task with overwrite(..) instead");
    }
    template<typename T>
    T* scratch(std::size_t n) const {
        return static_cast<T*>(
            scratch(detail::checked_bytes("scratch", n, sizeof(T)), alignof(T) > 256 ? alignof(T) : 256));
    }

  private:
    friend class detail::DeviceResourceAccess;
    template<typename Signature, typename... S>
    friend struct detail::LateKernel;
    DeviceResource(const DeviceInfo& info, driver::Driver& driver, void* stream);

    void require_kernel_mode(detail::LauncherInfo::Mode mode) const;
    void launch_packed(const void* handle, const std::uint32_t (&grid)[3], const std::uint32_t (&block)[3],
                       std::uint32_t shared_bytes, const void* parameters, std::size_t parameter_bytes) const;
    void fill_elements(void* pointer, const void* value, std::size_t element_bytes, std::size_t n) const;
    void fill_box(std::size_t rank, const std::int64_t* sizes, const detail::StridedBox& box, const void* value,
                  std::size_t element_bytes) const;
    void copy_box(std::size_t rank, const std::int64_t* to_sizes, const std::int64_t* from_sizes,
                  const detail::StridedBox& to, const detail::StridedBox& from, std::size_t element_bytes) const;

    driver::Driver* driver_;
    void* stream_;
    const driver::KernelHooks* hooks_ = nullptr;  // for the kernels of this task
    const DomainChunk* chunk_ = nullptr;
};

}  // namespace kmm
