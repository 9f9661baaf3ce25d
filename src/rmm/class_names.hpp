// Names of resources in errors and reports, spelled as the program spells them.
//
// Owns: whether Python uses the library in this process, and which threads write for other programs now. Must not know:
// resources. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

/// From now on a `pool_memory_resource` is called `PoolMemoryResource`. The Python module says so when it is loaded.
void name_classes_as_in_python() noexcept;

/// While it lives, this thread gets the C++ names: other programs parse them and expect one spelling from every
/// process. Nests.
class names_for_programs {
  public:
    names_for_programs() noexcept;
    ~names_for_programs();
    names_for_programs(const names_for_programs&) = delete;
    names_for_programs& operator=(const names_for_programs&) = delete;

  private:
    const bool before_;
};

/// `text` with its names of resources and adaptors (words that end in `_resource` or `_adaptor`) as the program spells
/// them.
std::string with_class_names(std::string_view text);

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
