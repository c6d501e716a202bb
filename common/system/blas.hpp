// What OpenBLAS needs to know or must be asked. With other BLAS libraries these functions do
// nothing.
#pragma once

namespace llm {

// OpenBLAS before 0.3.25 takes several of Intel's processors of 2022 and later (13th and 14th
// generation, Emerald Rapids) for a Pentium 4 of 2004, so that large products take 3 to 8 times
// as long (findings/openblas_newer_intel.sh). It chooses its kernels when it is loaded; so
// this function sets OPENBLAS_CORETYPE, unless it is set, and executes the program again. Call
// it before the program does anything else.
void choose_blas_kernels(char** argv);

// Throws std::runtime_error if OpenBLAS is its serial build, which is not thread-safe: threads
// share work buffers without a lock (seen in 0.3.21). parallel_for calls this before it starts
// threads.
void require_thread_safe_blas();

}  // namespace llm
