# `cmake --install build/release --prefix DIR`: the program, the modules as static libraries with their headers, and a package
# for find_package(heddle): heddle::heddle with <heddle/heddle.h> for programs that use models (src/heddle), and a target a
# module, heddle::fabric, heddle::collectives and so on, whose headers change without notice.
# With `--component program` the program alone, its man pages and its completion for bash, zsh and fish.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY HEDDLE_MODULES)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)

add_dependencies(heddle ${modules})  # so that what run.sh builds can be installed
install(TARGETS heddle RUNTIME COMPONENT program)
set(completions ${CMAKE_INSTALL_DATADIR}/bash-completion/completions/heddle ${CMAKE_INSTALL_DATADIR}/zsh/site-functions/_heddle
    ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d/heddle.fish)
# The program itself writes them, so its options are written down once.
install(CODE "
  set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
  function(heddle_writes)
    execute_process(COMMAND \"$<TARGET_FILE:heddle>\" \${ARGV} COMMAND_ERROR_IS_FATAL ANY)
  endfunction()
  message(STATUS \"Installing: \${prefix}/${CMAKE_INSTALL_MANDIR}/man1/heddle*.1\")
  heddle_writes(man --out \"\${prefix}/${CMAKE_INSTALL_MANDIR}/man1\")
  foreach(file ${completions})
    message(STATUS \"Installing: \${prefix}/\${file}\")
    if(file MATCHES \"/(bash|zsh|fish)\")
      heddle_writes(completion \${CMAKE_MATCH_1} --out \"\${prefix}/\${file}\")
    endif()
  endforeach()
" COMPONENT program)
install(TARGETS heddle_settings ${modules} EXPORT heddleTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT heddleTargets NAMESPACE heddle:: DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heddle
        FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh" PATTERN "src/heddle" EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/src/heddle/heddle.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/heddle)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/heddleConfig.cmake.in ${PROJECT_BINARY_DIR}/heddleConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/heddleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heddleConfig.cmake ${PROJECT_BINARY_DIR}/heddleConfigVersion.cmake
        DESTINATION ${package_dir})
