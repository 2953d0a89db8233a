# Headers of libraries that most units include, compiled once for all targets with the same options: a fifth of a sanitizer's
# build, and an eighth of GCC's. Not in the preset `cpu`, where each file is to include what it needs.
option(HEDDLE_PRECOMPILE "Precompile headers of libraries" OFF)
if(HEDDLE_PRECOMPILE)
  # ccache keeps what was compiled with precompiled headers only when told that it may.
  find_program(HEDDLE_ENV env REQUIRED)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HEDDLE_ENV} CCACHE_SLOPPINESS=pch_defines,time_macros ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# The headers for a target, and the options that whoever shares them must have, too.
function(heddle_precompile_key result target)
  set(header libraries.h)
  if(target MATCHES "^test_")
    set(header test_libraries.h)
  elseif(target STREQUAL heddle)
    set(header program_libraries.h)
  endif()
  get_target_property(type ${target} TYPE)
  get_target_property(options ${target} COMPILE_OPTIONS)
  if(NOT options)
    set(options "")
  endif()
  list(FILTER options EXCLUDE REGEX "COMPILE_LANGUAGE:CUDA|^-Xcompiler")
  set(${result} ${header} ${type} ${options} PARENT_SCOPE)
endfunction()

# Sources with options of their own cannot use the precompiled headers.
function(heddle_skip_precompiled target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  foreach(source ${sources})
    get_filename_component(source ${source} ABSOLUTE BASE_DIR ${folder})
    get_source_file_property(options ${source} TARGET_DIRECTORY ${target} COMPILE_OPTIONS)
    if(options)
      set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# `host` compiles the headers for itself and for `targets`, which are built after it.
function(heddle_precompile_in host header targets)
  # By a name without a folder of this checkout, so that ccache shares what is compiled with others.
  target_include_directories(${host} PRIVATE ${PROJECT_SOURCE_DIR}/cmake)
  target_precompile_headers(${host} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:<precompiled/${header}$<ANGLE-R>>")
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(${host} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")  # the same bytes again, for ccache
  endif()
  heddle_skip_precompiled(${host})
  foreach(target ${targets})
    target_precompile_headers(${target} REUSE_FROM ${host})
    heddle_skip_precompiled(${target})
  endforeach()
endfunction()

# Call it once options and sources of all targets are set. The first module of a kind is the host of those that link it;
# test_base, which all steps of CI build, is that of the other tests.
function(heddle_precompile)
  get_property(targets GLOBAL PROPERTY HEDDLE_JOINED)
  list(REMOVE_ITEM targets test_base)
  list(PREPEND targets test_base)
  if(HEDDLE_CUDA_UNOPTIMISED)  # CI compiles few units of the program there
    list(REMOVE_ITEM targets heddle)
  endif()
  foreach(target ${targets})
    heddle_precompile_key(key ${target})
    string(MD5 name "${key}")
    if(NOT DEFINED host_${name})
      set(host_${name} ${target})
      list(GET key 0 header_${name})
      list(APPEND names ${name})
      continue()
    endif()
    get_target_property(uses ${target} LINK_LIBRARIES)
    heddle_libraries_of(libraries "${uses}")
    set(host ${host_${name}})
    # A test without heddle_base has not the definitions of its libraries.
    if(host IN_LIST libraries OR host STREQUAL heddle_base OR (host STREQUAL test_base AND heddle_base IN_LIST libraries))
      list(APPEND targets_${name} ${target})
    endif()
  endforeach()
  foreach(name ${names})
    get_target_property(sources ${host_${name}} SOURCES)
    list(LENGTH sources count)
    if(targets_${name} OR count GREATER 30)  # otherwise there are too few units
      heddle_precompile_in(${host_${name}} ${header_${name}} "${targets_${name}}")
    endif()
  endforeach()
endfunction()
