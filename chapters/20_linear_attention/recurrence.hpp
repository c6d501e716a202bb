// Chapter 20, file 1 of 8 — Must attention look back at all?
#pragma once

#include <span>

#include "common/tensors/tensor.hpp"

namespace llm {

// Linear attention: instead of the keys and values of all tokens, a head keeps one matrix, its
// state S, of Dk rows and Dv columns. A token decays the state, writes its value to it at its
// key, and reads from it with its query. Sources: "Transformers are RNNs" (Katharopoulos et
// al., 2020); the delta rule: "Linear Transformers Are Secretly Fast Weight Programmers"
// (Schlag et al., 2021); with decay: "Gated Delta Networks" (Yang et al., 2024).

// What a token writes, in the row space of its key k: S += k writtenᵀ.
enum class UpdateRule {
    additive,  // β v: linear attention; with decay RetNet and Mamba-2
    delta  // β (v - Sᵀk): the value less what the state returns for the key; DeltaNet, and
           // with decay Gated DeltaNet
};

// The tokens of one head of one sequence.
struct HeadInputs {
    Matrix queries;    // (T, Dk)
    Matrix keys;       // (T, Dk); with the delta rule of length 1, or the state may grow
    Matrix values;     // (T, Dv)
    Vector log_decay;  // (T): g <= 0. The state is multiplied by e^g before the token writes
    Vector beta;       // (T): the part of the value that is written, from 0 to 1
};
struct HeadOutput {
    Matrix output;  // (T, Dv)
    Matrix state;   // (Dk, Dv): after the last token
};
// Throws ValueError, with both shapes, if the shapes do not match.
void check_shapes(const HeadInputs& inputs, const Matrix& initial_state);  // (Dk, Dv)

// What the state returns for a key or a query: Sᵀ k.
Vector read_state(const Matrix& state,         // (Dk, Dv)
                  std::span<const Real> key);  // (Dk) -> (Dv)
// Adds the outer product k writtenᵀ.
void write_state(Matrix& state,              // (Dk, Dv)
                 std::span<const Real> key,  // (Dk)
                 const Vector& written);     // (Dv)

// The decay of token t, and what it writes.
void update_state(Matrix& state, const HeadInputs& inputs, std::size_t t, UpdateRule rule);

// The recurrent form: one token after the other, as in generation. Throws ValueError if the
// shapes do not match. Source: Hugging Face, modeling_qwen3_next.py,
// torch_recurrent_gated_delta_rule.
HeadOutput recurrent_form(const HeadInputs& inputs, UpdateRule rule,
                          const Matrix& initial_state);  // (Dk, Dv)

}  // namespace llm
