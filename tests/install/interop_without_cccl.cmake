# Run by ctest: configures and builds the project beside this file, whose CUDA toolkit has no CCCL; what needs CCCL is refused with
# the reason.
file(REMOVE_RECURSE ${WORK_DIR})
function(configure more result words)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR} -G ${GENERATOR} -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}
    -DCMAKE_CXX_COMPILER=${CXX} -DRMM_INTEROP=${RMM_INTEROP} -DINCLUDE_DIR=${INCLUDE_DIR} ${more}
    RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE errors)
  set(${result} ${code} PARENT_SCOPE)
  set(${words} "${said}${errors}" PARENT_SCOPE)
endfunction()

configure(-DLINKS_WITH_CCCL=OFF result words)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "a program that needs no CCCL cannot be configured: ${words}")
endif()
if(NOT words MATCHES "no headers of CCCL")
  message(FATAL_ERROR "nobody is told that there is no CCCL: ${words}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR} --target needs_none COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR} --target needs_thrust
  RESULT_VARIABLE result OUTPUT_VARIABLE words ERROR_VARIABLE words)
if(result EQUAL 0 OR NOT words MATCHES "CMake did not find[^\n]*CCCL_DIR")
  message(FATAL_ERROR "a header that needs Thrust does not say that it is missing: ${words}")
endif()

configure(-DLINKS_WITH_CCCL=ON result words)
if(result EQUAL 0 OR NOT words MATCHES "CCCL::CCCL[^a-z]+but the target was not found")
  message(FATAL_ERROR "a program may link with a CCCL::CCCL that is not there: ${words}")
endif()
