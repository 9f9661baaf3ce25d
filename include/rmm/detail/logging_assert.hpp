// An assertion that also reaches the log.
#pragma once

#include <cassert>

#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace detail {

/// Logs "[FILE:LINE] Assertion EXPRESSION failed." at level critical of rmm's default logger, and flushes it.
void log_failed_assertion(char const* file, int line, char const* expression);

}  // namespace detail
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

/// RMM_LOGGING_ASSERT(expression): as assert; what fails is logged first. With NDEBUG nothing is evaluated.
#ifdef NDEBUG
#define RMM_LOGGING_ASSERT(expression) (void)0
#else
#define RMM_LOGGING_ASSERT(expression)                                                               \
    do {                                                                                             \
        bool const rmm_detail_holds = static_cast<bool>(expression);                                 \
        if (!rmm_detail_holds) ::rmm::detail::log_failed_assertion(__FILE__, __LINE__, #expression); \
        assert(rmm_detail_holds);                                                                    \
    } while (0)
#endif
