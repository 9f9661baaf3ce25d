// Macros that log through rmm's default logger, and vanish below the level with which the program was compiled.
#pragma once

#include <rapids_logger/logger.hpp>
#include <rmm/detail/export.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
rapids_logger::logger& default_logger();
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#define RMM_LOG_LEVEL_TRACE RAPIDS_LOGGER_LOG_LEVEL_TRACE
#define RMM_LOG_LEVEL_DEBUG RAPIDS_LOGGER_LOG_LEVEL_DEBUG
#define RMM_LOG_LEVEL_INFO RAPIDS_LOGGER_LOG_LEVEL_INFO
#define RMM_LOG_LEVEL_WARN RAPIDS_LOGGER_LOG_LEVEL_WARN
#define RMM_LOG_LEVEL_ERROR RAPIDS_LOGGER_LOG_LEVEL_ERROR
#define RMM_LOG_LEVEL_CRITICAL RAPIDS_LOGGER_LOG_LEVEL_CRITICAL
#define RMM_LOG_LEVEL_OFF RAPIDS_LOGGER_LOG_LEVEL_OFF

/// Messages below it are not compiled in (their arguments are not evaluated).
#ifndef RMM_LOG_ACTIVE_LEVEL
#define RMM_LOG_ACTIVE_LEVEL RAPIDS_LOGGER_LOG_LEVEL_INFO
#endif

/// RMM_LOGGER_CALL(logger, level, format[, arguments as of printf])
#define RMM_LOGGER_CALL(logger, level, ...) (logger).log(level, __VA_ARGS__)
#define RMM_DETAIL_LOG(level, ...) \
    RMM_LOGGER_CALL(::rmm::default_logger(), ::rapids_logger::level_enum::level, __VA_ARGS__)

/// RMM_LOG_INFO(format[, arguments as of printf]), and likewise for each level.
#if RMM_LOG_ACTIVE_LEVEL <= RAPIDS_LOGGER_LOG_LEVEL_TRACE
#define RMM_LOG_TRACE(...) RMM_DETAIL_LOG(trace, __VA_ARGS__)
#else
#define RMM_LOG_TRACE(...) (void)0
#endif
#if RMM_LOG_ACTIVE_LEVEL <= RAPIDS_LOGGER_LOG_LEVEL_DEBUG
#define RMM_LOG_DEBUG(...) RMM_DETAIL_LOG(debug, __VA_ARGS__)
#else
#define RMM_LOG_DEBUG(...) (void)0
#endif
#if RMM_LOG_ACTIVE_LEVEL <= RAPIDS_LOGGER_LOG_LEVEL_INFO
#define RMM_LOG_INFO(...) RMM_DETAIL_LOG(info, __VA_ARGS__)
#else
#define RMM_LOG_INFO(...) (void)0
#endif
#if RMM_LOG_ACTIVE_LEVEL <= RAPIDS_LOGGER_LOG_LEVEL_WARN
#define RMM_LOG_WARN(...) RMM_DETAIL_LOG(warn, __VA_ARGS__)
#else
#define RMM_LOG_WARN(...) (void)0
#endif
#if RMM_LOG_ACTIVE_LEVEL <= RAPIDS_LOGGER_LOG_LEVEL_ERROR
#define RMM_LOG_ERROR(...) RMM_DETAIL_LOG(error, __VA_ARGS__)
#else
#define RMM_LOG_ERROR(...) (void)0
#endif
#if RMM_LOG_ACTIVE_LEVEL <= RAPIDS_LOGGER_LOG_LEVEL_CRITICAL
#define RMM_LOG_CRITICAL(...) RMM_DETAIL_LOG(critical, __VA_ARGS__)
#else
#define RMM_LOG_CRITICAL(...) (void)0
#endif
