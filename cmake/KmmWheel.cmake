# What differs where a wheel is built (scikit-build-core sets SKBUILD; the rest of its settings is in pyproject.toml).
#
# KMM_CUDA_DEFAULT: whoever installs by pip sets no options, so a wheel has the cuda driver where a toolkit is found that has
# what it needs. Such a wheel also works on machines without CUDA.
set(KMM_CUDA_DEFAULT OFF)
if(SKBUILD AND NOT DEFINED KMM_CUDA)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_VERSION VERSION_LESS 12.5)
    message(WARNING "CUDA ${CUDAToolkit_VERSION} is older than 12.5: this wheel is made without the cuda driver.")
  elseif(CUDAToolkit_FOUND)
    set(KMM_CUDA_DEFAULT ON)
  endif()
  message(STATUS "wheel with the cuda driver: ${KMM_CUDA_DEFAULT}")
endif()

# kmm_library_version(target): file and soname of a library. In a wheel, which holds no links, both are lib<name>.so.<major>.
function(kmm_library_version target)
  set(version ${PROJECT_VERSION})
  if(SKBUILD)
    set(version ${PROJECT_VERSION_MAJOR})
  endif()
  set_target_properties(${target} PROPERTIES VERSION ${version} SOVERSION ${PROJECT_VERSION_MAJOR})
endfunction()
