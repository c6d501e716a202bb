#include "chapters/15_fast/roofline.hpp"

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/15_fast/kernels/simd.hpp"
#include "common/system/parallel.hpp"
#include "common/system/timer.hpp"
#include "common/tensors/dtype.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

std::uint64_t prefill_flops(const Config& config, std::size_t seq_len,
                            LogitsToKeep logits_to_keep) {
    std::uint64_t flops = 0;
    for (std::size_t t = 0; t < seq_len; ++t) flops += flops_per_token(config, t);
    if (logits_to_keep == LogitsToKeep::last && seq_len > 0)
        flops -= (seq_len - 1) * 2 * std::uint64_t{config.vocab_size} * config.hidden_size;
    return flops;
}

std::uint64_t kv_cache_bytes(const Config& given, std::size_t num_tokens, DType cache_dtype) {
    const Config config = validate_model(given);
    return num_tokens * kv_cache_bytes_per_token(config.num_hidden_layers,
                                                 config.num_key_value_heads, config.head_dim,
                                                 bytes_per_block(cache_dtype));
}

RooflineBenchmark::RooflineBenchmark()
    : factor_(xt::ones<Real>({size, size})),
      result_(xt::zeros<Real>({size, size})),
      memory_(num_chunks * chunk_size, 1),
      maxima_(num_chunks) {}

void RooflineBenchmark::multiply(std::size_t first_row, std::size_t count) {
    matmul_transposed(view_of(factor_).rows(first_row, count), view_of(factor_),
                      view_of(result_).rows(first_row, count));
}

// A loop of two iterations, one of them empty: within parallel_for, BLAS uses one thread.
void RooflineBenchmark::multiply_on_one_core() {
    parallel_for(2, [&](std::size_t i) {
        if (i == 0) multiply(0, size);
    });
}

void RooflineBenchmark::multiply_on_all_cores() {
    parallel_for(num_threads(), [&](std::size_t i) {
        const std::size_t begin = i * size / num_threads();
        multiply(begin, (i + 1) * size / num_threads() - begin);
    });
}

void RooflineBenchmark::multiply_with_blas_threads() { multiply(0, size); }

// Reads 134 MB, which is more than the size of the caches.
void RooflineBenchmark::read_memory() {
    parallel_for(num_chunks, [&](std::size_t chunk) {
        maxima_[chunk] = amax({&memory_[chunk * chunk_size], chunk_size});
    });
}

Roofline measure_roofline() {
    RooflineBenchmark benchmark;
    const double one_core = fastest_seconds(4, [&] { benchmark.multiply_on_one_core(); });
    const double all_cores =
        std::min(fastest_seconds(6, [&] { benchmark.multiply_on_all_cores(); }),
                 fastest_seconds(6, [&] { benchmark.multiply_with_blas_threads(); }));
    const double reading = fastest_seconds(6, [&] { benchmark.read_memory(); });
    return {RooflineBenchmark::flops / one_core / 1e9,
            RooflineBenchmark::flops / all_cores / 1e9,
            RooflineBenchmark::bytes / reading / 1e9};
}

}  // namespace llm
