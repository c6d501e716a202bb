#!/usr/bin/env bash
# ./learn site: compiles the programs to WebAssembly, builds the website into build/site, and
# serves it to this machine.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
source common/learn/progress.sh

note() { printf '%s\n' "$*" >&2; }
fail() {
    note "learn site: $*"
    exit 2
}

packages=() build_only=false pack=false pdf=false yes=false port=
while [[ $# -gt 0 ]]; do
    case $1 in
        --build) build_only=true ;;
        --pack) pack=true ;;
        --pdf) pdf=true ;;
        --yes) yes=true ;;
        --port)
            if ! [[ ${2:-} =~ ^[0-9]{4,5}$ ]] || ((10#$2 < 1024 || 10#$2 > 65535)); then
                fail "--port: expected a number from 1024 to 65535, got '${2:-}'"
            fi
            port=$2
            shift
            ;;
        *) fail "unknown option '$1'; there are --build, --pack, --pdf, --port PORT and --yes" ;;
    esac
    shift
done

# Asks before it installs much.
confirm() {
    note "$1"
    $yes && return
    [[ -t 0 ]] || fail "nothing was installed: repeat the command with --yes to agree"
    local answer
    read -r -p "Install this? [y/N] " answer
    [[ $answer == [yY]* ]] || fail "nothing was installed"
}

install_tools() {
    command -v em++ >/dev/null || packages+=(emscripten)
    command -v node >/dev/null || packages+=(nodejs)
    command -v npm >/dev/null || packages+=(npm)
    command -v cmake >/dev/null || packages+=(cmake)
    command -v ninja >/dev/null || packages+=(ninja-build)
    ! $pdf || command -v chromium >/dev/null || packages+=(chromium)
    local library
    for library in libxtensor-dev libxtensor-blas-dev libcli11-dev libfmt-dev nlohmann-json3-dev \
        libhwy-dev doctest-dev; do
        dpkg-query -W -f '${db:Status-Status}\n' "$library" 2>/dev/null | grep -qx installed ||
            packages+=("$library")
    done
    [[ ${#packages[@]} -gt 0 ]] || return 0
    command -v apt-get >/dev/null || fail "install these first: ${packages[*]}"

    local space
    if [[ $(id -u) -ne 0 ]] && ! command -v sudo >/dev/null; then
        fail "install as root: apt-get install ${packages[*]}"
    fi
    update_package_lists
    space=$(LC_ALL=C apt-get install --assume-no --no-install-recommends "${packages[@]}" 2>/dev/null |
        sed -n 's/^After this operation, \(.*\) of additional disk space.*/\1/p') || true
    confirm "The website needs these Debian packages (${space:-unknown size}): ${packages[*]}"
    install_packages "${packages[@]}" || fail "apt-get could not install them; see its message above"
}

install_node_modules() {
    local installed=docs/node_modules/.package-lock.json
    [[ -e $installed && ! docs/package-lock.json -nt $installed ]] && return
    confirm "The website needs npm packages (250 MB in docs/node_modules): VitePress and others, listed in docs/package.json"
    quietly "installing npm packages" npm --prefix docs ci --omit=dev --no-progress --loglevel=error
}

# Runs a command and shows its output only if it fails: quietly TEXT COMMAND...
quietly() { run_with_progress "$@" || fail "this command failed: ${*:2}"; }

is_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# The first port from this one on that no program uses.
free_port() {
    local port=$1
    while is_taken "$port"; do port=$((port + 1)); done
    echo "$port"
}

# Serves the site to this machine alone.
http_server() { exec python3 -m http.server "$1" --bind 127.0.0.1 --directory build/site >/dev/null 2>&1; }

# The same until Ctrl-C.
serve() {
    if [[ -z $port ]]; then
        port=$(free_port 8000)
    elif is_taken "$port"; then
        fail "--port: another program uses port $port"
    fi
    echo "The site is at http://127.0.0.1:$port/ (Ctrl-C stops)"
    http_server "$port"
}

# Prints all pages into build/book.pdf.
server=
print_book() {
    node docs/.vitepress/print_book.mjs build/site >/dev/null
    local port
    port=$(free_port 8900)
    http_server "$port" &
    server=$!
    trap 'kill "$server" 2>/dev/null' EXIT
    until is_taken "$port"; do
        kill -0 "$server" 2>/dev/null || fail "python3 cannot serve build/site"
        sleep 0.1
    done
    quietly "printing the book" chromium --headless --no-sandbox --disable-gpu --no-pdf-header-footer \
        --print-to-pdf=build/book.pdf "http://127.0.0.1:$port/book.html"
    [[ -s build/book.pdf ]] || fail "chromium has printed nothing"
    echo "The book is build/book.pdf"
}

install_tools
install_node_modules
quietly "1 of 3: fetching sources" common/web/fetch_sources.sh build-web/sources
quietly "1 of 3: configuring" cmake --preset web -DSMALL_PROGRAMS="$($pack && echo ON || echo OFF)"
progress_of_build=1.5 build_with_progress "2 of 3: compiling the programs to WebAssembly" build-web all || fail "the programs could not be compiled"
quietly "3 of 3: building the pages" npm --prefix docs run build

mkdir -p build/site/programs
cp build-web/programs/*.js build-web/programs/*.wasm build/site/programs/
mkdir -p build/site/programs/assets build/site/programs/docs
cp docs/*.md build/site/programs/docs/
(cd assets && cp -r ask_encoder data king_james king_james_experts king_james_mtp name_encoder wordnet wordnet_answers wordnet_calculator words ../build/site/programs/assets/)

if $pack; then
    tar -C build/site -czf build/site.tar.gz .
    echo "The site is packed in build/site.tar.gz"
elif $pdf; then
    print_book
elif $build_only; then
    echo "The site is in build/site"
else
    serve
fi
