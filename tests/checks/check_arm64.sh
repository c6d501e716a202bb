#!/usr/bin/env bash
# Compiles the lessons and their tests for 64-bit Arm, and runs the tests in QEMU.
# Usage: tests/checks/check_arm64.sh [FOLDER], a build folder, by default build-arm64. CXX=clang++
# takes Clang instead of GCC, MARCH=armv8-a+crypto another processor instead of armv8.2-a+dotprod+crypto,
# and CXX=clang++-16 LIBCXX=16 the standard library of macOS in its release 16.
# Needs g++-aarch64-linux-gnu and qemu-user; the libraries for Arm are unpacked into FOLDER.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build-arm64}
mkdir -p "$folder"
folder=$(realpath "$folder")
export ARM64_LIBRARIES=$folder/arm64
packages=(libxtensor-dev libxtensor-blas-dev doctest-dev libopenblas-dev libcli11-dev libfmt-dev
    nlohmann-json3-dev libhwy-dev libonig-dev libutf8proc-dev)
flags=-Werror
if [[ -n ${LIBCXX:-} ]]; then
    packages+=("libc++-$LIBCXX-dev" "libc++abi-$LIBCXX-dev")
    # Debian's libfmt and libhwy were compiled with the other standard library.
    flags+=" -Wno-unused-command-line-argument -stdlib=libc++ -nostdinc++ -isystem $folder/arm64/usr/lib/llvm-$LIBCXX/include/c++/v1 -DFMT_HEADER_ONLY"
fi

# A package manager of its own, in which nothing is installed. Oniguruma's package cannot be installed for
# two kinds of processors at once.
if [[ ! -e $ARM64_LIBRARIES/usr ]]; then
    apt=$folder/apt
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial} "$ARM64_LIBRARIES"
    : >"$apt/state/status"
    options=(-qq -o "Dir::State=$apt/state" -o "Dir::State::status=$apt/state/status" -o "Dir::Cache=$apt/cache"
        -o APT::Architecture=arm64 -o APT::Architectures=arm64)
    apt-get "${options[@]}" update
    apt-get "${options[@]}" install -y --no-install-recommends --download-only "${packages[@]}"
    for package in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$package" "$ARM64_LIBRARIES"; done
    rm -r "$apt"
    # What Debian's alternatives would link.
    ln -s openblas-pthread/libopenblas.so openblas-pthread/libopenblas.so.0 "$ARM64_LIBRARIES/usr/lib/aarch64-linux-gnu"
fi
cmake -B "$folder" --preset default --toolchain common/cmake/arm64.cmake "-DMARCH=${MARCH:-armv8.2-a+dotprod+crypto}" \
    "-DCMAKE_CXX_FLAGS=$flags"
cmake --build "$folder" --target all tests -- -k 0
ctest --test-dir "$folder" --output-on-failure -j "$(nproc)" -LE 'maintainer|browser'
