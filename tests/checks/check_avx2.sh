#!/usr/bin/env bash
# Runs the tests of what is compiled for vector registers as on a processor with AVX2 alone: on a machine with
# AVX-512, the other builds have other code. Usage: tests/checks/check_avx2.sh BUILD. It builds in build-avx2, with
# the compiler of BUILD. Exits with 77 if this processor has no AVX2.
set -euo pipefail
cd "$(dirname "$0")/../.."
grep -qw avx2 /proc/cpuinfo || exit 77
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$1/CMakeCache.txt")
mkdir -p build-avx2
[[ ! -e $1/edited_files ]] || cp "$1/edited_files" build-avx2 # so that ccache has its objects
cmake --preset default -B build-avx2 "-DCMAKE_CXX_COMPILER=$compiler" -DMARCH=x86-64-v3 >/dev/null
tests=(test_common test_06_swiglu test_15_fast test_16_quantization test_models)
cmake --build build-avx2 --target "${tests[@]}" | tee build-avx2/log
if grep -B 3 'warning:' build-avx2/log; then exit 1; fi
export OPENBLAS_CORETYPE=Haswell
for test in "${tests[@]}"; do
    only=()
    [[ $test != test_models ]] || only=(--source-file='*/encoder_kernels.cpp')
    "build-avx2/$test" "${only[@]}"
done
