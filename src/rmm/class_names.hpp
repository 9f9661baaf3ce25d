// Names of resources in errors and reports, spelled as the program spells them.
//
// Owns: whether Python uses the library in this process. Must not know: resources. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

/// From now on a `pool_memory_resource` is called `PoolMemoryResource`. The Python module says so when it is loaded.
void name_classes_as_in_python() noexcept;

/// `text` with its names of resources and adaptors (words that end in `_resource` or `_adaptor`) as the program spells them.
std::string with_class_names(std::string_view text);

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
