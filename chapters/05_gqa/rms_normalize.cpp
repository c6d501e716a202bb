#include "chapters/05_gqa/rms_normalize.hpp"

#include <cmath>

#include "common/tensors/elementwise.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

Matrix rms_normalize(const Matrix& rows, Real eps) {
    const auto [num_rows, width] = dims(rows);
    Matrix normalized(rows.shape());  // (N, D)
    for (std::size_t n = 0; n < num_rows; ++n) {
        const Real sum_of_squares = dot_product(view_of(rows)[n], view_of(rows)[n]);

        // The root of the mean square. eps avoids 0 / 0 in a row of zeros.
        const Real rms = std::sqrt(sum_of_squares / static_cast<Real>(width) + eps);
        for (std::size_t d = 0; d < width; ++d) normalized(n, d) = rows(n, d) / rms;
    }
    return normalized;
}

Tensor4 rms_normalize(const Tensor4& states, Real eps) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(states);
    const Matrix rows = reshape(states, {batch_size * num_heads * seq_len, head_dim});
    return reshape(rms_normalize(rows, eps), {batch_size, num_heads, seq_len, head_dim});
}

}  // namespace llm
