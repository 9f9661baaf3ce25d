# Options, and what every target of ours has in common.

# The names of KMM 0.3's options.
if(DEFINED KMM_STATIC)
  message(STATUS "KMM_STATIC=${KMM_STATIC}: BUILD_SHARED_LIBS for kmm")
  set(BUILD_SHARED_LIBS ON)
  if(KMM_STATIC)
    set(BUILD_SHARED_LIBS OFF)
  endif()
elseif(PROJECT_IS_TOP_LEVEL)
  option(BUILD_SHARED_LIBS "Shared libraries" ON)
elseif(NOT DEFINED BUILD_SHARED_LIBS)
  set(BUILD_SHARED_LIBS ON)  # here, not for the project that this one is part of
endif()
if(DEFINED KMM_USE_CUDA)
  message(STATUS "KMM_USE_CUDA=${KMM_USE_CUDA}: KMM_CUDA for kmm")
  set(KMM_CUDA ${KMM_USE_CUDA} CACHE BOOL "Build the cuda driver and compile .cu files with nvcc (ON, OFF)" FORCE)
endif()
if(KMM_USE_HIP)
  message(WARNING "KMM_USE_HIP=${KMM_USE_HIP}: this version of kmm has no hip driver. Kernels of files that the C++ compiler "
    "translates run on the CPU; for NVIDIA GPUs set KMM_CUDA=ON.")
endif()
include(KmmWheel)
option(KMM_CUDA "Build the cuda driver and compile .cu files with nvcc (ON, OFF)" OFF)
option(KMM_BUILD_RUNTIME "Build the runtime (libkmm) above rmm; OFF: rmm alone" ON)
option(KMM_BUILD_EXAMPLES "Build examples/" ON)
option(KMM_BUILD_BENCHMARKS "Build benchmarks/" ON)
option(KMM_PYTHON "Build the Python package rmm (needs nanobind in the Python that CMake finds)" OFF)
option(KMM_WERROR "Warnings are errors" OFF)
set(KMM_SANITIZER "" CACHE STRING "address (with undefined and leak) or thread")
set_property(CACHE KMM_SANITIZER PROPERTY STRINGS "" address thread)
# What rmm::rmm passes on, with the names that RMM's own build has.
option(RMM_NVTX "rmm::rmm defines RMM_NVTX: ranges around the functions of rmm" OFF)
option(CUDA_STATIC_RUNTIME "rmm::rmm links the static CUDA runtime" OFF)
set(RMM_LOGGING_LEVEL INFO CACHE STRING "RMM_LOG_ACTIVE_LEVEL of rmm::rmm")
set_property(CACHE RMM_LOGGING_LEVEL PROPERTY STRINGS TRACE DEBUG INFO WARN ERROR CRITICAL OFF)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_program(KMM_CCACHE ccache)
mark_as_advanced(KMM_CCACHE)
if(KMM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${KMM_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${KMM_CCACHE})
endif()
find_package(Threads REQUIRED)

# Without libstdc++.so at hand g++ takes libstdc++.a, and each library gets a C++ library of its own. Where the process
# has another one, of whatever version, the dynamic linker mixes the two.
if(BUILD_SHARED_LIBS AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND UNIX AND NOT APPLE)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so
    OUTPUT_VARIABLE kmm_libstdcxx OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT IS_ABSOLUTE "${kmm_libstdcxx}")
    message(WARNING "${CMAKE_CXX_COMPILER} finds no libstdc++.so and links the C++ library statically. C++ programs "
      "linked by it work; a process that has another C++ library (Python with compiled packages, say) may crash when it "
      "loads what is built here. For that, build with a g++ that finds libstdc++.so (g++ -print-file-name=libstdc++.so).")
  endif()
endif()

# Sanitizers hold for the whole tree: a program that is not instrumented hides what a library does wrong.
if(KMM_SANITIZER STREQUAL "address")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined> $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=address,undefined)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # says it as g++ does
    add_compile_definitions($<$<COMPILE_LANGUAGE:CXX>:__SANITIZE_ADDRESS__>)
  endif()
elseif(KMM_SANITIZER STREQUAL "thread")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread>)
  add_link_options(-fsanitize=thread)
elseif(KMM_SANITIZER)
  message(FATAL_ERROR "KMM_SANITIZER is '${KMM_SANITIZER}': use address or thread")
endif()

# kmm_common: how our own files are compiled (standard, warnings, access to src/). It is for this tree alone: libraries
# link it PRIVATE, so that neither a warning flag nor a path of this build reaches who uses them.
add_library(kmm_common INTERFACE)
target_compile_features(kmm_common INTERFACE cxx_std_20)
target_compile_options(kmm_common INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
  $<$<COMPILE_LANGUAGE:CXX>:-Wconversion> $<$<COMPILE_LANGUAGE:CXX>:-Wno-sign-conversion>)
# g++ 12 warns of overlapping copies inside std::string that cannot happen (GCC bug 105651, mended in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(kmm_common INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
# src/driver/locks.hpp: what a lock guards is used with the lock.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(kmm_common INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>
    $<$<COMPILE_LANGUAGE:CXX>:-Werror=thread-safety>)
endif()
# Instrumented code makes g++ see uninitialised values that are not there: the plain builds judge warnings.
if(KMM_SANITIZER)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(kmm_common INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  endif()
elseif(KMM_WERROR)
  target_compile_options(kmm_common INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# Messages name our files by their place in the tree, not by where it was built.
target_compile_options(kmm_common INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
target_include_directories(kmm_common INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# The headers alone: src/driver/format.hpp compiles fmt into libkmm_rmm, in its own way, and nothing needs libfmt.so.
find_package(fmt 9 REQUIRED)
target_include_directories(kmm_common SYSTEM INTERFACE $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_libraries(kmm_common INTERFACE Threads::Threads)
