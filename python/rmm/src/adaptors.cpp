// Resources that take their memory from another one, and those made of functions of Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "errors.hpp"
#include "objects.hpp"
#include "rmm/mr/arena_memory_resource.hpp"
#include "rmm/mr/binning_memory_resource.hpp"
#include "rmm/mr/callback_memory_resource.hpp"
#include "rmm/mr/debug_resource_adaptor.hpp"
#include "rmm/mr/failure_callback_resource_adaptor.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/logging_resource_adaptor.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/prefetch_resource_adaptor.hpp"
#include "rmm/mr/statistics_resource_adaptor.hpp"
#include "rmm/mr/tracking_resource_adaptor.hpp"

namespace rmm_python {

namespace mr = rmm::mr;
using failure_callback = mr::failure_callback_resource_adaptor<resource, rmm::out_of_memory>;

template<>
inline constexpr bool has_functions<mr::callback_memory_resource> = true;
template<>
inline constexpr bool has_functions<failure_callback> = true;

namespace {

using pool_object = adaptor_over<mr::pool_memory_resource<resource>>;
using arena_object = adaptor_over<mr::arena_memory_resource<resource>>;
using fixed_size_object = adaptor_over<mr::fixed_size_memory_resource<resource>>;
using limiting_object = adaptor_over<mr::limiting_resource_adaptor<resource>>;
using statistics_object = adaptor_over<mr::statistics_resource_adaptor<resource>>;
using tracking_object = adaptor_over<mr::tracking_resource_adaptor<resource>>;
using prefetch_object = adaptor_over<mr::prefetch_resource_adaptor<resource>>;
using debug_object = adaptor_over<mr::debug_resource_adaptor<resource>>;

struct logging_object : adaptor_over<mr::logging_resource_adaptor<resource>> {
    std::string file_name;
};

/// Binning, and the resources that it was given as bins.
class binning {
  public:
    explicit binning(resource* upstream) : resource_(upstream) {}
    binning(resource* upstream, std::int8_t least, std::int8_t most) : resource_(upstream, least, most) {}
    operator resource&() noexcept { return resource_; }
    void keep(native_ptr bin) { bins_.push_back(std::move(bin)); }
    bool calls_python() const noexcept {
        return std::any_of(bins_.begin(), bins_.end(), [](const native_ptr& bin) { return bin->calls_python(); });
    }
    void add(std::size_t size) { resource_.add_bin(size); }
    void add(std::size_t size, resource& bin) { resource_.add_bin(size, rmm::device_async_resource_ref{bin}); }

  private:
    std::vector<native_ptr> bins_;
    mr::binning_memory_resource<resource> resource_;
};
struct binning_object : adaptor_over<binning> {
    nb::list bins;
    std::list<dependent> on_bins;

    ~binning_object() { let_go(held); }
};

std::optional<std::size_t> optional_bytes(nb::handle size, const char* what) {
    if (size.is_none()) return std::nullopt;
    return bytes_of(size, what);
}

// ---- functions of Python

/// A callable that an object of Python owns, and its native calls. Under the GIL.
class function {
  public:
    /// What the native has. Null once the object or the collector has let go of the callable.
    using borrowed = std::shared_ptr<PyObject*>;

    function() = default;
    ~function() { clear(); }
    function(const function&) = delete;
    function& operator=(const function&) = delete;

    void own(nb::object callable, borrowed of_native) {
        callable_ = std::move(callable);
        of_native_ = std::move(of_native);
    }
    PyObject* ptr() const noexcept { return callable_.ptr(); }
    void clear() noexcept {
        if (of_native_ != nullptr) *of_native_ = nullptr;
        callable_.reset();
    }

  private:
    nb::object callable_;
    borrowed of_native_;
};

function::borrowed borrow(const nb::object& callable) { return std::make_shared<PyObject*>(callable.ptr()); }

struct callback_object : object_over<mr::callback_memory_resource> {
    function allocate_func, deallocate_func;

    ~callback_object() { let_go(held); }
};
struct failure_callback_object : adaptor_over<failure_callback> {
    function callback;

    ~failure_callback_object() { let_go(held); }
};

/// The frames of Python that run here may be unwound while Python ends: nothing that they hold stands in between.
nb::object call(PyObject* f, PyObject* first, PyObject* second = nullptr, PyObject* third = nullptr) {
    PyObject* const result =
        or_wait_for_the_end([&] { return PyObject_CallFunctionObjArgs(f, first, second, third, nullptr); });
    if (result == nullptr) throw nb::python_error();
    return nb::steal(result);
}

nb::object stream_object(rmm::cuda_stream_view view) { return nb::cast(stream{view.value(), {}}); }

void* allocate_by(const function::borrowed& borrowed, std::size_t bytes, rmm::cuda_stream_view on) {
    if (is_python_gone())
        throw callback_failed("a CallbackMemoryResource was asked for " + std::to_string(bytes) +
                              " bytes, but the interpreter of Python has ended, and with it allocate_func: set another "
                              "resource before");
    const with_gil acquired;
    const nb::object f = nb::borrow(*borrowed);
    if (!f.is_valid())
        throw callback_failed("a CallbackMemoryResource was asked for " + std::to_string(bytes) +
                              " bytes, but its object is gone, and with it allocate_func");
    try {
        const nb::int_ size(bytes);
        const nb::object stream = stream_object(on);
        const nb::object result = call(f.ptr(), size.ptr(), stream.ptr());
        if (PyIndex_Check(result.ptr()) == 0)
            throw callback_failed(std::string("allocate_func returned ") + nb::repr(result).c_str() +
                                  ", which is no address: return an int");
        return reinterpret_cast<void*>(size_of(result, "the address that allocate_func returns"));
    } catch (nb::python_error& e) {
        rethrow_from_callback(e);
    }
}

void deallocate_by(const function::borrowed& borrowed, void* ptr, std::size_t bytes, rmm::cuda_stream_view on) {
    if (is_exiting()) return;
    const with_gil acquired;
    const nb::object f = nb::borrow(*borrowed);
    if (!f.is_valid()) {
        PyErr_Format(PyExc_RuntimeError,
                     "the object of a CallbackMemoryResource is gone, and with it deallocate_func: %zu bytes are lost",
                     bytes);
        PyErr_WriteUnraisable(nullptr);
        return;
    }
    try {
        const nb::int_ address(reinterpret_cast<std::uintptr_t>(ptr)), size(bytes);
        const nb::object stream = stream_object(on);
        (void)call(f.ptr(), address.ptr(), size.ptr(), stream.ptr());
    } catch (nb::python_error& e) {
        e.discard_as_unraisable(f);
    }
}

bool ask_after_failure(const function::borrowed& borrowed, std::size_t bytes) {
    if (is_python_gone()) return false;  // the error of the resource below goes on
    const with_gil acquired;
    const nb::object f = nb::borrow(*borrowed);
    if (!f.is_valid()) return false;  // likewise
    try {
        const nb::int_ size(bytes);
        const nb::object again = call(f.ptr(), size.ptr());
        const int truth = PyObject_IsTrue(again.ptr());
        if (truth < 0) throw nb::python_error();
        return truth != 0;
    } catch (nb::python_error& e) {
        rethrow_from_callback(e);
    }
}

void expect_callable(nb::handle f, const char* what) {
    if (PyCallable_Check(f.ptr()) == 0)
        throw nb::type_error((std::string(what) + " must be callable, not " + nb::repr(f).c_str()).c_str());
}

// ---- logs

/// log.csv -> /current/folder/log.dev0.csv
std::string name_of_log(nb::handle given) {
    std::string name;
    if (!given.is_none()) {
        const nb::object path = nb::steal(PyOS_FSPath(given.ptr()));
        if (!path.is_valid()) throw nb::python_error();
        name = nb::cast<std::string>(path);
    } else if (const char* const of_environment = std::getenv("RMM_LOG_FILE")) {
        name = of_environment;
    }
    if (name.empty())
        throw nb::value_error("logging needs a file: pass log_file_name, or set RMM_LOG_FILE in the environment");
    std::filesystem::path path(name);
    const std::string device = ".dev" + std::to_string(rmm::get_current_cuda_device().value());
    path.replace_filename(path.stem().string() + device + path.extension().string());
    return std::filesystem::absolute(path).lexically_normal().string();
}

// ---- counters

nb::object counts(const std::pair<mr::detail::statistics_counter, mr::detail::statistics_counter>& both) {
    static nb::object* const type = new nb::object(imported("rmm.statistics", "Statistics"));
    const auto& [bytes, blocks] = both;
    const nb::tuple fields =
        nb::make_tuple(bytes.value, blocks.value, bytes.peak, blocks.peak, bytes.total, blocks.total);
    PyObject* const made = or_wait_for_the_end([&] { return PyObject_CallObject(type->ptr(), fields.ptr()); });
    if (made == nullptr) throw nb::python_error();
    return nb::steal(made);
}

// ---- classes

std::int8_t exponent_of(nb::handle object, const char* what) {
    const int value = int_of(object, what);
    if (value < -128 || value > 127) {
        PyErr_SetString(PyExc_OverflowError,
                        ("the exponent " + std::to_string(value) + " is no number of 8 bits").c_str());
        throw nb::python_error();
    }
    return static_cast<std::int8_t>(value);
}

/// Half of what is free now, unless the pool may not have that much.
std::size_t initial_of_pool(nb::handle initial, nb::handle maximum) {
    if (!initial.is_none()) return bytes_of(initial, "initial_pool_size");
    const std::size_t half = rmm::percent_of_free_device_memory(50);
    return maximum.is_none() ? half : std::min(half, bytes_of(maximum, "maximum_pool_size"));
}

void bind_pools() {
    auto pool =
        adaptor_class<pool_object>("PoolMemoryResource", "A pool that gives out parts of what it has from upstream.");
    pool.def(
        "__init__",
        [](pool_object* self, nb::object upstream_mr, nb::handle initial, nb::handle maximum, nb::kwargs others) {
            make_above(self, upstream_of(upstream_mr, others), initial_of_pool(initial, maximum),
                       optional_bytes(maximum, "maximum_pool_size"));
        },
        nb::arg("upstream_mr").none() = nb::none(), nb::arg("initial_pool_size").none() = nb::none(),
        nb::arg("maximum_pool_size").none() = nb::none(), nb::arg("others"));
    pool.def(
        "pool_size", [](const pool_object& self) { return self.get().pool_size(); },
        "The bytes that the pool holds from upstream, used and free.");
    add_pool_members(pool, static_cast<pool_object*>(nullptr));

    auto arena = adaptor_class<arena_object>("ArenaMemoryResource", "A pool with an arena for each stream.");
    arena.def(
        "__init__",
        [](arena_object* self, nb::object upstream_mr, nb::handle size, bool dump) {
            make_above(self, upstream_mr, optional_bytes(size, "arena_size"), dump);
        },
        nb::arg("upstream_mr").none(), nb::arg("arena_size").none() = nb::none(),
        nb::arg("dump_log_on_failure") = false);
    add_pool_members(arena, static_cast<arena_object*>(nullptr));

    auto fixed = adaptor_class<fixed_size_object>("FixedSizeMemoryResource", "A pool of blocks of one size.");
    fixed.def(
        "__init__",
        [](fixed_size_object* self, nb::object upstream_mr, nb::handle block, nb::handle blocks, nb::kwargs others) {
            make_above(self, upstream_of(upstream_mr, others), bytes_of(block, "block_size"),
                       size_of(blocks, "blocks_to_preallocate"));
        },
        nb::arg("upstream_mr").none() = nb::none(), nb::arg("block_size").none() = std::size_t{1} << 20,
        nb::arg("blocks_to_preallocate").none() = 128, nb::arg("others"));
    add_pool_members(fixed, static_cast<fixed_size_object*>(nullptr));

    static PyType_Slot slots[] = {
        {Py_tp_traverse, reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* arg) {
             Py_VISIT(Py_TYPE(self));
             if (!nb::inst_ready(self)) return 0;
             const binning_object& object = *nb::inst_ptr<binning_object>(self);
             Py_VISIT(object.upstream_mr.ptr());
             Py_VISIT(object.bins.ptr());
             return 0;
         })},
        {0, nullptr}};
    nb::class_<binning_object, adaptor_object>(named_module(of_resources), "BinningMemoryResource",
                                               nb::type_slots(slots),
                                               "Sends each request to the bin of its size, larger ones upstream.")
        .def(
            "__init__",
            [](binning_object* self, nb::object upstream_mr, nb::handle least, nb::handle most) {
                const std::int8_t from = exponent_of(least, "min_size_exponent"),
                                  to = exponent_of(most, "max_size_exponent");
                if (from == -1 || to == -1)
                    make_above(self, upstream_mr);
                else
                    make_above(self, upstream_mr, from, to);
            },
            nb::arg("upstream_mr").none(), nb::arg("min_size_exponent").none() = -1,
            nb::arg("max_size_exponent").none() = -1)
        .def(
            "add_bin",
            [](binning_object& self, nb::handle size, nb::object bin) {
                const std::size_t bytes = bytes_of(size, "allocation_size");
                binning& bins = self.get();
                if (bin.is_none()) {
                    const without_gil released;
                    return bins.add(bytes);
                }
                known_resource known = resource_argument(bin, "bin_resource");
                resource& object = known.held->object();
                self.bins.append(known.object);
                self.on_bins.emplace_back(static_cast<adaptor_object*>(&self), &adaptor_object::release)
                    .stand_on(nb::inst_ptr<resource_object>(known.object)->dependents);
                bins.keep(std::move(known.held));
                const without_gil released;
                bins.add(bytes, object);
            },
            nb::arg("allocation_size").none(), nb::arg("bin_resource").none() = nb::none(),
            "Requests of up to so many bytes go to the resource, or to blocks of that size.")
        .def_prop_ro(
            "bin_mrs", [](const binning_object& self) { return nb::list(self.bins); },
            "The resources that were passed as bins.");
}

void bind_watchers() {
    adaptor_class<limiting_object>("LimitingResourceAdaptor", "Refuses what goes beyond a limit.")
        .def(
            "__init__",
            [](limiting_object* self, nb::object upstream_mr, nb::handle limit) {
                make_above(self, upstream_mr, bytes_of(limit, "allocation_limit"));
            },
            nb::arg("upstream_mr").none(), nb::arg("allocation_limit").none())
        .def("get_allocated_bytes", [](const limiting_object& self) { return self.get().get_allocated_bytes(); })
        .def("get_allocation_limit", [](const limiting_object& self) { return self.get().get_allocation_limit(); });
    adaptor_class<logging_object>("LoggingResourceAdaptor", "Writes a line of CSV for each allocation and free.")
        .def(
            "__init__",
            [](logging_object* self, nb::object upstream_mr, nb::handle name, nb::kwargs others) {
                std::string file = name_of_log(name);
                make_above(self, upstream_of(upstream_mr, others), file);
                self->file_name = std::move(file);
            },
            nb::arg("upstream_mr").none() = nb::none(), nb::arg("log_file_name").none() = nb::none(), nb::arg("others"))
        .def("flush",
             [](const logging_object& self) {
                 auto& log = self.get();
                 const without_gil released;
                 log.flush();
             })
        .def("get_file_name", [](const logging_object& self) { return self.file_name; });
    adaptor_class<statistics_object>("StatisticsResourceAdaptor", "Counts bytes and allocations, by sections.")
        .def(
            "__init__", [](statistics_object* self, nb::object upstream_mr) { make_above(self, upstream_mr); },
            nb::arg("upstream_mr").none())
        .def_prop_ro("allocation_counts",
                     [](const statistics_object& self) {
                         return counts({self.get().get_bytes_counter(), self.get().get_allocations_counter()});
                     })
        .def("push_counters", [](const statistics_object& self) { return counts(self.get().push_counters()); })
        .def("pop_counters", [](const statistics_object& self) { return counts(self.get().pop_counters()); });
    adaptor_class<tracking_object>("TrackingResourceAdaptor", "Keeps a list of the blocks in use.")
        .def(
            "__init__",
            [](tracking_object* self, nb::object upstream_mr, bool stacks) { make_above(self, upstream_mr, stacks); },
            nb::arg("upstream_mr").none(), nb::arg("capture_stacks") = false)
        .def("get_allocated_bytes", [](const tracking_object& self) { return self.get().get_allocated_bytes(); })
        .def("get_outstanding_allocations_str",
             [](const tracking_object& self) {
                 auto& tracking = self.get();
                 const without_gil released;
                 return tracking.get_outstanding_allocations_str();
             })
        .def("log_outstanding_allocations", [](const tracking_object& self) {
            auto& tracking = self.get();
            const without_gil released;
            tracking.log_outstanding_allocations();
        });
    adaptor_class<prefetch_object>("PrefetchResourceAdaptor", "Prefetches new blocks of managed memory to the device.")
        .def(
            "__init__", [](prefetch_object* self, nb::object upstream_mr) { make_above(self, upstream_mr); },
            nb::arg("upstream_mr").none());
    adaptor_class<debug_object>("DebugResourceAdaptor",
                                "Finds writes beyond a block, frees of what is free, and leaks.")
        .def(
            "__init__", [](debug_object* self, nb::object upstream_mr) { make_above(self, upstream_mr); },
            nb::arg("upstream_mr").none());
}

/// Before the collector clears anything that functions of Python may need, all that stands on them gives its memory
/// back.
void finalize_callback(PyObject* self) {
    if (nb::inst_ready(self)) nb::inst_ptr<callback_object>(self)->dependents.release();
}

void bind_callbacks() {
    static PyType_Slot callback_slots[] = {
        {Py_tp_traverse, reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* arg) {
             Py_VISIT(Py_TYPE(self));
             if (!nb::inst_ready(self)) return 0;
             const callback_object& object = *nb::inst_ptr<callback_object>(self);
             Py_VISIT(object.allocate_func.ptr());
             Py_VISIT(object.deallocate_func.ptr());
             return 0;
         })},
        {Py_tp_clear, reinterpret_cast<void*>(+[](PyObject* self) {
             finalize_callback(self);  // a class of the program with __del__ has another finalizer
             if (!nb::inst_ready(self)) return 0;
             callback_object& object = *nb::inst_ptr<callback_object>(self);
             object.allocate_func.clear();
             object.deallocate_func.clear();
             return 0;
         })},
        {Py_tp_finalize, reinterpret_cast<void*>(&finalize_callback)},
        {0, nullptr}};
    nb::class_<callback_object, resource_object>(named_module(of_resources), "CallbackMemoryResource",
                                                 nb::type_slots(callback_slots),
                                                 "A resource made of two functions of Python.")
        .def(
            "__init__",
            [](callback_object* self, nb::object allocate_func, nb::object deallocate_func) {
                expect_callable(allocate_func, "allocate_func");
                expect_callable(deallocate_func, "deallocate_func");
                const function::borrowed allocate = borrow(allocate_func), deallocate = borrow(deallocate_func);
                make(
                    self,
                    [allocate](std::size_t bytes, rmm::cuda_stream_view on, void*) {
                        return allocate_by(allocate, bytes, on);
                    },
                    [deallocate](void* ptr, std::size_t bytes, rmm::cuda_stream_view on, void*) {
                        deallocate_by(deallocate, ptr, bytes, on);
                    });
                self->allocate_func.own(std::move(allocate_func), allocate);
                self->deallocate_func.own(std::move(deallocate_func), deallocate);
            },
            nb::arg("allocate_func").none(), nb::arg("deallocate_func").none());
    static PyType_Slot failure_slots[] = {
        {Py_tp_traverse, reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* arg) {
             Py_VISIT(Py_TYPE(self));
             if (!nb::inst_ready(self)) return 0;
             const failure_callback_object& object = *nb::inst_ptr<failure_callback_object>(self);
             Py_VISIT(object.upstream_mr.ptr());
             Py_VISIT(object.callback.ptr());
             return 0;
         })},
        {Py_tp_clear, reinterpret_cast<void*>(+[](PyObject* self) {
             if (nb::inst_ready(self)) nb::inst_ptr<failure_callback_object>(self)->callback.clear();
             return 0;
         })},
        {0, nullptr}};
    nb::class_<failure_callback_object, adaptor_object>(
        named_module(of_resources), "FailureCallbackResourceAdaptor", nb::type_slots(failure_slots),
        "Asks a function whether to try again when upstream is out of memory.")
        .def(
            "__init__",
            [](failure_callback_object* self, nb::object upstream_mr, nb::object callback) {
                expect_callable(callback, "callback");
                const function::borrowed ask = borrow(callback);
                make_above(
                    self, upstream_mr, [ask](std::size_t bytes, void*) { return ask_after_failure(ask, bytes); },
                    nullptr);
                self->callback.own(std::move(callback), ask);
            },
            nb::arg("upstream_mr").none(), nb::arg("callback").none());
}

}  // namespace

void bind_adaptors() {
    bind_pools();
    bind_watchers();
    bind_callbacks();
}

}  // namespace rmm_python
