# Compiler, linker, levels of optimization and dependencies.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
include(CheckCXXSourceCompiles)

# A faster linker and a compiler cache, where they are installed. (What lld 14 links of GCC 12's objects
# aborts when some functions throw.)
find_program(MOLD mold)
find_program(LLD ld.lld)
if(MOLD AND NOT EMSCRIPTEN)
  add_link_options(-fuse-ld=mold)
elseif(LLD AND CMAKE_CXX_COMPILER_ID MATCHES Clang AND NOT EMSCRIPTEN)
  add_link_options(-fuse-ld=lld)
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/common/cmake/ccache.sh ${PROJECT_SOURCE_DIR})
endif()

if(EMSCRIPTEN)
  include(common/web/libraries.cmake)
else()
  # Each check that compiles something takes a second: xtensor's of -march=native and xtensor-blas's
  # of LAPACK are not needed, and OpenBLAS is what is usually there.
  set(arch_native_supported OFF)
  find_package(xtensor REQUIRED)
  find_path(XTENSOR_BLAS_FOLDER xtensor-blas/xlinalg.hpp REQUIRED)
  set(BLA_VENDOR OpenBLAS)
  find_package(BLAS QUIET)
  if(NOT BLAS_FOUND)
    unset(BLA_VENDOR)
    find_package(BLAS REQUIRED)
  endif()
  find_package(CLI11 REQUIRED)
  find_package(fmt REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(doctest REQUIRED)
  find_package(Threads REQUIRED)
  find_path(ONIGURUMA_FOLDER oniguruma.h REQUIRED)
  find_library(ONIGURUMA onig REQUIRED)
  find_path(UTF8PROC_FOLDER utf8proc.h REQUIRED)
  find_library(UTF8PROC utf8proc REQUIRED)
  find_path(HWY_FOLDER hwy/highway.h REQUIRED)  # Highway; its library is not needed
endif()

# Lessons are compiled with -O2, and with GCC a few loops with -O3, at which it vectorizes; programs and tests, which only call
# lessons, are not optimized, so that a change is compiled quickly. The asserts in lessons and
# libraries stay on.
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(for_programs $<$<CONFIG:Release,RelWithDebInfo>:-O0>)
set(for_files $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(for_speed $<$<CONFIG:Release,RelWithDebInfo>:-O3>)
  set(for_files $<$<CONFIG:Release,RelWithDebInfo>:-O2>)  # newer ones reject a precompiled header of another level
endif()
if(EMSCRIPTEN)  # programs and files are downloaded; Emscripten's -Os alone inlines no function at all
  set(for_programs -Os -sINLINING_LIMIT=0)
  set(for_files ${for_programs})
endif()
if(SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1")
  set(for_speed "")
endif()

# The vector instructions of this machine, or of the processor MARCH.
set(processor -march=${MARCH})
set(without_native -msse4.2)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # -march=native of Clang lacks what an architecture leaves open, such as sdot. Highway 1.0 compiles its
  # functions for processors with AES, whether they use it or not; only where the compiler knows of AES, too, can
  # they be inlined.
  if(MARCH STREQUAL native)
    set(processor -mcpu=native)
  endif()
  set(without_native -march=armv8-a+crypto)
  if(APPLE)  # of which all processors have both
    set(without_native "")
  endif()
  set(required_macro "#if !defined(__ARM_FEATURE_AES) && !defined(__ARM_FEATURE_CRYPTO)\n#error\n#endif\n")
endif()
string(MAKE_C_IDENTIFIER HAS${processor} has_processor)
set(CMAKE_REQUIRED_FLAGS ${processor})
check_cxx_source_compiles("${required_macro}int main() {}" ${has_processor})
unset(CMAKE_REQUIRED_FLAGS)
if(NATIVE AND ${has_processor})
  set(instruction_set ${processor})
elseif(NATIVE AND NOT MARCH STREQUAL native)
  message(FATAL_ERROR "MARCH: the compiler does not know ${processor}, or a processor without AES")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|aarch64|arm64")
  set(instruction_set ${without_native})
endif()

# What every target is compiled with.
add_library(settings INTERFACE)
target_include_directories(settings INTERFACE ${PROJECT_SOURCE_DIR})
target_include_directories(settings SYSTEM INTERFACE ${XTENSOR_BLAS_FOLDER})
target_link_libraries(settings INTERFACE xtensor fmt::fmt ${BLAS_LIBRARIES})
target_compile_options(settings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -ffp-contract=off)
target_compile_definitions(settings INTERFACE DOCTEST_CONFIG_SUPER_FAST_ASSERTS)
if(SANITIZE)
  target_compile_options(settings INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                                            -fno-omit-frame-pointer -g1)
  target_link_options(settings INTERFACE -fsanitize=address,undefined)
  target_compile_definitions(settings INTERFACE XTENSOR_ENABLE_ASSERT LLM_SANITIZE)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)  # so that the fuzzer sees which lines it reaches
    target_compile_options(settings INTERFACE -fsanitize=fuzzer-no-link)
  else()  # without its false alarms, where its sanitizers have added branches, and without what AddressSanitizer
    # or the processor reports and what the fuzzer's build checks: a quarter of the compilation
    target_compile_options(settings INTERFACE -Wno-maybe-uninitialized -fno-sanitize=null,alignment,vptr)
  endif()
endif()
