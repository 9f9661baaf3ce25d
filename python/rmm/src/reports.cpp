// Who holds memory: reports, and tags.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <vector>

#include "binding.hpp"
#include "rmm/memory_report.hpp"
#include "rmm/memory_tag.hpp"

namespace rmm_python {
namespace {

/// Tags of this thread, the innermost last. The names stay, as the library keeps them by address.
thread_local std::vector<std::unique_ptr<rmm::memory_tag>> tags;

}  // namespace

void bind_reports(nb::module_& core) {
    core.def(
        "memory_report",
        [](bool json) {
            const without_gil released;
            return json ? rmm::memory_snapshot() : rmm::memory_report();
        },
        nb::arg("json"));
    core.def(
        "push_memory_tag",
        [](const std::string& name) { tags.push_back(std::make_unique<rmm::memory_tag>(name.c_str())); },
        nb::arg("name"));
    core.def("pop_memory_tag", [] {
        if (tags.empty()) throw std::out_of_range("no tag of this thread is left to end");
        tags.pop_back();
    });
}

}  // namespace rmm_python
