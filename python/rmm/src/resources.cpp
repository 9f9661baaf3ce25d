// The base class of resources, and those that stand on nothing.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "objects.hpp"
#include "rmm/mr/cuda_async_managed_memory_resource.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_async_view_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/pinned_pool_memory_resource.hpp"
#include "rmm/mr/sam_headroom_memory_resource.hpp"
#include "rmm/mr/system_memory_resource.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"

namespace rmm_python {
namespace {

namespace mr = rmm::mr;
using async_pool = mr::cuda_async_memory_resource;

using cuda_object = object_over<mr::cuda_memory_resource>;
using managed_object = object_over<mr::managed_memory_resource>;
using pinned_object = object_over<mr::pinned_host_memory_resource>;
using system_object = object_over<mr::system_memory_resource>;
using headroom_object = object_over<mr::sam_headroom_memory_resource>;
using async_object = object_over<mr::cuda_async_memory_resource>;
using async_managed_object = object_over<mr::cuda_async_managed_memory_resource>;
using vmm_object = object_over<mr::vmm_memory_resource>;
using pinned_pool_object = object_over<mr::pinned_pool_memory_resource>;

struct async_view_object : object_over<mr::cuda_async_view_memory_resource> {
    nb::object pool;  ///< what the handle was taken from
};

/// A pool of the driver, for those that look at it.
struct pool_handle {
    cudaMemPool_t handle;
};

std::uintptr_t number(cudaMemPool_t pool) { return reinterpret_cast<std::uintptr_t>(pool); }

cudaMemPool_t pool_of(nb::handle object) {
    if (nb::isinstance<pool_handle>(object)) return nb::inst_ptr<pool_handle>(object)->handle;
    const std::string type = nb::str(object.type().attr("__name__")).c_str();
    if ((type != "cudaMemPool_t" && type != "CUmemoryPool") || !nb::hasattr(object, "__int__"))
        throw nb::value_error(
            ("a memory pool is needed (cudaMemPool_t or CUmemoryPool of cuda.bindings, or what pool_handle() of a "
             "CudaAsyncMemoryResource gives), not " +
             type)
                .c_str());
    void* const address = PyLong_AsVoidPtr(nb::steal(PyNumber_Long(object.ptr())).ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return static_cast<cudaMemPool_t>(address);
}

std::optional<std::size_t> optional_bytes(nb::handle size, const char* what) {
    if (size.is_none()) return std::nullopt;
    return bytes_of(size, what);
}

void init_async(async_object* self, nb::handle initial, nb::handle threshold, bool ipc, bool fabric) {
    using handle_type = async_pool::allocation_handle_type;
    std::optional<handle_type> handles;
    if (ipc || fabric)
        handles = static_cast<handle_type>((ipc ? static_cast<int>(handle_type::posix_file_descriptor) : 0) |
                                           (fabric ? static_cast<int>(handle_type::fabric) : 0));
    make(self, optional_bytes(initial, "initial_pool_size").value_or(0), optional_bytes(threshold, "release_threshold"),
         handles);
}

void init_vmm(vmm_object* self, nb::handle maximum, bool ipc, bool fabric, bool rdma, bool multicast) {
    using vmm = mr::vmm_memory_resource;
    const auto handles =
        static_cast<vmm::handle_type>((ipc ? static_cast<int>(vmm::handle_type::posix_file_descriptor) : 0) |
                                      (fabric ? static_cast<int>(vmm::handle_type::fabric) : 0));
    make(self, vmm::options{optional_bytes(maximum, "maximum_size"), handles, rdma, multicast});
}

/// "12.5 MiB" in bytes. The unit is one of `units`, case ignored.
std::size_t parsed(const std::string& text) {
    struct unit {
        const char* name;
        double bytes;
    };
    static constexpr double k = 1000, ki = 1024;
    static constexpr unit units[] = {{"", 1},
                                     {"b", 1},
                                     {"kb", k},
                                     {"mb", k * k},
                                     {"gb", k * k * k},
                                     {"tb", k * k * k * k},
                                     {"pb", k * k * k * k * k},
                                     {"kib", ki},
                                     {"mib", ki * ki},
                                     {"gib", ki * ki * ki},
                                     {"tib", ki * ki * ki * ki},
                                     {"pib", ki * ki * ki * ki * ki}};
    const auto fail = [&]() -> std::size_t {
        throw nb::value_error(("Could not parse " + text + " as a byte specification").c_str());
    };
    std::size_t at = 0;
    const auto skip_blanks = [&] {
        while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
    };
    skip_blanks();
    const std::size_t begin = at;
    while (at < text.size() && (std::isdigit(static_cast<unsigned char>(text[at])) != 0 || text[at] == '.')) ++at;
    const std::string digits = text.substr(begin, at - begin);
    if (digits.empty() || digits == "." || digits.find('.') != digits.rfind('.')) return fail();
    skip_blanks();
    std::string name;
    for (; at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])) != 0; ++at)
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(text[at])));
    skip_blanks();
    if (at != text.size()) return fail();
    for (const unit& u : units) {
        if (name != u.name) continue;
        const bool is_whole = digits.find('.') == std::string::npos;
        if (is_whole && digits.size() < 20) {
            const unsigned __int128 bytes =
                static_cast<unsigned __int128>(std::stoull(digits)) * static_cast<unsigned __int128>(u.bytes);
            if (bytes >> 64 == 0) return static_cast<std::size_t>(bytes);
        } else if (!is_whole) {
            const long double bytes = std::floor(std::stold(digits) * static_cast<long double>(u.bytes));
            if (bytes < 18446744073709551616.0L) return static_cast<std::size_t>(bytes);
        }
        PyErr_SetString(PyExc_OverflowError, (text + " is more bytes than there are addresses").c_str());
        throw nb::python_error();
    }
    return fail();
}

std::uintptr_t allocate(const resource_object& self, nb::handle nbytes, nb::handle on) {
    const std::size_t bytes = size_of(nbytes, "nbytes");
    const stream_argument stream(on);
    native& held = *self.need();
    const without_gil released;
    const rmm::cuda_set_device_raii device{rmm::cuda_device_id{held.device()}};
    return reinterpret_cast<std::uintptr_t>(held.object().allocate(bytes, stream.view()));
}

void deallocate(const resource_object& self, nb::handle ptr, nb::handle nbytes, nb::handle on) {
    const std::size_t address = size_of(ptr, "ptr");
    const std::size_t bytes = size_of(nbytes, "nbytes");
    const stream_argument stream(on);
    native& held = *self.need();
    const without_gil released;
    const rmm::cuda_set_device_raii device{rmm::cuda_device_id{held.device()}};
    held.object().deallocate(reinterpret_cast<void*>(address), bytes, stream.view());
}

void bind_base(const nb::object& default_stream) {
    nb::class_<resource_object>(named_module(of_resources), "DeviceMemoryResource", nb::is_weak_referenceable(),
                                "The base class of resources: where memory of a device comes from.")
        .def(nb::init<>())
        .def("allocate", &allocate, nb::arg("nbytes").none(), nb::arg("stream").none() = default_stream,
             "Allocates `nbytes` bytes for use on the stream; returns the address.")
        .def("deallocate", &deallocate, nb::arg("ptr").none(), nb::arg("nbytes").none(),
             nb::arg("stream").none() = default_stream,
             "Gives memory back, which may be used again on the stream at once; `nbytes` as it was asked for.");
    nb::class_<adaptor_object, resource_object>(named_module(of_resources), "UpstreamResourceAdaptor",
                                                nb::type_slots(adaptor_slots()),
                                                "The base class of resources that take their memory from another one.")
        .def(
            "__init__",
            [](adaptor_object* self, nb::object upstream_mr) {
                known_resource below = resource_argument(upstream_mr, "upstream_mr");
                new (self) adaptor_object;
                self->upstream_mr = std::move(below.object);
            },
            nb::arg("upstream_mr").none())
        .def_ro("upstream_mr", &adaptor_object::upstream_mr, "The resource that the memory comes from.")
        .def("get_upstream", [](const adaptor_object& self) { return self.upstream_mr; });
}

}  // namespace

std::size_t bytes_of(nb::handle size, const char* what) {
    if (nb::isinstance<nb::str>(size)) return parsed(nb::cast<std::string>(size));
    return size_of(size, what);
}

void let_go(native_ptr& held) noexcept {
    if (held.use_count() > 1) {
        held.reset();
    } else if (held && is_exiting()) {
        new native_ptr(std::move(held));  // left to the end of the process
    } else if (held) {
        native_ptr last = std::move(held);
        const without_gil released;
        last.reset();
    }
}

void dependent::stand_on(list& below) noexcept {
    leave();
    next_ = below.first_;
    if (next_ != nullptr) next_->link_ = &next_;
    link_ = &below.first_;
    below.first_ = this;
}

void dependent::leave() noexcept {
    if (link_ == nullptr) return;
    *link_ = next_;
    if (next_ != nullptr) next_->link_ = link_;
    link_ = nullptr;
}

void dependent::list::release() noexcept {
    while (first_ != nullptr) {
        dependent& d = *first_;
        d.leave();
        d.release_(d.user_);
    }
}

void adaptor_object::release(void* self) noexcept {
    auto& object = *static_cast<adaptor_object*>(self);
    object.dependents.release();
    let_go(object.held);
}

native& native::keep(const known_resource& self) noexcept {
    native& kept = *self.held;
    if (kept.num_kept_++ == 0) {
        kept.self_ = self.held;
        kept.object_ = self.object;
    }
    return kept;
}

void native::unkeep() noexcept {
    if (--num_kept_ != 0) return;
    const nb::object object = std::move(object_);
    native_ptr last = std::move(self_);
    let_go(last);
}

const native_ptr& resource_object::need() const {
    if (!held)
        throw std::runtime_error("this resource has nothing behind it: an object of the bare base class cannot "
                                 "allocate, nor one whose memory the garbage collector has given back; for a resource "
                                 "made of functions of Python use CallbackMemoryResource");
    return held;
}

known_resource resource_argument(nb::handle object, const char* what) {
    if (object.is_none()) throw nb::type_error((std::string("Argument `") + what + "` must not be None").c_str());
    if (!nb::isinstance<resource_object>(object))
        throw nb::type_error((std::string("Argument `") + what + "` must be a DeviceMemoryResource, not " +
                              nb::str(object.type().attr("__name__")).c_str())
                                 .c_str());
    return {nb::borrow(object), nb::inst_ptr<resource_object>(object)->need()};
}

nb::object upstream_of(nb::object upstream_mr, const nb::kwargs& others) {
    for (const auto& [key, value] : others) {
        if (std::string(nb::str(key).c_str()) != "upstream")
            throw nb::type_error(
                (std::string("an unexpected keyword argument '") + nb::str(key).c_str() + "'").c_str());
        if (!upstream_mr.is_none()) throw nb::type_error("upstream_mr is given twice: once as upstream, its old name");
        warn_of_old_name("the keyword upstream", "upstream_mr");
        return nb::borrow(value);
    }
    return upstream_mr;
}

void bind_resources(nb::module_&) {
    const nb::object default_stream = named_module("rmm.pylibrmm.stream").attr("DEFAULT_STREAM");
    bind_base(default_stream);
    nb::module_ of_helper = named_module("rmm.pylibrmm.helper");
    of_helper.def(
        "parse_bytes",
        [](nb::handle s) -> nb::object {
            if (PyIndex_Check(s.ptr()) != 0) return nb::steal(PyNumber_Index(s.ptr()));
            if (!nb::isinstance<nb::str>(s)) throw nb::type_error("bytes are an int, or text with a unit: \"4MiB\"");
            return nb::int_(parsed(nb::cast<std::string>(s)));
        },
        nb::arg("s").none(), "A number of bytes, of an int or of text with a unit (\"4MiB\", \"1.5 GB\").");

    plain_class<cuda_object>("CudaMemoryResource", "Each request goes to the driver.")
        .def(
            "__init__",
            [](cuda_object* self, nb::object device) {
                if (device.is_none()) return make(self);
                warn_of_old_name("CudaMemoryResource(device)", "rmm.mr.set_per_device_resource");
                make_on(self, int_of(device, "device"), nullptr);
            },
            nb::arg("device").none() = nb::none());
    plain_class<managed_object>("ManagedMemoryResource", "Memory that moves between the host and the devices.")
        .def("__init__", [](managed_object* self) { make(self); });
    plain_class<pinned_object>("PinnedHostMemoryResource", "Page-locked memory of the host, which devices can reach.")
        .def("__init__", [](pinned_object* self) { make(self); });
    plain_class<system_object>("SystemMemoryResource", "Pageable memory of the host, where the device can reach it.")
        .def("__init__", [](system_object* self) { make(self); });
    plain_class<headroom_object>("SamHeadroomMemoryResource",
                                 "The same, on the device as long as `headroom` bytes of it stay free.")
        .def(
            "__init__", [](headroom_object* self, nb::handle headroom) { make(self, bytes_of(headroom, "headroom")); },
            nb::arg("headroom").none());
    nb::class_<pool_handle>(named_module(of_resources), "PoolHandle", "The handle of a memory pool of the driver.")
        .def("__int__", [](const pool_handle& p) { return number(p.handle); });
    plain_class<async_object>("CudaAsyncMemoryResource", "A stream-ordered pool of the driver, of its own.")
        .def("__init__", &init_async, nb::arg("initial_pool_size").none() = nb::none(),
             nb::arg("release_threshold").none() = nb::none(), nb::arg("enable_ipc") = false,
             nb::arg("enable_fabric") = false)
        .def("pool_handle", [](const async_object& self) { return pool_handle{self.get().pool_handle()}; });
    static PyType_Slot view_slots[] = {
        {Py_tp_traverse, reinterpret_cast<void*>(&traverse<async_view_object, &async_view_object::pool>)},
        {0, nullptr}};
    nb::class_<async_view_object, resource_object>(named_module(of_resources), "CudaAsyncViewMemoryResource",
                                                   nb::type_slots(view_slots),
                                                   "A pool of the driver that somebody else owns.")
        .def(
            "__init__",
            [](async_view_object* self, nb::object pool) {
                make(self, pool_of(pool));
                self->pool = std::move(pool);
            },
            nb::arg("pool_handle").none())
        .def("pool_handle", [](const async_view_object& self) { return number(self.get().pool_handle()); });
    plain_class<async_managed_object>("CudaAsyncManagedMemoryResource", "The driver's pool of managed memory.")
        .def("__init__", [](async_managed_object* self) { make(self); })
        .def("pool_handle", [](const async_managed_object& self) { return number(self.get().pool_handle()); });
    auto vmm = plain_class<vmm_object>("VmmMemoryResource", "A pool on virtual memory, which does not fragment.");
    vmm.def("__init__", &init_vmm, nb::arg("maximum_size").none() = nb::none(), nb::kw_only(),
            nb::arg("enable_ipc") = false, nb::arg("enable_fabric") = false, nb::arg("enable_rdma") = false,
            nb::arg("enable_multicast") = false);
    vmm.def("pool_size", [](const vmm_object& self) { return self.get().pool_size(); });
    add_pool_members(vmm, static_cast<vmm_object*>(nullptr));
    auto pinned =
        plain_class<pinned_pool_object>("PinnedPoolMemoryResource", "A pool of page-locked memory of the host.");
    pinned.def(
        "__init__",
        [](pinned_pool_object* self, nb::handle maximum) {
            make(self, std::size_t{0}, optional_bytes(maximum, "maximum_size"));
        },
        nb::arg("maximum_size").none() = nb::none());
    pinned.def("pool_size", [](const pinned_pool_object& self) { return self.get().pool_size(); });
    add_pool_members(pinned, static_cast<pinned_pool_object*>(nullptr));
}

}  // namespace rmm_python
