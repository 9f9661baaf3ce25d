# Run by ctest: builds and installs with -DKMM_BUILD_RUNTIME=OFF, then builds and runs a program that asks for the package rmm.
set(COMMAND_MUST_WORK COMMAND_ERROR_IS_FATAL ANY)
set(tools -G ${GENERATOR} -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM} -DCMAKE_CXX_COMPILER=${CXX})
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})

# Not optimised: what is built and installed is asked here, not how fast it is.
execute_process(COMMAND ${CMAKE_COMMAND} -S ${PROJECT_DIR} -B ${WORK_DIR}/build ${tools} -DCMAKE_BUILD_TYPE=Debug
  -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DKMM_BUILD_RUNTIME=OFF -DKMM_BUILD_BENCHMARKS=OFF -DBUILD_TESTING=OFF
  OUTPUT_QUIET ${COMMAND_MUST_WORK})
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/build OUTPUT_QUIET ${COMMAND_MUST_WORK})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${WORK_DIR}/build --prefix ${WORK_DIR}/prefix OUTPUT_QUIET ${COMMAND_MUST_WORK})

file(GLOB_RECURSE installed RELATIVE ${WORK_DIR}/prefix ${WORK_DIR}/prefix/*)
foreach(file ${installed})
  if(file MATCHES "^include/kmm|libkmm[.]|cmake/kmm")
    message(FATAL_ERROR "an installation of rmm alone has ${file}")
  endif()
endforeach()
if(NOT installed MATCHES "libkmm_rmm[.]" OR NOT installed MATCHES "include/rmm/device_buffer.hpp")
  message(FATAL_ERROR "an installation of rmm alone lacks its library or its headers: ${installed}")
endif()

execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR}/consumer_rmm -B ${WORK_DIR}/build_program ${tools}
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix ${COMMAND_MUST_WORK})
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/build_program ${COMMAND_MUST_WORK})
if(NOT CMAKE_CTEST_COMMAND)
  cmake_path(GET CMAKE_COMMAND PARENT_PATH binaries)
  set(CMAKE_CTEST_COMMAND ${binaries}/ctest)
endif()
execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --test-dir ${WORK_DIR}/build_program --output-on-failure --no-tests=error
  ${COMMAND_MUST_WORK})
