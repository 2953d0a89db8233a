# Users and CI build once: their presets compile the sources of a target sixteen at a time (CMAKE_UNITY_BUILD in
# CMakePresets.json), because headers and template instantiations take most of the time. The preset `cpu` compiles every
# file of a module separately: each must include what it needs.
option(HEDDLE_JOIN_LEAVES "Compile sources of programs and tests, which nobody includes, eight at a time in every preset" ON)
set(HEDDLE_APART "" CACHE STRING "Sources, with their folders, that do not compile together with others of their target")

# CI's step hopper compiles what is named after CUDA; NCCL's headers stand alone.
set(heddle_apart ${HEDDLE_APART})
if(HEDDLE_CUDA)
  file(GLOB_RECURSE heddle_cuda_sources "${PROJECT_SOURCE_DIR}/src/*cuda*.cpp" "${PROJECT_SOURCE_DIR}/apps/*cuda*.cpp"
       "${PROJECT_SOURCE_DIR}/tests/*cuda*.cpp")
  list(APPEND heddle_apart ${heddle_cuda_sources} "${PROJECT_SOURCE_DIR}/src/fabric/nvlink/nccl_comm.cpp")
endif()

# Call it for each of our targets, after its sources are set.
function(heddle_unity target)
  set_source_files_properties(${heddle_apart} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD_CODE_BEFORE_INCLUDE "// NOLINTNEXTLINE(bugprone-suspicious-include)")
  set_property(GLOBAL APPEND PROPERTY HEDDLE_JOINED ${target})
endfunction()

# For programs, which no other target links.
function(heddle_unity_leaf target)
  heddle_unity(${target})
  if(HEDDLE_JOIN_LEAVES)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
  endif()
endfunction()

# Our static libraries that `targets` link, directly or through others.
function(heddle_libraries_of result targets)
  set(all "")
  while(targets)
    list(POP_FRONT targets target)
    if(NOT target MATCHES "^heddle_" OR NOT TARGET ${target} OR target IN_LIST all)
      continue()
    endif()
    get_target_property(type ${target} TYPE)
    get_target_property(uses ${target} LINK_LIBRARIES)
    if(type STREQUAL STATIC_LIBRARY)
      list(APPEND all ${target})
    endif()
    if(uses)
      list(APPEND targets ${uses})
    endif()
  endwhile()
  set(${result} ${all} PARENT_SCOPE)
endfunction()
