# What differs where a wheel is built (scikit-build-core sets SKBUILD; the rest of its settings is in pyproject.toml).
include(CheckCXXSourceCompiles)

# Whoever installs by pip sets no options, so a wheel has the cuda driver where a toolkit is found that has what it needs. Such a
# wheel also works on machines without CUDA. A plain variable, so that each build looks anew.
if(SKBUILD AND NOT DEFINED KMM_CUDA)
  set(KMM_CUDA OFF)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.5)
    set(KMM_CUDA ON)
  elseif(CUDAToolkit_FOUND)
    message(WARNING "CUDA ${CUDAToolkit_VERSION} is older than 12.5: this wheel is made without the cuda driver.")
  endif()
  message(STATUS "KMM_CUDA=${KMM_CUDA} for this wheel")
endif()

# kmm_library_version(target): file and soname of a library. In a wheel, which holds no links, both are lib<name>.so.<major>.
function(kmm_library_version target)
  set(version ${PROJECT_VERSION})
  if(SKBUILD)
    set(version ${PROJECT_VERSION_MAJOR})
  endif()
  set_target_properties(${target} PROPERTIES VERSION ${version} SOVERSION ${PROJECT_VERSION_MAJOR})
endfunction()

# kmm_direct_calls(targets...): functions of a source of a shared library call each other without a detour, and may be inlined,
# as Clang does anyway. A program that puts others in their place must give them the same meaning.
function(kmm_direct_calls)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
    endforeach()
  endif()
endfunction()

# kmm_bind_older_libstdcxx(targets...): wheels run with an older libstdc++ than the one that they are built with. Not only in
# wheels: a build with KMM_PYTHON tests what they hold, and the compiler's cache serves both.
function(kmm_bind_older_libstdcxx)
  if(NOT KMM_PYTHON)
    return()
  endif()
  set(flags "-include ${PROJECT_SOURCE_DIR}/cmake/older_libstdcxx.hpp")
  set(CMAKE_REQUIRED_FLAGS ${flags})
  # Without that version of the symbol the link fails; a compiler that is not GCC or clang does not know the flag.
  check_cxx_source_compiles([[
    #include <condition_variable>
    int main() {
        std::mutex mutex;
        std::unique_lock<std::mutex> lock(mutex);
        std::condition_variable condition;
        if (!lock) condition.wait(lock);
    }]] KMM_OLDER_LIBSTDCXX)
  if(KMM_OLDER_LIBSTDCXX)
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:${flags}>")
    endforeach()
  endif()
endfunction()
