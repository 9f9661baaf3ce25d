// The resource of each device. The table is C++'s; what Python has set in it is kept alive here.
//
// Under the GIL. An entry here counts only as long as C++'s table still has its resource: C++ may have set another.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <memory>
#include <utility>
#include <vector>

#include "binding.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/mr/per_device_resource.hpp"
#include "rmm/resource_owners.hpp"

namespace rmm_python {
namespace {

struct entry {
    resource* object = nullptr;
    known_resource known;
};

std::vector<entry>& table() {
    static auto* const entries = new std::vector<entry>();  // Python ends before static objects do
    return *entries;
}

int device_of(nb::handle number) {
    const std::size_t device = size_of(number);
    const int count = rmm::get_num_cuda_devices();
    if (device >= static_cast<std::size_t>(count))
        throw nb::value_error(("device " + std::to_string(device) + " is not there: there are " +
                               std::to_string(count) + ", numbered from 0")
                                  .c_str());
    return static_cast<int>(device);
}

entry& entry_of(int device) {
    if (table().size() <= static_cast<std::size_t>(device)) table().resize(static_cast<std::size_t>(device) + 1);
    return table()[static_cast<std::size_t>(device)];
}

void let_go_without_gil(std::shared_ptr<void> owner) noexcept {
    if (owner == nullptr || owner.use_count() > 1) return;
    const without_gil released;
    owner.reset();
}

/// Both tables change under the GIL, so that nobody sees one of them alone. (The library's lock is held for a moment only, and
/// nobody takes the GIL under it.) What was there before is let go of afterwards.
void set(int device, known_resource known) {
    resource* const object = &known.held->object();
    entry& e = entry_of(device);
    std::shared_ptr<void> owner = rmm::detail::set_resource_with_owner(rmm::cuda_device_id{device}, object, known.held);
    known_resource before = std::exchange(e.known, std::move(known));
    e.object = object;
    before.object.reset();
    let_go(before.held);
    let_go_without_gil(std::move(owner));
}

/// By value: another thread may set another one as soon as the GIL is let go of.
known_resource get(int device) {
    resource* const object = rmm::mr::get_per_device_resource(rmm::cuda_device_id{device});
    if (const entry& e = entry_of(device); e.object == object) [[likely]]
        return e.known;
    known_resource known;
    if (object == rmm::mr::detail::initial_resource()) {
        known.object = imported(of_resources, "CudaMemoryResource")();
        known.held = nb::inst_ptr<resource_object>(known.object)->held;
        set(device, known);
        return known;
    }
    // Set by C++, which may have said what keeps it alive.
    rmm::detail::owned_resource owned = rmm::detail::resource_with_owner(rmm::cuda_device_id{device});
    known.object = imported(of_resources, "DeviceMemoryResource")();
    known.held = std::make_shared<borrowed>(device, *owned.object, std::move(owned.owner));
    nb::inst_ptr<resource_object>(known.object)->held = known.held;
    entry& e = entry_of(device);
    known_resource before = std::exchange(e.known, known);
    e.object = owned.object;
    before.object.reset();
    let_go(before.held);
    return known;
}

nb::list devices() {
    nb::list found;
    for (std::size_t i = 0; i < table().size(); ++i)
        if (table()[i].object != nullptr) found.append(i);
    return found;
}

/// The initial resource of each device again.
void clear() {
    std::vector<entry> all;
    std::vector<std::shared_ptr<void>> owners;
    for (std::size_t i = 0; i < table().size(); ++i) {
        const rmm::cuda_device_id device{static_cast<int>(i)};
        if (table()[i].object != nullptr && rmm::mr::get_per_device_resource(device) == table()[i].object)
            owners.push_back(rmm::detail::set_resource_with_owner(device, nullptr, nullptr));
    }
    table().swap(all);
    for (entry& e : all) {
        e.known.object.reset();
        let_go(e.known.held);
    }
    for (std::shared_ptr<void>& owner : owners) let_go_without_gil(std::move(owner));
}

}  // namespace

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
    m.def("clear_device_table", &clear, "Every device has its initial resource again; the objects are dropped.");
}

}  // namespace rmm_python
