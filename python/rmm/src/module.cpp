// The native module rmm._core.
#include <nanobind/nanobind.h>

NB_MODULE(_core, core) {
    core.def("native_version", [] { return KMM_PROJECT_VERSION; }, "The version of the project.");
}
