#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/19_latent_attention/exercise.hpp"
#include "common/tensors/matmul.hpp"

namespace exercise {

// Exercise 19.1 — 2 · 12 · 64; 2 · 2 · 64; 256 + 32: neither H nor the sizes of the heads are
// in the last one.
Vector predicted_cached_numbers() { return {1536, 256, 288}; }

// Exercise 19.2 — C · H (Dn + Dr); C (R + Dr); R · H (Dn + Dv); H Dv · C.
Vector predicted_parameters() { return {12000, 2400, 2800, 6000}; }

// Exercise 19.3 — queries and keys are both multiplied by YaRN's factor, so a score has its
// square. In chapter 17 that happens in the rotary table, but here most features are not
// rotated.
Real score_scale(std::size_t qk_nope_head_dim, std::size_t qk_rope_head_dim, Real factor,
                 Real mscale_all_dim) {
    const Real head_dim = static_cast<Real>(qk_nope_head_dim + qk_rope_head_dim);
    const Real mscale = yarn_mscale(factor, mscale_all_dim);
    return mscale * mscale / std::sqrt(head_dim);
}

// Exercise 19.4 — the query is multiplied by W_UK, and the weighted sum of latent vectors by
// W_UV, whatever S is.
Matrix absorbed_decode(const LatentAttention& attention, const Matrix& queries,
                       const Matrix& entries) {
    const std::size_t rank = attention.kv_lora_rank(), num_heads = queries.shape(0);
    const std::size_t Dn = attention.qk_nope_head_dim, Dv = attention.v_head_dim;
    const ConstMatrixView up = view_of(attention.kv_b_proj.weight);
    const ConstMatrixView latents = view_of(entries).columns(0, rank);  // (S, R)
    Matrix context(std::array{num_heads, Dv});
    for (std::size_t h = 0; h < num_heads; ++h) {
        Matrix query(std::array{std::size_t{1}, entries.shape(1)});  // (1, R + Dr)
        matmul(view_of(queries).rows(h, 1).columns(0, Dn), up.rows(h * (Dn + Dv), Dn),
               view_of(query).columns(0, rank));
        for (std::size_t i = 0; i < attention.qk_rope_head_dim; ++i)
            query(0, rank + i) = queries(h, Dn + i);

        const Matrix scores = matmul_transposed(query, entries) * attention.scale;  // (1, S)
        const Matrix weights = softmax(scores);
        Matrix sum(std::array{std::size_t{1}, rank});
        matmul(view_of(weights), latents, view_of(sum));
        matmul_transposed(view_of(sum), up.rows(h * (Dn + Dv) + Dn, Dv),
                          view_of(context).rows(h, 1));
    }
    return context;
}

// Exercise 19.5 — expanding takes 64 · 64 · 64 + T · 64 · 80 products, absorbing
// T · 64 · 64 + T · 64 · 144: 262,144 = 8192 T.
std::size_t predicted_crossover() { return 32; }

// Exercise 19.6 — the columns of o_proj that belong to head h, (C, Dv), times its W_UV, (Dv,
// R).
Linear fold_values(const LatentAttention& attention) {
    const std::size_t rank = attention.kv_lora_rank(),
                      num_heads = attention.num_attention_heads;
    const std::size_t Dn = attention.qk_nope_head_dim, Dv = attention.v_head_dim;
    Linear folded{Matrix(std::array{attention.o_proj.weight.shape(0), num_heads * rank}),
                  attention.o_proj.bias};
    for (std::size_t h = 0; h < num_heads; ++h)
        matmul(view_of(attention.o_proj.weight).columns(h * Dv, Dv),
               view_of(attention.kv_b_proj.weight).rows(h * (Dn + Dv) + Dn, Dv),
               view_of(folded.weight).columns(h * rank, rank));
    return folded;
}

}  // namespace exercise
