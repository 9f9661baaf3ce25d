// Implements <rmm/mr/per_device_resource.hpp>.
//
// The table maps a device to an entry; an entry never changes and is never destroyed, so readers take no lock. There is
// one entry for each distinct resource that was ever set, however often it is set.
#include "rmm/mr/per_device_resource.hpp"

#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <string>

#include "rmm/detail/error.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace {

// More devices than any machine has; the driver's numbers are dense from 0.
constexpr std::size_t max_devices = 1024;

/// Lets a reference to any resource be used through a pointer to the base class.
class resource_behind_ref final : public device_memory_resource {
  public:
    explicit resource_behind_ref(device_async_resource_ref ref) : ref_{ref} {}

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override {
        return ref_.allocate_async(bytes, stream);
    }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        ref_.deallocate_async(ptr, bytes, stream);
    }
    bool do_is_equal(device_memory_resource const& other) const noexcept override {
        const auto* same = dynamic_cast<resource_behind_ref const*>(&other);
        return same != nullptr && same->ref_ == ref_;
    }

    device_async_resource_ref ref_;
};

struct entry {
    explicit entry(device_async_resource_ref r)
        : ref{r},
          behind{r},
          pointer{r.raw().operations == &rmm::detail::device_memory_resource_operations
                      ? static_cast<device_memory_resource*>(r.raw().resource)
                      : &behind} {}
    device_async_resource_ref ref;
    resource_behind_ref behind;
    device_memory_resource* pointer;
};

struct table {
    table() : initial{device_async_resource_ref{detail::initial_resource()}} {
        for (auto& slot : devices) slot.store(&initial, std::memory_order_relaxed);
    }
    entry initial;
    std::array<std::atomic<const entry*>, max_devices> devices;
    std::mutex mutex;  // of `entries`
    std::list<entry> entries;
};

table& all() {
    static table& instance = *new table;
    return instance;
}

[[noreturn]] void refuse_device(int number) {
    rmm::detail::refuse_after_fork();
    if (number < 0) (void)rmm::detail::the_driver();  // says why there is no current device
    RMM_FAIL("there is no resource for device " + std::to_string(number) + "; devices are numbered from 0");
}

/// Throws rmm::logic_error also in the child of a fork that has no driver, where the current device is -1.
std::atomic<const entry*>& slot_of(cuda_device_id device) {
    const auto number = static_cast<std::size_t>(device.value());
    if (rmm::detail::lost_in_fork() || number >= max_devices) [[unlikely]]
        refuse_device(device.value());
    return all().devices[number];
}

const entry* entry_for(device_async_resource_ref ref) {
    table& t = all();
    const auto& raw = ref.raw();
    if (raw.resource == nullptr) return &t.initial;
    const rmm::detail::driver::DriverUse
        use;  // whoever forks meanwhile leaves a child that must not wait for this lock
    std::lock_guard lock(t.mutex);
    for (const entry& e : t.entries)
        if (e.ref.raw().resource == raw.resource && e.ref.raw().operations == raw.operations) return &e;
    return &t.entries.emplace_back(ref);
}

const entry* get(cuda_device_id device) { return slot_of(device).load(std::memory_order_acquire); }

const entry* set(cuda_device_id device, device_async_resource_ref ref) {
    auto& slot = slot_of(device);
    return slot.exchange(entry_for(ref), std::memory_order_acq_rel);
}

}  // namespace

namespace detail {

device_memory_resource* initial_resource() {
    static auto& instance = *new cuda_memory_resource;
    return &instance;
}

current_resource get_current_resource() {
    const cuda_device_id device = get_current_cuda_device();
    return {get(device)->ref, device};
}

}  // namespace detail

device_memory_resource* get_per_device_resource(cuda_device_id device_id) { return get(device_id)->pointer; }

device_memory_resource* set_per_device_resource(cuda_device_id device_id, device_memory_resource* new_mr) {
    return set(device_id, device_async_resource_ref{new_mr})->pointer;
}

device_async_resource_ref get_per_device_resource_ref(cuda_device_id device_id) { return get(device_id)->ref; }

device_async_resource_ref set_per_device_resource_ref(cuda_device_id device_id,
                                                      device_async_resource_ref new_resource_ref) {
    return set(device_id, new_resource_ref)->ref;
}

device_async_resource_ref reset_per_device_resource_ref(cuda_device_id device_id) {
    return set(device_id, all().initial.ref)->ref;
}

device_memory_resource* get_current_device_resource() { return get_per_device_resource(get_current_cuda_device()); }

device_memory_resource* set_current_device_resource(device_memory_resource* new_mr) {
    return set_per_device_resource(get_current_cuda_device(), new_mr);
}

device_async_resource_ref get_current_device_resource_ref() {
    return get_per_device_resource_ref(get_current_cuda_device());
}

device_async_resource_ref set_current_device_resource_ref(device_async_resource_ref new_resource_ref) {
    return set_per_device_resource_ref(get_current_cuda_device(), new_resource_ref);
}

device_async_resource_ref reset_current_device_resource_ref() {
    return reset_per_device_resource_ref(get_current_cuda_device());
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
