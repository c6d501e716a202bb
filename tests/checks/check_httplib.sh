#!/usr/bin/env bash
# Compiles the HTTP part of ./learn serve with other versions of cpp-httplib, with and without TLS.
# Usage: tests/checks/check_httplib.sh FILE..., each the package libcpp-httplib-dev of a release of Debian,
# or a header. apt-get download libcpp-httplib-dev/RELEASE gets a package; nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

for file; do
    case $file in
        *.deb) dpkg-deb --fsys-tarfile "$file" | tar -xO ./usr/include/httplib.h >"$folder/httplib.h" ;;
        *) cp "$file" "$folder/httplib.h" ;;
    esac
    for define in NO_TLS CPPHTTPLIB_OPENSSL_SUPPORT; do
        for source in chapters/apps/serve/main.cpp chapters/apps/serve/http/*.cpp; do
            "${CXX:-c++}" -std=c++20 -fsyntax-only -Wall -Wextra -D "$define" -isystem "$folder" -I . "$source"
        done
    done
    sed -n 's/^#define CPPHTTPLIB_VERSION "\(.*\)"/compiles with cpp-httplib \1/p' "$folder/httplib.h"
done
