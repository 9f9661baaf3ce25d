// Stack traces: captured as addresses, resolved to names on demand.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// The functions that the calling thread is in, at most 64, innermost first. About 100 ns a frame; names are looked up
/// when the trace is printed. Throws std::bad_alloc.
class RMM_EXPORT stack_trace {
  public:
    stack_trace();

    /// One line a frame: "#i in SYMBOL from FILE" where the symbol is known (demangled), else as the system shows an
    /// address; or "stack traces disabled" where the system cannot tell. Throws std::bad_alloc.
    std::string to_string() const;

  private:
    std::vector<void*> frames_;
};

/// `to_string`.
RMM_EXPORT std::ostream& operator<<(std::ostream& os, stack_trace const& trace);

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
