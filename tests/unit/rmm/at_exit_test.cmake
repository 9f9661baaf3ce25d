# Runs PROGRAM, which must end well and silently.
execute_process(COMMAND ${PROGRAM} RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "ended with ${status}: ${said}")
endif()
if(NOT said STREQUAL "")
  message(FATAL_ERROR "said: ${said}")
endif()
