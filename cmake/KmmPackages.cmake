# What users see of the targets, in this tree and after installation: rmm::core (light), rmm::rmm (the drop-in),
# kmm::kmm, and the packages `rmm` and `kmm` that find_package finds.
include(CMakePackageConfigHelpers)
include(RmmInterop)

# The version that `find_package(rmm 25.10)` asks for; include/rmm/version_config.hpp says the same.
set(KMM_RMM_VERSION 25.10.0)
# What an installed package `kmm` says to programs that ask for an older version: yes. `find_package(kmm 0.3)` is how a
# program written for KMM 0.3 asks.
set(KMM_PACKAGE_COMPATIBILITY AnyNewerVersion)

# The libraries of this build.
set(KMM_LIBRARIES rmm_core)
if(KMM_BUILD_RUNTIME)
  list(APPEND KMM_LIBRARIES kmm)
endif()

# Usage requirements of the libraries. Called once, when src/ has made their targets.
function(kmm_declare_packages)
  foreach(target ${KMM_LIBRARIES})
    target_include_directories(${target} PUBLIC
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_compile_features(${target} PUBLIC cxx_std_17)
    set_target_properties(${target} PROPERTIES INTERFACE_POSITION_INDEPENDENT_CODE ON INSTALL_RPATH "$ORIGIN")
  endforeach()
  set_target_properties(rmm_core PROPERTIES EXPORT_NAME core)
  # Who asks by the name of KMM 0.3's option gets its definition too: files ask for it before they include a header.
  if(KMM_BUILD_RUNTIME AND KMM_CUDA AND KMM_USE_CUDA)
    target_compile_definitions(kmm INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:KMM_USE_CUDA=1>)
  endif()
  # A shared library brings what it needs; an installed static one asks the program's link for it.
  if(NOT BUILD_SHARED_LIBS)
    target_link_libraries(rmm_core INTERFACE $<INSTALL_INTERFACE:Threads::Threads>
      $<$<BOOL:${KMM_CUDA}>:$<INSTALL_INTERFACE:CUDA::cudart_static>>)
  endif()
  # In this tree only: after installation rmm-config.cmake makes rmm::rmm anew, with the CUDA toolkit found there.
  add_library(rmm INTERFACE)
  target_link_libraries(rmm INTERFACE rmm_core)
  rmm_add_interop(rmm)
  add_library(rmm::rmm ALIAS rmm)
  add_library(rmm::Thrust ALIAS rmm)
endfunction()

# Each package is a component of its own name: a wheel takes what it needs. Wheels hold no links, so the name without a version,
# by which only compilers ask, is apart.
function(kmm_install_packages)
  set(module_dir ${PROJECT_SOURCE_DIR}/cmake)
  set(KMM_NEEDS_CUDA_RUNTIME OFF)
  if(KMM_CUDA AND NOT BUILD_SHARED_LIBS)
    set(KMM_NEEDS_CUDA_RUNTIME ON)
  endif()

  install(TARGETS rmm_core EXPORT rmm-core-targets COMPONENT rmm LIBRARY NAMELINK_COMPONENT rmm_namelink)
  # Any request up to 25.10 is served: the library keeps what older releases had.
  kmm_install_package(rmm rmm-core-targets ${KMM_RMM_VERSION} AnyNewerVersion rmm rapids_logger)
  install(FILES ${module_dir}/RmmInterop.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/rmm COMPONENT rmm)
  if(KMM_BUILD_RUNTIME)
    install(TARGETS kmm EXPORT kmm-targets COMPONENT kmm LIBRARY NAMELINK_COMPONENT kmm_namelink)
    kmm_install_package(kmm kmm-targets ${PROJECT_VERSION} ${KMM_PACKAGE_COMPATIBILITY} kmm)
    install(FILES ${module_dir}/KmmKernels.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/kmm COMPONENT kmm)
  endif()
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()

# The CMake package `package` in lib/cmake: the exported targets, its version, and the folders of include/ that belong to it.
function(kmm_install_package package targets version compatibility)
  set(directory ${CMAKE_INSTALL_LIBDIR}/cmake/${package})
  set(config ${PROJECT_BINARY_DIR}/packages/${package}-config)
  install(EXPORT ${targets} NAMESPACE ${package}:: DESTINATION ${directory} COMPONENT ${package})
  configure_package_config_file(${module_dir}/${package}-config.cmake.in ${config}.cmake INSTALL_DESTINATION ${directory})
  write_basic_package_version_file(${config}-version.cmake VERSION ${version} COMPATIBILITY ${compatibility})
  install(FILES ${config}.cmake ${config}-version.cmake DESTINATION ${directory} COMPONENT ${package})
  foreach(folder ${ARGN})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT ${package}
      FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h" PATTERN "*.cuh")
  endforeach()
endfunction()
