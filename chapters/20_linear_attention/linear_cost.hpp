// Chapter 20, file 8 of 8: what layers of linear attention keep and cost, beside softmax
// attention.
#pragma once

#include <cstdint>

#include "chapters/20_linear_attention/linear_attention.hpp"

namespace llm {

// The parameters of one layer of Gated DeltaNet, and those by which a token is multiplied: the
// others are A_log, dt_bias and the norm.
std::uint64_t linear_parameters(const LinearSizes& sizes);
std::uint64_t linear_multiplications(const LinearSizes& sizes);
// What a layer keeps of a sequence, whatever its length: states, and inputs of the convolution.
std::uint64_t state_numbers(const LinearSizes& sizes);

// FLOPs of T tokens in one head, without projections, gates and convolution; two per
// multiplication and addition. Softmax attention counts all T² pairs, as a mask does.
std::uint64_t softmax_flops(std::uint64_t seq_len, std::uint64_t head_dim);  // T, D
std::uint64_t recurrent_flops(std::uint64_t seq_len, std::uint64_t key_head_dim,
                              std::uint64_t value_head_dim);
std::uint64_t chunked_flops(std::uint64_t seq_len, std::uint64_t key_head_dim,
                            std::uint64_t value_head_dim, std::uint64_t chunk_size);

}  // namespace llm
