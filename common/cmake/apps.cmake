# Programs that join several chapters.

# ./learn model and ./learn chat
if(NOT EMSCRIPTEN)
  add_executable(model chapters/models/main.cpp)
  target_link_libraries(model models options)
  target_precompile_headers(model REUSE_FROM options)
  target_compile_options(model PRIVATE ${for_programs})

  add_library(chat_session STATIC chapters/apps/chat/chat_model.cpp
                                  chapters/apps/chat/chat_session.cpp)
  target_link_libraries(chat_session PUBLIC models)
  target_precompile_headers(chat_session REUSE_FROM common)
  add_executable(chat chapters/apps/chat/chat.cpp)
  target_link_libraries(chat chat_session options)
  target_precompile_headers(chat REUSE_FROM options)
  target_compile_options(chat PRIVATE ${for_programs})
  set(test_sources tests/test_chat.cpp)
  add_tests(chat chat_session)
endif()

# ./learn bench
find_package(benchmark QUIET)
if(benchmark_FOUND)
  file(GLOB bench CONFIGURE_DEPENDS chapters/apps/bench/*.cpp)
  add_executable(bench EXCLUDE_FROM_ALL ${bench})
  target_link_libraries(bench lesson_16_quantization options benchmark::benchmark)
  target_compile_definitions(bench PRIVATE LLM_TESTS_FOLDER="${PROJECT_SOURCE_DIR}/tests")
endif()

# Fuzzing needs Clang's libFuzzer, and every library with the sanitizers.
if(SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_executable(fuzz_readers EXCLUDE_FROM_ALL tests/fuzz_readers.cpp)
  target_link_libraries(fuzz_readers lesson_11_generation)
  target_link_options(fuzz_readers PRIVATE -fsanitize=fuzzer)
endif()
