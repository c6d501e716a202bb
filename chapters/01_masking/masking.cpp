#include "chapters/01_masking/masking.hpp"

#include <algorithm>
#include <cmath>

#include "common/tensors/elementwise.hpp"

namespace llm {

IdMatrix position_ids(std::size_t batch_size, std::size_t seq_len) {
    const IdVector one_row = xt::arange<Id>(static_cast<Id>(seq_len));  // (T)
    return xt::repeat(reshape(one_row, {1, seq_len}), batch_size, 0);   // (B, T)
}

// The function attention in 05_gqa/attention.cpp adds the masks to the scores.
Matrix causal_mask(std::size_t query_len, std::size_t kv_len) {
    require(query_len <= kv_len, "causal_mask: {} queries cannot be the last of {} positions",
            query_len, kv_len);

    // Query t has position past_len + t, so key past_len + t + 1 is the first in its future.
    const std::size_t past_len = kv_len - query_len;
    const Matrix all_masked = xt::ones<Real>({query_len, kv_len}) * -infinity;  // (T, S)
    return xt::triu(all_masked, static_cast<int>(past_len + 1));                // (T, S)
}

Tensor4 expand_mask(const Matrix& mask, std::size_t batch_size) {
    const auto [query_len, kv_len] = dims(mask);
    const Tensor4 one_sequence = reshape(mask, {1, 1, query_len, kv_len});
    return xt::repeat(one_sequence, batch_size, 0);  // (B, 1, T, S)
}

Tensor4 mask_padding(const Tensor4& mask, const IdMatrix& padding_mask) {
    const auto [batch_size, num_heads, query_len, kv_len] = dims(mask);
    require(padding_mask.shape() == std::array{batch_size, kv_len},
            "mask_padding: the padding mask has shape {}, the mask has shape {}",
            padding_mask.shape(), mask.shape());

    // No query attends to padding: mask its whole column.
    Tensor4 result = mask;  // (B, 1, T, S)
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t s = 0; s < kv_len; ++s)
            if (padding_mask(b, s) == 0)
                xt::view(result, b, xt::all(), xt::all(), s) = -infinity;
    return result;
}

IdMatrix position_ids(const IdMatrix& padding_mask) {
    const auto [batch_size, kv_len] = dims(padding_mask);
    IdMatrix positions = xt::ones<Id>({batch_size, kv_len});  // (B, S)

    // Count tokens only, so that padding on the left does not shift the positions.
    for (std::size_t b = 0; b < batch_size; ++b) {
        Id next = 0;
        for (std::size_t s = 0; s < kv_len; ++s)
            if (padding_mask(b, s) != 0) positions(b, s) = next++;
    }
    return positions;
}

Matrix softmax(const Matrix& scores) {
    // Subtract each row's maximum, which leaves the quotient unchanged: exp(1000) overflows,
    // exp(1000 - 1000) does not. (For a row of -inf, row_max returns the lowest finite value,
    // so the row stays -inf. PyTorch subtracts -inf there, and -inf - (-inf) is NaN.)
    const Matrix maxima = row_max(scores);                         // (N, 1)
    const Matrix exponentials = elementwise_exp(scores - maxima);  // (N, S)

    // Divide by the row's sum. If the row is fully masked, the sum is 0: divide by 1 instead.
    const Matrix sums = row_sum(exponentials);  // (N, 1)
    const Matrix divisors = xt::where(xt::equal(sums, Real(0)), Real(1), sums);
    return exponentials / divisors;  // (N, S)
}

Tensor4 softmax(const Tensor4& scores) {
    const auto [batch_size, num_heads, query_len, kv_len] = dims(scores);
    const Matrix rows = reshape(scores, {batch_size * num_heads * query_len, kv_len});
    return reshape(softmax(rows), {batch_size, num_heads, query_len, kv_len});
}

double log_sum_exp(std::span<const Real> scores) {
    const Real maximum = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const Real score : scores) sum += std::exp(double(score - maximum));
    return double(maximum) + std::log(sum);
}

}  // namespace llm
