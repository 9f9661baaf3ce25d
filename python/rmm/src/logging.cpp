// The logger of rmm's own messages. Levels are RMM's numbers; Python gives them names.
#include <nanobind/nanobind.h>

#include "binding.hpp"
#include "rmm/logger.hpp"

namespace rmm_python {
namespace {

using rapids_logger::level_enum;

level_enum level_of(int number) { return static_cast<level_enum>(number); }

}  // namespace

void bind_logging(nb::module_& core) {
    core.def("logger_set_level", [](int level) { rmm::default_logger().set_level(level_of(level)); }, nb::arg("level"));
    core.def("logger_level", [] { return static_cast<int>(rmm::default_logger().level()); });
    core.def(
        "logger_set_flush_level", [](int level) { rmm::default_logger().flush_on(level_of(level)); }, nb::arg("level"));
    core.def("logger_flush_level", [] { return static_cast<int>(rmm::default_logger().flush_level()); });
    core.def(
        "logger_should_log", [](int level) { return level >= static_cast<int>(rmm::default_logger().level()); },
        nb::arg("level"));
    core.def("logger_flush", [] {
        const without_gil released;
        rmm::default_logger().flush();
    });
}

}  // namespace rmm_python
