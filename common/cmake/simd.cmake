# What works in vector registers is compiled for this machine, and for speed. GCC warns of
# uninitialized variables in its own avx512fintrin.h, where results begin as undefined on purpose
# (GCC bug 105593). Highway 1.0 does not use the vector instructions of x86 before SSSE3.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(false_alarms -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set_source_files_properties(chapters/06_swiglu/activations.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                            COMPILE_OPTIONS "${vectorized}")
file(GLOB simd_files CONFIGURE_DEPENDS chapters/*/kernels/*.cpp chapters/models/*/kernels/*.cpp)
set_source_files_properties(${simd_files} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                            COMPILE_OPTIONS "-O3;${instruction_set};${false_alarms}")
target_include_directories(lesson_15_fast PRIVATE ${HWY_FOLDER})
target_include_directories(lesson_16_quantization PRIVATE ${HWY_FOLDER})
target_include_directories(models PRIVATE ${HWY_FOLDER})

# Processors that this machine is not: their vector instructions at least compile, with each compiler of
# .ci/run; those of Arm with a cross compiler, which finds the libraries' headers after its own.
# (tests/checks/check_arm64.sh runs them.) -O1 inlines the instructions, whose processors are checked then.
function(compiles_for processor file)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "COMPILER" "OPTIONS")
  get_filename_component(name ${file} NAME_WE)
  add_test(NAME maintainer.${name}.${processor}
           COMMAND ${arg_COMPILER} -std=c++20 -O1 -march=${processor} -I${PROJECT_SOURCE_DIR} ${arg_OPTIONS}
                   -Wall -Wextra -Wshadow -Werror -c ${file} -o ${PROJECT_BINARY_DIR}/${name}_${processor}.o)
  set_tests_properties(maintainer.${name}.${processor} PROPERTIES LABELS maintainer)
endfunction()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND (MAINTAINER OR SANITIZE))
  foreach(file ${simd_files})
    foreach(processor x86-64-v3 skylake-avx512 sapphirerapids)
      compiles_for(${processor} ${file} COMPILER ${CMAKE_CXX_COMPILER} OPTIONS ${false_alarms})
    endforeach()
  endforeach()
  set(integer_products chapters/16_quantization/kernels/integer_products.cpp)
  compiles_for(alderlake ${PROJECT_SOURCE_DIR}/${integer_products} # AVX2 with VNNI
               COMPILER ${CMAKE_CXX_COMPILER} OPTIONS ${false_alarms})
  find_program(ARM_COMPILER aarch64-linux-gnu-g++)
  if(ARM_COMPILER AND MAINTAINER)
    set(for_arm COMPILER ${ARM_COMPILER} OPTIONS -idirafter /usr/include)
    foreach(file ${simd_files})
      compiles_for(armv8-a+crypto ${file} ${for_arm})
    endforeach()
    compiles_for(armv8.2-a+dotprod+crypto ${PROJECT_SOURCE_DIR}/${integer_products} ${for_arm})
  endif()
endif()

# What reads and writes files need not be fast on the website, but small.
if(EMSCRIPTEN)
  set_source_files_properties(
    chapters/09_full_model/checkpoint.cpp
    chapters/models/llama/config_file.cpp chapters/models/llama/config_json.cpp
    chapters/models/llama/gguf_config.cpp chapters/models/llama/rope_keys.cpp
    chapters/models/llama/settings_lists.cpp chapters/models/llama/unread_settings.cpp
    chapters/models/tokenizers/gguf_tokenizer.cpp chapters/models/tokenizers/gguf_pre_types.cpp
    chapters/models/tokenizers/wordpiece_gguf.cpp chapters/models/tokenizers/save_tokenizer.cpp
    chapters/models/tokenizers/tokenizer_json.cpp
    chapters/models/gguf/gguf_export.cpp chapters/models/tokenizers/gguf_tokenizer_export.cpp
    PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "${for_files}")
endif()
