// Visibility of what the library exports. Owns the RMM_EXPORT, RMM_HIDDEN and RMM_NAMESPACE macros; knows nothing else.
#pragma once

#if defined(__GNUC__) && !defined(_WIN32) && !defined(__MINGW32__) && !defined(__CYGWIN__)
#define RMM_EXPORT __attribute__((visibility("default")))
#define RMM_HIDDEN __attribute__((visibility("hidden")))
#else
#define RMM_EXPORT
#define RMM_HIDDEN
#endif

/// Opens the namespace with default visibility: `namespace RMM_NAMESPACE {`.
#define RMM_NAMESPACE RMM_EXPORT rmm
