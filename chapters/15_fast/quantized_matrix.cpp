#include "chapters/15_fast/quantized_matrix.hpp"

#include <bit>
#include <cmath>

#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"
#include "common/system/parallel.hpp"

namespace llm {
namespace {

std::size_t divided_up(std::size_t number, std::size_t by) { return (number + by - 1) / by; }

// Appends a row of whole numbers from -127 to 127 and a scale for each 64 of them.
void pack_int8(std::span<const Real> row, PackedMatrix& packed) {
    for (std::size_t begin = 0; begin < row.size(); begin += group_size) {
        const auto group = row.subspan(begin, std::min(group_size, row.size() - begin));

        // The largest becomes ±127. A group of zeros has a scale of 0, too.
        Real size = 0;
        for (const Real weight : group) size = std::max(size, std::abs(weight));
        const Real scale = size / 127;
        packed.scales.push_back(scale);
        for (const Real weight : group) {
            const Real number = scale == 0 ? 0 : std::round(weight / scale);
            packed.bytes.push_back(
                static_cast<std::int8_t>(std::clamp(number, Real(-127), Real(127))));
        }
    }
}

}  // namespace

std::string name_of(Weights kind) {
    return kind == Weights::float32    ? "float32"
           : kind == Weights::bfloat16 ? "bfloat16"
                                       : "int8";
}

Int8Row PackedMatrix::int8_row(std::size_t row) const {
    const std::size_t groups = divided_up(in_features, group_size);
    return {{bytes.data() + row * in_features, in_features},
            {scales.data() + row * groups, groups}};
}

Real PackedMatrix::dot_row(std::size_t row, std::span<const Real> inputs) const {
    const std::size_t first = row * in_features;
    switch (kind) {
        case Weights::float32:
            return dot(std::span(floats.data() + first, in_features), inputs);
        case Weights::bfloat16:
            return dot(std::span(bfloats.data() + first, in_features), inputs);
        case Weights::int8:
            break;
    }
    return dot(int8_row(row), inputs);
}

void PackedMatrix::unpack_row(std::size_t row, std::span<Real> weights) const {
    const std::size_t first = row * in_features;
    switch (kind) {
        case Weights::float32:
            std::copy_n(floats.data() + first, in_features, weights.data());
            break;
        case Weights::bfloat16:
            unpack(std::span(bfloats.data() + first, in_features), weights);
            break;
        case Weights::int8:
            unpack(int8_row(row), weights);
            break;
    }
}

std::size_t PackedMatrix::memory() const {
    return floats.size() * sizeof(Real) + bfloats.size() * sizeof(Bfloat16) + bytes.size() +
           scales.size() * sizeof(Real);
}

PackedMatrix pack(const Matrix& weights, Weights kind) {
    PackedMatrix packed{kind, weights.shape(0), weights.shape(1), {}, {}, {}, {}};
    for (const Real weight : weights)
        require(std::isfinite(kind == Weights::bfloat16 ? to_bfloat16(weight) : weight),
                "pack: a matrix of {} holds inf or NaN", weights.shape());
    if (kind == Weights::float32) packed.floats.assign(weights.begin(), weights.end());
    if (kind == Weights::bfloat16) {
        packed.bfloats.reserve(weights.size());
        for (const Real weight : weights) {
            const auto bits = std::bit_cast<std::uint32_t>(to_bfloat16(weight));
            packed.bfloats.push_back({static_cast<std::uint16_t>(bits >> 16)});
        }
    }
    if (kind == Weights::int8)
        for (std::size_t row = 0; row < packed.out_features; ++row)
            pack_int8(rows_of(weights)[row], packed);
    return packed;
}

Matrix unpack(const PackedMatrix& weights) {
    Matrix result = xt::zeros<Real>({weights.out_features, weights.in_features});
    for (std::size_t row = 0; row < weights.out_features; ++row)
        weights.unpack_row(row, rows_of(result)[row]);
    return result;
}

void project_token(const PackedMatrix& weights, std::span<const Real> inputs,
                   std::span<Real> outputs, Old old) {
    require(inputs.size() == weights.in_features && outputs.size() == weights.out_features,
            "project: weights of ({}, {}) do not map {} numbers to {}", weights.out_features,
            weights.in_features, inputs.size(), outputs.size());
    const std::size_t num_parts = 4 * num_cores();  // a core that is disturbed takes fewer
    const std::size_t part_size = divided_up(outputs.size(), num_parts);
    in_parallel(num_parts, [&](std::size_t part) {
        const std::size_t end = std::min((part + 1) * part_size, outputs.size());
        for (std::size_t row = part * part_size; row < end; ++row) {
            const Real product = weights.dot_row(row, inputs);
            outputs[row] = old == Old::keep ? outputs[row] + product : product;
        }
    });
}

void project_tokens(const PackedMatrix& weights, ConstRows inputs, Rows outputs,
                    std::vector<Real>& scratch, Old old) {
    const std::size_t width = weights.in_features;
    require(inputs.width == width && outputs.width == weights.out_features &&
                outputs.count == inputs.count,
            "project: weights of ({}, {}) do not map ({}, {}) to ({}, {})",
            weights.out_features, width, inputs.count, inputs.width, outputs.count,
            outputs.width);
    if (weights.kind == Weights::float32) {
        multiply_rows(inputs, {weights.floats.data(), weights.out_features, width, width},
                      outputs, old);
        return;
    }
    constexpr std::size_t rows_at_once = 64;
    scratch.resize(rows_at_once * width);
    for (std::size_t begin = 0; begin < weights.out_features; begin += rows_at_once) {
        const std::size_t count = std::min(rows_at_once, weights.out_features - begin);
        const Rows unpacked{scratch.data(), count, width, width};
        for (std::size_t i = 0; i < count; ++i) weights.unpack_row(begin + i, unpacked[i]);
        multiply_rows(inputs, unpacked, outputs.columns(begin, count), old);
    }
}

}  // namespace llm
