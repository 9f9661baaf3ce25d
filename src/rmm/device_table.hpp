// The resource of each device, and who keeps it alive: one table for C++, C and Python.
//
// An entry is {object, operations, owner}, and the face under which Python knows it; it changes in one step. Which
// resource it is, is read without a lock: an entry has two states, and a change fills the one that is not current.
// Owns: the owners and the faces, until C or Python set another resource; no face after the end of Python, and no
// resource that it has set. Must not know: what they are. Any thread. No owner and no face is let go of under the lock.
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

/// A resource and who keeps it alive.
struct owned_resource {
    mr::device_memory_resource* object = nullptr;  ///< null, to set: the initial resource
    std::shared_ptr<void> owner;                   ///< none, where whoever set the resource keeps it alive himself
    std::shared_ptr<void> face;                    ///< of Python; none, where it has not looked yet
    bool is_set_by_python = false;                 ///< otherwise Python has looked at most
};

/// What was replaced: the caller lets go of it when he holds no lock.
using replaced_resources = std::array<owned_resource, 2>;

/// Sets it with an owner, and lets go of the one before.
[[nodiscard]] replaced_resources set_owned_resource(cuda_device_id device, owned_resource with);
/// A resource as C++ knows it: the pointer is that of the reference's object, or of one that allocates through it.
struct plain_resource {
    raw_ref ref;  ///< null: the initial resource
    mr::device_memory_resource* pointer;
};
/// Sets it as programs of C++ do, which say nothing of owners and may set the one before again. Until then, or until C
/// or Python sets another, the entry of the one before is kept. A resource that the entry of another device owns has
/// that owner here too. Returns the one before.
plain_resource set_plain_resource(cuda_device_id device, const raw_ref& ref);
/// The resource of the device now; without its face.
owned_resource resource_with_owner(cuda_device_id device);
/// The same with its face, and the number of the entry's changes.
owned_resource resource_with_face(cuda_device_id device, std::uint64_t* num_changes);
/// Gives the entry a face, if it has not changed since; false otherwise.
bool add_face(cuda_device_id device, std::uint64_t num_changes, std::shared_ptr<void> face);
/// The devices whose resource has had a face, ascending.
std::vector<cuda_device_id> devices_with_faces();
/// No entry has a face any more. Devices whose resource Python has set have the initial resource; what others have set
/// stays, and so does what C++ has replaced and may set again. Does nothing in the child of a fork without the driver.
[[nodiscard]] std::vector<owned_resource> clear_faces();
/// The same, but all devices have the initial resource, whoever has set another.
[[nodiscard]] std::vector<owned_resource> reset_resources();

// ---- without a lock

/// The face of the device's resource now; null: none. It lives as long as the caller can prevent that it is destroyed.
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

    /// f(state), of one state. Goes round only if the entry was changed meanwhile.
    template<typename F>
    auto read(F&& f) const noexcept {
        for (;;) {
            const std::uint64_t seen = num_changes_.load(std::memory_order_acquire);
            const auto found = f(states_[seen % 2]);
            // The state is filled anew after the next change only: whoever sees a part of that sees that change too.
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
