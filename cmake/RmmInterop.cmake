# Makes CCCL::CCCL, unless the program has found one itself. The toolkit's own, because its compiler looks there as well;
# CCCL_DIR names another. A toolkit without CMake files for it has at least the headers: in include/cccl from CUDA 13 on,
# and in include/ before.
function(rmm_find_cccl)
  if(TARGET CCCL::CCCL)
    return()
  endif()
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)  # it tells what it finds, also when it is asked not to
  find_package(CCCL CONFIG QUIET NO_DEFAULT_PATH
    HINTS ${CUDAToolkit_LIBRARY_DIR}/cmake/cccl ${CUDAToolkit_TARGET_DIR}/lib/cmake/cccl)
  if(TARGET CCCL::CCCL)
    return()
  endif()
  add_library(CCCL::CCCL INTERFACE IMPORTED GLOBAL)
  foreach(directory ${CUDAToolkit_INCLUDE_DIRS})
    if(EXISTS ${directory}/cccl/cuda/std/version)
      target_include_directories(CCCL::CCCL INTERFACE ${directory}/cccl)
    elseif(EXISTS ${directory}/cuda/std/version)
      target_include_directories(CCCL::CCCL INTERFACE ${directory})
    endif()
  endforeach()
endfunction()

# rmm_add_interop(target): makes an interface target the drop-in for RMM. Where a CUDA toolkit is found, its users get
# the CUDA runtime, CCCL (Thrust, CUB, libcu++) and NVTX, and our headers include their interoperability headers;
# without a toolkit the target stays as light as rmm::core. Used by this build and by the installed package.
function(rmm_add_interop target)
  if(RMM_NVTX)
    target_compile_definitions(${target} INTERFACE RMM_NVTX)
  endif()
  if(RMM_LOGGING_LEVEL)
    target_compile_definitions(${target} INTERFACE RMM_LOG_ACTIVE_LEVEL=RAPIDS_LOGGER_LOG_LEVEL_${RMM_LOGGING_LEVEL})
  endif()
  target_link_libraries(${target} INTERFACE ${CMAKE_DL_LIBS})

  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND)
    return()
  endif()
  if(CUDA_STATIC_RUNTIME)
    target_link_libraries(${target} INTERFACE CUDA::cudart_static)
  else()
    target_link_libraries(${target} INTERFACE CUDA::cudart)
  endif()
  if(TARGET CUDA::nvtx3)
    target_link_libraries(${target} INTERFACE CUDA::nvtx3)
  endif()
  rmm_find_cccl()
  target_link_libraries(${target} INTERFACE CCCL::CCCL)
  target_compile_definitions(${target} INTERFACE RMM_WITH_CCCL LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
endfunction()
