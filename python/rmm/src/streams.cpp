// Streams and stream pools of Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <cstdint>
#include <optional>
#include <string>

#include "binding.hpp"
#include "rmm/cuda_stream.hpp"
#include "rmm/cuda_stream_pool.hpp"

namespace rmm_python {
namespace {

using flags = rmm::cuda_stream::flags;

/// The owner of one handle.
struct owned_stream {
    std::optional<rmm::cuda_stream> held;

    explicit owned_stream(flags f) {
        const without_gil released;
        held.emplace(f);
    }
    ~owned_stream() {
        if (is_exiting()) {
            new (&held) std::optional<rmm::cuda_stream>();  // left to the end of the process
            return;
        }
        const without_gil released;
        held.reset();
    }
    owned_stream(const owned_stream&) = delete;
    owned_stream& operator=(const owned_stream&) = delete;
};

struct stream_pool {
    std::optional<rmm::cuda_stream_pool> held;

    stream_pool(std::size_t size, flags f) {
        const without_gil released;
        held.emplace(size, f);
    }
    ~stream_pool() {
        if (is_exiting()) {
            new (&held) std::optional<rmm::cuda_stream_pool>();
            return;
        }
        const without_gil released;
        held.reset();
    }
    stream_pool(const stream_pool&) = delete;
    stream_pool& operator=(const stream_pool&) = delete;
};

cudaStream_t handle_of_number(nb::handle number) {
    return reinterpret_cast<cudaStream_t>(size_of(number, "the handle of a stream"));
}

/// The module, if somebody has imported it.
nb::object if_imported(const char* module) {
    const nb::dict modules = nb::borrow<nb::dict>(PyImport_GetModuleDict());
    return modules.contains(module) ? nb::object(modules[module]) : nb::object();
}

bool is_instance_of(nb::handle object, const char* module, const char* type) {
    const nb::object found = if_imported(module);
    if (!found.is_valid() || !nb::hasattr(found, type)) return false;
    return nb::isinstance(object, found.attr(type));
}

[[noreturn]] void refuse_protocol(const nb::object& version) {
    const std::string text = std::string("a stream of another version of the protocol: version: '") +
                             nb::str(version).c_str() + "', 0 is understood";
    PyErr_SetString(PyExc_NotImplementedError, text.c_str());
    throw nb::python_error();
}

/// The handle of what is not a Stream; nothing if the object is no stream.
std::optional<cudaStream_t> handle_of_foreign(nb::handle object) {
    if (nb::hasattr(object, "__cuda_stream__")) {
        const nb::object protocol = object.attr("__cuda_stream__")();
        const nb::object version = protocol[0];
        if (!version.equal(nb::int_(0))) refuse_protocol(version);
        return handle_of_number(nb::object(protocol[1]));
    }
    if (is_instance_of(object, "numba.cuda.cudadrv.driver", "Stream")) {
        const nb::object number = nb::steal(PyNumber_Long(object.ptr()));
        if (!number.is_valid()) throw nb::python_error();
        return handle_of_number(number);
    }
    if (is_instance_of(object, "cupy.cuda.stream", "Stream") ||
        is_instance_of(object, "cupy.cuda.stream", "ExternalStream"))
        return handle_of_number(object.attr("ptr"));
    if (nb::hasattr(object, "cuda_stream")) {
        const nb::object handle = object.attr("cuda_stream");
        if (PyIndex_Check(handle.ptr()) != 0) return handle_of_number(handle);
    }
    return std::nullopt;
}

stream from_object(nb::handle object) {
    if (nb::isinstance<stream>(object)) {
        const stream& other = *nb::inst_ptr<stream>(object);
        return {other.handle, other.keeper};
    }
    const std::optional<cudaStream_t> handle = handle_of_foreign(object);
    if (!handle) {
        const std::string type = nb::str(object.type().attr("__qualname__")).c_str();
        throw nb::type_error(
            ("a stream cannot be made from " + type + ": pass an rmm, CuPy, Numba, PyTorch or cuda.core stream")
                .c_str());
    }
    return {*handle, nb::borrow(object)};
}

nb::object object_of(stream made) { return nb::cast(std::move(made)); }

flags flags_of(nb::handle object) {
    const std::size_t number = size_of(object, "flags");
    if (number > static_cast<std::size_t>(flags::non_blocking))
        throw nb::value_error(
            ("flags must be CudaStreamFlags.SYNC_DEFAULT (0) or NON_BLOCKING (1), not " + std::to_string(number))
                .c_str());
    return static_cast<flags>(number);
}

void init_stream(stream* self, nb::object obj, nb::object given) {
    if (!obj.is_none()) {
        if (!given.is_none()) throw nb::value_error("flags may only be specified when obj is None");
        new (self) stream(from_object(obj));
        return;
    }
    auto owner = std::make_shared<owned_stream>(given.is_none() ? flags::sync_default : flags_of(given));
    const cudaStream_t handle = owner->held->value();
    new (self) stream{handle, nb::cast(std::move(owner))};
}

}  // namespace

stream_argument::stream_argument(nb::handle object) {
    if (nb::isinstance<stream>(object)) {
        object_ = nb::borrow(object);
    } else if (object.is_none()) {
        throw nb::type_error("stream argument cannot be None");
    } else if (PyIndex_Check(object.ptr()) != 0) {
        warn_of_old_name("a stream given as a number", "a Stream");
        object_ = object_of({handle_of_number(object), {}});
    } else {
        object_ = object_of(from_object(object));
    }
    native_ = nb::inst_ptr<stream>(object_);
}

void bind_streams() {
    nb::module_ of_stream = named_module("rmm.pylibrmm.stream");
    nb::module_ of_owner = named_module("rmm.pylibrmm.cuda_stream");
    nb::module_ of_pool = named_module("rmm.pylibrmm.cuda_stream_pool");
    nb::module_ of_utils = named_module("rmm.pylibrmm.utils");

    nb::enum_<flags>(of_owner, "CudaStreamFlags", nb::is_arithmetic())
        .value("SYNC_DEFAULT", flags::sync_default, "Ordered with the legacy default stream.")
        .value("NON_BLOCKING", flags::non_blocking, "Not ordered with it.");

    nb::class_<owned_stream>(of_owner, "CudaStream", nb::is_weak_referenceable(),
                             "The owner of the handle of one stream, which is destroyed with it.")
        .def(
            "__init__",
            [](owned_stream* self, nb::object given) {
                new (self) owned_stream(given.is_none() ? flags::sync_default : flags_of(given));
            },
            nb::arg("flags") = nb::none())
        .def("value", [](const owned_stream& s) { return reinterpret_cast<std::uintptr_t>(s.held->value()); })
        .def("is_valid", [](const owned_stream& s) { return s.held->is_valid(); });

    static PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse<stream, &stream::keeper>)},
                                  {0, nullptr}};
    nb::class_<stream>(of_stream, "Stream", nb::is_weak_referenceable(), nb::type_slots(slots),
                       "A stream: a new one, or the one of another object, which is kept alive.")
        .def("__init__", &init_stream, nb::arg("obj").none() = nb::none(), nb::arg("flags").none() = nb::none())
        .def(
            "synchronize",
            [](const stream& s) {
                const without_gil released;
                s.view().synchronize();
            },
            "Blocks until the work queued on the stream is done.")
        .def("is_default", &stream::is_default, "Whether this is the legacy default stream.")
        .def(
            "__cuda_stream__",
            [](const stream& s) { return nb::make_tuple(0, reinterpret_cast<std::uintptr_t>(s.handle)); },
            "The protocol by which libraries hand streams to each other: (0, handle).")
        .def(
            "__eq__",
            [](const stream& s, nb::handle other) {
                return nb::isinstance<stream>(other) && nb::inst_ptr<stream>(other)->handle == s.handle;
            },
            nb::arg("other").none())
        .def("__hash__", [](const stream& s) {
            return static_cast<Py_ssize_t>(reinterpret_cast<std::uintptr_t>(s.handle) >> 4 ^
                                           reinterpret_cast<std::uintptr_t>(s.handle) << 60 >> 1);
        });

    of_stream.attr("DEFAULT_STREAM") = object_of({nullptr, {}});
    of_stream.attr("LEGACY_DEFAULT_STREAM") = object_of({rmm::cuda_stream_legacy.value(), {}});
    of_stream.attr("PER_THREAD_DEFAULT_STREAM") = object_of({rmm::cuda_stream_per_thread.value(), {}});

    nb::class_<stream_pool>(of_pool, "CudaStreamPool", nb::is_weak_referenceable(),
                            "Streams that are handed out in turn.")
        .def(
            "__init__",
            [](stream_pool* self, nb::handle size, nb::object given) {
                new (self)
                    stream_pool(size_of(size, "pool_size"), given.is_none() ? flags::sync_default : flags_of(given));
            },
            nb::arg("pool_size") = 16, nb::arg("flags") = flags::sync_default)
        .def("get_pool_size", [](const stream_pool& p) { return p.held->get_pool_size(); })
        .def(
            "get_stream",
            [](nb::handle self, nb::object id) {
                const stream_pool& p = *nb::inst_ptr<stream_pool>(self);
                const rmm::cuda_stream_view view =
                    id.is_none() ? p.held->get_stream() : p.held->get_stream(size_of(id, "stream_id"));
                return object_of({view.value(), nb::borrow(self)});
            },
            nb::arg("stream_id").none() = nb::none(),
            "The next stream in turn; or the one of a number, modulo the size, which takes no turn.");

    of_utils.def(
        "as_stream", [](nb::object obj) { return stream_argument(obj).object(); }, nb::arg("stream").none(),
        "The argument as a Stream; TypeError for None.");
}

}  // namespace rmm_python
