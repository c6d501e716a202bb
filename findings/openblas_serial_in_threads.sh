#!/usr/bin/env bash
# OpenBLAS 0.3.21 (Debian 12: 0.3.21+ds-4) in a program with threads of its own, with OPENBLAS_NUM_THREADS=1:
# (1) The serial build (libopenblas0-serial; its -dev package is enough for libopenblas-dev) gives
# wrong products, without an error, if two threads call cblas_sgemm at the same time on matrices of their own: its
# list of work buffers is shared, and no lock protects it. "Serial" sounds like a library that starts no
# threads, which such a program would want; in fact only one thread at a time may call it. openblas_get_parallel() is 0.
# (2) The build with threads (libopenblas0-pthread) is right, and locks a mutex three times for each cblas_sgemm,
# also with one thread; cblas_sgemv and cblas_sdot of these sizes lock none. So threads that compute small
# products wait for one another: of attention in tiles of (8, 64) by (64, 16), the locks were a tenth of the
# time. Fewer, larger products help.
# Locks are counted by a pthread_mutex_lock that the program itself defines. Needs gcc and 2 cores.
# Exits with 1 if that changes.
set -euo pipefail
cd "$(mktemp -d)"
apt-get download -q libopenblas0-{pthread,serial}=0.3.21+ds-4 >/dev/null
for package in ./*.deb; do dpkg -x "$package" .; done
cat >blas.h <<'END'
enum { row_major = 101, no_transpose = 111, transpose = 112 };
void cblas_sgemm(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
void cblas_sgemv(int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
float cblas_sdot(int, const float*, int, const float*, int);
int openblas_get_parallel(void);
END
cat >products.c <<'END'
#include <pthread.h>
#include <stdio.h>
#include "blas.h"

enum { n = 128, num_threads = 4 };
static int num_wrong;

// Products of (n, n) matrices, each of one number. All elements of a product are equal.
static void* multiply(void* number) {
    static __thread float a[n * n], b[n * n], c[n * n];
    const float value = *(const float*)number;
    for (int i = 0; i < n * n; ++i) a[i] = value, b[i] = 1;
    for (int round = 0; round < 10000; ++round) {
        cblas_sgemm(row_major, no_transpose, transpose, n, n, n, 1, a, n, b, n, 0, c, n);
        for (int i = 0; i < n * n; ++i)
            if (c[i] != n * value) {
                __atomic_add_fetch(&num_wrong, 1, __ATOMIC_RELAXED);
                break;
            }
    }
    return NULL;
}

int main(void) {
    pthread_t threads[num_threads];
    float values[num_threads];
    for (int i = 0; i < num_threads; ++i) {
        values[i] = (float)(i + 1);
        pthread_create(&threads[i], NULL, multiply, &values[i]);
    }
    for (int i = 0; i < num_threads; ++i) pthread_join(threads[i], NULL);
    fprintf(stderr, "  (wrong: %d of %d products)\n", num_wrong, num_threads * 10000);
    printf("openblas_get_parallel() %d, products of four threads: %s\n", openblas_get_parallel(),
           num_wrong ? "some are wrong" : "all are right");
}
END
cat >locks.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include "blas.h"

static int num_locks;

int pthread_mutex_lock(pthread_mutex_t* mutex) {
    static int (*original)(pthread_mutex_t*);
    if (!original) original = (int (*)(pthread_mutex_t*))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    __atomic_add_fetch(&num_locks, 1, __ATOMIC_RELAXED);
    return original(mutex);
}

static float a[64 * 64], b[64 * 64], c[64 * 64];

static void sgemm(void) {
    cblas_sgemm(row_major, no_transpose, transpose, 8, 16, 64, 1, a, 64, b, 64, 0, c, 16);
}
static void sgemv(void) { cblas_sgemv(row_major, no_transpose, 64, 64, 1, a, 64, b, 1, 0, c, 1); }
static void sdot(void) { c[0] = cblas_sdot(64, a, 1, b, 1); }

static void count(const char* name, void (*call)(void)) {
    call();
    num_locks = 0;
    for (int i = 0; i < 100; ++i) call();
    printf(" %s %d", name, num_locks);
}

int main(void) {
    printf("locks of 100 calls:");
    count("sgemm", sgemm);
    count("sgemv", sgemv);
    count("sdot", sdot);
    printf("\n");
}
END
export OPENBLAS_NUM_THREADS=1
for build in pthread serial; do
    folder=usr/lib/x86_64-linux-gnu/openblas-$build
    for program in products locks; do
        gcc -O1 -rdynamic $program.c -L "$folder" -l:libopenblas.so.0 -o $program
        printf '%s: %s\n' $build "$(LD_LIBRARY_PATH=$folder ./$program)"
    done
done | tee results
diff results - <<'END'
pthread: openblas_get_parallel() 1, products of four threads: all are right
pthread: locks of 100 calls: sgemm 300 sgemv 0 sdot 0
serial: openblas_get_parallel() 0, products of four threads: some are wrong
serial: locks of 100 calls: sgemm 0 sgemv 0 sdot 0
END
