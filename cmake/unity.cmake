# Who builds once, a user or CI, wants it soon: there the sources of a target are compiled sixteen at a time (CMAKE_UNITY_BUILD
# in CMakePresets.json), for headers and what is made of their templates take most of the time. The presets `cpu` and
# `hopper`, which one works in, compile every file of a room by itself: each must include what it needs.
option(HEDDLE_JOIN_LEAVES "Compile sources of programs and tests, which nobody includes, eight at a time in every preset" ON)
set(HEDDLE_APART "" CACHE STRING "Sources, with their folders, that do not compile together with others of their target")

# For each of our targets, once it has its sources.
function(heddle_unity target)
  set_source_files_properties(${HEDDLE_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD_CODE_BEFORE_INCLUDE "// NOLINTNEXTLINE(bugprone-suspicious-include)")
endfunction()

# For programs: what nobody else is made of.
function(heddle_unity_leaf target)
  heddle_unity(${target})
  if(HEDDLE_JOIN_LEAVES)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
  endif()
endfunction()
