# CI builds several presets from nothing. There the sources of a target are compiled sixteen at a time (CMAKE_UNITY_BUILD in
# CMakePresets.json), for headers and what is made of their templates take most of the time. The preset `cpu` compiles
# every file by itself: each must include what it needs.
set(HEDDLE_APART "" CACHE STRING "Sources, with their folders, that do not compile together with others of their target")

# For each of our targets, once it has its sources.
function(heddle_unity target)
  set_source_files_properties(${HEDDLE_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD_CODE_BEFORE_INCLUDE "// NOLINTNEXTLINE(bugprone-suspicious-include)")
endfunction()
