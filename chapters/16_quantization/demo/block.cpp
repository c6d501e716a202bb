#include "chapters/16_quantization/demo/block.hpp"

#include <bit>

#include "chapters/16_quantization/block_types.hpp"
#include "chapters/16_quantization/fake_quantize.hpp"
#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/16_quantization/quantizers.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// The stored block of these weights.
template <class Block>
Block to_block(DType dtype, std::span<const Real> weights) {
    std::array<std::byte, sizeof(Block)> bytes;
    quantize_row(dtype, weights, bytes);
    return std::bit_cast<Block>(bytes);
}

// Weights that are stored in a dtype and converted back.
Matrix restored(const Matrix& weights, DType dtype) {
    return dequantize(quantize(weights, quantization_kernels(dtype)));
}

Vector first_eight(std::span<const Real> values) {
    Vector result = xt::zeros<Real>({8});
    std::copy_n(values.begin(), 8, result.begin());
    return result;
}

std::string percent(double fraction) { return fixed(100 * fraction, 2); }

// The largest error of weights between -0.2 and 0.2, in 80 bins.
Line error_line(DType dtype, const Matrix& weights) {
    const Matrix error = restored(weights, dtype) - weights;
    Line line{std::string(to_text(dtype)), {}, std::vector<double>(80)};
    for (std::size_t bin = 0; bin < 80; ++bin) line.x.push_back((double(bin) - 39.5) / 200);
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const auto bin = static_cast<std::size_t>((weights.data()[i] + Real(0.2)) * 200);
        double& largest = line.y[std::min(bin, std::size_t{79})];
        largest = std::max(largest, 1000 * std::abs(double(error.data()[i])));
    }
    return line;
}

}  // namespace

double bits_per_weight(DType dtype) {
    return 8 * double(bytes_per_block(dtype)) / double(block_size(dtype));
}

void eight_weights(const Matrix& weights) {
    step("A block of 32 weights, of which eight are shown");
    const std::span<const Real> block = view_of(weights)[0].first(32);
    show("weights", first_eight(block));

    const auto q8_0 = to_block<BlockQ8_0>(DType::q8_0, block);
    Vector integers = xt::zeros<Real>({8});
    std::copy_n(q8_0.values.begin(), 8, integers.begin());
    show("q8_0_integers", integers);
    show("scale of q8_0", fixed(double(q8_0.scale), 6));
    const Matrix one_block = xt::view(weights, xt::range(0, 1), xt::range(0, 32));
    show("as_q8_0", first_eight(view_of(restored(one_block, DType::q8_0))[0]));

    const auto q4_0 = to_block<BlockQ4_0>(DType::q4_0, block);
    for (std::size_t i = 0; i < 8; ++i) integers(i) = Real((q4_0.values[i] & 15) - 8);
    show("q4_0_integers", integers);
    show("scale of q4_0", fixed(double(q4_0.scale), 6));
    show("as_q4_0", first_eight(view_of(restored(one_block, DType::q4_0))[0]));
}

void scales_of_blocks(const Matrix& weights) {
    step("How many weights share a scale?");
    Matrix with_outliers = weights;
    for (std::size_t row = 0; row < weights.shape(0); ++row)
        with_outliers(row, 7 * row % 512) *= 20;
    show_shape("weights of a matrix", weights);
    std::vector<TableRow> rows;
    for (const std::size_t block_size : {512u, 256u, 128u, 64u, 32u, 16u})
        rows.push_back(
            {to_text(block_size), fixed(4 + 16.0 / double(block_size), 2),
             percent(relative_error(fake_quantize(weights, block_size, 4), weights)),
             percent(
                 relative_error(fake_quantize(with_outliers, block_size, 4), with_outliers)),
             percent(relative_error(fake_quantize(weights, block_size, 8), weights))});
    show_table(
        {"weights per scale", "bits per weight", "% error", "with outliers", "of 8 bits"},
        rows);
}

void k_quant_block(const Matrix& weights) {
    step("A K-quant: 256 weights in eight groups");
    const std::span<const Real> row = view_of(weights)[0].first(256);
    const auto block = to_block<BlockQ4_K>(DType::q4_k, row);
    show("scale", fixed(double(block.scale), 6));
    show("min_scale", fixed(double(block.min_scale), 6));
    std::vector<TableRow> rows;
    for (std::size_t group = 0; group < 8; ++group) {
        const std::span<const Real> values = row.subspan(32 * group, 32);
        const auto [scale, min] = unpack_scale_and_min(block.scales_and_mins, group);
        const double step_size = double(block.scale) * scale;
        const double lowest = -double(block.min_scale) * min;
        rows.push_back(
            {to_text(group), fixed(*std::min_element(values.begin(), values.end()), 4),
             fixed(*std::max_element(values.begin(), values.end()), 4), to_text(scale),
             to_text(min), fixed(lowest, 4), fixed(lowest + 15 * step_size, 4)});
    }
    show_table({"group", "smallest weight", "largest", "scale", "min", "lowest level",
                "highest level"},
               rows);
}

void errors_of_dtypes(const Matrix& weights, Generator& generator) {
    step("The error of each type");
    const Matrix random = randn({256, 256}, generator);
    const Matrix even = uniform({256, 256}, Real(-0.2), Real(0.2), generator);
    std::vector<TableRow> rows;
    for (const DType dtype : all_dtypes)
        rows.push_back({std::string(to_text(dtype)), to_text(block_size(dtype)),
                        to_text(bytes_per_block(dtype)), fixed(bits_per_weight(dtype), 2),
                        fixed(100 * relative_error(restored(weights, dtype), weights), 4),
                        fixed(100 * relative_error(restored(random, dtype), random), 4)});
    show_table(
        {"dtype", "weights per block", "bytes", "bits per weight", "% error", "normal weights"},
        rows);
    plot("errors",
         {LinePlot{"Quantization error",
                   "weight",
                   "maximum absolute error × 1000",
                   {error_line(DType::q8_0, even), error_line(DType::bfloat16, even)}}});
}

void integer_dot_product(const Matrix& weights, const Vector& activation) {
    step("A dot product of integers");
    const std::span<const Real> row = view_of(weights)[0];
    const std::span<const Real> inputs{activation.data(), activation.size()};
    std::vector<TableRow> rows;
    double total = 0, expected = 0;
    for (std::size_t begin = 0; begin < row.size(); begin += 32) {
        const auto w = to_block<BlockQ8_0>(DType::q8_0, row.subspan(begin, 32));
        const auto x = to_block<BlockQ8_0>(DType::q8_0, inputs.subspan(begin, 32));
        int sum = 0;
        for (std::size_t i = 0; i < 32; ++i) sum += w.values[i] * x.values[i];
        const double product = double(w.scale) * double(x.scale) * sum;
        rows.push_back({to_text(begin / 32), to_text(sum), fixed(double(w.scale), 6),
                        fixed(double(x.scale), 6), fixed(product, 4)});
        total += product;
        for (std::size_t i = begin; i < begin + 32; ++i) expected += double(row[i]) * inputs[i];
    }
    show_table({"block", "sum of products", "scale of weights", "scale of inputs", "product"},
               rows);
    show("sum over the blocks", fixed(total, 4));
    show("dot product in floating point", fixed(expected, 4));
}

}  // namespace llm
