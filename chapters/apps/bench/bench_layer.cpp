#include <array>

#include "chapters/15_fast/flash_attention.hpp"
#include "chapters/15_fast/kernels/simd.hpp"
#include "chapters/apps/bench/bench_timing.hpp"
#include "common/system/parallel.hpp"

namespace llm::bench {
namespace {

constexpr std::size_t T = 512, C = 384, F = 1536, H = 6, D = 64;

// Splits the tokens into one block per thread.
std::function<void()> for_each_block(
    const std::function<void(std::size_t begin, std::size_t count)>& function) {
    return [function] {
        parallel_for(num_threads(), [&](std::size_t i) {
            const std::size_t begin = i * T / num_threads();
            function(begin, (i + 1) * T / num_threads() - begin);
        });
    };
}

template <class Function>
std::function<void()> for_each_token(const Function& function) {
    return for_each_block([function](std::size_t begin, std::size_t count) {
        for (std::size_t t = begin; t < begin + count; ++t) function(t);
    });
}

// The parts of a layer, computed as in the fast model.
struct Layer {
    Matrix hidden_states, outputs, qkv, context, gate_up_input, gate_up, scores;
    Matrix qkv_weight, head_weight, logits;
    RotaryTable table;
    Vector norm = xt::ones<Real>({C});

    explicit Layer(Generator& generator)
        : hidden_states(randn({T, C}, generator)),
          outputs(randn({T, 3 * C}, generator)),
          qkv(randn({T, 3 * C}, generator)),
          context(xt::zeros<Real>({T, C})),
          gate_up_input(randn({T, 2 * F}, generator)),
          gate_up(gate_up_input),
          scores(randn({T, T}, generator)),
          qkv_weight(randn({3 * C, C}, generator)),
          head_weight(uniform({32000, C}, -1, 1, generator)),
          logits(xt::zeros<Real>({T, std::size_t{32000}})),
          table(make_rotary_table(inverse_frequencies(D, 10000), T)) {}

    std::function<void()> linear(const Matrix& weight, Matrix& result) {
        return for_each_block([&](std::size_t begin, std::size_t count) {
            matmul_transposed(view_of(hidden_states).rows(begin, count), view_of(weight),
                              view_of(result).rows(begin, count));
        });
    }
    MatrixView queries(std::size_t head) { return view_of(qkv).columns(head * D, D); }
    MatrixView keys(std::size_t head) { return view_of(qkv).columns(C + head * D, D); }
    MatrixView values(std::size_t head) { return view_of(qkv).columns(2 * C + head * D, D); }
    void attention_of_tile(std::size_t i) {
        const std::size_t head = i % H, begin = T - (i / H + 1) * tile_size;
        flash_attention(queries(head).rows(begin, tile_size), keys(head), values(head), begin,
                        view_of(context).rows(begin, tile_size).columns(head * D, D));
    }
    // The matrix products of attention_of_tile, of the same sizes and on the same data, without
    // the softmax between them.
    void attention_products_of_tile(std::size_t i) {
        const std::size_t head = i % H, begin = T - (i / H + 1) * tile_size;
        const MatrixView tile_of_context =
            view_of(context).rows(begin, tile_size).columns(head * D, D);
        std::array<Real, tile_size * tile_size> memory;
        const MatrixView tile_of_scores{memory.data(), tile_size, tile_size, tile_size};
        for (std::size_t key = 0; key <= begin; key += tile_size) {
            matmul_transposed(queries(head).rows(begin, tile_size),
                              keys(head).rows(key, tile_size), tile_of_scores);
            matmul(tile_of_scores, values(head).rows(key, tile_size), tile_of_context,
                   key == 0 ? Update::overwrite : Update::accumulate);
        }
    }
    void rope_of_token(std::size_t t) {
        for (std::size_t begin = 0; begin < 2 * C; begin += D)
            apply_rotary_embedding(view_of(outputs)[t].subspan(begin, D),
                                   view_of(std::as_const(table.cos))[t],
                                   view_of(std::as_const(table.sin))[t]);
    }
    void swiglu_of_token(std::size_t t) {
        const std::span<Real> row = view_of(gate_up)[t];
        std::ranges::copy(view_of(gate_up_input)[t], row.begin());
        silu_and_mul(row.first(F), row.subspan(F));
    }

    std::vector<Benchmark> benchmarks() {
        const double features = double(T) * C, wide_features = double(T) * F;
        const double attention_flops = 4 * double(H * D) * double(T) * double(T + 1) / 2;
        return {{"linear: q, k, v", linear(qkv_weight, outputs), 2 * 3 * features * C},
                {"head", linear(head_weight, logits), 2 * features * 32000},
                {"attention",
                 [this] {
                     parallel_for(H * T / tile_size,
                                  [&](std::size_t i) { attention_of_tile(i); });
                 },
                 attention_flops},
                {"its products alone",
                 [this] {
                     parallel_for(H * T / tile_size,
                                  [&](std::size_t i) { attention_products_of_tile(i); });
                 },
                 attention_flops},
                {"softmax", for_each_token([this](std::size_t t) {
                     const std::span<Real> row = view_of(scores)[t];
                     exp_and_sum(row, 1, amax(row));
                 }),
                 0, 8 * double(T) * double(T)},
                {"RoPE", for_each_token([this](std::size_t t) { rope_of_token(t); }), 0,
                 8 * 2 * features},
                {"RMSNorm", for_each_token([this](std::size_t t) {
                     const std::span<Real> row = view_of(hidden_states)[t];
                     rms_norm(row, {norm.data(), C}, Real(1e-6), row);
                 }),
                 0, 8 * features},
                {"SwiGLU, with a copy",
                 for_each_token([this](std::size_t t) { swiglu_of_token(t); }), 0,
                 28 * wide_features}};
    }
};

}  // namespace

void benchmark_layer(Generator& generator, int repetitions) {
    step("Parts of a layer, at 512 tokens");
    Layer layer(generator);
    const std::vector<Benchmark> benchmarks = layer.benchmarks();
    BenchmarkResults results;
    run_benchmarks(benchmarks, repetitions, results);
    std::vector<TableRow> table;
    for (const Benchmark& row : benchmarks) table.push_back(result_row(row, results));
    show_table({"part", "ms", "speed", "% of roofline"}, table);
    say("attention: " +
        fixed(100 * results.seconds("its products alone") / results.seconds("attention"), 0) +
        " % of its time is that of its products");
    say("More than 100 % of the bandwidth: the data is in a cache.");
    show_roofline_of(results);
}

}  // namespace llm::bench
