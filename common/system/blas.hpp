// Workarounds for faults of OpenBLAS. With other BLAS libraries, these functions do nothing.
#pragma once

namespace llm {

// OpenBLAS before 0.3.25 detects several of Intel's processors of 2022 and later (13th and 14th
// generation, Emerald Rapids) as a Pentium 4, so that products of large matrices take 3 to 8
// times as long (findings/openblas_newer_intel.sh). It selects its kernels when it is loaded.
// So this function sets the environment variable OPENBLAS_CORETYPE, unless it is set, and
// restarts the program. Call it first in main.
void select_blas_kernels(char** argv);

// Throws std::runtime_error if OpenBLAS is its serial build, which is not thread-safe: threads
// share work buffers without a lock (seen in 0.3.21). parallel_for calls this before it starts
// threads.
void require_thread_safe_blas();

}  // namespace llm
