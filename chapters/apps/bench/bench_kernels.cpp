// ./learn bench: products of one matrix in the types of chapter 16, on one thread.
#include "chapters/16_quantization/kernels/integer_products.hpp"
#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/apps/bench/bench_timing.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::bench {
namespace {

constexpr std::size_t size = 1024;
constexpr std::array types = {DType::q8_0, DType::q6_k, DType::q5_0, DType::q4_k, DType::q4_0};
constexpr std::array counts = {1, 4, 16};

std::string name_of(DType dtype, std::size_t num_tokens) {
    return std::string(to_text(dtype)) + ", " + to_text(num_tokens);
}

// The product of some tokens, whose inputs have been quantized.
Benchmark product(const WeightMatrix& weights, std::size_t num_tokens, Generator& generator) {
    const Matrix inputs = randn({num_tokens, size}, generator);
    std::vector<std::byte> quantized(quantized_input_bytes(num_tokens, size));
    quantize_inputs(view_of(inputs), quantized);
    Matrix outputs = xt::zeros<Real>({num_tokens, size});
    return {name_of(weights.dtype(), num_tokens), [=]() mutable {
                matmul_quantized(weights.dtype(), weights.rows(0, size), size, quantized,
                                 view_of(outputs), Update::overwrite);
            }};
}

}  // namespace

void benchmark_integer_products(Generator& generator, int repetitions) {
    step("Products of integers: a matrix of 1024 x 1024, one thread, microseconds");
    say("Instructions: " + integer_instruction());
    const Matrix weights = randn({size, size}, generator);
    std::vector<Benchmark> benchmarks;
    for (const DType dtype : types) {
        const WeightKernels& kernels = quantization_kernels(dtype, Activations::quantized);
        const WeightMatrix interleaved = repack(quantize(weights, kernels));
        for (const std::size_t num_tokens : counts)
            benchmarks.push_back(product(interleaved, num_tokens, generator));
    }
    BenchmarkResults results;
    run_benchmarks(benchmarks, repetitions, results);
    std::vector<TableRow> rows;
    for (const DType dtype : types) {
        TableRow row{std::string(to_text(dtype))};
        for (const std::size_t num_tokens : counts)
            row.push_back(fixed(1e6 * results.seconds(name_of(dtype, num_tokens)), 1));
        rows.push_back(row);
    }
    show_table({"type", "1 token", "4 tokens", "16 tokens"}, rows);
}

}  // namespace llm::bench
