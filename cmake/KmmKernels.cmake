# kmm_target_kernels(target files...): files with __global__ functions. nvcc compiles them in a CUDA build; elsewhere the
# C++ compiler does, and the kernels run on the host driver through kmm/emulation.hpp.
function(kmm_target_kernels target)
  target_sources(${target} PRIVATE ${ARGN})
  if(NOT KMM_CUDA)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES LANGUAGE CXX)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-xc++>)
  endif()
endfunction()
