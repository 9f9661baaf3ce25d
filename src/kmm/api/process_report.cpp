#include "kmm/api/process_report.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "driver/locks.hpp"
#include "driver/never_destroyed.hpp"
#include "kmm/api/runtime_handle.hpp"
#include "kmm/error.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm {

namespace {

struct Runtimes {
    locks::Mutex mutex;
    std::vector<std::weak_ptr<detail::RuntimeCore>> list KMM_GUARDED_BY(mutex);
};

// Never destroyed: a runtime may start or report while static objects are being destroyed.
Runtimes& runtimes() { return driver::never_destroyed<Runtimes>(); }

std::vector<std::shared_ptr<detail::RuntimeCore>> living() {
    std::vector<std::shared_ptr<detail::RuntimeCore>> result;
    Runtimes& all = runtimes();
    const locks::Guard guard(all.mutex);
    for (const std::weak_ptr<detail::RuntimeCore>& entry : all.list) {
        if (std::shared_ptr<detail::RuntimeCore> core = entry.lock()) result.push_back(std::move(core));
    }
    return result;
}

}  // namespace

void detail::remember_runtime(const std::shared_ptr<RuntimeCore>& core) {
    Runtimes& all = runtimes();
    const locks::Guard guard(all.mutex);
    auto& list = all.list;
    list.erase(std::remove_if(list.begin(), list.end(), [](const auto& entry) { return entry.expired(); }), list.end());
    list.push_back(core);
}

std::string report(ReportFormat format) {
    if (driver::lost_in_fork()) throw Closed(std::string("there is no runtime here: ") + driver::LostInFork().what());
    std::string text;
    for (const std::shared_ptr<detail::RuntimeCore>& core : living()) {
        if (!text.empty()) text += format == ReportFormat::Json ? ", " : "\n";
        text += core->report(format);
    }
    return format == ReportFormat::Json ? "[" + text + "]" : text;
}

}  // namespace kmm
