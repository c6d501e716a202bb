# Checks exercises; shows hints and solutions; restores the original files. A part of ./learn.
# shellcheck shell=bash

# The exercises of a chapter, or those of published models, M.1 and so on, on docs/anatomy.md.
exercise() {
    local slug number
    if [[ ${1:-} =~ ^(models|M)$ ]]; then
        slug=models number=M
    else
        slug=$(slug_of "${1:-}")
        number=$((10#${slug%%_*}))
    fi
    case ${2:-} in
        --hint | --solution) [[ ${3:-} =~ ^("$number."|)[0-9]+$ ]] || fail "$2 of which exercise? $2 2 is that of $number.2" ;;
    esac
    [[ $# -lt 4 || "$2 $4" == "--hint --more" ]] || fail "unexpected argument '$4'; see ./learn help"
    case ${2:-} in
        '') check_exercises "$slug" "$number" ;;
        --hint) show_hint "$slug" "$number.${3#"$number."}" $((1 + ($# > 3))) ;;
        --solution) show_solution "$slug" "$number.${3#"$number."}" ;;
        --reset) reset_exercises "$slug" ;;
        *) fail "exercise takes --hint N, --solution N or --reset, not '$2'" ;;
    esac
}

check_exercises() {
    local slug=$1 number=$2 status=0
    build "exercise_$slug" || exit 1
    mkdir -p build/progress
    "build/exercise_$slug" | tee build/report.txt | mark_states "chapters/$slug/exercise.cpp" || status=$?
    sed -n 's/ exercises solved$//p' build/report.txt >"build/progress/$slug"
    if [[ $status -eq 0 ]]; then
        echo "./learn exercise $number --solution N shows another solution of $number.N."
    else
        echo "Edit chapters/$slug/exercise.cpp and run this again; --hint N helps with $number.N."
    fi
    return $((status > 0))
}

# In a terminal, gives each exercise a sign and a color, and an unsolved one the line of its function.
mark_states() {
    [[ -t 1 && -z ${NO_COLOR:-} ]] || { cat; return; }
    awk -v file="$1" -v green=$'\033[32m' -v red=$'\033[31m' -v yellow=$'\033[33m' -v normal=$'\033[0m' '
        BEGIN {
            while ((getline text <file) > 0) {
                ++number
                if (text ~ /^\/\/ Exercise /) { split(text, words, " "); line[words[3]] = number }
            }
        }
        /^[0-9M]+\.[0-9]+ .*: solved$/ { print green "✓ " $0 normal; fflush(); next }
        /^[0-9M]+\.[0-9]+ .*: to (write|predict)$/ { print yellow "· " $0 normal " (line " line[$1] ")"; fflush(); next }
        /^[0-9M]+\.[0-9]+ .*: / { print red "✗ " $0 normal " (line " line[$1] ")"; fflush(); next }
        { print; fflush() }'
}

# Prints hint 1 of an exercise, which is an idea, or hint 2, which is a place, if there is one.
show_hint() {
    local text
    text=$(hint "$1" "$2" "$3")
    [[ -n $text ]] || fail "there is no $([[ $3 -eq 1 ]] || echo "second ")hint for exercise '$2'"
    # Convert Markdown to text: keep the text of links, remove emphasis and code marks.
    sed -e 's/\[\([^]]*\)\]([^)]*)/\1/g' -e 's/`//g' -e 's/\*\([^* ]*\)\*/\1/g' <<<"$text" | fold -s -w 80
    if [[ $3 -eq 1 && -n $(hint "$1" "$2" 2) ]]; then
        printf '\n%s\n' "./learn exercise ${2%.*} --hint ${2#*.} --more shows a second hint."
    fi
}

# The text of the n-th folded block of an exercise on its page.
hint() {
    awk -v exercise="### Exercise $2 " -v wanted="$3" '
        /^##/ { here = index($0, exercise) == 1; block = 0; open = 0 }
        here && /<\/details>/ { open = 0 }
        here && open && NF { print }
        here && /<details>/ { open = ++block == wanted }' "docs/$([[ $1 == models ]] && echo anatomy || echo "$1").md"
}

show_solution() {
    local text
    text=$(awk -v exercise="// Exercise $2 " '
        /^\/\/ Exercise/ { here = index($0, exercise) == 1 }
        /^}  \/\/ namespace/ { here = 0 }
        here { print }' "chapters/$1/solution.cpp")
    [[ -n $text ]] || fail "there is no exercise '$2'"
    printf '%s\n' "$text"
}

reset_exercises() {
    local file=chapters/$1/exercise.cpp base backup
    mkdir -p build
    base=$(git merge-base HEAD '@{upstream}' 2>/dev/null || echo HEAD)
    git show "$base:./$file" >build/pristine.cpp ||
        fail "--reset restores $file from git, which failed"
    if cmp -s build/pristine.cpp "$file"; then
        echo "$file is unchanged; nothing to reset."
        return
    fi
    backup=$file.before-reset-$(date +%Y%m%d-%H%M%S)
    cp "$file" "$backup"
    cp build/pristine.cpp "$file"
    rm -f "build/progress/$1"
    echo "$file is restored. Your version is in $backup."
}
