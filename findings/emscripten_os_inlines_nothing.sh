#!/usr/bin/env bash
# Emscripten 3.1.6 (Debian 12): -Os and -Oz set INLINING_LIMIT=1, which passes -fno-inline-functions to Clang.
# Clang 14 then gives each function the attribute noinline, so that std::string::size() is a chain of four calls.
# -sINLINING_LIMIT=0 after it brings back what -Os inlines elsewhere. (Emscripten's own libc++ is compiled in
# this way: the members of std::string that it instantiates, such as substr, call such chains.)
# Needs node and python3. Exits with 1 if that changes.
set -euo pipefail
cd "$(mktemp -d)"
apt-get download -q emscripten=3.1.6~dfsg-5 {clang-14,libclang-cpp14,libllvm14,libclang-common-14-dev,lld-14,llvm-14}=1:14.0.6-12 \
    binaryen=108-1 libz3-4 >/dev/null
for package in *.deb; do dpkg -x "$package" .; done
export EM_LLVM_ROOT=$PWD/usr/bin EM_BINARYEN_ROOT=$PWD/usr
export EM_CACHE=$PWD/cache LD_LIBRARY_PATH=$PWD/usr/lib/x86_64-linux-gnu:$PWD/usr/lib/llvm-14/lib
cp -r usr/share/emscripten/cache cache
cat >size.cpp <<'END_OF_FILE'
#include <string>
std::size_t size_of(const std::string& text) { return text.size(); }
END_OF_FILE
count() {
    python3 usr/share/emscripten/em++.py "$@" -S -emit-llvm size.cpp -o size.ll
    functions=$(grep -c '^define' size.ll)
    echo "$*: $functions functions"
}
count -Os
[[ $functions -gt 1 ]]
count -Os -sINLINING_LIMIT=0
[[ $functions -eq 1 ]]
