# Shell functions that show how far a long command is, for ./learn and ./learn site: in a terminal one
# line that is updated in place, elsewhere a line every ten seconds. They print to standard error.
# shellcheck shell=bash

progress_text="" progress_visible=false
# begin_progress TEXT [POWER]: the share of the time is that of the steps to this power; below 1, the first
# steps take longer than the last.
begin_progress() { progress_text=$1 progress_power=${2:-1} progress_started=$SECONDS progress_shown=$SECONDS progress_visible=false; }

# Shows how much of the work is done, such as 12 of 80, and after a tenth of it the time left; without
# numbers, how long it has taken. At most once per second, since each line takes several processes.
show_progress() {
    local line elapsed=$((SECONDS - progress_started)) interval=10 left
    [[ ! -t 2 ]] || interval=1
    ((SECONDS - progress_shown >= interval)) || return 0
    progress_shown=$SECONDS
    if [[ ${1:-0} -gt 0 ]]; then
        line=$(printf '%s: %d/%d, %d %%' "$progress_text" "$1" "$2" $((100 * $1 / $2)))
        if [[ $elapsed -gt 3 && $((10 * $1)) -ge $2 ]]; then
            left=$(awk -v n="$1" -v total="$2" -v seconds="$elapsed" -v power="$progress_power" \
                'BEGIN { printf "%d", seconds * ((total / n) ^ power - 1) }')
            line+=$(printf ', %d:%02d left' $((left / 60)) $((left % 60)))
        fi
    else
        line=$(printf '%s: %d:%02d' "$progress_text" $((elapsed / 60)) $((elapsed % 60)))
    fi
    if [[ -t 2 ]]; then
        printf '\r\033[2K%.79s' "$line" >&2
        progress_visible=true
    else
        printf '%s\n' "$line" >&2
    fi
}
end_progress() {
    if $progress_visible; then printf '\r\033[2K' >&2; fi
    progress_visible=false
}

# Reads a command's output. Lines such as "@12/80 text" say how much is done; the others are written to
# a file.
follow_progress() {
    local line="" part code done_now="" total=""
    : >"$1"
    while true; do
        code=0
        IFS= read -r -t 1 part || code=$?
        line+=$part
        if [[ $code -le 128 ]]; then # a larger code is a second without a whole line
            if [[ $line =~ ^@([0-9]+)/([0-9]+) ]]; then
                done_now=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
            elif [[ -n $line || $code -eq 0 ]]; then
                printf '%s\n' "$line" >>"$1"
            fi
            line=""
            [[ $code -eq 0 ]] || break # the end
        fi
        if [[ $code -gt 128 || -n $total ]]; then show_progress "$done_now" "$total"; fi
    done
    end_progress
}

# Builds targets in a folder: build_with_progress TEXT FOLDER TARGET... Prints nothing if they are up to
# date, and if it fails the compiler's output, readably.
build_with_progress() {
    local folder=$2 status=0
    # Measured: in four builds with 0.85, and for the website with 1.5, the estimate was 0.5 to 1.9 times
    # the time left.
    begin_progress "$1" "${progress_of_build:-0.85}"
    shift 2
    NINJA_STATUS='@%f/%t ' ninja -j "$(getconf _NPROCESSORS_ONLN)" -C "$folder" "$@" 2>&1 | follow_progress "$folder/errors.txt" || status=$?
    [[ $status -eq 0 ]] || show_errors "$folder/errors.txt"
    return "$status"
}

# Shows the start of the compiler's output without command lines, and the lines about this tree.
show_errors() {
    local readable
    readable=$(grep -Ev '^FAILED:|^/[^ ]*(c\+\+|g\+\+|clang\+\+)[^ ]* |^: && |^In file included|^  +from |^ninja:' "$1") || true
    head -n 20 <<<"$readable" >&2
    if [[ $(wc -l <<<"$readable") -gt 20 ]]; then
        sed -n '21,$p' <<<"$readable" | grep -E '/(chapters|common|tests)/.*(required from here|requested here|error:)' | head -n 5 >&2 || true
        printf '(more in %s)\n' "$1" >&2
    fi
    if grep -q '^CMake Error' "$1"; then printf 'learn: if something is missing, ./learn setup installs it\n' >&2; fi
}

# Runs a command and shows its output only if it fails: run_with_progress TEXT COMMAND...
run_with_progress() {
    local output status=0
    output=$(mktemp)
    begin_progress "$1"
    shift
    "$@" 2>&1 | follow_progress "$output" || status=$?
    [[ $status -eq 0 ]] || cat "$output" >&2
    rm -f "$output"
    return "$status"
}

as_root() { if [[ $(id -u) -eq 0 ]]; then "$@"; else sudo "$@"; fi; }

update_package_lists() { as_root apt-get update -qq >&2 || true; } # they may be recent enough

# Installs Debian packages: install_packages NAME... apt-get itself reports how far it is.
install_packages() {
    local output status=0
    output=$(mktemp)
    update_package_lists
    begin_progress "installing packages"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        -o APT::Status-Fd=1 "$@" 2>&1 |
        sed -u -E 's|^dlstatus:[^:]*:([0-9]+)\..*|@\1/200|; s|^pmstatus:[^:]*:([0-9])\..*|@10\1/200|
            s|^pmstatus:[^:]*:([0-9]{2})\..*|@1\1/200|; s|^pmstatus:[^:]*:100\..*|@200/200|' |
        follow_progress "$output" || status=$?
    [[ $status -eq 0 ]] || cat "$output" >&2
    rm -f "$output"
    return "$status"
}
