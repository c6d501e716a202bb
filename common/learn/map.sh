# The chapters, which of them were run, how many exercises are solved, and what to do next. A part of ./learn.
# shellcheck shell=bash

solved() {
    local total
    total=$(grep -c '^// Exercise [0-9]' "chapters/$1/exercise.cpp")
    cat "build/progress/$1" 2>/dev/null || echo "0 of $total"
}

has_unsolved() { [[ $(solved "$1") =~ ^(.*)\ of\ (.*)$ && ${BASH_REMATCH[1]} != "${BASH_REMATCH[2]}" ]]; }

# What to do after a chapter: its exercises, if some are unsolved, and the following chapter.
next_after() {
    local text="" following
    following=$(all_slugs | sed -n "/^$1\$/{n;p;}")
    if has_unsolved "$1"; then text="./learn exercise $((10#${1%%_*}))"; fi
    if [[ -n $following ]]; then text+="${text:+, then$'\n'      }$(command_of "$following")"; fi
    [[ -z $text ]] || printf '\nnext: %s\n' "$text"
}

command_of() { echo "./learn $((10#${1%%_*})) — $(question "$1")"; }

bold() { if [[ -t 1 ]]; then printf '\033[1m%s\033[0m\n' "$1"; else printf '%s\n' "$1"; fi; }

# The 20 chapters that a terminal of 24 lines has room for, the last one that was run among them; "before 01 to 04"
# and "after 21 to 24" name the others.
slugs_on_screen() {
    local -a slugs
    local first=0 i
    mapfile -t slugs < <(all_slugs)
    for i in "${!slugs[@]}"; do
        if [[ -e build/runs/${slugs[i]} ]] && ((i > first + 17)); then first=$((i - 17)); fi
    done
    if ((first > ${#slugs[@]} - 20)); then first=$((${#slugs[@]} - 20)); fi
    if ((first > 0)); then echo "before ${slugs[0]:0:2} to ${slugs[first - 1]:0:2}"; fi
    printf '%s\n' "${slugs[@]:first:20}"
    if ((first + 20 < ${#slugs[@]})); then echo "after ${slugs[first + 20]:0:2} to ${slugs[-1]:0:2}"; fi
}

# Lists the chapters by part; in a terminal of few lines, without the names of the parts. The first column has the solved exercises of those that were run.
show_map() {
    local slug part="" count slugs=all_slugs
    if is_short; then slugs=slugs_on_screen; fi
    while read -r slug; do
        if [[ $slug == *" to "* ]]; then
            printf '     chapters %s: ./learn list | less shows all\n' "${slug#* }"
            continue
        fi
        if [[ $part != "$(part_of "$slug")" ]]; then
            part=$(part_of "$slug")
            is_short || bold "$(printf '%-3s %s' "${part%% *}" "${part#* }")"
        fi
        count=$(solved "$slug")
        [[ -e build/runs/$slug || $count != 0* ]] || count=-
        printf '%4s %-23s %s\n' "${count/ of //}" "$slug" "$(question "$slug")"
    done < <("$slugs")
    if is_short; then
        go_on | tr '\n' ' ' | sed -E 's/^ +//; s/ +/ /g; s/(then .*) — .*/\1/; s/ $//'
        echo
        return
    fi
    printf '\n2/4: run, and 2 of 4 exercises solved; -: not run yet.\n'
    printf './learn read 1 shows the page of chapter 1, ./learn help lists all commands.\n'
    go_on
}

# A terminal in which the list and all that follows it have no room.
is_short() { [[ -t 1 && $(stty size 2>/dev/null </dev/tty || echo 24) =~ ^([0-9]+) && ${BASH_REMATCH[1]} -lt 37 ]]; }

# The next step: the first chapter that was not run, after the exercises of the one before it. If
# all were run: the first unsolved exercises.
go_on() {
    local slug before="" unsolved=""
    for slug in $(all_slugs); do
        if [[ ! -e build/runs/$slug ]]; then
            if [[ -n $before ]]; then next_after "$before"; else printf '\nnext: ./learn read 1, then\n      %s\n' "$(command_of "$slug")"; fi
            return
        fi
        before=$slug
        if [[ -z $unsolved ]] && has_unsolved "$slug"; then unsolved=$slug; fi
    done
    [[ -z $unsolved ]] || printf '\nnext: ./learn exercise %d\n' $((10#${unsolved%%_*}))
}

# At the first visit, the walk: in a terminal, one step after the other.
visit() {
    if [[ -d build/runs ]]; then
        show_map
        return
    fi
    build walk
    local options=()
    if [[ -t 0 && -t 1 ]]; then
        options=(--step)
        trap : INT # Ctrl-C ends the walk only
        printf '%s\n' "./learn walk: what happens between a text and its next word? Enter goes on."
    fi
    run walk ${options[@]+"${options[@]}"} || true
    printf '\nnext: %s\n      %s\n\n%s\n' \
        './learn walk --prompt "And he said" follows another text,' \
        './learn read walk explains it; then ./learn read 1, and ./learn 1' \
        './learn lists the chapters, ./learn help the commands.'
}
