// KMM_PANIC and the assertions. They are for bugs of the program text, never for a user's input. On the host they print
// file, line, text and a stack trace and abort; in a kernel they fail the task. Always active. Any thread.
#pragma once

#include "kmm/detail/panic.hpp"
#include "kmm/utils/macros.hpp"

/// Stops here with `text`, a `const char*`.
#define KMM_PANIC(text) (::kmm::detail::panic((text), __FILE__, __LINE__))
#define KMM_ASSERT(...) \
    (KMM_LIKELY((__VA_ARGS__)) ? static_cast<void>(0) : KMM_PANIC("assertion failed: " #__VA_ARGS__))
#define KMM_TODO() KMM_PANIC("not implemented")
/// KMM_ASSERT in a build without NDEBUG, else nothing (the expression is not evaluated).
#ifdef NDEBUG
#define KMM_DEBUG_ASSERT(...) (static_cast<void>(sizeof((__VA_ARGS__) ? 1 : 0)))
#else
#define KMM_DEBUG_ASSERT(...) KMM_ASSERT(__VA_ARGS__)
#endif
