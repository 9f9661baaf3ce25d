// The resource of each device and its owner: one table for C++, C and Python.
//
// An entry is {object, operations, owner, face}; the face is its Python object. It changes atomically. The resource is
// read without a lock: an entry has two states, and a change fills the one that is not current. Owns: the owners and
// the faces, until C or Python set another resource; after the end of Python no face, and no resource set by Python.
// Must not know: their types. Any thread. No owner and no face is released under the lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rmm/cuda_device.hpp"
#include "rmm/mr/device_memory_resource.hpp"
#include "rmm/resource_ref.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

// ---- with owners: under a lock, for a moment

/// A resource and its owner.
struct owned_resource {
    mr::device_memory_resource* object = nullptr;  ///< null, to set: the initial resource
    std::shared_ptr<void> owner;                   ///< null: kept alive by the caller that set the resource
    std::shared_ptr<void> face;                    ///< the Python object; null until Python asks for it
    bool is_set_by_python = false;
};

/// Replaced entries, for the caller to destroy without a lock.
using replaced_resources = std::array<owned_resource, 2>;

/// Sets the resource with its owner; returns the previous ones.
[[nodiscard]] replaced_resources set_owned_resource(cuda_device_id device, owned_resource with);
/// A resource as C++ knows it: the pointer is that of the reference's object, or of one that allocates through it.
struct plain_resource {
    raw_ref ref;  ///< null: the initial resource
    mr::device_memory_resource* pointer;
};
/// Sets the resource for a C++ program, which names no owner and may set the previous one again: the previous entry is
/// kept until then, or until C or Python sets another. A resource that an entry of another device owns shares that
/// owner. Returns the previous resource.
plain_resource set_plain_resource(cuda_device_id device, const raw_ref& ref);
/// The current resource of the device, without its face.
owned_resource resource_with_owner(cuda_device_id device);
/// The current resource with its face, and the number of changes of the entry.
owned_resource resource_with_face(cuda_device_id device, std::uint64_t* num_changes);
/// Gives the entry a face, if it has not changed since; false otherwise.
bool add_face(cuda_device_id device, std::uint64_t num_changes, std::shared_ptr<void> face);
/// The devices whose resource has had a face, ascending.
std::vector<cuda_device_id> devices_with_faces();
/// Removes all faces. Devices whose resource Python has set get the initial resource; other resources stay, also those
/// that C++ has replaced and may set again. Does nothing in the child of a fork without the driver.
[[nodiscard]] std::vector<owned_resource> clear_faces();
/// Removes all faces and gives every device the initial resource.
[[nodiscard]] std::vector<owned_resource> reset_resources();

// ---- without a lock

/// The current face of the device's resource; null: none. The caller must prevent its destruction.
void* face_of(cuda_device_id device);

/// What readers see of an entry. All null: the initial resource.
class published_resource {
  public:
    struct state {
        std::atomic<void*> object{nullptr};
        std::atomic<const resource_operations*> operations{nullptr};
        std::atomic<mr::device_memory_resource*> pointer{nullptr};
        std::atomic<void*> face{nullptr};
    };

    /// f(state) of a consistent state. Retries only if the entry was changed meanwhile.
    template<typename F>
    auto read(F&& f) const noexcept {
        for (;;) {
            const std::uint64_t seen = num_changes_.load(std::memory_order_acquire);
            const auto found = f(states_[seen % 2]);
            // This state is refilled only after change `seen + 1` is published: a torn read sees a new number.
            if (num_changes_.load(std::memory_order_relaxed) == seen) [[likely]]
                return found;
        }
    }
    /// One thread at a time.
    void change(const raw_ref& ref, mr::device_memory_resource* pointer, void* face) noexcept {
        const std::uint64_t next = num_changes_.load(std::memory_order_relaxed) + 1;
        state& s = states_[next % 2];
        s.object.store(ref.resource, std::memory_order_release);
        s.operations.store(ref.operations, std::memory_order_release);
        s.pointer.store(pointer, std::memory_order_release);
        s.face.store(face, std::memory_order_release);
        num_changes_.store(next, std::memory_order_release);
    }
    std::uint64_t num_changes() const noexcept { return num_changes_.load(std::memory_order_relaxed); }

  private:
    std::atomic<std::uint64_t> num_changes_{0};
    std::array<state, 2> states_;
};

/// More devices than any machine has; the driver's numbers are dense from 0.
inline constexpr std::size_t max_devices = 1024;
RMM_HIDDEN extern constinit std::array<published_resource, max_devices> resources_of_devices;

[[noreturn]] void refuse_device(int number);

/// Throws rmm::logic_error also in the child of a fork that has no driver, where the current device is -1.
inline published_resource& published(cuda_device_id device) {
    const auto number = static_cast<std::size_t>(device.value());
    if (lost_in_fork() || number >= max_devices) [[unlikely]]
        refuse_device(device.value());
    return resources_of_devices[number];
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
