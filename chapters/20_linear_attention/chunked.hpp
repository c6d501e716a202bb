// Chapter 20, file 2 of 8: the same output from matrix products, chunk by chunk.
#pragma once

#include "chapters/20_linear_attention/recurrence.hpp"

namespace llm {

// A chunk of c adjacent tokens, and how much of what token j writes is left when token i reads.
struct Chunk {
    Matrix queries, keys;  // (c, Dk)
    Matrix values;         // (c, Dv)
    Vector beta;           // (c)
    Vector decay;          // (c): γ_i = e^(g_1 + ... + g_i), of the state before the chunk
    Matrix decay_between;  // (c, c): Γ_ij = e^(g_(j+1) + ... + g_i) where j <= i, else 0
    Vector decay_to_end;   // (c): row c of Γ
};
Chunk make_chunk(const HeadInputs& inputs, std::size_t first, std::size_t count);  // c

// With the delta rule, token i of a chunk writes
//
//     written_i = β_i (v_i - γ_i Sᵀk_i - Σ_(j<i) Γ_ij (k_i · k_j) written_j),
//
// where S is the state before the chunk. These are c linear equations, (I + A) written =
// diag(β) (V - diag(γ) K S), whose matrix I + A is lower triangular with ones on its diagonal.
// They are linear in S, so written = U - W S, where neither U nor W depends on the state: the
// WY representation (Bischof and Van Loan, 1987) of a product of generalized Householder
// matrices I - β k kᵀ; W = (I + A)⁻¹ diag(β) diag(γ) K and U = (I + A)⁻¹ diag(β) V. A GPU
// computes W and U of all chunks at once, before it knows a state. Source: "Parallelizing
// Linear Transformers with the Delta Rule" (Yang et al., 2024), section 3.
struct WYRepresentation {
    Matrix w;  // (c, Dk)
    Matrix u;  // (c, Dv)
};
// A_ij = β_i Γ_ij (k_i · k_j) where j < i, else 0: (c, c).
Matrix key_overlaps(const Chunk& chunk);
// X of (I + A) X = B, by forward substitution; A is 0 on and above its diagonal.
Matrix solve_unit_lower(const Matrix& a,  // (c, c)
                        Matrix b);        // (c, N) -> (c, N)
WYRepresentation wy_representation(const Chunk& chunk);

// What the tokens of a chunk write: (c, Dv).
Matrix written_values(const Chunk& chunk, UpdateRule rule,
                      const Matrix& state);  // (Dk, Dv): before the chunk

// The output of a chunk, and the state after it.
HeadOutput chunk_forward(const Chunk& chunk, UpdateRule rule, const Matrix& state);

// The chunked form: within a chunk as attention without a softmax, from chunk to chunk with the
// state. A chunk of T tokens is the parallel form, whose cost grows with T². Throws ValueError
// if the shapes do not match, or if the size is 0.
HeadOutput chunked_form(const HeadInputs& inputs, UpdateRule rule,
                        const Matrix& initial_state,  // (Dk, Dv)
                        std::size_t chunk_size);
HeadOutput parallel_form(const HeadInputs& inputs, UpdateRule rule,
                         const Matrix& initial_state);  // (Dk, Dv)

// Multiplies each row by its factor.
Matrix scale_rows(const Matrix& rows,      // (N, M)
                  const Vector& factors);  // (N) -> (N, M)

}  // namespace llm
