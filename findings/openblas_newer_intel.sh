#!/usr/bin/env bash
# OpenBLAS 0.3.21 (Debian 12; also Ubuntu 22.04's 0.3.20, up to 0.3.24) detects Intel's processors of 2022 and later, such as
# the 13th generation, N100 and Emerald Rapids, as a Pentium 4 of 2004 (kernels "Prescott", SSE3).
#
# One would expect a processor that the library does not know to get kernels by what it supports, as OpenBLAS does since
# 0.3.19: an unknown model whose "extended model" number is up to 10 gets kernels for AVX2 or AVX-512. From 11 on, the switch
# statement that selects the kernels falls through from family 6 to family 15. Nothing is reported: products of float32 are
# right, and take several times as long. OPENBLAS_CORETYPE=Haswell (or SkylakeX) in the environment corrects it.
# Upstream: OpenMathLib/OpenBLAS #4267, corrected by #4268 in 0.3.25.
#
# The processors are those of qemu-user, so that this runs on every x86 machine with Debian 12; the times are the
# machine's own. Needs root or sudo for apt-get.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
as_root=()
[[ $(id -u) -eq 0 ]] || as_root=(sudo)
"${as_root[@]}" apt-get install -y -qq --no-install-recommends gcc libc6-dev libopenblas-pthread-dev qemu-user >/dev/null
version=$(dpkg-query -W -f '${Version}' libopenblas0-pthread)
echo "libopenblas0-pthread $version, $(qemu-x86_64 --version | head -1)"
[[ $version == 0.3.21* ]] || { echo "another version than 0.3.21: not what this describes" && exit 1; }

cat >"$folder/name.c" <<'END_C'
#include <stdio.h>
char* openblas_get_corename(void);
int main(void) {
    puts(openblas_get_corename());
    return 0;
}
END_C
gcc -o "$folder/name" "$folder/name.c" -lopenblas
status=0
# kernels_of MODEL EXPECTED NAME: which kernels are used on a processor of Intel's family 6 with AVX2.
kernels_of() {
    local found
    found=$(OPENBLAS_NUM_THREADS=1 qemu-x86_64 -cpu "Haswell,family=6,model=$1" "$folder/name" 2>/dev/null)
    printf 'model %3d: %-9s %s\n' "$1" "$found" "$3"
    [[ $found == "$2" ]] || status=1
}
kernels_of 60 Haswell 'Haswell, 2013'
kernels_of 154 Haswell 'Alder Lake, 12th generation'
kernels_of 170 Haswell 'Meteor Lake, Core Ultra of 2023: unknown, selected by what it supports'
kernels_of 183 Prescott 'Raptor Lake, 13th and 14th generation, desktop'
kernels_of 186 Prescott 'Raptor Lake, 13th generation, laptop (such as i7-1370P)'
kernels_of 190 Prescott 'Alder Lake-N (N100)'
kernels_of 198 Prescott 'Arrow Lake'
kernels_of 207 Prescott 'Emerald Rapids'

cat >"$folder/time.c" <<'END_C'
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
char* openblas_get_corename(void);
int main(void) {
    enum { n = 1024 };
    float *a = malloc(n * n * sizeof *a), *b = malloc(n * n * sizeof *b), *c = malloc(n * n * sizeof *c);
    for (int i = 0; i < n * n; ++i) a[i] = b[i] = (float)(i % 7);
    double best = 1e9;
    for (int run = 0; run < 7; ++run) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1, a, n, b, n, 0, c, n);
        clock_gettime(CLOCK_MONOTONIC, &end);
        const double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
        if (seconds < best) best = seconds;
    }
    printf("%.1f\n", 1e3 * best);
    return 0;
}
END_C
gcc -O2 -o "$folder/time" "$folder/time.c" -lopenblas
if grep -qw avx2 /proc/cpuinfo; then
    kernels=(Prescott Haswell)
    if grep -qw avx512vl /proc/cpuinfo; then kernels+=(SkylakeX); fi
    for name in "${kernels[@]}"; do
        milliseconds=$(OPENBLAS_NUM_THREADS=1 OPENBLAS_CORETYPE=$name "$folder/time")
        echo "sgemm of 1024 x 1024, one thread, kernels $name: $milliseconds ms"
        [[ $name != Prescott ]] || of_prescott=$milliseconds
    done
    awk "BEGIN { exit !($of_prescott > 2 * $milliseconds) }" || status=1
fi
exit "$status"

# Seen on 2026-11-30, on an Emerald Rapids: the eight lines above with these kernels, then 66.1 ms (Prescott), 26.1
# (Haswell), 14.0 (SkylakeX).
