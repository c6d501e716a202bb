// Chapter 18: whole models of published types: Mixtral, Qwen3-MoE and gpt-oss.
#pragma once

#include "chapters/17_long_context/long_context_model.hpp"
#include "chapters/18_experts/mixture_config.hpp"
#include "chapters/18_experts/mixture_decoder.hpp"

namespace llm {

// From token ids to logits.
struct MixtureModel {
    MixtureConfig config;
    Matrix embed_tokens;               // (V, C)
    std::vector<MixtureBlock> layers;  // L
    RMSNorm norm;                      // (C)
    std::optional<Matrix> lm_head;     // (V, C); none if tied to embed_tokens

    // As LongContextModel of chapter 17.
    Tensor3 operator()(const IdMatrix& input_ids) const;  // (B, T) -> (B, T, V)
    ModelOutput forward(const IdMatrix& input_ids,        // (B, T)
                        LongContextCache* cache,
                        LogitsToKeep logits_to_keep = LogitsToKeep::all) const;
    Tensor3 embed(const IdMatrix& input_ids) const;      // (B, T) -> (B, T, C)
    Tensor3 logits(const Tensor3& hidden_states) const;  // (B, T, C) -> (B, T, V)
};
std::vector<RotaryTable> rotary_tables(const MixtureConfig& config,
                                       std::size_t num_positions);  // P
LongContextCache make_cache(const MixtureModel& model, std::size_t num_positions);
std::vector<Id> generate(const MixtureModel& model, const std::vector<Id>& prompt_ids,
                         const GenerationConfig& config, Generator& generator,
                         const std::function<void(Id)>& on_token = {});

// The experts of each token in each layer with a mixture, as chosen in a forward pass.
std::vector<RoutedTokens> routed_tokens(const MixtureModel& model,
                                        const IdMatrix& input_ids);  // (B, T)

// A decoder that was trained here as a Mixtral. Throws ShapeError unless every layer has a
// mixture with SoftmaxRouting as Mixtral's, and no shared experts.
MixtureModel make_mixtral(const MixtureDecoder& decoder, const Config& config);

}  // namespace llm
