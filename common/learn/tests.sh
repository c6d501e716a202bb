# Shell functions that run the tests, for ./learn. CTest runs executables, whose tests write what became of them
# to a file of the executable in build/test_results: see tests/support/main.cpp.
# shellcheck shell=bash

# The lines of all these files that match a pattern.
test_results() { cat build/test_results/* 2>/dev/null | grep -aE "$1" || true; }

# The titles of the failed tests of an executable, whose name in CTest is $1. $2: how it ended.
failed_tests() {
    local file=build/test_results/test_${1//./_} name=${1%[._]in_double} last="" titles=""
    if [[ -e $file ]]; then
        titles=$(sed -nE "s/^failed: (.*), [^,]* s\$/    $name.\\1/p" "$file")
        last=$(tail -n 1 "$file")
    fi
    [[ -z $titles ]] || printf '%s\n' "$titles"
    if [[ $last == started:* ]]; then
        printf '    %s (the program ended: %s)\n' "$name.${last#started: }" "$2"
    elif [[ -z $titles ]]; then
        printf '    %s (%s)\n' "$1" "$2"
    fi
}

# Shows which tests failed (the lines $1, and those in which a program ended with exit code 0), and how many passed.
report_tests() {
    local failed=$1 file last total passed skipped
    for file in build/test_results/*; do
        last=$(tail -n 1 "$file" 2>/dev/null || true)
        [[ $last != started:* || $failed == *"${last#started: }"* ]] || failed+=$(failed_tests "${file##*/test_}" "exit code 0")$'\n'
    done
    total=$(test_results '^[0-9]+ tests$' | awk '{ sum += $1 } END { print sum + 0 }')
    [[ $total -gt 0 ]] || fail "CTest ran no test"
    passed=$(test_results '^(passed|skipped): ' | wc -l)
    skipped=$(test_results '^skipped: ' | sed -E 's/^skipped: (.*), [^,]* s$/    \1/')
    [[ -z $skipped ]] || printf '\nThe following tests were skipped:\n%s\n' "$skipped"
    [[ -z $failed ]] || printf '\nThe following tests FAILED:\n%s' "$failed"
    printf '\n%s of %s tests passed' "$passed" "$total"
    total=$((total - $(test_results '^started: ' | wc -l)))
    [[ $total -eq 0 ]] || printf ', %s did not run' "$total"
    echo
    [[ -z $failed && $total -eq 0 ]]
}

# Reads CTest's output. Shows what the executables with failed tests have printed, then the report. $1: about how
# many tests there are.
summarize_tests() {
    local LC_ALL=C line="" part code noise looked_at=$SECONDS failed=""
    noise='^$|^Test project |^ *Start +[0-9]+: |^ *[0-9]+/[0-9]+ +Test +#|^[0-9]+% tests passed|^[0-9]+ of [0-9]+ tests passed$'
    noise+='|^The following tests |^Total Test time |^Errors while running CTest|^Output from these tests|^Use "--rerun-failed'
    noise+='|^Label Time Summary|sec\*proc '
    begin_progress "running tests"
    while true; do
        code=0
        IFS= read -r -t 1 part || code=$?
        line+=$part
        if [[ $SECONDS -ne $looked_at ]]; then
            looked_at=$SECONDS
            show_progress "$(test_results '^(passed|failed|skipped): ' | wc -l)" "$1"
        fi
        [[ $code -le 128 ]] || continue # a second without a whole line
        if [[ $line =~ ^[[:blank:]]+[0-9]+\ -\ ([^ ]+)\ \((.*)\)$ ]]; then # CTest's list at the end
            failed+=$(failed_tests "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}")$'\n'
        elif [[ ! $line =~ $noise ]]; then
            end_progress
            [[ $line != FAILED:* ]] || echo
            printf '%s\n' "$line"
        fi
        line=""
        [[ $code -eq 0 ]] || break # the end
    done
    end_progress
    report_tests "$failed"
}

# The tests of all lessons, all tests, or those of a chapter, which can have a second executable, with lessons in
# double.
run_tests() {
    local name=${1:-} names targets files
    if [[ -z $name || $name == all ]]; then
        names='^([0-9]|common|xtensor)' targets=(lesson_tests) files=(tests/{common,common/xtensor,chapters/*}/*.cpp)
        [[ -z $name ]] || names=. targets=(tests) files+=(tests/{models,experiments,apps/*}/*.cpp)
    else
        [[ $name =~ ^(common|xtensor|ask|chat|serve|train|runs|models|experiments)$ ]] || name=$(slug_of "$name")
        names="^$name(\.|$)" targets=("test_$name") files=(tests/{,chapters/,apps/,common/}"$name"/*.cpp)
        [[ ! "${files[*]}" =~ /(finite_differences|in_double) ]] || targets+=("test_${name}_in_double")
    fi
    build "${targets[@]}" || exit 1
    rm -rf build/test_results
    mkdir build/test_results
    TEST_RESULTS=$PWD/build/test_results ctest --preset default --timeout 300 -R "$names" 2>&1 |
        summarize_tests "$(cat "${files[@]}" 2>/dev/null | grep -c '^TEST_CASE')"
}
