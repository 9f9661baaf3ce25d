// Implements device_table.hpp.
#include "rmm/device_table.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "driver/format.hpp"
#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/mr/per_device_resource.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

constinit std::array<published_resource, max_devices> resources_of_devices;

namespace {

/// Lets a reference to any resource be used through a pointer to the base class.
class resource_behind_ref final : public mr::device_memory_resource {
  public:
    explicit resource_behind_ref(const raw_ref& ref) : ref_{device_async_resource_ref::from_raw(ref)} {}

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override {
        return ref_.allocate_async(bytes, stream);
    }
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override {
        ref_.deallocate_async(ptr, bytes, stream);
    }
    bool do_is_equal(mr::device_memory_resource const& other) const noexcept override {
        const auto* same = dynamic_cast<resource_behind_ref const*>(&other);
        return same != nullptr && same->ref_ == ref_;
    }

    device_async_resource_ref ref_;
};

bool is_same(const raw_ref& a, const raw_ref& b) noexcept {
    return a.resource == b.resource && a.operations == b.operations;
}

/// The initial resource is written as null.
raw_ref entry_ref(const raw_ref& ref) noexcept {
    return ref.resource == nullptr || ref.resource == mr::detail::initial_resource() ? raw_ref{nullptr, nullptr} : ref;
}
raw_ref entry_ref(mr::device_memory_resource* object) noexcept {
    return entry_ref(raw_ref{object, &device_memory_resource_operations});
}

struct entry {
    raw_ref ref{nullptr, nullptr};
    mr::device_memory_resource* pointer = nullptr;
    std::shared_ptr<void> owner;
    std::shared_ptr<void> face;
    bool is_given = false;  // set by C or Python: kept as `replaced` while C++ shows another
    bool is_set_by_python = false;

    owned_resource let_go() noexcept { return {std::exchange(pointer, nullptr), std::move(owner), std::move(face)}; }
};

/// Of a device.
struct device_entries {
    entry now;
    std::optional<entry> replaced;  // by a C++ program, which may set it again
    bool had_face = false;
};

/// Accessed only through locked_table, which holds the lock: clang need not check that.
struct table {
    kmm::locks::Mutex mutex;
    std::vector<device_entries> devices;
    // Never erased: pointers to them may still be in use.
    std::map<std::pair<void*, const resource_operations*>, resource_behind_ref> behind_refs;

    /// Throws std::bad_alloc, with nothing done.
    device_entries& of(cuda_device_id device) {
        const auto number = static_cast<std::size_t>(device.value());
        if (number >= devices.size()) devices.resize(number + 1);
        return devices[number];
    }
    mr::device_memory_resource* pointer_to(const raw_ref& ref) {
        if (ref.resource == nullptr || ref.operations == &device_memory_resource_operations)
            return static_cast<mr::device_memory_resource*>(ref.resource);
        return &behind_refs.try_emplace({ref.resource, ref.operations}, ref).first->second;
    }
    /// The owner of the resource, if an entry of any device has it. Wrapped, because C finds its resources, each of
    /// which has one device, by their owners.
    std::shared_ptr<void> share_of_owner(const raw_ref& ref) const {
        const auto is_owned = [&](const entry& e) { return e.owner != nullptr && is_same(e.ref, ref); };
        for (const device_entries& d : devices) {
            if (is_owned(d.now)) return std::make_shared<std::shared_ptr<void>>(d.now.owner);
            if (d.replaced && is_owned(*d.replaced)) return std::make_shared<std::shared_ptr<void>>(d.replaced->owner);
        }
        return nullptr;
    }
};

/// The table, locked. A child forked meanwhile refuses instead of waiting for the lock.
class locked_table {
  public:
    table* operator->() const noexcept { return &table_; }

  private:
    driver::DriverUse use_;
    table& table_ = ::kmm::driver::never_destroyed<table>();
    kmm::locks::Guard<kmm::locks::Mutex> in_{table_.mutex};
};

void publish(cuda_device_id device, const entry& e) noexcept {
    resources_of_devices[static_cast<std::size_t>(device.value())].change(e.ref, e.pointer, e.face.get());
}

mr::device_memory_resource* pointer_of(const entry& e) {
    return e.pointer != nullptr ? e.pointer : mr::detail::initial_resource();
}

}  // namespace

void refuse_device(int number) {
    refuse_after_fork();
    if (number < 0) (void)the_driver();  // says why there is no current device
    RMM_FAIL(driver::format("there is no resource for device {}; devices are numbered from 0", number));
}

plain_resource set_plain_resource(cuda_device_id device, const raw_ref& ref) {
    (void)published(device);
    entry set;
    set.ref = entry_ref(ref);
    std::optional<entry> dropped;  // outside of the lock
    const locked_table t;
    device_entries& d = t->of(device);
    set.pointer = t->pointer_to(set.ref);
    const plain_resource before{d.now.ref, pointer_of(d.now)};
    if (!is_same(set.ref, d.now.ref)) {
        if (d.replaced && is_same(set.ref, d.replaced->ref))
            set = *std::exchange(d.replaced, std::nullopt);
        else
            set.owner = t->share_of_owner(set.ref);
        if (set.is_given || (d.replaced && d.replaced->is_given && !d.now.is_given))
            dropped = std::move(d.now);
        else
            dropped = std::exchange(d.replaced, std::move(d.now));
        d.now = std::move(set);
        publish(device, d.now);
    }
    return before;
}

replaced_resources set_owned_resource(cuda_device_id device, owned_resource with) {
    (void)published(device);
    const locked_table t;
    device_entries& d = t->of(device);
    entry set;
    set.ref = entry_ref(with.object);
    set.pointer = t->pointer_to(set.ref);
    set.is_given = with.owner != nullptr || with.face != nullptr;
    set.is_set_by_python = with.is_set_by_python;
    set.owner = std::move(with.owner);
    set.face = with.face != nullptr || !is_same(set.ref, d.now.ref) ? std::move(with.face) : d.now.face;
    d.had_face |= set.face != nullptr;
    replaced_resources gone{d.now.let_go(), d.replaced ? d.replaced->let_go() : owned_resource{}};
    d.replaced.reset();
    d.now = std::move(set);
    publish(device, d.now);
    return gone;
}

owned_resource resource_with_owner(cuda_device_id device) {
    (void)published(device);
    const locked_table t;
    const entry& now = t->of(device).now;
    return {pointer_of(now), now.owner, nullptr};
}

owned_resource resource_with_face(cuda_device_id device, std::uint64_t* num_changes) {
    const published_resource& p = published(device);
    const locked_table t;
    const entry& now = t->of(device).now;
    *num_changes = p.num_changes();
    return {pointer_of(now), now.owner, now.face, now.is_set_by_python};
}

bool add_face(cuda_device_id device, std::uint64_t num_changes, std::shared_ptr<void> face) {
    const published_resource& p = published(device);
    const locked_table t;
    if (p.num_changes() != num_changes) return false;
    device_entries& d = t->of(device);
    d.now.face.swap(face);
    d.had_face = true;
    publish(device, d.now);
    return true;
}

std::vector<cuda_device_id> devices_with_faces() {
    refuse_after_fork();
    const locked_table t;
    std::vector<cuda_device_id> found;
    for (std::size_t i = 0; i < t->devices.size(); ++i)
        if (t->devices[i].had_face) found.emplace_back(static_cast<int>(i));
    return found;
}

namespace {

/// Removes all faces, and the resources for which drops(entry) is true.
template<typename Drops>
std::vector<owned_resource> clear(Drops drops) {
    if (lost_in_fork()) return {};
    const locked_table t;
    std::vector<owned_resource> gone;
    gone.reserve(2 * t->devices.size());
    for (std::size_t i = 0; i < t->devices.size(); ++i) {
        device_entries& d = t->devices[i];
        d.had_face = false;
        // C++ may set a replaced resource again without notice: it keeps its owner.
        if (d.replaced) gone.push_back({nullptr, nullptr, std::move(d.replaced->face)});
        if (drops(d.now))
            gone.push_back(std::exchange(d.now, {}).let_go());
        else if (d.now.face != nullptr)
            gone.push_back({nullptr, nullptr, std::move(d.now.face)});
        else
            continue;
        publish(cuda_device_id{static_cast<int>(i)}, d.now);
    }
    return gone;
}

}  // namespace

std::vector<owned_resource> clear_faces() {
    return clear([](const entry& e) { return e.is_set_by_python; });
}

std::vector<owned_resource> reset_resources() {
    return clear([](const entry& e) { return e.ref.resource != nullptr || e.face != nullptr; });
}

void* face_of(cuda_device_id device) {
    return published(device).read([](const auto& s) { return s.face.load(std::memory_order_acquire); });
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
