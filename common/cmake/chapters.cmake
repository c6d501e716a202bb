# The chapters of chapters/contents.txt. In the folder of a chapter, main.cpp and demo/ are the
# program, exercise.cpp and solution.cpp the exercises, and every other file is its lesson.

add_custom_target(exercises)
add_custom_target(solutions)

# The lesson is a library, which all later chapters link.
function(lesson slug)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS chapters/${slug}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/(main|exercise|solution|demo/[^/]*|block_types|wordpiece|unigram)\\.cpp$")
  add_library(lesson_${slug} STATIC ${sources})
  target_link_libraries(lesson_${slug} PUBLIC ${lessons} common)
  target_precompile_headers(lesson_${slug} REUSE_FROM common)
  set_target_properties(lesson_${slug} PROPERTIES TOGETHER ON)
endfunction()

# A folder of chapters/models that reads and writes other people's files of what a lesson teaches. The
# lesson does not know it; programs and tests from there on link it.
set(folder_of_09_full_model llama)
set(folder_of_10_tokenizer tokenizers)
set(folder_of_14_fine_tuning chat)
set(folder_of_16_quantization gguf)
function(files_library folder slug)
  file(GLOB sources CONFIGURE_DEPENDS chapters/models/${folder}/*.cpp)
  add_library(files_${folder} STATIC ${sources})
  target_link_libraries(files_${folder} PUBLIC ${files} ${lessons})
  target_precompile_headers(files_${folder} REUSE_FROM common)
  set_target_properties(files_${folder} PROPERTIES TOGETHER ON)
endfunction()

function(program slug)
  file(GLOB demo CONFIGURE_DEPENDS chapters/${slug}/demo/*.cpp)
  add_executable(${slug} chapters/${slug}/main.cpp ${demo})
  target_link_libraries(${slug} ${files} lesson_${slug} options)
  target_precompile_headers(${slug} REUSE_FROM options)
  target_compile_options(${slug} PRIVATE ${for_programs})
  compile_only(${slug})
  if(EMSCRIPTEN)  # optimized code takes long to compile
    set_target_properties(${slug} PROPERTIES TOGETHER ON)
    target_link_libraries(${slug} without_shadow_warnings)
  endif()
endfunction()

# The tests of the exercises are compiled once and linked twice: with your exercise.cpp and with
# solution.cpp.
function(exercises slug)
  add_library(exercise_tests_${slug} OBJECT EXCLUDE_FROM_ALL tests/exercises/${slug}.cpp)
  target_link_libraries(exercise_tests_${slug} check ${ARGN})
  target_precompile_headers(exercise_tests_${slug} REUSE_FROM check)
  target_compile_options(exercise_tests_${slug} PRIVATE ${for_programs})
  foreach(answers exercise solution)
    test_executable(${answers}_${slug} HEADERS check SOURCES chapters/${slug}/${answers}.cpp
                    LIBRARIES exercise_tests_${slug} test_exercise_main check ${ARGN})
    add_dependencies(exercises ${answers}_${slug})
  endforeach()
  add_dependencies(solutions solution_${slug})
endfunction()

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS chapters/contents.txt)
file(STRINGS chapters/contents.txt slugs REGEX "^[0-9]")
list(TRANSFORM slugs REPLACE " .*" "")
foreach(slug ${slugs})
  lesson(${slug})
  list(PREPEND lessons lesson_${slug})
  if(slug STREQUAL 10_tokenizer)  # the tokenizers of chapter 25, which need no later chapter
    add_library(encoder_tokenizers STATIC chapters/25_encoders/wordpiece.cpp
                                          chapters/26_encoder_decoder/unigram.cpp)
    target_link_libraries(encoder_tokenizers PUBLIC lesson_10_tokenizer)
    target_precompile_headers(encoder_tokenizers REUSE_FROM common)
    list(PREPEND lessons encoder_tokenizers)
  endif()
  if(folder_of_${slug})
    files_library(${folder_of_${slug}} ${slug})
    list(PREPEND files files_${folder_of_${slug}})
  endif()
  program(${slug})
  add_tests(chapters/${slug} ${files} lesson_${slug})
  exercises(${slug} ${files} lesson_${slug})
endforeach()

target_link_libraries(lesson_09_full_model PUBLIC model_files)

# Published models of the families of chapters 17 and 18, whose programs read them.
file(GLOB sources CONFIGURE_DEPENDS chapters/models/*.cpp chapters/models/families/*.cpp
     chapters/models/encoders/*.cpp chapters/models/encoders/kernels/*.cpp)
list(FILTER sources EXCLUDE REGEX "/(main|exercise|solution)\\.cpp$")
add_library(models STATIC ${sources})
target_link_libraries(models PUBLIC ${files} ${lessons} common)
target_precompile_headers(models REUSE_FROM common)
set_target_properties(models PROPERTIES TOGETHER ON)
target_link_libraries(17_long_context models)
target_link_libraries(18_experts models)
# Two programs show the same small step of training, and the same published models.
target_sources(28_model_parallel PRIVATE chapters/24_parallel/demo/small_run.cpp
               chapters/24_parallel/demo/published_configs.cpp)
add_tests(models models)
exercises(models models)

# A run that can be stopped and resumed: of chapter 13's program, ./learn train and fine_tune.
file(GLOB sources CONFIGURE_DEPENDS chapters/apps/runs/*.cpp)
add_library(runs STATIC ${sources})
target_link_libraries(runs PUBLIC lesson_13_training options)
file(GLOB sources CONFIGURE_DEPENDS chapters/apps/train/*.cpp)
list(FILTER sources EXCLUDE REGEX "/(main|masked_lm_run|mesh_strategy|rank_process|ranks_strategy|text_run|training_text)\\.cpp$")
add_library(training_run STATIC ${sources})
target_link_libraries(training_run PUBLIC runs files_tokenizers)
foreach(library runs training_run)
  target_precompile_headers(${library} REUSE_FROM options)
  target_compile_options(${library} PRIVATE ${for_programs})
  set_target_properties(${library} PROPERTIES TOGETHER ON)
endforeach()

add_tests(apps/runs training_run)

# Trainings that compare. Chapter 13's program shows the gradients of its ablations; the other
# experiments need later chapters.
add_library(ablations STATIC chapters/experiments/ablation_model.cpp
                             chapters/experiments/ablations.cpp)
target_link_libraries(ablations PUBLIC lesson_13_training)
file(GLOB sources CONFIGURE_DEPENDS chapters/experiments/*.cpp)
list(FILTER sources EXCLUDE REGEX "/(main|ablation.*)\\.cpp$")
add_library(experiments STATIC ${sources})
target_link_libraries(experiments PUBLIC ablations lesson_22_speculation)
foreach(library ablations experiments)
  target_precompile_headers(${library} REUSE_FROM common)
  set_target_properties(${library} PROPERTIES TOGETHER ON)
endforeach()
target_link_libraries(13_training training_run ablations)
add_tests(experiments experiments)

# Answers that crash, do not end or are wrong: what the report says of them is tested.
test_executable(broken_exercises HEADERS check LIBRARIES test_exercise_main check
                SOURCES tests/exercises/broken.cpp)
add_dependencies(exercises broken_exercises)

# Sampling 50 million numbers is the longest part of chapter 09; AdamW updates every parameter; a
# training step normalizes, rotates and differentiates every activation.
if(for_speed)
  set_source_files_properties(common/numbers/random.cpp chapters/04_rope/rope.cpp
                              chapters/05_gqa/rms_normalize.cpp
                              chapters/07_rmsnorm_vs_layernorm/norms.cpp
                              chapters/12_gradients/attention_backward.cpp
                              chapters/12_gradients/norms_backward.cpp
                              chapters/13_training/optimizer.cpp
                              chapters/13_training/trainer.cpp
                              PROPERTIES COMPILE_OPTIONS "${for_speed}")
endif()
