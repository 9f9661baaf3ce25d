// Functions of C for allocators of other libraries.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <cstdint>
#include <utility>

#include "binding.hpp"
#include "rmm/rmm.h"

namespace rmm_python {

void bind_allocator_hooks(nb::module_& core) {
    core.def("cupy_functions", [] {
        return std::pair(reinterpret_cast<std::uintptr_t>(&rmm_cupy_allocate),
                         reinterpret_cast<std::uintptr_t>(&rmm_cupy_deallocate));
    });
}

}  // namespace rmm_python
