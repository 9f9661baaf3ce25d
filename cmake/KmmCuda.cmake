# The CUDA language of this build (KMM_CUDA=ON): compiler, standard, architectures. Only this tree uses it; programs that
# use an installed KMM bring their own CUDA settings (see KmmKernels.cmake).
if(NOT KMM_CUDA)
  return()
endif()

# nvcc is often installed but not on the PATH.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(KMM_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
  mark_as_advanced(KMM_NVCC)
  if(NOT KMM_NVCC)
    message(FATAL_ERROR "KMM_CUDA is ON, but there is no nvcc: put it on the PATH, set CMAKE_CUDA_COMPILER or CUDACXX, "
      "or configure with -DKMM_CUDA=OFF (kernels then run on the CPU).")
  endif()
  set(CMAKE_CUDA_COMPILER ${KMM_NVCC} CACHE FILEPATH "CUDA compiler")
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "Host compiler of nvcc: the same as for C++ files")
endif()

# CMAKE_CUDA_ARCHITECTURES or CUDAARCHS of the user wins. "native" is an error at generation where no GPU answers, so such
# machines build for the data-centre GPUs of two generations, with PTX for what comes after.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE kmm_gpus RESULT_VARIABLE kmm_gpu_query ERROR_QUIET)
  if(kmm_gpu_query EQUAL 0 AND kmm_gpus MATCHES "^[0-9]+\\.[0-9]")
    set(CMAKE_CUDA_ARCHITECTURES native)
  else()
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES} CACHE STRING "GPU architectures of .cu files")
endif()

enable_language(CUDA)
# 12.5 is the first toolkit that declares cudaGetDriverEntryPointByVersion and cuCtxRecordEvent, on which vendor_cuda.hpp
# stands. `./dev cuda12` compiles with 12.6 and 12.9.
find_package(CUDAToolkit REQUIRED)
if(CUDAToolkit_VERSION VERSION_LESS 12.5)
  message(FATAL_ERROR "KMM needs CUDA 12.5 or newer, but the toolkit of ${CMAKE_CUDA_COMPILER} is ${CUDAToolkit_VERSION}: "
    "set CMAKE_CUDA_COMPILER, or configure with -DKMM_CUDA=OFF.")
endif()

# The tree is C++20. CMake 3.25 does not know how to ask nvcc for that, so the flag is ours and CMake is told nothing.
target_compile_options(kmm_common INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
if(CMAKE_CUDA_COMPILER_ID STREQUAL "Clang")
  # clang says of each toolkit newer than itself that it does not know all of it.
  target_compile_options(kmm_common INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Wall>
    $<$<COMPILE_LANGUAGE:CUDA>:-Wno-unknown-cuda-version>)
  return()
endif()
target_compile_options(kmm_common INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
if(KMM_WERROR)
  target_compile_options(kmm_common INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
# The sanitizers hold for the host side of .cu files too.
if(KMM_SANITIZER STREQUAL "address")
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fsanitize=address,-fsanitize=undefined,-fno-omit-frame-pointer>)
elseif(KMM_SANITIZER STREQUAL "thread")
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fsanitize=thread>)
endif()
