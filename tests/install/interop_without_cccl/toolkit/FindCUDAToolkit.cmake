# A CUDA toolkit of which nothing but the runtime's target is there.
set(CUDAToolkit_FOUND ON)
set(CUDAToolkit_INCLUDE_DIRS ${CMAKE_CURRENT_LIST_DIR})
set(CUDAToolkit_LIBRARY_DIR ${CMAKE_CURRENT_LIST_DIR})
set(CUDAToolkit_TARGET_DIR ${CMAKE_CURRENT_LIST_DIR})
if(NOT TARGET CUDA::cudart)
  add_library(CUDA::cudart INTERFACE IMPORTED)
endif()
