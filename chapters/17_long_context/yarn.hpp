// Chapter 17, file 6 of 8: YaRN, dynamic NTK scaling and LongRoPE, which chapter 04 leaves out.
#pragma once

#include <optional>

#include "chapters/04_rope/rope.hpp"

namespace llm {

// The rope_scaling of rope_type yarn, under the names of config.json.
struct YarnScaling {
    Real factor = 1;
    Real original_max_position_embeddings = 0;
    Real beta_fast = 32;   // pairs that rotate at least so often in the original context stay
    Real beta_slow = 1;    // pairs that rotate at most so often are divided by the factor
    bool truncate = true;  // round the limits between to whole pairs
    std::optional<Real> attention_factor = std::nullopt;  // if none, 0.1 ln(factor) + 1

    bool operator==(const YarnScaling&) const = default;
};

// The frequencies of YaRN: position interpolation for low frequencies, the original ones for
// high frequencies, and a linear transition over the pairs between. Throws ValueError unless
// factor >= 1, the original context has positions and beta_fast > beta_slow > 0. Source:
// "YaRN" (Peng et al., 2023), section 3.2; Hugging Face, _compute_yarn_parameters.
Vector yarn_frequencies(std::size_t head_dim, Real rope_theta,
                        const YarnScaling& scaling);  // (D/2)

// What YaRN multiplies both cosine and sine by, so that a score q · k grows by its square: with
// more keys, the softmax must be sharper. Source: YaRN, section 3.4.
Real yarn_attention_factor(const YarnScaling& scaling);
RotaryTable make_yarn_rotary_table(std::size_t head_dim, Real rope_theta,
                                   const YarnScaling& scaling,
                                   std::size_t num_positions);  // P

// The rope_scaling of rope_type longrope: divisors of the frequencies that a search has found,
// for texts up to the original context and for longer ones. Source: "LongRoPE" (Ding et al.,
// 2024); Hugging Face, _compute_longrope_parameters.
struct LongRopeScaling {
    Vector short_factor, long_factor;  // (D/2) each
    std::size_t original_max_position_embeddings = 0;
    Real attention_factor = 1;  // multiplies cosine and sine, as YaRN's

    bool operator==(const LongRopeScaling&) const = default;
};
// The attention factor of files without one: √(1 + ln s / ln original), where s is the maximum
// context divided by the original one; 1 if s is at most 1.
Real longrope_attention_factor(std::size_t max_position_embeddings,
                               std::size_t original_max_position_embeddings);
// The long divisors if P exceeds the original context: then a KV cache of P positions has them
// from the first token on, as in llama.cpp. Throws ValueError unless there is one divisor per
// frequency.
RotaryTable make_longrope_rotary_table(const Vector& inverse_frequencies,  // (D/2)
                                       const LongRopeScaling& scaling,
                                       std::size_t num_positions);  // P

// Dynamic NTK: ntk_theta of chapter 04 with a factor that follows the length, and 1 until the
// original context is full. Source: emozilla, 2023; Hugging Face,
// _compute_dynamic_ntk_parameters.
Real dynamic_ntk_theta(Real rope_theta, Real factor, std::size_t head_dim, std::size_t seq_len,
                       std::size_t original_max_position_embeddings);

}  // namespace llm
