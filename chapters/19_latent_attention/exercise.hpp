// Chapter 19, exercises. Write your answers into exercise.cpp; ./learn exercise 19 checks them.
#pragma once

#include "chapters/19_latent_attention/latent_attention.hpp"

namespace exercise {

using namespace llm;

Vector predicted_cached_numbers();  // (3)
Vector predicted_parameters();      // (4)

// What the scores of a latent attention are multiplied by if the file has YaRN with these
// settings.
Real score_scale(std::size_t qk_nope_head_dim, std::size_t qk_rope_head_dim,  // Dn, Dr
                 Real factor, Real mscale_all_dim);

// Attention of one new token, without expanding the cached entries: the contexts of all heads.
Matrix absorbed_decode(const LatentAttention& attention,
                       const Matrix& queries,   // (H, Dn + Dr), rotated
                       const Matrix& entries);  // (S, R + Dr) -> (H, Dv)

std::size_t predicted_crossover();

// o_proj and the W_UV of all heads in one matrix: applied to the weighted sums of latent
// vectors, which are concatenated, it gives the output of the layer.
Linear fold_values(const LatentAttention& attention);  // (C, H*R)

}  // namespace exercise
