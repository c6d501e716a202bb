// Chapter 05, steps of the program: a wrong einsum, QK norm before and after RoPE, dropout.
#pragma once

#include "chapters/05_gqa/attention.hpp"

namespace llm {

void einsum_that_sums_over_the_group(const QueriesKeysValues& heads);
void norm_of_queries_and_keys(const QueriesKeysValues& heads, Real eps);
void order_of_norm_and_rope(const Tensor4& states,  // (B, Hkv, T, D), any states
                            const AttentionInputs& inputs, Real eps, Generator& generator);
void dropout_of_weights(Generator& generator);

}  // namespace llm
