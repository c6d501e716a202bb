# Rebuilds and reruns a program when its files are saved. A part of ./learn.
# shellcheck shell=bash

watch() {
    local slug edited
    slug=$(slug_of "${1:-}")
    shift
    trap 'exit 0' INT
    configure
    rm -f "build/watch_ran_$slug"
    touch "build/watch_looked_$slug"
    watch_once "chapters/$slug" "$slug" "$@"
    note "watching the files of $slug; Ctrl-C to stop"
    while sleep 0.3; do
        edited=$(find chapters common -name '*.[ch]pp' -newer "build/watch_looked_$slug" -print -quit)
        [[ -n $edited ]] || continue
        touch "build/watch_looked_$slug"
        watch_once "${edited%/*}" "$slug" "$@"
    done
}

# Builds the program, and runs it on an empty screen if it changed since the last run. Shows the
# edits in the folder.
watch_once() {
    local folder=$1 slug=$2
    shift
    build "$slug" || { note "learn: still watching; save a file to try again"; return; }
    if [[ ! -f build/watch_ran_$slug || build/$slug -nt build/watch_ran_$slug ]]; then
        touch "build/watch_ran_$slug"
        if [[ -t 1 ]]; then printf '\033[H\033[2J'; fi
        run "$@" || true
        show_edits "$folder"
    fi
}

# Shows how the files of a folder differ from the last commit, in at most 10 lines.
show_edits() {
    local edits count
    edits=$(git diff -U0 -- "$1" ':!*/exercise.cpp' 2>/dev/null | grep -Ev '^(diff|index|---|@@)' | sed 's|^+++ b/||') || return 0
    count=$(wc -l <<<"$edits")
    printf '\nYour edits (git diff %s):\n' "$1"
    head -n $((count > 10 ? 9 : 10)) <<<"$edits"
    if [[ $count -gt 10 ]]; then echo "... $((count - 9)) more lines"; fi
}
