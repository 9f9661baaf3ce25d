# Run by ctest: configures and builds the project beside this file, with the CUDA toolkit of this build.
file(REMOVE_RECURSE ${WORK_DIR})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR} -G ${GENERATOR} -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}
  -DCMAKE_CXX_COMPILER=${CXX} -DRMM_INTEROP=${RMM_INTEROP} -DCUDAToolkit_ROOT=${CUDA_ROOT} ${MORE}
  OUTPUT_VARIABLE configured COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR} COMMAND_ERROR_IS_FATAL ANY)
