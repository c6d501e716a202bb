# What find_package finds on other systems, for WebAssembly: header-only libraries from the
# system, Oniguruma and utf8proc compiled from the sources that fetch_sources.sh fetched, and a BLAS.
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
# Counts that need 64 bits must not become a size_t, which has 32 here.
add_compile_options(-fwasm-exceptions -msimd128 -Wshorten-64-to-32)
add_link_options(-fwasm-exceptions -msimd128)

# The system's own headers, in /usr/include too, must not hide those of Emscripten.
set(headers_folder ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${headers_folder})
foreach(header xtensor/xtensor.hpp xtensor-blas/xlinalg.hpp xtl/xtl_config.hpp xflens/cxxblas/cxxblas.h
               hwy/highway.h fmt/format.h nlohmann/json.hpp CLI/CLI.hpp doctest/doctest.h)
  get_filename_component(folder ${header} DIRECTORY)
  string(REGEX REPLACE "/.*" "" folder ${folder})
  find_path(found_${folder} ${header} PATHS /usr/include NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH REQUIRED)
  file(CREATE_LINK ${found_${folder}}/${folder} ${headers_folder}/${folder} SYMBOLIC)
endforeach()
add_library(web_headers INTERFACE)
target_include_directories(web_headers SYSTEM INTERFACE ${headers_folder})
target_compile_definitions(web_headers INTERFACE FMT_HEADER_ONLY)
target_compile_options(web_headers INTERFACE
                       $<$<COMPILE_LANGUAGE:CXX>:-include${PROJECT_SOURCE_DIR}/common/web/prelude.hpp>)
foreach(library xtensor fmt::fmt CLI11::CLI11 nlohmann_json::nlohmann_json doctest::doctest
                Threads::Threads)
  add_library(${library} INTERFACE IMPORTED)
  target_link_libraries(${library} INTERFACE web_headers)
endforeach()

enable_language(C)
set(sources ${PROJECT_BINARY_DIR}/sources)
if(NOT EXISTS ${sources}/utf8proc)
  message(FATAL_ERROR "common/web/fetch_sources.sh ${sources} must run first")
endif()

set(oniguruma_sources)
foreach(part ascii regcomp regenc regerror regexec regext regparse regsyntax regtrav regversion st
             unicode unicode_fold1_key unicode_fold2_key unicode_fold3_key unicode_unfold_key utf8)
  list(APPEND oniguruma_sources ${sources}/libonig/src/${part}.c)
endforeach()
add_library(oniguruma STATIC EXCLUDE_FROM_ALL ${oniguruma_sources})
file(WRITE ${PROJECT_BINARY_DIR}/oniguruma/config.h
     "#define HAVE_ALLOCA_H 1\n#define HAVE_STDINT_H 1\n#define SIZEOF_INT 4\n"
     "#define SIZEOF_LONG 4\n#define SIZEOF_LONG_LONG 8\n#define SIZEOF_VOIDP 4\n")
target_include_directories(oniguruma PRIVATE ${PROJECT_BINARY_DIR}/oniguruma)
target_compile_definitions(oniguruma PUBLIC ONIG_STATIC)
target_compile_options(oniguruma PRIVATE -Os -sINLINING_LIMIT=0 -w)
set(ONIGURUMA_FOLDER ${sources}/libonig/src)
set(ONIGURUMA oniguruma)

add_library(utf8proc STATIC EXCLUDE_FROM_ALL ${sources}/utf8proc/utf8proc.c)
target_compile_definitions(utf8proc PUBLIC UTF8PROC_STATIC)
set(UTF8PROC_FOLDER ${sources}/utf8proc)
set(UTF8PROC utf8proc)

add_library(web_blas STATIC EXCLUDE_FROM_ALL common/web/blas.cpp common/web/cblas.cpp)
target_include_directories(web_blas PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(web_blas web_headers)
target_compile_options(web_blas PRIVATE -O3)
set(BLAS_LIBRARIES web_blas)

# Each program is a module with one function, which the site's worker calls.
add_link_options(-sMODULARIZE -sEXPORT_ES6 -sEXPORT_NAME=createProgram -sENVIRONMENT=worker
                 -sALLOW_MEMORY_GROWTH -sEXPORTED_RUNTIME_METHODS=FS -sFORCE_FILESYSTEM
                 -sEXIT_RUNTIME)
# Binaryen makes a program a fifth smaller, and linking it ten times as long.
option(SMALL_PROGRAMS "Optimize the programs when they are linked, for a site that is published" OFF)
if(NOT SMALL_PROGRAMS)
  add_link_options(-O1)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/programs)
