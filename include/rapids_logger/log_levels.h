// The levels of messages as numbers, for the preprocessor. Knows nothing else; C and C++.
#pragma once

#define RAPIDS_LOGGER_LOG_LEVEL_TRACE 0
#define RAPIDS_LOGGER_LOG_LEVEL_DEBUG 1
#define RAPIDS_LOGGER_LOG_LEVEL_INFO 2
#define RAPIDS_LOGGER_LOG_LEVEL_WARN 3
#define RAPIDS_LOGGER_LOG_LEVEL_ERROR 4
#define RAPIDS_LOGGER_LOG_LEVEL_CRITICAL 5
#define RAPIDS_LOGGER_LOG_LEVEL_OFF 6
