// Chapter 11 — How does a model generate text?
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "chapters/09_full_model/model.hpp"
#include "chapters/11_generation/sampling.hpp"

namespace llm {

// One sequence as a batch, PyTorch's unsqueeze(0).
IdMatrix one_sequence(std::span<const Id> ids);  // T -> (1, T)

// The logits of the last position of the first sequence: they predict the next token.
Vector last_logits(const ModelOutput& output);  // (B, T, V) or (B, 1, V) -> (V)

// The parameters of generate(), named as in Hugging Face's GenerationConfig.
struct GenerationConfig {
    SamplingConfig sampling;
    std::size_t max_new_tokens = 256;
    std::vector<Id> eos_token_ids;  // each ends generation and is not returned
    bool use_cache = true;          // false: every step recomputes the whole sequence
    bool context_shift = false;     // true: go on when the context is full
};

// The tokens that stay when the context is full: the first one, and the last half of the
// others. Throws ShapeError for fewer than 4 tokens. Source: llama.cpp, "context shift".
std::vector<Id> shift_context(const std::vector<Id>& context);

// Generates tokens after a prompt, one at a time, and passes each to on_token before it
// computes the next one. Returns the new tokens. Stops after max_new_tokens, when the sequence
// has max_position_embeddings tokens (unless context_shift is true), or when one of
// eos_token_ids is sampled. Throws ShapeError if the prompt is empty or too long, or if an id
// is not in the vocabulary.
std::vector<Id> generate(const Model& model, const std::vector<Id>& prompt_ids,
                         const GenerationConfig& config, Generator& generator,
                         const std::function<void(Id)>& on_token = {});

}  // namespace llm
