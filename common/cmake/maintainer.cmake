# Checks of the pristine tree. A learner who edits files does not run them; .ci/run does.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
function(maintainer_test name)
  add_test(NAME maintainer.${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(maintainer.${name} PROPERTIES LABELS maintainer)
endfunction()

maintainer_test(tree ${Python3_EXECUTABLE} tests/checks/check_tree.py ${PROJECT_BINARY_DIR})
maintainer_test(affected ${Python3_EXECUTABLE} tests/checks/check_affected.py ${PROJECT_BINARY_DIR})
# A test a program. (pytest-3 is that of Debian's package python3-pytest.)
find_program(PYTEST NAMES pytest-3 pytest REQUIRED)
foreach(program ${slugs} chat walk model train fine_tune experiment ask learn)
  maintainer_test(program.${program} ${PYTEST} tests/checks/programs --build ${PROJECT_BINARY_DIR}
                  --program ${program})
  set_tests_properties(maintainer.program.${program} PROPERTIES COST 100 TIMEOUT 1800)
endforeach()
# A training step of an experiment takes half a second on all cores, before it sees Ctrl-C: no other check beside it.
set_tests_properties(maintainer.program.experiment PROPERTIES PROCESSORS 2)
maintainer_test(pages ${Python3_EXECUTABLE} tests/checks/check_docs.py static)
maintainer_test(walk_picture ${Python3_EXECUTABLE} docs/.vitepress/draw_walk.py
                ${PROJECT_BINARY_DIR} --check)
foreach(slug ${slugs} models broken)
  maintainer_test(exercises.${slug} ${Python3_EXECUTABLE} tests/checks/check_exercises.py
                  ${PROJECT_BINARY_DIR} ${slug})
endforeach()
# The commands of the pages run, and their edits are made, in two copies of the tree, in each one page
# after another. (.ci/run has run the README's command in the first.) They take longest, so they begin first.
list(TRANSFORM slugs REPLACE "(.+)" "docs/\\1.md" OUTPUT_VARIABLE pages)
set(copy 1)
foreach(page README.md ${pages} docs/walk_through.md docs/anatomy.md docs/train.md
        docs/answers.md docs/experiments.md docs/server.md docs/mistakes.md docs/contributing.md)
  get_filename_component(name ${page} NAME_WE)
  maintainer_test(page.${name} ${Python3_EXECUTABLE} tests/checks/check_docs.py ${page}
                  ${PROJECT_BINARY_DIR}/copy_${copy})
  set_tests_properties(maintainer.page.${name} PROPERTIES RESOURCE_LOCK copy_${copy} COST 1000
                       TIMEOUT 1800)
  math(EXPR copy "3 - ${copy}")
endforeach()

# The kernels of a processor with AVX2 alone, where this one has more.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  maintainer_test(avx2 tests/checks/check_avx2.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(maintainer.avx2 PROPERTIES SKIP_RETURN_CODE 77 COST 500 TIMEOUT 900)
endif()

# The real llama.cpp reads what chapter 16 exports, where it is installed (docs/performance.md).
find_program(NODE node)
if(NODE)
  maintainer_test(llama_cpp ${NODE} tests/checks/check_llama_cpp.mjs ${PROJECT_BINARY_DIR}/llama_cpp
                  ${PROJECT_BINARY_DIR})
  set_tests_properties(maintainer.llama_cpp PROPERTIES SKIP_RETURN_CODE 77)
endif()

# Clients that people use talk to the server, and so do clients that send what they must not.
if(NODE AND TARGET serve)
  maintainer_test(serve ${NODE} tests/checks/check_serve.mjs ${PROJECT_BINARY_DIR})
  maintainer_test(embeddings ${NODE} tests/checks/check_embeddings.mjs ${PROJECT_BINARY_DIR})
  maintainer_test(serve_http ${NODE} tests/checks/check_serve_http.mjs ${PROJECT_BINARY_DIR})
  maintainer_test(damaged_requests ${NODE} tests/checks/damaged_requests.mjs ${PROJECT_BINARY_DIR})
  maintainer_test(clients ${NODE} tests/checks/clients/check_clients.mjs ${PROJECT_BINARY_DIR})
  maintainer_test(schemas ${NODE} tests/checks/clients/check_schemas.mjs ${PROJECT_BINARY_DIR})
  foreach(name serve serve_http damaged_requests clients schemas)
    set_tests_properties(maintainer.${name} PROPERTIES SKIP_RETURN_CODE 77 PROCESSORS 2 TIMEOUT 300)
  endforeach()
endif()

# The website's own code, and the site that ./learn site --build has made, in Chromium.
maintainer_test(site.types npm --prefix docs run --silent check)
maintainer_test(site.units npm --prefix docs run --silent test)
foreach(part programs pages chat figures)
  add_test(NAME browser.${part} COMMAND node docs/.vitepress/tests/browser/check_${part}.mjs
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(browser.${part} PROPERTIES LABELS browser PROCESSORS 2 TIMEOUT 1800
                       SKIP_RETURN_CODE 77)
endforeach()

maintainer_test(format sh -c "git ls-files '*.?pp' | xargs clang-format --dry-run -Werror")
maintainer_test(shellcheck shellcheck -x learn common/learn/progress.sh .ci/run common/cmake/ccache.sh common/web/fetch_sources.sh common/web/site.sh tests/checks/fuzz.sh tests/checks/check_httplib.sh
                           tests/checks/check_avx2.sh)
