// Implements <rmm/mr/reclaimer.hpp> and reclaim.hpp.
#include "rmm/reclaim.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/mr/detail/adaptor.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {

/// A registration. `num_calls`: running calls of its reclaimer.
struct reclaimer_registration::entry {
    const rmm::detail::driver::Driver* of = nullptr;
    int device = -1;
    int priority = 0;
    std::uint64_t number = 0;
    reclaimer* who = nullptr;
    int num_calls = 0;
    bool has_ended = false;  // inside a call, which then destroys the entry
};

}  // namespace mr

namespace detail {
namespace {

using entry = mr::reclaimer_registration::entry;

// An allocation needs several rounds if reclaimers free little in each call. The limit ends the search of allocations
// that take freed memory from each other.
constexpr int max_rounds = 64;

constinit thread_local int num_reasons_not_to_ask = 0;
constinit thread_local int num_reasons_not_to_ask_reclaimers = 0;
constinit thread_local int num_optional_requests = 0;
constinit thread_local const reclaim_search* search_now = nullptr;
// A reclaimer may end its own registration.
constinit thread_local const entry* called_now = nullptr;

struct reclaimer_registry {
    kmm::locks::Mutex mutex;
    kmm::locks::Condition call_ended;
    std::vector<std::unique_ptr<entry>> entries KMM_GUARDED_BY(mutex);  // in the order of asking
    std::uint64_t last_number KMM_GUARDED_BY(mutex) = 0;
};

reclaimer_registry& all_reclaimers() {
    return ::kmm::driver::never_destroyed<reclaimer_registry>();
}  // registrations may be statics

auto order_of(const entry& e) noexcept { return std::tuple{e.priority, e.number}; }

}  // namespace

std::size_t reclaim_rounds::ask_holders() noexcept {
    std::size_t freed = 0;
    try {
        for_each_holder(device_, [&](memory_holder& h) {
            if (&h != asker_ && freed < bytes_) freed += h.give_back(bytes_ - freed);
        });
    } catch (const std::exception& e) {
        report_misuse("could not ask the pools of a device for memory: ", e.what());
    }
    return freed;
}

/// False if the request exceeds the total memory of a full device.
bool reclaim_rounds::begin(bool device_is_full) noexcept {
    deadline_ = std::chrono::steady_clock::now() + patience;
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    return !device_is_full || !the_driver().memory_info(device_, &free_bytes, &total_bytes).ok() ||
           bytes_ <= total_bytes;
}

bool reclaim_rounds::ask(bool device_is_full) noexcept {
    if (num_reasons_not_to_ask > 0) return false;
    if (!deadline_ && !begin(device_is_full)) return false;
    const mr::no_reclaim_scope alone;
    const meant_stream stream(stream_);
    while (round_ < max_rounds && std::chrono::steady_clock::now() < *deadline_) {
        // Unused memory of other pools first: it costs them nothing.
        if (device_is_full && !asked_holders_) {
            asked_holders_ = true;
            if (ask_holders() > 0) return freed_ = true;
        }
        const driver::Driver& of = the_driver();
        reclaimer_registry& all = all_reclaimers();
        kmm::locks::Lock in(all.mutex);
        const auto next = std::find_if(all.entries.begin(), all.entries.end(), [&](const auto& e) {
            return num_reasons_not_to_ask_reclaimers == 0 && e->of == &of && e->device == device_ &&
                   (!asked_reclaimers_ || order_of(*e) > std::tuple{priority_, number_});
        });
        if (next == all.entries.end()) {
            if (!freed_) return false;
            freed_ = asked_holders_ = asked_reclaimers_ = false;
            ++round_;
            continue;
        }
        entry* const e = next->get();
        std::tie(priority_, number_) = order_of(*e);
        asked_reclaimers_ = true;
        ++e->num_calls;
        in.unlock();
        // Blocks that the reclaimer allocates have no tag of the caller.
        const tag_number tag_before = std::exchange(tag_of_thread, untagged);
        const entry* const outer = std::exchange(called_now, e);
        const reclaim_search search{device_is_full, asker_, round_, *deadline_};
        const reclaim_search* const outer_search = std::exchange(search_now, &search);
        const std::size_t freed = e->who->reclaim(bytes_, onward_stream(stream));
        search_now = outer_search;
        called_now = outer;
        tag_of_thread = tag_before;
        in.lock();
        --e->num_calls;
        if (e->has_ended) delete e;
        all.call_ended.notify_all();
        in.unlock();
        if (freed == 0) continue;
        freed_ = true;
        // The freed memory may have gone to another pool.
        if (device_is_full) (void)ask_holders();
        return true;
    }
    return false;
}

no_reclaimers_scope::no_reclaimers_scope() noexcept { ++num_reasons_not_to_ask_reclaimers; }

no_reclaimers_scope::~no_reclaimers_scope() { --num_reasons_not_to_ask_reclaimers; }

optional_request::optional_request() noexcept { ++num_optional_requests; }

optional_request::~optional_request() { --num_optional_requests; }

const reclaim_search* current_search() noexcept { return search_now; }

}  // namespace detail

namespace mr {

namespace detail {
bool is_optional_request() noexcept { return rmm::detail::num_optional_requests > 0; }
}  // namespace detail

reclaimer::~reclaimer() = default;

reclaimer_registration::reclaimer_registration(cuda_device_id device, int priority, reclaimer& who) : entry_{nullptr} {
    auto made = std::make_unique<entry>();
    made->of = &rmm::detail::the_driver();
    made->device = device.value();
    made->priority = priority;
    made->who = &who;
    auto& all = rmm::detail::all_reclaimers();
    const kmm::locks::Guard in(all.mutex);
    made->number = ++all.last_number;
    const auto at = std::upper_bound(all.entries.begin(), all.entries.end(), made, [](const auto& a, const auto& b) {
        return rmm::detail::order_of(*a) < rmm::detail::order_of(*b);
    });
    entry_ = all.entries.insert(at, std::move(made))->get();
}

reclaimer_registration::~reclaimer_registration() {
    if (rmm::detail::lost_in_fork()) return;
    auto& all = rmm::detail::all_reclaimers();
    kmm::locks::Lock in(all.mutex);
    const auto at =
        std::find_if(all.entries.begin(), all.entries.end(), [this](const auto& e) { return e.get() == entry_; });
    std::unique_ptr<entry> leaving = std::move(*at);
    all.entries.erase(at);
    if (rmm::detail::called_now == entry_) {
        // Inside its own reclaimer: this call counts in the entry until it returns.
        while (leaving->num_calls != 1) all.call_ended.wait(in);
        leaving.release()->has_ended = true;
        return;
    }
    while (leaving->num_calls != 0) all.call_ended.wait(in);
}

no_reclaim_scope::no_reclaim_scope() noexcept { ++rmm::detail::num_reasons_not_to_ask; }

no_reclaim_scope::~no_reclaim_scope() { --rmm::detail::num_reasons_not_to_ask; }

}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
