# kmm_target_kernels(target files...): adds files with __global__ functions to a target. Part of the installed package.
#
# With KMM_CUDA they are compiled as CUDA (which our headers see by themselves), as C++20 unless the target's
# CUDA_STANDARD says otherwise; the program must have enabled the language CUDA. Without KMM_CUDA the C++ compiler
# compiles them, and the kernels run on the host driver through kmm/emulation.hpp.
function(kmm_target_kernels target)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "kmm_target_kernels: there is no target '${target}'; call add_executable or add_library first.")
  endif()
  if(NOT ARGN)
    message(FATAL_ERROR "kmm_target_kernels(${target}): name at least one file.")
  endif()
  set(files)
  foreach(file IN LISTS ARGN)
    get_filename_component(file ${file} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
    list(APPEND files ${file})
  endforeach()
  target_sources(${target} PRIVATE ${files})

  if(NOT KMM_CUDA)
    # The suffix says CUDA; compilers believe it unless told otherwise.
    set_property(SOURCE ${files} TARGET_DIRECTORY ${target} PROPERTY LANGUAGE CXX)
    set_property(SOURCE ${files} TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_OPTIONS -xc++)
    return()
  endif()

  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "kmm_target_kernels(${target}): this KMM has the cuda driver, but the language CUDA is not enabled. "
      "Write project(... LANGUAGES CXX CUDA), or configure with -DKMM_CUDA=OFF to run the kernels on the CPU.")
  endif()
  # A file may have been marked as C++ by its owner: kernels are for nvcc here.
  set_property(SOURCE ${files} TARGET_DIRECTORY ${target} PROPERTY LANGUAGE CUDA)
  # CMake before 3.26 cannot ask nvcc for C++20, which our headers need in a kernel file.
  get_target_property(standard ${target} CUDA_STANDARD)
  if(NOT standard)
    set_property(SOURCE ${files} TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_OPTIONS -std=c++20)
  endif()
endfunction()
