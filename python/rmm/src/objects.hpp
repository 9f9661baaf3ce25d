// How classes of resources are made: an object of Python over a native resource of one type.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

#include "binding.hpp"

namespace rmm_python {

/// An object whose native resource is a `Resource`, made by this module.
template<typename Resource, typename Base = resource_object>
struct object_over : Base {
    using resource_type = Resource;
    Resource& get() const { return static_cast<opened<Resource>&>(*this->need()).get(); }
};
template<typename Resource>
using adaptor_over = object_over<Resource, adaptor_object>;

/// Makes the native resource, without the GIL, and then the object.
template<typename Object, typename... Arguments>
void make_on(Object* self, int device, native_ptr upstream, Arguments&&... arguments) {
    native_ptr made;
    {
        const without_gil released;
        made = std::make_shared<opened<typename Object::resource_type>>(device, std::move(upstream),
                                                                        std::forward<Arguments>(arguments)...);
    }
    new (self) Object;
    self->held = std::move(made);
}
template<typename Object, typename... Arguments>
void make(Object* self, Arguments&&... arguments) {
    make_on(self, rmm::get_current_cuda_device().value(), nullptr, std::forward<Arguments>(arguments)...);
}
/// The same above another resource.
template<typename Object, typename... Arguments>
void make_above(Object* self, nb::handle upstream_mr, Arguments&&... arguments) {
    known_resource below = resource_argument(upstream_mr, "upstream_mr");
    resource* const object = &below.held->object();
    make_on(self, rmm::get_current_cuda_device().value(), std::move(below.held), object,
            std::forward<Arguments>(arguments)...);
    self->on_upstream.stand_on(nb::inst_ptr<resource_object>(below.object)->dependents);
    self->upstream_mr = std::move(below.object);
}

/// `upstream_mr`, or its old name among the keywords. TypeError for other keywords.
nb::object upstream_of(nb::object upstream_mr, const nb::kwargs& others);

inline PyType_Slot* adaptor_slots() {
    static PyType_Slot slots[] = {
        {Py_tp_traverse, reinterpret_cast<void*>(&traverse<adaptor_object, &adaptor_object::upstream_mr>)},
        {0, nullptr}};
    return slots;
}

template<typename Object>
nb::class_<Object, resource_object> plain_class(const char* name, const char* doc) {
    return nb::class_<Object, resource_object>(named_module(of_resources), name, doc);
}
template<typename Object>
nb::class_<Object, adaptor_object> adaptor_class(const char* name, const char* doc) {
    return nb::class_<Object, adaptor_object>(named_module(of_resources), name, nb::type_slots(adaptor_slots()), doc);
}

/// What pools of ours can do beside RMM's.
template<typename Class, typename Object>
void add_pool_members(Class& c, Object*) {
    c.def(
        "statistics",
        [](const Object& self) {
            auto& pool = self.get();
            auto s = [&] {
                const without_gil released;
                return pool.statistics();
            }();
            nb::dict result;
            result["held_bytes"] = s.held_bytes;
            result["in_use_bytes"] = s.in_use_bytes;
            result["free_bytes"] = s.free_bytes;
            result["largest_free_bytes"] = s.largest_free_bytes;
            result["maximum_bytes"] = s.maximum_bytes;
            result["num_blocks"] = s.num_blocks;
            result["num_upstream_blocks"] = s.num_upstream_blocks;
            return result;
        },
        "What the pool holds, at one instant: bytes, and numbers of blocks. `maximum_bytes` 0: none.");
    if constexpr (requires(Object& o) { o.get().trim(std::size_t{}); })
        c.def(
            "trim",
            [](const Object& self, nb::handle keep_bytes) {
                const std::size_t keep = size_of(keep_bytes, "keep_bytes");
                auto& pool = self.get();
                const without_gil released;
                return pool.trim(keep);
            },
            nb::arg("keep_bytes").none() = 0,
            "Gives unused memory back to where it came from, until `keep_bytes` are held; returns how many bytes.");
    if constexpr (requires(Object& o) { o.get().set_name(""); })
        c.def(
            "set_name", [](const Object& self, const char* name) { self.get().set_name(name); }, nb::arg("name"),
            "What errors and reports call the pool.");
    if constexpr (requires(Object& o) { o.get().set_release_threshold(std::size_t{}); })
        c.def(
            "set_release_threshold",
            [](const Object& self, nb::handle bytes) { self.get().set_release_threshold(bytes_of(bytes, "bytes")); },
            nb::arg("bytes").none(), "From how many bytes that the pool holds on, unused memory goes back at a free.");
}

}  // namespace rmm_python
