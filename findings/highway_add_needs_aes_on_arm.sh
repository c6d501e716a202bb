#!/usr/bin/env bash
# Highway 1.0.3 (Debian 12: libhwy-dev 1.0.3-3+deb12u1), 64-bit Arm, GCC 12: a sum of two vectors compiles
# only for processors with AES. HWY_COMPILE_ONLY_STATIC does not change that. With run-time dispatch, which
# is there on Linux, all functions of NEON get target("+crypto"), and a function without it cannot inline
# them: neither -march=armv8-a, which each NEON processor is, nor armv8.2-a+dotprod are enough. On x86 a file
# that is compiled with -march alone needs nothing else. A Raspberry Pi 4 has NEON, but no AES, so that
# -mcpu=native fails there. Ways out: -march=armv8-a+crypto (no AES instruction is generated for a sum), or
# HWY_BEFORE_NAMESPACE() before each function, and HWY_ATTR in each lambda.
# Needs g++-aarch64-linux-gnu. Exits with 1 if that changes.
set -euo pipefail
cd "$(mktemp -d)"
apt-get download -q libhwy-dev=1.0.3-3+deb12u1 >/dev/null # the headers are the same on all processors
dpkg -x ./*.deb .
cat >sum.cpp <<'END_OF_FILE'
#define HWY_COMPILE_ONLY_STATIC
#include <hwy/highway.h>
namespace hn = hwy::HWY_NAMESPACE;
#ifdef WITH_ATTRIBUTES
HWY_BEFORE_NAMESPACE();
#endif

void add(const float* a, const float* b, float* sum) {
    const hn::CappedTag<float, 4> four;
    hn::StoreU(hn::Add(hn::LoadU(four, a), hn::LoadU(four, b)), four, sum);
}
END_OF_FILE
status=0
for processor in armv8-a armv8.2-a+dotprod armv8-a+crypto; do
    if aarch64-linux-gnu-g++ -std=c++17 -O2 -march=$processor -I usr/include -c sum.cpp 2>errors; then
        echo "$processor: compiles"
        [[ $processor == *crypto ]] || status=1
    else
        echo "$processor: $(grep -o 'target specific option mismatch' errors | sort -u)"
        [[ $processor != *crypto ]] && grep -q 'target specific option mismatch' errors || status=1
    fi
done
aarch64-linux-gnu-g++ -std=c++17 -O2 -march=armv8-a -DWITH_ATTRIBUTES -I usr/include -c sum.cpp
echo "armv8-a, with HWY_BEFORE_NAMESPACE(): compiles"
exit $status
