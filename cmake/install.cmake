# `cmake --install build/release --prefix DIR`: the program, the modules as static libraries with their headers, and a package
# for find_package(heddle), whose targets are heddle::fabric, heddle::collectives, heddle::engine and so on.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY HEDDLE_ROOMS)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)

install(TARGETS heddle RUNTIME)
install(TARGETS heddle_settings ${rooms} EXPORT heddleTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT heddleTargets NAMESPACE heddle:: DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heddle
        FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/heddleConfig.cmake.in ${PROJECT_BINARY_DIR}/heddleConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heddleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heddleConfig.cmake ${PROJECT_BINARY_DIR}/heddleConfigVersion.cmake
        DESTINATION ${package_dir})
