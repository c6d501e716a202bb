// One head of one sequence, as a view for matrix products.
#pragma once

#include "common/tensors/matmul.hpp"

namespace llm {

// Head h of sequence b, (T, D), of states of (B, H, T, D), without a copy.
inline MatrixView head_view(Tensor4& states, std::size_t b, std::size_t h) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(states);
    return {states.data() + (b * num_heads + h) * seq_len * head_dim, seq_len, head_dim,
            head_dim};
}
inline ConstMatrixView head_view(const Tensor4& states, std::size_t b, std::size_t h) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(states);
    return {states.data() + (b * num_heads + h) * seq_len * head_dim, seq_len, head_dim,
            head_dim};
}

}  // namespace llm
