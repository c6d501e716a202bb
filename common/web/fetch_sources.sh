#!/usr/bin/env bash
# Fetches the sources of two Debian packages that a WebAssembly build compiles itself,
# Oniguruma and utf8proc (1.2 MB), into the given folder. The system's own package lists stay as they are.
set -euo pipefail

mkdir -p "$1"
cd "$1"
[[ ! -d libonig || ! -d utf8proc ]] || exit 0

# The system's package sources, asked for source packages.
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
mkdir -p "$lists"/{parts,state/partial,cache/archives/partial}
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
    [[ -e $file ]] || continue
    sed -e 's/^deb /deb-src /' -e 's/^Types: .*/Types: deb-src/' "$file" \
        >"$lists/parts/${file##*/}"
done
[[ ! -e $lists/parts/sources.list ]] || mv "$lists/parts/sources.list" "$lists/parts/main.list"
options=(-qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$lists/parts"
         -o "Dir::State::lists=$lists/state" -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=)
apt-get "${options[@]}" update
release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
(cd "$lists" && apt-get "${options[@]}" source --download-only "libonig/$release" "utf8proc/$release")

for package in libonig utf8proc; do
    mkdir -p "$package.part"
    tar -xzf "$lists/$package"_*.orig.tar.gz --strip-components=1 -C "$package.part"
    mv "$package.part" "$package"
done
