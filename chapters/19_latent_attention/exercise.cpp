#include "chapters/19_latent_attention/exercise.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "common/system/exercise.hpp"
#include "common/tensors/matmul.hpp"

namespace exercise {

// Exercise 19.1 — predict: how many numbers does a layer cache of each token? Multi-head
// attention with 12 heads of 64 features; grouped-query attention with 12 query heads and 2
// key/value heads of 64; latent attention with 12 heads, R = 256, Dn = 64, Dr = 32, Dv = 64.
Vector predicted_cached_numbers() {
    TODO("predicted_cached_numbers");
    // return {?, ?, ?};
}

// Exercise 19.2 — predict: the number of parameters of q_proj, kv_a_proj_with_mqa, kv_b_proj
// and o_proj of a latent attention with C = 100, H = 10, R = 20, Dn = 8, Dr = 4 and Dv = 6,
// without low-rank queries.
Vector predicted_parameters() {
    TODO("predicted_parameters");
    // return {?, ?, ?, ?};
}

// Exercise 19.3 — find the bug. A DeepSeek-V2 gives the logits of its reference if rope_scaling
// is deleted from both configurations. With it (YaRN, factor 40, mscale_all_dim 0.707), every
// attention is a little too even, and perplexity is higher, from the first tokens on.
Real score_scale(std::size_t qk_nope_head_dim, std::size_t qk_rope_head_dim, Real factor,
                 Real mscale_all_dim) {
    const Real head_dim = static_cast<Real>(qk_nope_head_dim + qk_rope_head_dim);
    return yarn_mscale(factor, mscale_all_dim) / std::sqrt(head_dim);
}

// Exercise 19.4 — write absorbed_decode from an empty function. Row h · (Dn + Dv) of kv_b_proj
// is the first of head h: Dn rows of W_UK, then Dv rows of W_UV. The token may attend to all S
// entries, its own included. Use attention.scale and softmax() of chapter 01.
Matrix absorbed_decode([[maybe_unused]] const LatentAttention& attention,
                       [[maybe_unused]] const Matrix& queries,
                       [[maybe_unused]] const Matrix& entries) {
    TODO("absorbed_decode");
}

// Exercise 19.5 — predict: one head with R = 64, Dn = Dv = 32 and Dr = 16, and 64 entries in
// all, those of the new tokens included. From how many new tokens on does expanding need at
// most as many FLOPs as absorbing?
std::size_t predicted_crossover() {
    TODO("predicted_crossover");
    // return ?;
}

// Exercise 19.6 — write fold_values. Column h · R + r of the result belongs to feature r of the
// latent vector of head h.
Linear fold_values([[maybe_unused]] const LatentAttention& attention) { TODO("fold_values"); }

}  // namespace exercise
