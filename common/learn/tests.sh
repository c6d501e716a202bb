# Shell functions that run the tests, for ./learn. CTest runs executables, which print a line for each of their tests.
# shellcheck shell=bash

# Reads the output of ctest -V, in which the lines of an executable begin with its number. Shows which tests
# failed, and how many passed. $1: how many tests there are, to show how far it is.
summarize_tests() {
    local line number text name num_passed=0 num_failed=0 names=() failed=() fails=() others=() skipped=""
    begin_progress "running tests"
    while IFS= read -r line; do
        if [[ $line =~ ^\ *Start\ +([0-9]+):\ (.*)$ ]]; then
            names[BASH_REMATCH[1]]=${BASH_REMATCH[2]%.in_double}
        elif [[ $line =~ ^([0-9]+):\ (.*)$ ]]; then
            number=${BASH_REMATCH[1]} text=${BASH_REMATCH[2]}
            name=${names[number]}
            if [[ $text =~ ^(passed|skipped),\ [0-9.]+\ s:\ (.*)$ ]]; then
                fails[number]=false num_passed=$((num_passed + 1))
                [[ ${BASH_REMATCH[1]} == passed ]] || skipped+="    $name.${BASH_REMATCH[2]}"$'\n'
                show_progress "$num_passed" "$1"
            elif [[ $text == "FAILED: "* ]]; then
                fails[number]=true num_failed=$((num_failed + 1))
                failed[number]+="    $name.${text#FAILED: }"$'\n'
                end_progress
                printf '\n%s\n' "$text"
            elif ${fails[number]:-false} && [[ $text == "    "* ]]; then
                printf '%s\n' "$text"
            else
                others[number]+=$text$'\n'
            fi
        elif [[ $line =~ Test\ +#([0-9]+):.*\*\*\*([A-Za-z].*[a-z])\ +[0-9.]+\ sec && -z ${failed[BASH_REMATCH[1]]:-} ]]; then
            number=${BASH_REMATCH[1]} num_failed=$((num_failed + 1))
            failed[number]="    ${names[number]}: ended before its last test (${BASH_REMATCH[2]})"$'\n'
            end_progress
            printf '\n%s' "${others[number]:-}"
        fi
    done
    end_progress
    [[ $((num_passed + num_failed)) -gt 0 ]] || fail "CTest ran no test"
    [[ -z $skipped ]] || printf '\nThe following tests were skipped:\n%s' "$skipped"
    if [[ $num_failed -gt 0 ]]; then
        printf '\nThe following tests FAILED:\n'
        printf '%s' "${failed[@]}"
    fi
    printf '\n%s of %s tests passed\n' "$num_passed" $((num_passed + num_failed))
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
