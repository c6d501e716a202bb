// Chapter 15, file 10 of 10: FLOPs and bytes of a forward pass, and the peak and the memory
// bandwidth of the machine.
#pragma once

#include <cstdint>
#include <vector>

#include "chapters/09_full_model/model.hpp"
#include "common/tensors/dtype.hpp"

namespace llm {

// FLOPs of a prefill of T tokens that computes the logits of all of them, or of the last one.
std::uint64_t prefill_flops(const Config& config, std::size_t seq_len,  // T
                            LogitsToKeep logits_to_keep = LogitsToKeep::all);

// Bytes of the keys and values of num_tokens tokens, which a decode step reads from the cache.
std::uint64_t kv_cache_bytes(const Config& config, std::size_t num_tokens,
                             DType cache_dtype = DType::float32);

// The roofline of this machine: its peak in GFLOP/s (10^9 floating-point operations per second)
// and its memory bandwidth in GB/s. Source: "Roofline" (Williams et al., 2009).
struct Roofline {
    double peak_one_core = 0;  // a BLAS product of two 1024 x 1024 matrices
    double peak = 0;           // the same on all cores
    double bandwidth = 0;      // reading 134 MB on all cores
};
Roofline measure_roofline();  // takes about a second

// The kernels that measure_roofline times.
class RooflineBenchmark {
 public:
    RooflineBenchmark();
    void multiply_on_one_core();
    void multiply_on_all_cores();  // a block of rows per thread, with parallel_for
    void multiply_with_blas_threads();
    void read_memory();

    // The results, which the tests check.
    const Matrix& product() const { return result_; }            // of matrices of ones
    const std::vector<Real>& maxima() const { return maxima_; }  // of each chunk of memory: 1

    static constexpr std::size_t size = 1024;  // of the matrices
    static constexpr double flops = 2.0 * size * size * size;
    static constexpr std::size_t num_chunks = 256, chunk_size = 1 << 17;  // of the memory
    static constexpr double bytes = 1.0 * num_chunks * chunk_size * sizeof(Real);

 private:
    void multiply(std::size_t first_row, std::size_t count);

    Matrix factor_, result_;
    AlignedVector<Real> memory_;
    std::vector<Real> maxima_;
};

}  // namespace llm
