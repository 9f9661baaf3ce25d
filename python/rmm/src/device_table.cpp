// The resource of each device. The table is the library's (device_table.hpp); with each resource that Python has set,
// or looked at, it keeps the object that Python has for it: the face.
//
// Under the GIL. Others may replace a resource at any time and without the GIL: its face is parked then, and dropped by
// Python's main thread between two of its steps, or by the next call that comes here. (To wait for the GIL there could
// be for ever: whoever replaces a resource may hold locks that a thread with the GIL waits for.) So a face that was
// found is there until the caller lets go of the GIL.
#include "rmm/device_table.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "binding.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/mr/per_device_resource.hpp"

namespace rmm_python {
namespace {

using rmm::cuda_device_id;
using rmm::detail::owned_resource;

struct face {
    known_resource known;
    face* next = nullptr;  // of those that are parked
};

std::atomic<face*> parked{nullptr};

void drop_parked() noexcept {
    for (face* gone = parked.exchange(nullptr, std::memory_order_acquire); gone != nullptr;) {
        face* const next = gone->next;
        let_go(gone->known.held);
        gone->known.object.reset();
        delete gone;
        gone = next;
    }
}

/// Any thread, with or without the GIL.
void park(face* gone) noexcept {
    face* first = parked.load(std::memory_order_relaxed);
    do gone->next = first;
    while (!parked.compare_exchange_weak(first, gone, std::memory_order_release, std::memory_order_relaxed));
    if (first != nullptr) return;  // Python is asked already
    before_exit([] {
        // Refused where too many ask.
        (void)Py_AddPendingCall(
            [](void*) {
                drop_parked();
                return 0;
            },
            nullptr);
    });
}

std::shared_ptr<face> face_for(known_resource known) {
    return {new face{std::move(known)}, &park};  // parked also if there is no memory for the count
}

/// What the table has replaced.
template<typename Resources>
void let_go_of(Resources gone) noexcept {
    if (std::any_of(gone.begin(), gone.end(), [](const owned_resource& r) { return r.owner != nullptr; })) {
        const without_gil released;
        for (owned_resource& r : gone) r.owner.reset();
    }
    for (owned_resource& r : gone) r.face.reset();
    drop_parked();
}

int device_of(nb::handle number) {
    const std::size_t device = size_of(number, "device");
    const int count = rmm::get_num_cuda_devices();
    if (device >= static_cast<std::size_t>(count))
        throw nb::value_error(("device " + std::to_string(device) + " is not there: there are " +
                               std::to_string(count) + ", numbered from 0")
                                  .c_str());
    return static_cast<int>(device);
}

void set(int device, known_resource known) {
    const auto* const of_others = dynamic_cast<const borrowed*>(known.held.get());
    owned_resource entry{&known.held->object(), nullptr, nullptr, true};
    // A resource that C++ or C made has an owner there, by which the C interface finds it again.
    entry.owner = of_others != nullptr ? of_others->owner() : known.held;
    const bool needs_object = known.held->calls_python();
    entry.face = face_for(std::move(known));
    if (needs_object) entry.owner = entry.face;
    let_go_of(rmm::detail::set_owned_resource(cuda_device_id{device}, std::move(entry)));
}

/// What Python sees of a resource that it has not set.
known_resource seen(int device, owned_resource entry) {
    const bool is_initial = entry.object == rmm::mr::detail::initial_resource();
    known_resource known;
    known.object = imported(of_resources, is_initial ? "CudaMemoryResource" : "DeviceMemoryResource")();
    known.held = std::make_shared<borrowed>(device, *entry.object, std::move(entry.owner));
    nb::inst_ptr<resource_object>(known.object)->held = known.held;
    return known;
}

/// By value: another thread may set another one as soon as the GIL is let go of.
known_resource get(int device) {
    const cuda_device_id id{device};
    if (parked.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
        drop_parked();
    for (;;) {
        if (const auto* const found = static_cast<const face*>(rmm::detail::face_of(id))) [[likely]]
            return found->known;
        std::uint64_t num_changes = 0;
        owned_resource entry = rmm::detail::resource_with_face(id, &num_changes);
        if (entry.face != nullptr) continue;
        known_resource known = seen(device, std::move(entry));
        if (rmm::detail::add_face(id, num_changes, face_for(known))) return known;
    }
}

nb::list devices() {
    nb::list found;
    for (const cuda_device_id device : rmm::detail::devices_with_faces()) found.append(device.value());
    return found;
}

/// What Python has set is the initial resource again; no object of Python is left in the table.
void clear() { let_go_of(rmm::detail::clear_faces()); }
void reset() { let_go_of(rmm::detail::reset_resources()); }

}  // namespace

const known_resource& resource_of_device(int device) {
    const cuda_device_id id{device};
    if (parked.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
        drop_parked();
    for (;;) {
        if (const auto* const found = static_cast<const face*>(rmm::detail::face_of(id))) [[likely]]
            return found->known;
        const rmm::cuda_set_device_raii only_where_there_is_one{id};
        (void)get(device);
    }
}

known_resource current_resource() { return get(rmm::get_current_cuda_device().value()); }

void bind_device_table() {
    nb::module_ m = named_module(of_resources);
    m.def(
        "get_per_device_resource", [](nb::handle device) { return get(device_of(device)).object; },
        nb::arg("device").none(), "The resource of the device: the object that was set.");
    m.def(
        "set_per_device_resource",
        [](nb::handle device, nb::handle mr) { set(device_of(device), resource_argument(mr, "mr")); },
        nb::arg("device").none(), nb::arg("mr").none(), "Replaces it, for C++ too; the object is kept alive.");
    m.def("get_current_device_resource", [] { return current_resource().object; }, "The same for the current device.");
    m.def(
        "set_current_device_resource",
        [](nb::handle mr) { set(rmm::get_current_cuda_device().value(), resource_argument(mr, "mr")); },
        nb::arg("mr").none());
    m.def(
        "available_device_memory",
        [] {
            const without_gil released;
            return rmm::available_device_memory();
        },
        "(free, total) bytes of the current device.");
    m.def("table_devices", &devices, "The devices whose resource was asked for or set.");
    m.def("clear_device_table", &clear,
          "What Python has set is the initial resource again; the table keeps no object of Python.");
    m.def("reset_device_table", &reset,
          "Every device has the initial resource again; the table keeps no object of Python.");
}

}  // namespace rmm_python
