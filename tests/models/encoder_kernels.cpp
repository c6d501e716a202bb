// Kernels of the fast encoder: norms, activations and products of packed weights.
#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"
#include "chapters/models/encoders/kernels/encoder_loops.hpp"
#include "chapters/models/encoders/kernels/packed_products.hpp"
#include "tests/support/fast_helpers.hpp"

using namespace llm;
using namespace llm::models;

TEST_CASE("activate_row: GELU within 1e-6 of chapter 06's, also at the ends") {
    std::vector<Real> x;
    for (int i = -4000; i <= 4000; ++i) x.push_back(Real(i) / 300);
    for (const Real large : {30, 100, 1000}) {
        x.push_back(large);
        x.push_back(-large);
    }
    for (const auto& [activation, tolerance] :
         {std::pair{GELU, 1e-6}, {GELUTanh, 1e-6}, {SiLU, 1e-6}, {ReLU, 0.0}, {Sigmoid, 0.0}}) {
        std::vector<Real> values = x;
        activate_row(activation, values);
        for (std::size_t i = 0; i < x.size(); ++i) {
            CAPTURE(i);
            CAPTURE(x[i]);
            const double scale = std::max(1.0, std::abs(double(x[i])) / 4);
            CHECK(std::abs(values[i] - activation.function(x[i])) <= tolerance * scale);
        }
    }
    std::vector<Real> special = {infinity, not_a_number};
    activate_row(GELU, special);
    CHECK(special[0] == infinity);
    CHECK(std::isnan(special[1]));
}

TEST_CASE("activate_row and multiply_row: rows of any length, and nothing beyond them") {
    Generator generator(3);
    for (std::size_t size = 0; size <= 70; ++size) {
        const std::vector<Real> x = random_values(size, generator),
                                y = random_values(size, generator);
        Guarded values(x, 77);
        activate_row(GELU, values.values());
        multiply_row(values.values(), y);
        for (std::size_t i = 0; i < size; ++i)
            CHECK(std::abs(values.values()[i] - gelu(x[i]) * y[i]) <= 4e-6);
        CHECK(values.intact());
    }
}

TEST_CASE("layer_norm is chapter 07's, with and without a bias, in place, for all sizes") {
    Generator generator(4);
    for (std::size_t size = 1; size <= 70; ++size)
        for (const bool has_bias : {false, true}) {
            Matrix row = randn({std::size_t{1}, size}, generator);
            row += Real(3);
            const std::vector<Real> weight = random_values(size, generator),
                                    bias = random_values(has_bias ? size : 0, generator);
            LayerNorm norm = make_layer_norm(size, Real(1e-3));
            std::ranges::copy(weight, norm.weight.begin());
            norm.bias = std::nullopt;
            if (has_bias) norm.bias = Vector(std::array{size});
            std::ranges::copy(bias, norm.bias ? norm.bias->begin() : nullptr);
            Guarded values({row.begin(), row.end()}, 77);
            layer_norm(values.values(), weight, bias, norm.eps, values.values());
            CHECK_CLOSE(matrix_of({values.values().data(), 1, size, size}), norm(row), 1e-5);
            CHECK(values.intact());
        }
}

TEST_CASE("packed weights: products of any numbers of rows, tokens and features") {
    Generator generator(5);
    MatmulWorkspace workspace;
    for (const std::size_t out : {1u, 15u, 16u, 17u, 63u, 64u, 70u, 130u})
        for (const std::size_t num_tokens : {1u, 2u, 5u, 6u, 7u, 13u})
            for (const std::size_t in : {1u, 3u, 32u, 45u}) {
                const Matrix weight = randn({out, in}, generator),
                             inputs = randn({num_tokens, in}, generator);
                const WeightMatrix packed = repack(quantize(weight, packed_float32_kernels()));
                CHECK(identical(dequantize(packed), weight));
                const Matrix expected = exact_product(inputs, weight);
                Matrix outputs = xt::ones<Real>({num_tokens, out + 3}) * Real(77);
                const MatrixView part = view_of(outputs).columns(2, out);
                matmul_transposed(view_of(inputs), packed, part, workspace);
                CHECK_CLOSE(matrix_of(part), expected, 2e-5);
                matmul_by_rows(view_of(inputs), packed, part, workspace, Update::accumulate);
                CHECK_CLOSE(matrix_of(part), Matrix(expected * Real(2)), 4e-5);
                for (std::size_t t = 0; t < num_tokens; ++t)
                    for (const std::size_t column : {std::size_t{1}, out + 2})
                        CHECK(outputs(t, column) == 77);
            }
}
