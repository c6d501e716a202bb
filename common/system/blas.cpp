#include "common/system/blas.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include <unistd.h>

#include "common/system/processor.hpp"

// Defined by OpenBLAS, not by other BLAS libraries.
extern "C" char* openblas_get_corename() __attribute__((weak));
extern "C" int openblas_get_parallel() __attribute__((weak));  // 0: the serial build

namespace llm {

#ifdef __x86_64__

void select_blas_kernels(char** argv) {
    if (!openblas_get_corename || std::getenv("OPENBLAS_CORETYPE")) return;
    if (std::string_view(openblas_get_corename()) != "Prescott") return;  // the Pentium 4
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
    setenv("OPENBLAS_CORETYPE", has_avx512() ? "SkylakeX" : "Haswell", 1);
    execv("/proc/self/exe", argv);  // returns only if it fails
}

#else

void select_blas_kernels(char**) {}

#endif

void require_thread_safe_blas() {
    if (openblas_get_parallel && openblas_get_parallel() == 0)
        throw std::runtime_error(
            "this OpenBLAS is the serial build, which is not thread-safe: products that two "
            "threads compute at the same time are wrong; install the build with threads (in "
            "Debian: apt-get install libopenblas-pthread-dev)");
}

}  // namespace llm
