#include "kmm/supply/device_share.hpp"

#include <utility>

#include "driver/byte_size.hpp"
#include "driver/format.hpp"
#include "kmm/base/text.hpp"
#include "rmm/reclaim.hpp"
#include "rmm/status.hpp"

namespace kmm::supply {

DeviceShare::DeviceShare(ShareSource& source, driver::Driver& driver, std::uint32_t device, int ordinal,
                         std::string name, bool only_for_device)
    : source_(source), driver_(driver), device_(device), name_(std::move(name)), only_for_device_(only_for_device) {
    const rmm::detail::driver_scope own_driver(driver_);
    rmm::detail::enter_ledger(ordinal, *this);
    try {
        registration_.emplace(rmm::cuda_device_id{ordinal}, priority, static_cast<rmm::mr::reclaimer&>(*this));
    } catch (...) {
        rmm::detail::leave_ledger(*this);
        throw;
    }
}

DeviceShare::~DeviceShare() {
    registration_.reset();
    rmm::detail::leave_ledger(*this);
}

std::size_t DeviceShare::reclaim(std::size_t bytes, rmm::cuda_stream_view) noexcept {
    const rmm::detail::reclaim_search& search = *rmm::detail::current_search();
    if (!search.device_is_full) {
        // A resource has reached a limit of its own. It is helped if it is where the runtime's memory comes from; one
        // that does not say whether it is has one chance to show that it was.
        const void* const ours = source_.some_memory_of(device_);
        if (only_for_device_ || ours == nullptr) return 0;
        if (search.asker != nullptr ? !search.asker->gave(ours) : search.round > 0) return 0;
    }
    return source_.reclaim_for_others(device_, bytes, search.deadline);
}

rmm::detail::holder_figures DeviceShare::figures() {
    const ShareFigures share = source_.share_of(device_);
    rmm::detail::holder_figures f;
    f.name = name_;
    f.kind = "kmm runtime";
    f.held_bytes = share.held_bytes;
    f.in_use_bytes = share.in_use_bytes;
    f.largest_free_bytes = share.largest_free_bytes;
    f.peak_bytes = share.peak_bytes;
    f.maximum_bytes = share.limit_bytes;
    f.num_blocks = share.num_chunks;
    return f;  // the resource that the runtime takes its memory from counts it
}

std::string DeviceShare::line_for_shortage() {
    using driver::byte_size_text;
    const ShareFigures share = source_.share_of(device_);
    return driver::format("{} holds {}, of it evictable {} (running tasks {})", name_, byte_size_text(share.held_bytes),
                          byte_size_text(share.evictable_bytes),
                          byte_size_text(share.in_use_bytes - share.evictable_bytes));
}

}  // namespace kmm::supply
