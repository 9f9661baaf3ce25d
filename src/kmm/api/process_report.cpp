#include "kmm/api/process_report.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "driver/never_destroyed.hpp"
#include "kmm/api/runtime_handle.hpp"
#include "kmm/error.hpp"
#include "kmm/execute/runtime_core.hpp"

namespace kmm {

namespace {

struct Runtimes {
    std::mutex mutex;
    std::vector<std::weak_ptr<detail::RuntimeCore>> list;
};

// Never destroyed: a runtime may start or report while static objects are being destroyed.
Runtimes& runtimes() { return driver::never_destroyed<Runtimes>(); }

std::vector<std::shared_ptr<detail::RuntimeCore>> living() {
    std::vector<std::shared_ptr<detail::RuntimeCore>> result;
    const std::lock_guard<std::mutex> guard(runtimes().mutex);
    for (const std::weak_ptr<detail::RuntimeCore>& entry : runtimes().list) {
        if (std::shared_ptr<detail::RuntimeCore> core = entry.lock()) result.push_back(std::move(core));
    }
    return result;
}

}  // namespace

void detail::remember_runtime(const std::shared_ptr<RuntimeCore>& core) {
    const std::lock_guard<std::mutex> guard(runtimes().mutex);
    auto& list = runtimes().list;
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
