#include "chapters/15_fast/matmul.hpp"
#include "chapters/15_fast/roofline.hpp"
#include "tests/support/fast_helpers.hpp"

using namespace llm;

namespace {

struct Variant {
    std::string name;
    Matmul matmul;
};
const std::vector<Variant> variants = {{"loops over i, k, j", matmul_ikj},
                                       {"loops over i, j, k", matmul_ijk},
                                       {"xtensor expression", matmul_expression},
                                       {"SIMD", matmul_simd},
                                       {"BLAS", matmul_blas}};

}  // namespace

TEST_CASE("matmul variants: all five are inputs times the transposed weight, for all sizes") {
    Generator generator(1);
    for (const auto [N, in, out] : std::vector<std::array<std::size_t, 3>>{
             {1, 1, 1}, {3, 5, 7}, {2, 64, 1}, {5, 63, 2}, {1, 65, 9}, {7, 200, 130}}) {
        const Matrix inputs = randn({N, in}, generator), weight = randn({out, in}, generator);
        const Matrix expected = exact_product(inputs, weight);
        for (const Variant& variant : variants) {
            INFO(variant.name);
            CHECK_CLOSE(variant.matmul(inputs, weight), expected, 2e-6);
        }
    }
}

TEST_CASE("matmul variants report both shapes when they do not fit") {
    for (const Variant& variant : variants) {
        INFO(variant.name);
        CHECK_THROWS_WITH_AS(variant.matmul(counting({2, 3}), counting({4, 5})),
                             "matmul: inputs of (2, 3) do not fit a weight of (4, 5)",
                             ValueError);
        CHECK_THROWS_AS(variant.matmul(counting({2, 3}), counting({3, 2})), ValueError);
    }
}

TEST_CASE(
    "forward_with computes the model's logits, with each matmul variant and each kind of "
    "model") {
    const IdMatrix ids{{3, 130, 0, 5, 5, 17, 99}, {9, 1, 2, 3, 4, 4, 0}};
    for (const NamedModel& each : all_models()) {
        const Tensor3 expected = each.model(ids);
        for (const Variant& variant : variants) {
            INFO(each.name, ", ", variant.name);
            CHECK_CLOSE(forward_with(variant.matmul, each.model, ids), expected, 1e-5);
        }
    }
    CHECK_THROWS_WITH_AS(forward_with(matmul_blas, all_models()[0].model, IdMatrix{{131}}),
                         "model: there is no token 131 in a vocabulary of 131", ValueError);
}

TEST_CASE("forward_with computes each linear layer and the head with the given variant") {
    static int calls;
    calls = 0;
    const Matmul counted = [](const Matrix& inputs, const Matrix& weight) {
        ++calls;
        return matmul_blas(inputs, weight);
    };
    forward_with(counted, all_models()[0].model, IdMatrix{{1, 2}});
    CHECK(calls == 2 * 7 + 1);
}

TEST_CASE(
    "RooflineBenchmark does its work: it multiplies whole matrices and reads all of the "
    "memory") {
    const auto product_of = [](void (RooflineBenchmark::*multiply)()) {
        RooflineBenchmark benchmark;
        (benchmark.*multiply)();
        return Matrix(benchmark.product());
    };
    const Real size = RooflineBenchmark::size;
    const Matrix expected =
        xt::ones<Real>({RooflineBenchmark::size, RooflineBenchmark::size}) * size;
    CHECK_CLOSE(product_of(&RooflineBenchmark::multiply_on_one_core), expected, 0);
    CHECK_CLOSE(product_of(&RooflineBenchmark::multiply_on_all_cores), expected, 0);
    CHECK_CLOSE(product_of(&RooflineBenchmark::multiply_with_blas_threads), expected, 0);
    RooflineBenchmark benchmark;
    benchmark.read_memory();
    CHECK(benchmark.maxima() == std::vector<Real>(RooflineBenchmark::num_chunks, 1));
}

TEST_CASE("prefill_flops and kv_cache_bytes: Mini-LLM and 512 tokens, by hand") {
    // The matrices hold 16 * (4 * 384 * 384 + 3 * 384 * 1536) + 32000 * 384 = 50,036,736
    // weights, which cost two FLOPs each: 51,237,617,664 for 512 tokens. Token t attends to
    // t + 1 positions, together 512 * 513 / 2 = 131,328, with 4 * 16 * 384 FLOPs each:
    // 3,227,516,928.
    const Config config = validate_model(mini_llm_config());
    CHECK(prefill_flops(config, 512) == 54465134592u);
    CHECK(prefill_flops(config, 1) == 2 * 50036736 + 4 * 16 * 384);
    CHECK(prefill_flops(config, 0) == 0);
    CHECK(prefill_flops(config, 512, LogitsToKeep::last) == 41906798592u);
    CHECK(prefill_flops(config, 1, LogitsToKeep::last) == prefill_flops(config, 1));
    CHECK(prefill_flops(config, 0, LogitsToKeep::last) == 0);
    // A key and a value for each of 6 heads of 64 floats in 16 layers.
    CHECK(kv_cache_bytes(config, 512) == 512 * 2 * 6 * 64 * 16 * 4);
    CHECK(kv_cache_bytes(validate_model(odd_config()), 3) == 3 * 2 * 2 * 10 * 2 * 4);
    CHECK(kv_cache_bytes(config, 0) == 0);
}
