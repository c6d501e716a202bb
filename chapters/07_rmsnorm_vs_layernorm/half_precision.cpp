#include "chapters/07_rmsnorm_vs_layernorm/half_precision.hpp"

#include <cmath>

#include "chapters/05_gqa/rms_normalize.hpp"

namespace llm {

HalfMatrix to_half(const Matrix& rows) { return rows; }

Matrix to_float(const HalfMatrix& rows) { return rows; }

HalfMatrix rms_norm_in_half(const HalfMatrix& rows, const HalfVector& weight, Real eps) {
    const auto [num_rows, width] = dims(rows);
    require(weight.size() == width, "norm: weights of {} do not match rows of {}",
            weight.shape(), rows.shape());
    HalfMatrix result = rows;  // (N, C)
    for (std::size_t row = 0; row < num_rows; ++row) {
        // Round each intermediate result to float16. The square of 256 is infinite.
        Half sum_of_squares(0);
        for (std::size_t c = 0; c < width; ++c) {
            const Half square = rows(row, c) * rows(row, c);
            sum_of_squares += square;
        }
        const Half mean_of_squares = sum_of_squares / Half(static_cast<float>(width));
        const Half with_eps = mean_of_squares + Half(eps);
        const Half rms = sqrt(with_eps);
        for (std::size_t c = 0; c < width; ++c) {
            const Half normalized = rows(row, c) / rms;
            result(row, c) = normalized * weight(c);
        }
    }
    return result;
}

HalfMatrix rms_norm_upcast(const HalfMatrix& rows, const HalfVector& weight, Real eps,
                           CastBack cast_back) {
    const auto [num_rows, width] = dims(rows);
    require(weight.size() == width, "norm: weights of {} do not match rows of {}",
            weight.shape(), rows.shape());
    const Matrix normalized = rms_normalize(to_float(rows), eps);  // (N, C), in float32
    HalfMatrix result = rows;                                      // (N, C)
    for (std::size_t row = 0; row < num_rows; ++row)
        for (std::size_t c = 0; c < width; ++c) {
            // Round before and after the multiplication by the weight, or only after it.
            const Real exact = normalized(row, c);
            const Half rounded(exact);
            result(row, c) = cast_back == CastBack::before_weight
                                 ? Half(rounded * weight(c))
                                 : Half(exact * static_cast<Real>(weight(c)));
        }
    return result;
}

}  // namespace llm
