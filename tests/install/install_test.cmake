# Run by ctest: install, move the installation, then configure, build and run the programs that use it.
set(COMMAND_MUST_WORK COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})

execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${CONFIG} --prefix ${WORK_DIR}/staged
  OUTPUT_QUIET ${COMMAND_MUST_WORK})
# A package that remembers where it was installed fails from here on.
file(RENAME ${WORK_DIR}/staged ${WORK_DIR}/prefix)

# What only we need must not be asked of those who use us.
set(ours_alone)
foreach(package fmt spdlog hwloc nlohmann_json Boost GTest benchmark)
  list(APPEND ours_alone -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()

function(check_flags commands)
  file(READ ${commands} text)
  foreach(flag -Wall -Wextra -Wconversion -Werror -fsanitize /src/driver /src/rmm /src/kmm)
    string(FIND "${text}" "${flag}" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "a program that links us is compiled with ${flag}: ${commands}")
    endif()
  endforeach()
endfunction()

function(build_and_run name)
  file(COPY ${SOURCE_DIR}/consumer_${name} DESTINATION ${WORK_DIR})
  if(name STREQUAL "kmm")
    file(COPY_FILE ${README_PROGRAM} ${WORK_DIR}/consumer_kmm/readme_program.cu)
  endif()
  set(build ${WORK_DIR}/build_${name})
  set(architectures)
  if(CUDA_ARCHITECTURES)
    # One is enough to run, and a list would not survive the command line.
    list(GET CUDA_ARCHITECTURES 0 architecture)
    set(architectures -DCMAKE_CUDA_ARCHITECTURES=${architecture} -DCMAKE_CUDA_COMPILER=${CUDA_COMPILER})
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK_DIR}/consumer_${name} -B ${build} -G ${GENERATOR}
    -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Debug
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DEXPECTED_VERSION=${VERSION}
    ${architectures} ${ours_alone} ${COMMAND_MUST_WORK})
  check_flags(${build}/compile_commands.json)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${build} ${COMMAND_MUST_WORK})
  execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --test-dir ${build} --output-on-failure --no-tests=error
    ${COMMAND_MUST_WORK})
endfunction()

if(NOT CMAKE_CTEST_COMMAND)
  cmake_path(GET CMAKE_COMMAND PARENT_PATH binaries)
  set(CMAKE_CTEST_COMMAND ${binaries}/ctest)
endif()
build_and_run(rmm)
if(SHARED)  # a static one is linked by the C++ compiler
  build_and_run(c)
endif()
build_and_run(kmm)
# The installed program finds its library beside it.
execute_process(COMMAND ${WORK_DIR}/prefix/bin/kmm info ${COMMAND_MUST_WORK})
