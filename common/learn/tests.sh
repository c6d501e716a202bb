# Shell functions that run the tests, for ./learn. CTest runs executables, which print a line for each of their tests.
# shellcheck shell=bash

# Reads the output of ctest -V, in which the lines of an executable begin with its number. Shows which tests
# failed, and how many of $1 passed. A crash ends an executable, so that its other tests do not run.
summarize_tests() {
    local line="" part code number text name num_passed=0 num_failed=0 num_run total names=() failed=() fails=() others=() skipped=""
    begin_progress "running tests"
    while true; do
        code=0
        IFS= read -r -t 1 part || code=$?
        line+=$part
        show_progress "$num_passed" "$1"
        [[ $code -le 128 ]] || continue # a second without a whole line
        if [[ $line =~ ^\ *Start\ +([0-9]+):\ (.*)$ ]]; then
            names[BASH_REMATCH[1]]=${BASH_REMATCH[2]%.in_double}
        elif [[ $line =~ ^([0-9]+):\ (.*)$ ]]; then
            number=${BASH_REMATCH[1]} text=${BASH_REMATCH[2]}
            name=${names[number]}
            if [[ $text =~ ^(passed|skipped),\ [0-9.]+\ s:\ (.*)$ ]]; then
                fails[number]=false num_passed=$((num_passed + 1))
                [[ ${BASH_REMATCH[1]} == passed ]] || skipped+="    $name.${BASH_REMATCH[2]}"$'\n'
            elif [[ $text == "FAILED: "* ]]; then
                fails[number]=true num_failed=$((num_failed + 1))
                failed[number]+="    $name.${text#FAILED: }"$'\n'
                end_progress
                printf '\n%s\n' "$text"
            elif ${fails[number]:-false} && [[ $text == "    "* ]]; then
                printf '%s\n' "$text"
            elif [[ ! $text =~ ^(Test\ (command|timeout)|Working\ Directory) ]]; then
                others[number]+=$text$'\n'
            fi
        elif [[ $line =~ Test\ +#([0-9]+):.*\*\*\*([A-Za-z].*[a-z])\ +[0-9.]+\ sec && -z ${failed[BASH_REMATCH[1]]:-} ]]; then
            number=${BASH_REMATCH[1]} num_failed=$((num_failed + 1))
            failed[number]="    ${names[number]}: the program ended in one of its tests (${BASH_REMATCH[2]})"$'\n'
            end_progress
            printf '\n%s' "${others[number]:-}"
        fi
        line=""
        [[ $code -eq 0 ]] || break # the end
    done
    end_progress
    num_run=$((num_passed + num_failed))
    [[ $num_run -gt 0 ]] || fail "CTest ran no test"
    [[ -z $skipped ]] || printf '\nThe following tests were skipped:\n%s' "$skipped"
    if [[ $num_failed -gt 0 ]]; then
        printf '\nThe following tests FAILED:\n'
        printf '%s' "${failed[@]}"
    fi
    total=$(($1 > num_run ? $1 : num_run))
    printf '\n%s of %s tests passed%s\n' "$num_passed" "$total" \
        "$([[ $num_run -eq $total ]] || echo ", $((total - num_run)) did not run")"
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
    ctest --preset default -V -R "$names" 2>&1 |
        summarize_tests "$(cat "${files[@]}" 2>/dev/null | grep -c '^TEST_CASE')"
}
