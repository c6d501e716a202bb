# Programs that join several chapters.

# ./learn walk and ask, which the website has, too, model, train, fine_tune, experiment and chat
function(app name)
  add_executable(${name} ${ARGN})
  target_precompile_headers(${name} REUSE_FROM options)
  target_compile_options(${name} PRIVATE ${for_programs})
  set_target_properties(${name} PROPERTIES TOGETHER ON)
  compile_only(${name})
endfunction()
file(GLOB sources CONFIGURE_DEPENDS chapters/apps/walk/*.cpp)
app(walk ${sources})
target_link_libraries(walk files_tokenizers lesson_11_generation options)

add_library(chat_session STATIC chapters/apps/chat/chat_model.cpp
                                chapters/apps/chat/chat_session.cpp)
target_link_libraries(chat_session PUBLIC models lesson_23_structured_output)
target_precompile_headers(chat_session REUSE_FROM common)
set_target_properties(chat_session PROPERTIES TOGETHER ON)

file(GLOB sources CONFIGURE_DEPENDS chapters/apps/ask/*.cpp)
list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
add_library(book_search STATIC ${sources})
target_link_libraries(book_search PUBLIC chat_session lesson_13_training lesson_25_encoders)
target_precompile_headers(book_search REUSE_FROM common)
set_target_properties(book_search PROPERTIES TOGETHER ON)
app(ask chapters/apps/ask/main.cpp)
target_link_libraries(ask book_search options)
add_tests(apps/ask book_search)

if(NOT EMSCRIPTEN)
  app(model chapters/models/main.cpp)
  target_link_libraries(model models options)

  # On ranks, with the steps of chapters 24 and 28; mpirun starts them, where there is an MPI
  # library.
  add_library(ranks_strategy STATIC chapters/apps/train/ranks_strategy.cpp
                                    chapters/apps/train/mesh_strategy.cpp)
  target_link_libraries(ranks_strategy PUBLIC training_run lesson_28_model_parallel)
  target_precompile_headers(ranks_strategy REUSE_FROM options)
  target_compile_options(ranks_strategy PRIVATE ${for_programs})
  add_tests(apps/train ranks_strategy)
  app(train chapters/apps/train/main.cpp chapters/apps/train/rank_process.cpp
            chapters/apps/train/text_run.cpp chapters/apps/train/training_text.cpp
            chapters/apps/train/masked_lm_run.cpp)
  target_link_libraries(train ranks_strategy models)
  if(MPI_CXX_FOUND)
    target_compile_definitions(train PRIVATE LLM_MPI)
    target_link_libraries(train mpi_ranks)
  endif()

  file(GLOB sources CONFIGURE_DEPENDS chapters/apps/fine_tune/*.cpp)
  app(fine_tune ${sources})
  target_link_libraries(fine_tune runs models)

  # An experiment takes minutes. So the templates that its trainings instantiate are optimized as lessons are.
  file(GLOB sources CONFIGURE_DEPENDS chapters/experiments/demo/*.cpp)
  add_library(experiment_demos STATIC ${sources})
  target_link_libraries(experiment_demos PUBLIC experiments training_run models)
  target_precompile_headers(experiment_demos REUSE_FROM common)
  compile_only(experiment_demos)
  if(TARGET experiment_demos_compiles)  # files have equal names of their own
    set_target_properties(experiment_demos_compiles PROPERTIES TOGETHER OFF)
  endif()
  app(experiment chapters/experiments/main.cpp)
  target_link_libraries(experiment experiment_demos)

  app(chat chapters/apps/chat/chat.cpp)
  target_link_libraries(chat chat_session options)
  add_tests(apps/chat chat_session)

  # ./learn serve: all but httplib's part is a library, which tests link.
  file(GLOB sources CONFIGURE_DEPENDS chapters/apps/serve/api/*.cpp chapters/apps/serve/loop/*.cpp
       chapters/apps/serve/text/*.cpp chapters/apps/serve/http/header_values.cpp)
  add_library(serving STATIC ${sources})
  target_link_libraries(serving PUBLIC chat_session lesson_21_serving
                                       nlohmann_json::nlohmann_json Threads::Threads)
  target_precompile_headers(serving REUSE_FROM common)
  set_target_properties(serving PROPERTIES TOGETHER ON)
  add_tests(apps/serve serving)

  # cpp-httplib is a library in Debian, whose objects have these members, and elsewhere a header.
  find_path(HTTPLIB_FOLDER httplib.h)
  find_library(HTTPLIB NAMES cpp-httplib httplib)
  if(HTTPLIB_FOLDER)
    file(GLOB sources CONFIGURE_DEPENDS chapters/apps/serve/http/*.cpp)
    list(FILTER sources EXCLUDE REGEX header_values)
    app(serve chapters/apps/serve/main.cpp ${sources})
    target_link_libraries(serve serving options)
    if(HTTPLIB)
      target_compile_definitions(serve PRIVATE CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_ZLIB_SUPPORT
                                               CPPHTTPLIB_BROTLI_SUPPORT)
      target_link_libraries(serve ${HTTPLIB})
    endif()
    set_target_properties(serve PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endif()

# ./learn bench
find_package(benchmark QUIET)
if(benchmark_FOUND)
  file(GLOB bench CONFIGURE_DEPENDS chapters/apps/bench/*.cpp)
  add_executable(bench EXCLUDE_FROM_ALL ${bench})
  target_link_libraries(bench models lesson_22_speculation training_run benchmark::benchmark)
  target_compile_definitions(bench PRIVATE LLM_TESTS_FOLDER="${PROJECT_SOURCE_DIR}/tests")
  target_precompile_headers(bench REUSE_FROM common)
endif()

# Times chapters 24 and 28 on the ranks of mpirun.
if(MPI_CXX_FOUND)
  file(GLOB bench_parallel CONFIGURE_DEPENDS chapters/apps/bench/parallel/*.cpp)
  add_executable(bench_parallel EXCLUDE_FROM_ALL ${bench_parallel}
                 chapters/28_model_parallel/demo/step_on_mesh.cpp)
  target_link_libraries(bench_parallel lesson_28_model_parallel training_run mpi_ranks)
  target_precompile_headers(bench_parallel REUSE_FROM common)
endif()

# Fuzzing needs Clang's libFuzzer, and the readers compiled with the sanitizers: what the fuzzer and the
# families include, and files that define what headers of another name declare.
if(SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
  file(GLOB readers CONFIGURE_DEPENDS chapters/models/families/*.cpp
       chapters/models/encoders/bert.cpp chapters/models/encoders/modernbert.cpp
       chapters/10_tokenizer/merge_queue.cpp
       chapters/16_quantization/k_quants.cpp chapters/16_quantization/kernels/interleave.cpp
       chapters/models/family_keys.cpp chapters/models/gguf_settings.cpp
       chapters/models/rope_parameters.cpp
       common/files/gguf_*.cpp common/files/safetensors_*.cpp common/output/numbers_as_text.cpp)
  collect_sources(sources tests/checks/fuzz_readers.cpp ${readers})
  list(APPEND sources ${readers})
  list(REMOVE_DUPLICATES sources)
  add_executable(fuzz_readers EXCLUDE_FROM_ALL tests/checks/fuzz_readers.cpp ${sources})
  target_include_directories(fuzz_readers PRIVATE ${HWY_FOLDER} ${UTF8PROC_FOLDER} ${ONIGURUMA_FOLDER})
  target_link_libraries(fuzz_readers settings without_shadow_warnings nlohmann_json::nlohmann_json
                                     Threads::Threads ${ONIGURUMA} ${UTF8PROC})
  target_precompile_headers(fuzz_readers PRIVATE ${headers})
  target_link_options(fuzz_readers PRIVATE -fsanitize=fuzzer)
  set_target_properties(fuzz_readers PROPERTIES TOGETHER ON)
endif()
