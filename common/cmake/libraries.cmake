# The precompiled headers, the libraries of common/, and what the tests share.

# Lessons, programs and tests have precompiled headers of their own (those of common, options
# and check): Clang does not mix levels of optimization, and programs do not link doctest.
set(headers <common/tensors/tensor.hpp> <cmath> <complex> <filesystem> <functional> <numbers> <optional>
            <random> <variant>)

# Tensors, random numbers, threads.
file(GLOB numeric_sources CONFIGURE_DEPENDS common/numbers/*.cpp common/tensors/*.cpp)
list(FILTER numeric_sources EXCLUDE REGEX "/(elementwise|tensor)\\.cpp$")
add_library(common STATIC ${numeric_sources} common/system/blas.cpp common/system/interrupt.cpp
                          common/system/parallel.cpp common/system/processor.cpp common/system/timer.cpp
                          $<TARGET_OBJECTS:vectorized>
                          common/parallel/communicator.cpp common/parallel/ranks_in_turn.cpp
                          common/parallel/shared_memory_rank.cpp)
if(NOT EMSCRIPTEN)  # has no threads
  target_sources(common PRIVATE common/parallel/mpirun.cpp common/parallel/thread_ranks.cpp)
endif()
target_precompile_headers(common PRIVATE ${headers})

# Elementwise functions, in vector registers. Exponentials are vectorized only with
# -fno-trapping-math: both results of a comparison are computed, of which one may set a
# floating-point exception flag. No result changes.
set(vectorized -O3 -fno-trapping-math ${instruction_set})
add_library(vectorized OBJECT common/system/compiled_extensions.cpp common/tensors/elementwise.cpp
                              common/tensors/tensor.cpp)
target_link_libraries(vectorized PRIVATE settings)
target_compile_options(vectorized PRIVATE ${vectorized})

# Printing and plotting; reading and writing files.
file(GLOB output_sources CONFIGURE_DEPENDS common/output/*.cpp)
add_library(output STATIC ${output_sources})
add_library(files STATIC common/files/folder_lock.cpp common/files/json.cpp common/files/json_file.cpp
                         common/files/json_lines.cpp
                         common/files/mapped_file.cpp common/files/npy.cpp
                         common/files/safetensors.cpp
                         common/files/safetensors_convert.cpp common/files/safetensors_write.cpp
                         common/files/standard_input.cpp common/files/unicode.cpp
                         common/files/unicode_properties.cpp common/files/words.cpp)
target_link_libraries(files PRIVATE nlohmann_json::nlohmann_json ${UTF8PROC})
target_include_directories(files PRIVATE ${UTF8PROC_FOLDER})

# What no chapter before 09 needs, and so is not compiled for it: GGUF files, and the patterns of
# tokenizers.
add_library(model_files STATIC common/files/gguf.cpp common/files/gguf_read.cpp
                               common/files/gguf_write.cpp common/files/regex.cpp)
# GGUF files have weights in blocks, which chapter 16 explains. (With a precompiled header, GCC 12 crashes.)
add_library(block_types STATIC chapters/16_quantization/block_types.cpp)
target_link_libraries(block_types PUBLIC common)
target_compile_options(block_types PRIVATE ${for_files})
target_link_libraries(model_files PUBLIC block_types common PRIVATE ${ONIGURUMA} ${UTF8PROC})
target_include_directories(model_files PRIVATE ${ONIGURUMA_FOLDER} ${UTF8PROC_FOLDER})

# What only programs need: their options.
add_library(options STATIC common/system/option_values.cpp common/system/options.cpp
                           common/system/run_program.cpp)
target_link_libraries(options PUBLIC common PRIVATE CLI11::CLI11)
target_compile_options(options PRIVATE ${for_programs})
target_precompile_headers(options PRIVATE ${headers})

foreach(library output files model_files)
  target_compile_options(${library} PRIVATE ${for_files})
  if(EMSCRIPTEN)
    target_precompile_headers(${library} REUSE_FROM options)
  else()
    target_precompile_headers(${library} REUSE_FROM common)
  endif()
endforeach()

# The three use one another. Compiled together, their files take half the time.
target_link_libraries(common PUBLIC settings files output PRIVATE Threads::Threads)
target_link_libraries(files PUBLIC settings common)
target_link_libraries(output PUBLIC settings common)
set_target_properties(common output files model_files vectorized PROPERTIES TOGETHER ON)

if(EMSCRIPTEN)  # folders of the virtual file system
  set(assets_parent "")
  set(results_folder "")
else()
  set(assets_parent ${PROJECT_SOURCE_DIR})
  set(results_folder ${PROJECT_BINARY_DIR})
endif()
set_source_files_properties(common/system/options.cpp PROPERTIES COMPILE_DEFINITIONS
                            LLM_PLOTS_FOLDER="${results_folder}/plots")
set_source_files_properties(common/files/mapped_file.cpp PROPERTIES COMPILE_DEFINITIONS
  "LLM_ASSETS_FOLDER=\"${assets_parent}/assets\";LLM_MODELS_FOLDER=\"${results_folder}/models\"")

# What every test links: the comparator and the fixtures. Tests add doctest's main, exercises a
# main that reports in words.
add_library(check STATIC EXCLUDE_FROM_ALL tests/support/check.cpp)
target_link_libraries(check PUBLIC common doctest::doctest)
set_source_files_properties(tests/support/check.cpp PROPERTIES COMPILE_DEFINITIONS
                            LLM_FIXTURES_FOLDER="${PROJECT_SOURCE_DIR}/tests/fixtures")
target_precompile_headers(check PRIVATE ${headers} <tests/support/check.hpp>)
target_compile_options(check PRIVATE ${for_programs})
add_library(test_main OBJECT EXCLUDE_FROM_ALL tests/support/main.cpp)
add_library(test_exercise_main OBJECT EXCLUDE_FROM_ALL tests/exercises/main.cpp)
foreach(name test_main test_exercise_main)  # without the header: they configure doctest
  target_link_libraries(${name} settings doctest::doctest)
  target_compile_options(${name} PRIVATE ${for_programs})
endforeach()

# Files of several folders, or of a program, that are compiled together shadow names of one another. The
# native build compiles programs file by file, and each folder by itself.
add_library(without_shadow_warnings INTERFACE)
target_compile_options(without_shadow_warnings INTERFACE -Wno-shadow)

# The tests do not link programs. So the sanitizer build, which is GCC's, only checks whether they compile
# without warnings: target programs_compile.
function(compile_only program)
  if(SANITIZE)
    get_target_property(sources ${program} SOURCES)
    add_library(${program}_compiles OBJECT EXCLUDE_FROM_ALL ${sources})
    target_link_libraries(${program}_compiles settings without_shadow_warnings)
    target_precompile_headers(${program}_compiles REUSE_FROM options)
    target_compile_options(${program}_compiles PRIVATE ${for_programs} -fsyntax-only)
    set_target_properties(${program}_compiles PROPERTIES TOGETHER ON)
    add_dependencies(programs_compile ${program}_compiles)
  endif()
endfunction()
add_custom_target(programs_compile)

# Collects the sources of all headers that the files include, directly or through other files.
function(collect_sources result)
  set(files ${ARGN})
  set(seen "")
  set(sources "")
  while(files)
    list(POP_FRONT files file)
    file(STRINGS ${file} lines REGEX "^#include \"(chapters|common|tests)/")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"(.*)\\.hpp\".*" "${PROJECT_SOURCE_DIR}/\\1" name "${line}")
      if(NOT name IN_LIST seen)
        list(APPEND seen ${name})
        list(APPEND files ${name}.hpp)
        if(EXISTS ${name}.cpp)
          list(APPEND files ${name}.cpp)
          list(APPEND sources ${name}.cpp)
        endif()
      endif()
    endforeach()
  endwhile()
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# Adds an executable of tests or exercises from sources, which are compiled together.
function(test_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADERS" "SOURCES;LIBRARIES")
  add_executable(${name} EXCLUDE_FROM_ALL ${arg_SOURCES})
  target_link_libraries(${name} ${arg_LIBRARIES})
  target_precompile_headers(${name} REUSE_FROM ${arg_HEADERS})
  target_compile_options(${name} PRIVATE ${for_programs})
  set_target_properties(${name} PROPERTIES TOGETHER ON)
endfunction()

# Adds a test to CTest. All cases of an executable are one test: a process for each case took longer than
# most cases do.
add_custom_target(tests)
add_custom_target(lesson_tests)  # of ./learn test: without models, apps and experiments
function(add_test_of executable name)
  add_test(NAME ${name} COMMAND ${executable})
  add_dependencies(tests ${executable})
  if(name MATCHES "^([0-9]|common|xtensor)")
    add_dependencies(lesson_tests ${executable})
  endif()
endfunction()

# The tests of a folder below tests/ are an executable, which is named for the folder.
function(add_tests folder)
  cmake_path(GET folder FILENAME slug)
  file(GLOB sources CONFIGURE_DEPENDS tests/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/(finite_differences|in_double)[^/]*$")  # tests/double
  test_executable(test_${slug} HEADERS check LIBRARIES test_main check ${ARGN} SOURCES ${sources})
  add_test_of(test_${slug} ${slug})
endfunction()

add_tests(common model_files options)
target_sources(test_common PRIVATE common/web/blas.cpp  # that of the website, compared with the system's
                                   tests/support/thread_ranks.cpp)
add_tests(common/xtensor)

# Ranks that are processes, where there is an MPI library. CMake looks for one for seconds, so look for its
# compiler first.
find_program(MPICXX NAMES mpicxx)
if(MPICXX AND NOT EMSCRIPTEN AND NOT CMAKE_CROSSCOMPILING)
  set(MPI_CXX_SKIP_MPICXX ON)  # bindings of C++ that MPI has deprecated, with dozens of warnings
  find_package(MPI COMPONENTS CXX)
endif()
if(MPI_CXX_FOUND)
  add_library(mpi_ranks STATIC EXCLUDE_FROM_ALL common/parallel/mpi_ranks.cpp)
  target_link_libraries(mpi_ranks PUBLIC common PRIVATE MPI::MPI_CXX)
  test_executable(test_mpi HEADERS check LIBRARIES test_main check mpi_ranks
                  SOURCES tests/common/communicator.cpp tests/support/mpi_ranks.cpp)
  add_dependencies(tests test_mpi)
  # As root, with more ranks than cores, of which none is bound to a core. Open MPI keeps memory of its own.
  set(environment TEST_RESULTS= OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
                  OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 ASAN_OPTIONS=detect_leaks=0)
  foreach(num_ranks 1 2 3 4)
    add_test(NAME mpi.${num_ranks} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${num_ranks} $<TARGET_FILE:test_mpi>)
    set_tests_properties(mpi.${num_ranks} PROPERTIES LABELS mpi ENVIRONMENT "${environment}" PROCESSORS 2
                                                     TIMEOUT 120)
  endforeach()
endif()
