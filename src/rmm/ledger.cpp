// Implements ledger.hpp.
#include "rmm/ledger.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <memory>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "rmm/captured_frees.hpp"
#include "rmm/class_names.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {
namespace {

struct ledger {
    struct entry {
        std::uint64_t number;
        const driver::Driver* of;
        int device;
        memory_holder* holder;
        int num_asking;
    };

    kmm::locks::Mutex mutex;
    kmm::locks::Condition less_asked;
    std::vector<std::unique_ptr<entry>> entries KMM_GUARDED_BY(mutex);  // by number
    std::uint64_t last_number KMM_GUARDED_BY(mutex) = 0;
};

// Resources that are statics leave it at exit.
ledger& the_ledger() { return driver::never_destroyed<ledger>(); }

// Devices share a number where there are more of them.
std::array<std::atomic<int>, 64> num_in_transit{};

std::atomic<int>& in_transit_of(int device) noexcept {
    return num_in_transit[static_cast<std::size_t>(device) % num_in_transit.size()];
}

}  // namespace

transit_scope::transit_scope(int device) noexcept : device_(device) { ++in_transit_of(device_); }

transit_scope::~transit_scope() { --in_transit_of(device_); }

// In the child of a fork the threads that had some on its way do not exist.
bool is_in_transit(int device) noexcept { return !lost_in_fork() && in_transit_of(device) != 0; }

void enter_ledger(int device, memory_holder& holder) {
    const driver::Driver& of = the_driver();
    ledger& all = the_ledger();
    const kmm::locks::Guard in(all.mutex);
    all.entries.push_back(std::make_unique<ledger::entry>(ledger::entry{++all.last_number, &of, device, &holder, 0}));
}

void leave_ledger(memory_holder& holder) noexcept {
    if (lost_in_fork()) return;
    ledger& all = the_ledger();
    kmm::locks::Lock in(all.mutex);
    const auto at =
        std::find_if(all.entries.begin(), all.entries.end(), [&](const auto& e) { return e->holder == &holder; });
    if (at == all.entries.end()) return;
    const std::unique_ptr<ledger::entry> leaving = std::move(*at);
    all.entries.erase(at);
    while (leaving->num_asking != 0) all.less_asked.wait(in);
}

void visit_holders(int device, holder_visitor visit, void* user) {
    const driver::Driver& of = the_driver();
    ledger& all = the_ledger();
    std::uint64_t done = 0;
    kmm::locks::Lock in(all.mutex);
    for (;;) {
        const auto at = std::find_if(all.entries.begin(), all.entries.end(), [&](const auto& e) {
            return e->number > done && e->of == &of && e->device == device;
        });
        if (at == all.entries.end()) return;
        // The entry lives until `num_asking` is 0, even after it was removed from the list.
        ledger::entry* const e = at->get();
        done = e->number;
        ++e->num_asking;
        struct asked {
            ledger& all;
            ledger::entry* e;
            ~asked() {
                if (--e->num_asking == 0) all.less_asked.notify_all();
            }
        } const until_here{all, e};
        const kmm::locks::Unlocked without(in, all.mutex);
        visit(user, *e->holder);
    }
}

// ---- blocks of the driver

block_record::on_device& block_record::holder_of(const driver::Driver& of, int device) {
    for (on_device* known : holders_)
        if (&known->of_driver == &of && known->device == device) return *known;
    auto made = std::make_unique<on_device>(*this, of, device);
    holders_.reserve(holders_.size() + 1);
    enter_ledger(device, *made);
    return *holders_.emplace_back(made.release());
}

void block_record::note(int device, void* ptr, std::size_t bytes) noexcept {
    if (device < 0) return;
    try {
        const driver::Driver& of = the_driver();
        const kmm::locks::Guard in(mutex_);
        on_device& here = holder_of(of, device);
        // What pools take from here is theirs, whether tags are used or not.
        blocks_.insert(reinterpret_cast<std::uintptr_t>(ptr), {bytes, &here, tag_of_thread});
        here.held_bytes += bytes;
        here.peak_bytes = std::max(here.peak_bytes, here.held_bytes);
        ++here.num_blocks;
    } catch (const std::exception&) {
        return;  // the allocation itself succeeded, and matters more than its place in a report
    }
}

block_record::going block_record::forget(void* ptr) noexcept {
    const kmm::locks::Guard in(mutex_);
    const auto known = blocks_.take(reinterpret_cast<std::uintptr_t>(ptr));
    return {*this, known ? known->where : nullptr, known ? known->size_bytes : 0};
}

holder_figures block_record::on_device::figures() {
    const kmm::locks::Guard in(all_.mutex_);
    holder_figures f;
    f.name = with_class_names(all_.name_);
    f.kind = with_class_names(all_.kind_);
    f.held_bytes = f.in_use_bytes = held_bytes;
    f.peak_bytes = peak_bytes;
    f.num_blocks = num_blocks;
    f.takes_from_driver = all_.takes_from_driver_;
    return f;
}

void block_record::on_device::add_by_tag(tag_sums* sums) {
    const kmm::locks::Guard in(all_.mutex_);
    all_.blocks_.for_each([&](std::uintptr_t, const block& b) {
        if (b.where == this) add_to(sums, b.tag, b.size_bytes);
    });
}

void block_record::on_device::add_blocks(std::vector<held_block>* blocks) {
    const kmm::locks::Guard in(all_.mutex_);
    all_.blocks_.for_each([&](std::uintptr_t address, const block& b) {
        if (b.where == this) blocks->push_back({address, b.size_bytes, b.tag});
    });
}

/// What graphs have left.
std::size_t block_record::on_device::give_back(std::size_t) noexcept {
    const auto held = [this] {
        const kmm::locks::Guard in(all_.mutex_);
        return held_bytes;
    };
    const std::size_t before = held();
    free_deferred(the_driver());
    return before - std::min(before, held());
}

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
