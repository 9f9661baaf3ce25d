# What users see of the targets, in this tree and after installation: rmm::core (light), rmm::rmm (the drop-in),
# kmm::kmm, and the packages `rmm` and `kmm` that find_package finds.
include(CMakePackageConfigHelpers)
include(RmmInterop)

# The version that `find_package(rmm 25.10)` asks for; include/rmm/version_config.hpp says the same.
set(KMM_RMM_VERSION 25.10.0)

# Usage requirements of the libraries. Called once, when src/ has made the targets rmm_core and kmm.
function(kmm_declare_packages)
  foreach(target rmm_core kmm)
    target_include_directories(${target} PUBLIC
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_compile_features(${target} PUBLIC cxx_std_17)
    set_target_properties(${target} PROPERTIES INTERFACE_POSITION_INDEPENDENT_CODE ON INSTALL_RPATH "$ORIGIN")
  endforeach()
  set_target_properties(rmm_core PROPERTIES EXPORT_NAME core)
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

function(kmm_install_packages)
  set(rmm_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rmm)
  set(kmm_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kmm)
  set(module_dir ${PROJECT_SOURCE_DIR}/cmake)
  set(KMM_NEEDS_CUDA_RUNTIME OFF)
  if(KMM_CUDA AND NOT BUILD_SHARED_LIBS)
    set(KMM_NEEDS_CUDA_RUNTIME ON)
  endif()

  install(TARGETS rmm_core EXPORT rmm-core-targets)
  install(TARGETS kmm EXPORT kmm-targets)
  install(EXPORT rmm-core-targets NAMESPACE rmm:: DESTINATION ${rmm_dir})
  install(EXPORT kmm-targets NAMESPACE kmm:: DESTINATION ${kmm_dir})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h" PATTERN "*.cuh")

  foreach(package rmm kmm)
    configure_package_config_file(${module_dir}/${package}-config.cmake.in
      ${PROJECT_BINARY_DIR}/packages/${package}-config.cmake INSTALL_DESTINATION ${${package}_dir})
  endforeach()
  # Any request up to 25.10 is served: the library keeps what older releases had.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/packages/rmm-config-version.cmake
    VERSION ${KMM_RMM_VERSION} COMPATIBILITY AnyNewerVersion)
  # Before 1.0 a minor version may break its users.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/packages/kmm-config-version.cmake
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)

  install(FILES ${PROJECT_BINARY_DIR}/packages/rmm-config.cmake
    ${PROJECT_BINARY_DIR}/packages/rmm-config-version.cmake ${module_dir}/RmmInterop.cmake DESTINATION ${rmm_dir})
  install(FILES ${PROJECT_BINARY_DIR}/packages/kmm-config.cmake
    ${PROJECT_BINARY_DIR}/packages/kmm-config-version.cmake ${module_dir}/KmmKernels.cmake DESTINATION ${kmm_dir})
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()
