// What the files of the native module share: how Python objects hold streams and resources of rmm.
//
// Rules: nobody waits for a lock of a resource or of the driver while holding the GIL, and nobody takes the GIL while
// holding a lock of the library. (The lock of the devices' table is taken with the GIL: nothing is called under it.)
// Python objects release natives without the GIL. A native owns no Python object: the owner of a native also owns its
// Python object, which owns the functions that the native calls. Must not know: kmm.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "gil.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/cuda_stream_view.hpp"
#include "rmm/mr/device_memory_resource.hpp"

namespace rmm_python {

namespace nb = nanobind;
using resource = rmm::mr::device_memory_resource;

/// From the atexit hook on: what is still alive is left to the end of the process.
bool is_exiting() noexcept;
/// Calls `f`, which waits for nothing, unless that time has come; it does not come meanwhile. Any thread, with or
/// without the GIL.
void before_exit(void (*f)()) noexcept;

// ---- arguments

/// Of an int, or of anything with __index__: a size or an address. Throws OverflowError for a number that is none,
/// TypeError for others; the texts begin with `what`, the argument's name.
std::size_t size_of(nb::handle number, const char* what);
/// The same, or text with a unit ("4MiB"). Throws ValueError for text that is none.
std::size_t bytes_of(nb::handle size, const char* what);
/// The same for numbers that may be negative.
int int_of(nb::handle number, const char* what);
/// Warns of an old name (FutureWarning).
void warn_of_old_name(const char* old_name, const char* instead);
/// An attribute of a module, imported at the first use.
nb::object imported(const char* module, const char* name);

// ---- streams (streams.cpp)

/// A handle, and what keeps it valid.
struct stream {
    cudaStream_t handle = nullptr;
    nb::object keeper;  ///< the object that it was made from, or the owner of the handle

    rmm::cuda_stream_view view() const noexcept { return rmm::cuda_stream_view{handle}; }
    /// The legacy default stream, by either of its handles.
    bool is_default() const noexcept { return handle == nullptr || handle == rmm::cuda_stream_legacy.value(); }
};

/// A stream argument: a Stream, or what one can be made from. Throws TypeError for None.
class stream_argument {
  public:
    explicit stream_argument(nb::handle object);
    rmm::cuda_stream_view view() const noexcept { return native_->view(); }
    bool is_default() const noexcept { return native_->is_default(); }
    const nb::object& object() const noexcept { return object_; }  ///< the Stream

  private:
    nb::object object_;
    stream* native_ = nullptr;
};

// ---- resources (resources.cpp)

/// What uses the memory of a resource object and holds the object: a buffer, or a resource above. Under the GIL.
class dependent {
  public:
    using release_function = void (*)(void* user) noexcept;
    dependent(void* user, release_function release) noexcept : user_(user), release_(release) {}
    ~dependent() { leave(); }
    dependent(const dependent&) = delete;
    dependent& operator=(const dependent&) = delete;

    class list;
    void stand_on(list& below) noexcept;

  private:
    void leave() noexcept;

    void* const user_;
    const release_function release_;
    dependent** link_ = nullptr;  // what points here
    dependent* next_ = nullptr;
};

class dependent::list {
  public:
    /// Each of them gives back all memory, those above it first.
    void release() noexcept;

  private:
    friend class dependent;
    dependent* first_ = nullptr;
};

struct known_resource;

/// The native side of a resource object, shared by all that need it: buffers, resources above it, the device table.
class native {
  public:
    explicit native(int device) noexcept : device_(device) {}
    virtual ~native() = default;
    native(const native&) = delete;
    native& operator=(const native&) = delete;
    virtual resource& object() noexcept = 0;
    int device() const noexcept { return device_; }
    /// Whether it, or one below, calls functions that objects of Python own: those must live as long as the native.
    virtual bool calls_python() const noexcept { return false; }

    /// As allocate and deallocate of the resource, where that needs no wait and no call of the driver: the GIL may be
    /// held, and any device be current. Null, or false, with nothing done, where it does.
    virtual void* allocate_at_hand(std::size_t, rmm::cuda_stream_view) noexcept { return nullptr; }
    virtual bool deallocate_at_hand(void*, std::size_t, rmm::cuda_stream_view) noexcept { return false; }

    /// For blocks that no object of Python owns: the resource lives until each `keep` has had its `unkeep`. Under the
    /// GIL: only the first `keep` and the last `unkeep` touch the counts that others share.
    static native& keep(const known_resource& self) noexcept;
    void unkeep() noexcept;

  private:
    const int device_;
    std::size_t num_kept_ = 0;
    std::shared_ptr<native> self_;  // while it is kept
    nb::object object_;             // likewise
};
using native_ptr = std::shared_ptr<native>;

/// Of a type of resource.
template<typename Resource>
inline constexpr bool has_functions = false;

/// A resource that Python has made; above `upstream`, which may be null.
template<typename Resource>
class opened final : public native {
  public:
    template<typename... Arguments>
    opened(int device, native_ptr upstream, Arguments&&... arguments)
        : native(device), upstream_(std::move(upstream)), resource_(std::forward<Arguments>(arguments)...) {}
    resource& object() noexcept override { return resource_; }
    Resource& get() noexcept { return resource_; }
    bool calls_python() const noexcept override {
        if constexpr (requires(const Resource& r) { r.calls_python(); })
            if (resource_.calls_python()) return true;
        return has_functions<Resource> || (upstream_ != nullptr && upstream_->calls_python());
    }
    void* allocate_at_hand(std::size_t bytes, rmm::cuda_stream_view on) noexcept override {
        if constexpr (is_pool) return resource_.implementation().allocate_at_hand(bytes, on);
        return nullptr;
    }
    bool deallocate_at_hand(void* ptr, std::size_t bytes, rmm::cuda_stream_view on) noexcept override {
        if constexpr (is_pool) return resource_.implementation().deallocate_at_hand(ptr, bytes, on);
        return false;
    }

  private:
    static constexpr bool is_pool = requires(Resource& r) { r.implementation().allocate_at_hand(0, {}); };
    native_ptr upstream_;
    Resource resource_;
};

/// One that others have made, and what keeps it alive, if they have said that.
class borrowed final : public native {
  public:
    borrowed(int device, resource& object, std::shared_ptr<void> owner) noexcept
        : native(device), object_(object), owner_(std::move(owner)) {}
    resource& object() noexcept override { return object_; }
    const std::shared_ptr<void>& owner() const noexcept { return owner_; }

  private:
    resource& object_;
    std::shared_ptr<void> owner_;
};

/// Lets go of it, without the GIL if it may be the last reference.
void let_go(native_ptr& held) noexcept;

/// Python's DeviceMemoryResource.
struct resource_object {
    native_ptr held;  ///< none in an object of the bare base class, and once the collector has released it
    dependent::list dependents;

    resource_object() = default;
    resource_object(const resource_object&) = delete;
    resource_object& operator=(const resource_object&) = delete;
    ~resource_object() { let_go(held); }
    /// Throws RuntimeError where there is none.
    const native_ptr& need() const;
    resource& object() const { return need()->object(); }
};

/// Python's UpstreamResourceAdaptor.
struct adaptor_object : resource_object {
    nb::object upstream_mr;
    dependent on_upstream{this, &release};

    /// The native may need the functions of what is below it in its end.
    ~adaptor_object() { let_go(held); }
    static void release(void* self) noexcept;
};

/// What Python sees as a resource, with what it stands for.
struct known_resource {
    nb::object object;
    native_ptr held;
};

/// The argument as a resource; TypeError if it is none.
known_resource resource_argument(nb::handle object, const char* what);
/// ``mr=None`` of a buffer: the resource of the current device.
known_resource current_resource();
/// What allocates on the device. Valid until the GIL is let go of.
const known_resource& resource_of_device(int device);

// ---- the parts of the module

void bind_errors();
void bind_streams();
void bind_resources(nb::module_& core);
void bind_adaptors();
void bind_device_table();
void bind_buffers();
void bind_devices(nb::module_& core);
void bind_logging(nb::module_& core);
void bind_reports(nb::module_& core);
void bind_allocator_hooks(nb::module_& core);

/// A module that only gives its name to what is defined in it (``__module__``), as RMM has it.
nb::module_ named_module(const char* name);
/// Everything that was defined in those modules becomes an attribute of the native module.
void export_named_modules(nb::module_& core);

/// The module of the resources.
constexpr const char* of_resources = "rmm.pylibrmm.memory_resource";

/// For objects that hold Python objects: the garbage collector sees them, and never takes them away first.
template<typename T, nb::object T::* Held>
int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self)) Py_VISIT((nb::inst_ptr<T>(self)->*Held).ptr());
    return 0;
}

}  // namespace rmm_python
