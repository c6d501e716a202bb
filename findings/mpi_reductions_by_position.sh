#!/usr/bin/env bash
# Open MPI 4.1.4 (Debian 12: 4.1.4-3+b1): what MPI_Allreduce gives for a number depends on its place in the
# vector. (1) Three ranks hold 1, 1e8 and -1e8 at each place. For 4096 numbers the sum is 0 in 2731 places and 1
# in 1365: a ring begins the sum of each third at another rank. For 512 numbers it is 0 in all. So the gradient of
# a weight has other bits when its bucket gets another size. (2) One of two ranks holds NaN at each place, the
# other 1. MPI_MAX of 10 numbers gives NaN in some places and 1 in the others, on both ranks alike; of 1000
# numbers, NaN in all if rank 1 has it, in none if rank 0 has it. The comparison is a > b ? a : b, in an order
# that a vector instruction and the rest of a loop take differently. A search for overflow by MPI_MAX of the
# largest gradient misses the NaN of a rank. MPI_SUM keeps NaN in all places.
# The MPI standard 3.1 (5.9.1) only advises implementors to give the same result for the same arguments.
# Needs gcc. Exits with 1 if that changes.
set -euo pipefail
cd "$(mktemp -d)"
apt-get download -q {libopenmpi3,libopenmpi-dev,openmpi-bin}=4.1.4-3+b1 openmpi-common libevent-core-2.1-7 \
    libevent-pthreads-2.1-7 libfabric1 libhwloc15 libibverbs1 libmunge2 libnl-3-200 libnl-route-3-200 libnuma1 libpmix2 \
    libpsm-infinipath1 libpsm2-2 librdmacm1 libucx0 zlib1g >/dev/null
for package in *.deb; do dpkg -x "$package" .; done
lib=$PWD/usr/lib/x86_64-linux-gnu
cat >reduce.c <<'END_OF_FILE'
#include <math.h>
#include <mpi.h>
#include <stdio.h>

static int rank, size;

static void reduce(float of_first, float of_second, float of_third, int count, MPI_Op op, const char* text) {
    static float own[4096], reduced[4096];
    int nan = 0, zero = 0, one = 0;
    for (int i = 0; i < count; ++i) own[i] = rank == 0 ? of_first : rank == 1 ? of_second : of_third;
    MPI_Allreduce(own, reduced, count, MPI_FLOAT, op, MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i) {
        nan += isnan(reduced[i]) != 0;
        zero += reduced[i] == 0;
        one += reduced[i] == 1;
    }
    if (rank == 0) printf("%s of %d: NaN %d, 0 %d, 1 %d\n", text, count, nan, zero, one);
}

int main(void) {
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 3) {
        reduce(1, 1e8f, -1e8f, 512, MPI_SUM, "sum");
        reduce(1, 1e8f, -1e8f, 4096, MPI_SUM, "sum");
    } else {
        reduce(NAN, 1, 0, 10, MPI_MAX, "max, rank 0 has NaN,");
        reduce(1, NAN, 0, 10, MPI_MAX, "max, rank 1 has NaN,");
        reduce(NAN, 1, 0, 1000, MPI_MAX, "max, rank 0 has NaN,");
        reduce(1, NAN, 0, 1000, MPI_MAX, "max, rank 1 has NaN,");
        reduce(1, NAN, 0, 1000, MPI_SUM, "sum, rank 1 has NaN,");
    }
    MPI_Finalize();
}
END_OF_FILE
export LD_LIBRARY_PATH=$lib:$lib/openmpi/lib PATH=$PWD/usr/bin:$PATH
export OPAL_PREFIX=$PWD/usr OPAL_LIBDIR=$lib/openmpi/lib OPAL_DATADIR=$PWD/usr/share
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
gcc -I "$lib/openmpi/include" reduce.c -L "$lib/openmpi/lib" -L "$lib" -Wl,-rpath-link,"$lib" -lmpi -o reduce
mpirun.openmpi --version | head -n 1
for ranks in 3 2; do mpirun.openmpi -q -n $ranks ./reduce; done | tee results
diff results - <<'END_OF_FILE'
sum of 512: NaN 0, 0 512, 1 0
sum of 4096: NaN 0, 0 2731, 1 1365
max, rank 0 has NaN, of 10: NaN 2, 0 0, 1 8
max, rank 1 has NaN, of 10: NaN 8, 0 0, 1 2
max, rank 0 has NaN, of 1000: NaN 0, 0 0, 1 1000
max, rank 1 has NaN, of 1000: NaN 1000, 0 0, 1 0
sum, rank 1 has NaN, of 1000: NaN 1000, 0 0, 1 0
END_OF_FILE
