# Compiler settings of all our targets: `heddle_settings`, which each module links.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # keeps assertions: a check only in debug builds is no check
set(heddle_loop_options -O3)  # of modules whose loops -O2 leaves as they are
if(HEDDLE_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1")  # compiles in two thirds of the time; recommended by sanitizers and libFuzzer
  set(heddle_loop_options "")
elseif(HEDDLE_CUDA_UNOPTIMISED)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O0 -DNDEBUG")  # of the host's side
endif()

# For modules whose loops -O2 leaves as they are.
function(heddle_optimise_loops target)
  if(heddle_loop_options)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${heddle_loop_options}>")
  endif()
endfunction()

find_program(HEDDLE_CCACHE ccache)
if(HEDDLE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HEDDLE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${HEDDLE_CCACHE})
endif()

include(GNUInstallDirs)
add_library(heddle_settings INTERFACE)
set_target_properties(heddle_settings PROPERTIES EXPORT_NAME settings)
target_include_directories(heddle_settings INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/heddle>)
target_compile_features(heddle_settings INTERFACE cxx_std_20)
set(cxx_warnings -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wvla
    -Wno-missing-field-initializers)  # designated initialisers omit defaults on purpose
if(HEDDLE_WARNINGS_AS_ERRORS)
  list(APPEND cxx_warnings -Werror)
endif()
target_compile_options(heddle_settings INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:${cxx_warnings}>>")
target_compile_definitions(heddle_settings INTERFACE HEDDLE_CUDA=$<BOOL:${HEDDLE_CUDA}>)

# The same floating-point results on every machine: no contraction unless the source requests it.
target_compile_options(heddle_settings INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>>")

if(HEDDLE_SANITIZE)
  if(HEDDLE_SANITIZE MATCHES "address,undefined")
    set(doubled -fno-sanitize=null,vptr,object-size)  # AddressSanitizer finds these, too; a tenth of the compile time
  endif()
  target_compile_options(heddle_settings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${HEDDLE_SANITIZE};${doubled};-fno-omit-frame-pointer;-fno-sanitize-recover=all;-g1>")
  if(HEDDLE_SANITIZE MATCHES "thread")
    # What the compiler expands of these in place, ThreadSanitizer does not see.
    target_compile_options(heddle_settings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fno-builtin-memcpy;-fno-builtin-memmove;-fno-builtin-memset>")
  endif()
  target_link_options(heddle_settings INTERFACE -fsanitize=${HEDDLE_SANITIZE})
  if(HEDDLE_SANITIZE MATCHES "address")
    # A start of the program would relocate a million addresses, most of them in tables of the sanitizers.
    target_link_options(heddle_settings INTERFACE -no-pie)
  endif()
endif()

# Highway compiles its files once per instruction set. These are enough, and each further one costs compile time: AVX2,
# AVX-512, NEON and the baseline for other CPUs. The number is SSE2 (bit 14) and NEON without AES (bit 29), which Highway
# names since 1.0.5. With sanitizers AVX2 is the baseline: SSE2 alone took three quarters of minutes, the same code in
# AVX-512 as many again, and UBSan reports GCC's own intrinsics there. The preset `strict` tests them all.
set(simd_targets "HWY_AVX2|HWY_NEON|HWY_EMU128|HWY_SCALAR|0x20004000LL")
set(heddle_simd_options "")
if(NOT HEDDLE_SANITIZE)
  string(APPEND simd_targets "|HWY_AVX3")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(heddle_simd_options -mavx2 -mfma -mf16c -mbmi -mbmi2 -maes -mpclmul)  # what Highway wants of AVX2
endif()
# Compile every source that includes <hwy/foreach_target.h> with both.
set(heddle_simd_definition "HWY_DISABLED_TARGETS=(~(${simd_targets}))")

if(HEDDLE_CUDA)
  find_program(HEDDLE_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(NOT HEDDLE_NVCC)
    message(FATAL_ERROR "HEDDLE_CUDA is ON but there is no nvcc on PATH or in /usr/local/cuda/bin. Install CUDA 13, or use the preset `cpu`.")
  endif()
  set(CMAKE_CUDA_COMPILER ${HEDDLE_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # given below: CMake 3.25 does not know sm_90a
  set(CMAKE_CUDA_STANDARD 20)
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know nvcc's C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  find_package(CUDAToolkit REQUIRED)
  target_compile_options(heddle_settings INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:-gencode=arch=compute_90a,code=sm_90a;--expt-relaxed-constexpr>")
  target_compile_options(heddle_settings INTERFACE "$<INSTALL_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>>")  # see above
  if(HEDDLE_CUDA_UNOPTIMISED)  # kernels choose by source
    target_compile_options(heddle_settings INTERFACE
      "$<BUILD_INTERFACE:$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<NOT:$<STREQUAL:$<TARGET_PROPERTY:NAME>,heddle_kernels>>>:--Ofast-compile=max>>")
  endif()
  # fmt 9 believes that nvcc has no constexpr, and then cannot check its format strings.
  target_compile_definitions(heddle_settings INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>")
endif()
