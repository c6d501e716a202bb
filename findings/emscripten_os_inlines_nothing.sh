#!/usr/bin/env bash
# Emscripten 3.1.6 (Debian 12): -Os and -Oz set INLINING_LIMIT=1, which passes -fno-inline-functions to Clang.
# Clang 14 then gives each function the attribute noinline, so that std::string::size() is a chain of four calls.
# -sINLINING_LIMIT=0 after it brings back what -Os inlines elsewhere. (Emscripten's own libc++ is compiled in
# this way: the members of std::string that it instantiates, such as substr, call such chains.)
# Exits with 1 if that changes.
set -euo pipefail
cd "$(mktemp -d)"
cat >size.cpp <<'END_OF_FILE'
#include <string>
std::size_t size_of(const std::string& text) { return text.size(); }
END_OF_FILE
count() {
    em++ "$@" -S -emit-llvm size.cpp -o size.ll
    functions=$(grep -c '^define' size.ll)
    echo "$*: $functions functions"
}
count -Os
[[ $functions -gt 1 ]]
count -Os -sINLINING_LIMIT=0
[[ $functions -eq 1 ]]
