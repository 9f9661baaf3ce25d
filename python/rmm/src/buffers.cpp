// DeviceBuffer, and copies between addresses.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include "binding.hpp"
#include "rmm/device_buffer.hpp"
#include "rmm/prefetch.hpp"
#include "rmm/staged_copy.hpp"
#include "rmm/status.hpp"

namespace rmm_python {
namespace {

/// Python's DeviceBuffer.
struct buffer {
    std::optional<rmm::device_buffer> data;
    known_resource from;
    nb::object stream;
    dependent on_resource{this, &release};

    buffer() = default;
    buffer(const buffer&) = delete;
    buffer& operator=(const buffer&) = delete;
    ~buffer() {
        if (is_exiting()) {
            new (&data) std::optional<rmm::device_buffer>();  // left to the end of the process
        } else if (data && data->capacity() != 0) {
            const without_gil released;
            data.reset();
        }
        let_go(from.held);
    }
    /// tp_clear: the buffer and its resource are garbage.
    static void release(void* self) noexcept {
        auto& gone = *static_cast<buffer*>(self);
        std::optional<rmm::device_buffer> memory(std::move(*gone.data));  // leaves an empty one
        {
            const without_gil released;
            memory.reset();
        }
        let_go(gone.from.held);
    }
    /// Throws RuntimeError where that is so.
    const known_resource& need_resource() const {
        if (!from.held) throw std::runtime_error("the garbage collector has given the memory of this buffer back");
        return from;
    }
    std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(data->data()); }
};

nb::object default_stream() { return named_module("rmm.pylibrmm.stream").attr("DEFAULT_STREAM"); }

std::string bytes_needed(std::size_t bytes) { return "Need space for " + std::to_string(bytes) + " bytes."; }

// ---- copies

void copy(void* to, const void* from, std::size_t bytes, const stream_argument& on) {
    if (bytes == 0) return;
    const without_gil released;
    rmm::detail::check(rmm::detail::the_driver().copy(to, from, bytes, rmm::detail::handle_of(on.view())));
}
/// On a default stream the copy is done when this returns. One of the two is memory of the host.
enum class direction : unsigned char { to_device, to_host };
void copy_and_settle(direction where, void* to, const void* from, std::size_t bytes, const stream_argument& on) {
    if (bytes == 0) return;
    if (!on.is_default()) return copy(to, from, bytes, on);
    const without_gil released;
    rmm::detail::driver::Driver& driver = rmm::detail::the_driver();
    const bool is_done = driver.kind() != rmm::detail::driver::Kind::host &&
                         (where == direction::to_device ? rmm::detail::copy_staged_to_device(to, from, bytes)
                                                        : rmm::detail::copy_staged_to_host(to, from, bytes));
    if (is_done) return;
    rmm::detail::check(driver.copy(to, from, bytes, rmm::detail::handle_of(on.view())));
    on.view().synchronize();
}

/// A bytes-like object of the host: one dimension, contiguous, of unsigned bytes.
class host_bytes {
  public:
    enum class use : unsigned char { read, write };
    host_bytes(nb::handle object, use how) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_FORMAT | PyBUF_STRIDES) != 0) throw nb::python_error();
        const char* format = view_.format == nullptr ? "B" : view_.format;
        if (std::strchr("@=<>!", *format) != nullptr && *format != '\0') ++format;
        const char* wrong = nullptr;
        if (std::strcmp(format, "B") != 0)
            wrong = "the buffer's elements are no unsigned bytes: take a view of it as uint8";
        else if (view_.ndim != 1)
            wrong = "the buffer has not one dimension: take a flat view of it";
        else if (view_.strides != nullptr && view_.shape[0] > 1 && view_.strides[0] != 1)
            wrong = "the buffer is not contiguous: make a copy that is";
        const bool is_read_only = how == use::write && view_.readonly != 0;
        if (wrong == nullptr && !is_read_only) return;
        PyBuffer_Release(&view_);
        if (wrong != nullptr) throw nb::value_error(wrong);
        PyErr_SetString(PyExc_BufferError, "the buffer cannot be written to");
        throw nb::python_error();
    }
    ~host_bytes() { PyBuffer_Release(&view_); }
    host_bytes(const host_bytes&) = delete;
    host_bytes& operator=(const host_bytes&) = delete;

    void* data() const noexcept { return view_.buf; }
    std::size_t size() const noexcept { return static_cast<std::size_t>(view_.len); }

  private:
    Py_buffer view_{};
};

nb::object new_array(std::size_t bytes) {
    static nb::object* const empty = new nb::object(imported("numpy", "empty"));
    return (*empty)(bytes, "u1");
}

// ---- one buffer

/// Uninitialised, or a copy of `source`, which a default stream has when this returns.
void fill(buffer& made, const void* source, std::size_t size, const stream_argument& on, known_resource from) {
    const rmm::device_async_resource_ref ref{from.held->object()};
    {
        const without_gil released;
        if (source == nullptr || size == 0) {
            made.data.emplace(size, on.view(), ref);
        } else {
            made.data.emplace(source, size, on.view(), ref);
            if (on.is_default()) on.view().synchronize();
        }
    }
    made.stream = on.object();
    made.on_resource.stand_on(nb::inst_ptr<resource_object>(from.object)->dependents);
    made.from = std::move(from);
}

known_resource resource_of(nb::handle mr) { return mr.is_none() ? current_resource() : resource_argument(mr, "mr"); }

void init(buffer* self, nb::handle ptr, nb::handle size, nb::handle on, nb::handle mr) {
    const void* const source = reinterpret_cast<const void*>(size_of(ptr, "ptr"));
    const std::size_t bytes = size_of(size, "size");
    const stream_argument stream(on);
    known_resource from = resource_of(mr);
    new (self) buffer;
    try {
        fill(*self, source, bytes, stream, std::move(from));
    } catch (...) {
        self->~buffer();
        throw;
    }
}

nb::object new_buffer(const void* source, std::size_t size, const stream_argument& on, known_resource from) {
    const nb::handle type = nb::type<buffer>();
    nb::object made = nb::inst_alloc(type);
    new (nb::inst_ptr<buffer>(made)) buffer;
    nb::inst_mark_ready(made);
    fill(*nb::inst_ptr<buffer>(made), source, size, on, std::move(from));
    return made;
}

nb::object to_device(nb::handle b, nb::handle on) {
    const stream_argument stream(on);
    const host_bytes source(b, host_bytes::use::read);
    if (!stream.is_default()) return new_buffer(source.data(), source.size(), stream, current_resource());
    nb::object made = new_buffer(nullptr, source.size(), stream, current_resource());
    copy_and_settle(direction::to_device, nb::inst_ptr<buffer>(made)->data->data(), source.data(), source.size(),
                    stream);
    return made;
}

/// Finished, also on a stream that is not a default one.
void read_whole(const buffer& self, void* to, const stream_argument& on) {
    if (on.is_default()) return copy_and_settle(direction::to_host, to, self.data->data(), self.data->size(), on);
    copy(to, self.data->data(), self.data->size(), on);
    const without_gil released;
    on.view().synchronize();
}

nb::object to_new_array(const buffer& self, const stream_argument& on) {
    nb::object array = new_array(self.data->size());
    const host_bytes to(array, host_bytes::use::write);
    read_whole(self, to.data(), on);
    return array;
}

nb::object copy_to_host(const buffer& self, nb::object ary, nb::handle on) {
    const stream_argument stream(on);
    if (ary.is_none()) return to_new_array(self, stream);
    const host_bytes to(ary, host_bytes::use::write);
    if (to.size() < self.data->size())
        throw nb::value_error(("Argument `ary` is too small. " + bytes_needed(self.data->size())).c_str());
    copy_and_settle(direction::to_host, to.data(), self.data->data(), self.data->size(), stream);
    return ary;
}

void copy_from_host(buffer& self, nb::handle ary, nb::handle on) {
    const stream_argument stream(on);
    const host_bytes from(ary, host_bytes::use::read);
    if (from.size() > self.data->size())
        throw nb::value_error(("Argument `ary` is too large. " + bytes_needed(from.size())).c_str());
    copy_and_settle(direction::to_device, self.data->data(), from.data(), from.size(), stream);
}

/// What __cuda_array_interface__ says, as far as a copy needs it.
struct device_array {
    const void* data = nullptr;
    std::size_t size = 0;
    nb::object stream;

    explicit device_array(nb::handle object) {
        if (!nb::hasattr(object, "__cuda_array_interface__"))
            throw nb::value_error("expected an array on the device: an object with __cuda_array_interface__");
        const nb::object has = object.attr("__cuda_array_interface__");
        const nb::object shape = has["shape"];
        if (nb::len(shape) != 1) throw nb::value_error("expected an array of one dimension: take a flat view of it");
        const std::string type = nb::str(nb::object(has["typestr"])).c_str();
        const std::size_t item = type.size() > 2 ? std::stoull(type.substr(2)) : 1;
        const std::size_t length = size_of(nb::object(shape[0]), "the shape of the array");
        const auto find = [&](const char* key) { return nb::object(has.attr("get")(key)); };
        const nb::object strides = find("strides");
        if (!strides.is_none() && length > 1 && !nb::object(strides[0]).equal(nb::int_(item)))
            throw nb::value_error("expected a contiguous array: make a copy that is");
        if (!find("mask").is_none())
            throw nb::value_error("an array with a mask cannot be copied: fill the masked elements first");
        stream = find("stream");
        data = reinterpret_cast<const void*>(size_of(nb::object(nb::object(has["data"])[0]), "the array's address"));
        size = length * item;
    }
};

void copy_from_device(buffer& self, nb::handle array, nb::handle on) {
    const stream_argument stream(on);
    const device_array from(array);
    if (from.size > self.data->size())
        throw nb::value_error(("Argument `cuda_ary` is too large. " + bytes_needed(from.size)).c_str());
    if (!from.stream.is_none()) {
        // What fills the array comes before the copy.
        const rmm::cuda_stream_view before{reinterpret_cast<cudaStream_t>(size_of(from.stream, "the array's stream"))};
        if (before != stream.view()) {
            const without_gil released;
            before.synchronize();
        }
    }
    copy(self.data->data(), from.data, from.size, stream);
}

nb::object tobytes(const buffer& self, nb::handle on) {
    const stream_argument stream(on);
    nb::object result = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(self.data->size())));
    if (!result.is_valid()) throw nb::python_error();
    read_whole(self, PyBytes_AsString(result.ptr()), stream);
    return result;
}

nb::object duplicate(const buffer& self) {
    return new_buffer(self.data->data(), self.data->size(), stream_argument(self.stream), self.need_resource());
}

void grow(buffer& self, nb::handle to, const char* what, nb::handle on,
          void (rmm::device_buffer::*how)(std::size_t, rmm::cuda_stream_view)) {
    const std::size_t bytes = size_of(to, what);
    const stream_argument stream(on);
    (void)self.need_resource();
    {
        const without_gil released;
        ((*self.data).*how)(bytes, stream.view());
        self.data->set_stream(stream.view());
    }
    self.stream = stream.object();
}

void prefetch(const buffer& self, nb::handle device, nb::handle on) {
    const stream_argument stream(on.is_none() ? nb::handle(self.stream) : on);
    const int to = device.is_none() ? rmm::get_current_cuda_device().value() : int_of(device, "device");
    const without_gil released;
    rmm::prefetch(self.data->data(), self.data->size(), rmm::cuda_device_id{to}, stream.view());
}

nb::dict interface_of(const buffer& self) {
    nb::dict has;
    has["data"] = nb::make_tuple(self.address(), false);
    has["shape"] = nb::make_tuple(self.data->size());
    has["strides"] = nb::none();
    has["typestr"] = "|u1";
    has["version"] = 0;
    return has;
}

nb::object reduce(const buffer& self) {
    static nb::object* const function = new nb::object(imported("rmm.pylibrmm.device_buffer", "to_device"));
    return nb::make_tuple(*function, nb::make_tuple(to_new_array(self, stream_argument(self.stream))));
}

// ---- functions of the module

void* address_of(nb::handle number, const char* what) { return reinterpret_cast<void*>(size_of(number, what)); }

void copy_ptr_to_host(nb::handle db, nb::handle hb, nb::handle on) {
    const stream_argument stream(on);
    const host_bytes to(hb, host_bytes::use::write);
    copy_and_settle(direction::to_host, to.data(), address_of(db, "db"), to.size(), stream);
}

void copy_host_to_ptr(nb::handle hb, nb::handle db, nb::handle on) {
    const stream_argument stream(on);
    const host_bytes from(hb, host_bytes::use::read);
    copy_and_settle(direction::to_device, address_of(db, "db"), from.data(), from.size(), stream);
}

void copy_device_to_ptr(nb::handle source, nb::handle to, nb::handle count, nb::handle on) {
    const stream_argument stream(on);
    copy(address_of(to, "d_dst"), address_of(source, "d_src"), size_of(count, "count"), stream);
}

int traverse_buffer(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    const buffer& held = *nb::inst_ptr<buffer>(self);
    Py_VISIT(held.from.object.ptr());
    Py_VISIT(held.stream.ptr());
    return 0;
}

}  // namespace

void bind_buffers() {
    nb::module_ m = named_module("rmm.pylibrmm.device_buffer");
    const nb::object on_default = default_stream();
    const auto on = [&] { return nb::arg("stream").none() = on_default; };
    static PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse_buffer)}, {0, nullptr}};
    nb::class_<buffer>(m, "DeviceBuffer", nb::is_weak_referenceable(), nb::type_slots(slots),
                       "Untyped memory of a device, with an owner.")
        .def("__init__", &init, nb::kw_only(), nb::arg("ptr").none() = 0, nb::arg("size").none() = 0, on(),
             nb::arg("mr").none() = nb::none())
        .def_prop_ro("ptr", &buffer::address, "The address.")
        .def_prop_ro(
            "size", [](const buffer& b) { return b.data->size(); }, "Bytes.")
        .def_prop_ro(
            "nbytes", [](const buffer& b) { return b.data->size(); }, "Bytes.")
        .def_prop_ro(
            "mr", [](const buffer& b) { return b.from.object; }, "The resource that the memory came from.")
        .def_prop_ro(
            "stream", [](const buffer& b) { return b.stream; }, "The stream that the memory is freed on.")
        .def_prop_ro("__cuda_array_interface__", &interface_of)
        .def("__len__", [](const buffer& b) { return b.data->size(); })
        .def("__sizeof__", [](const buffer& b) { return b.data->size(); })
        .def("__bytes__", [=](const buffer& b) { return tobytes(b, on_default); })
        .def("__copy__", &duplicate)
        .def("copy", &duplicate, "A new buffer of the same content, on this one's stream, from its resource.")
        .def("__reduce__", &reduce)
        .def(
            "capacity", [](const buffer& b) { return b.data->capacity(); },
            "Bytes that are there without an allocation.")
        .def(
            "reserve",
            [](buffer& b, nb::handle to, nb::handle s) {
                grow(b, to, "new_capacity", s, &rmm::device_buffer::reserve);
            },
            nb::arg("new_capacity").none(), on())
        .def(
            "resize",
            [](buffer& b, nb::handle to, nb::handle s) { grow(b, to, "new_size", s, &rmm::device_buffer::resize); },
            nb::arg("new_size").none(), on())
        .def_static("to_device", &to_device, nb::arg("b").none(), on(), "A copy of a bytes-like object.")
        .def("copy_to_host", &copy_to_host, nb::arg("ary").none() = nb::none(), on(),
             "Copies to a bytes-like object, or to a new array of uint8; returns it.")
        .def("copy_from_host", &copy_from_host, nb::arg("ary").none(), on(), "Copies from a bytes-like object.")
        .def("copy_from_device", &copy_from_device, nb::arg("cuda_ary").none(), on(),
             "Copies from an object with __cuda_array_interface__.")
        .def("tobytes", &tobytes, on(), "The content.")
        .def("prefetch", &prefetch, nb::arg("device").none() = nb::none(), nb::arg("stream").none() = nb::none(),
             "Moves managed memory to the device (-1: the host); nothing for other memory.");
    m.def("to_device", &to_device, nb::arg("b").none(), on(), "A DeviceBuffer with a copy of a bytes-like object.");
    // Functions of the module are pickled by their names, as those of Python are.
    nb::module_::import_("copyreg").attr("pickle")(m.attr("to_device").type(),
                                                   imported("operator", "attrgetter")("__qualname__"));
    m.def("copy_ptr_to_host", &copy_ptr_to_host, nb::arg("db").none(), nb::arg("hb").none(), on(),
          "Copies from an address to a bytes-like object, as much as that holds.");
    m.def("copy_host_to_ptr", &copy_host_to_ptr, nb::arg("hb").none(), nb::arg("db").none(), on(),
          "Copies a bytes-like object to an address.");
    m.def("copy_device_to_ptr", &copy_device_to_ptr, nb::arg("d_src").none(), nb::arg("d_dst").none(),
          nb::arg("count").none(), on(), "Copies between two addresses of devices.");
}

}  // namespace rmm_python
