# Run by ctest: configures a project that has this tree as a subproject, and counts what it would compile.
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR}/subproject -B ${WORK_DIR} -G ${GENERATOR}
  -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM} -DCMAKE_CXX_COMPILER=${CXX} -DKMM_TREE=${PROJECT_DIR}
  -DKMM_STATIC=ON -DKMM_USE_CUDA=OFF -DKMM_USE_HIP=OFF
  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${output}")
endif()
foreach(note "KMM_STATIC=ON" "KMM_USE_CUDA=OFF")
  string(FIND "${output}" "${note}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "no note says ${note}:\n${output}")
  endif()
endforeach()
file(READ ${WORK_DIR}/compile_commands.json commands)
string(JSON count LENGTH "${commands}")
if(count GREATER ${MOST_OBJECTS})
  message(FATAL_ERROR "${count} objects, at most ${MOST_OBJECTS} were expected")
endif()
math(EXPR last "${count} - 1")
foreach(i RANGE ${last})
  string(JSON file GET "${commands}" ${i} file)
  if(file MATCHES "^${PROJECT_DIR}/(tests/unit|tests/runtime|tools|examples|benchmarks|fuzz)/")
    message(FATAL_ERROR "a subproject compiles ${file}")
  endif()
endforeach()
message(STATUS "${count} objects")

# With CUDA the kernels' files have KMM's definition, which KMM's users ask for before they include a header.
if(NOT CUDA_COMPILER)
  return()
endif()
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR}/subproject -B ${WORK_DIR}_cuda -G ${GENERATOR}
  -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM} -DCMAKE_CXX_COMPILER=${CXX} -DKMM_TREE=${PROJECT_DIR} -DKMM_STATIC=ON
  -DKMM_USE_CUDA=ON -DCMAKE_CUDA_COMPILER=${CUDA_COMPILER} -DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES}
  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${output}")
endif()
file(READ ${WORK_DIR}_cuda/compile_commands.json commands)
string(REGEX MATCHALL "[^\n]*DKMM_USE_CUDA=1[^\n]*program.cpp" matches "${commands}")
if(NOT matches)
  message(FATAL_ERROR "no file with kernels has KMM_USE_CUDA=1")
endif()
