// Texts with values in them, for errors, reports and the log: driver::format("chunk {} of {}", i, n). By fmt, which
// checks the string against its values when the code is compiled. In .cpp files only: nvcc does not compile fmt 9 as
// C++20, and headers should stay cheap to include.
//
// Owns: how fmt gets into our libraries. It is compiled into libkmm_rmm (format.cpp), in a namespace of ours that is
// hidden, so that nothing needs libfmt.so at run time, and no program's fmt, of whatever version, meets ours; libkmm
// calls `vformat` of libkmm_rmm. Must not know: what texts say. Pure; any thread. Throws std::bad_alloc.
#pragma once

#ifdef FMT_VERSION
#error "include driver/format.hpp before headers that bring fmt: it says in which namespace fmt is"
#endif
#define FMT_BEGIN_NAMESPACE \
    namespace fmt {         \
    inline namespace kmm_own __attribute__((visibility("hidden"))) {
#define FMT_END_NAMESPACE \
    }                     \
    }
// Without std::locale, which nothing here asks for: where a process mixes two C++ libraries, it crashes. fmt 9 and 11
// have a name each for that.
#define FMT_STATIC_THOUSANDS_SEPARATOR ','
#define FMT_USE_LOCALE 0
#include <fmt/core.h>

#include <cstddef>
#include <string>

namespace kmm::driver {

/// What `format` calls: the one name of all this that libkmm_rmm exports.
[[gnu::cold, gnu::visibility("default")]] std::string vformat(fmt::string_view text, fmt::format_args values);

/// `text` with a value in the place of each {}, whatever the program's locale says: integers and strings as they are;
/// of a double say how: {:f} has six decimals, as std::to_string. A brace of the text is written twice. Values too many
/// are ignored. Call it as driver::format: an unqualified call may find std::format as well. Out of line, so that a
/// function that may have to refuse something does not pay for the words on its way.
template<typename... Values>
[[gnu::cold, gnu::noinline, gnu::visibility("hidden")]] std::string format(fmt::format_string<Values...> text,
                                                                           Values&&... values) {
    return driver::vformat(text, fmt::make_format_args(values...));
}

/// "1 chunk", "3 chunks".
std::string count_text(std::size_t count, const char* what);

}  // namespace kmm::driver
