// What Gemma 2 and Gemma 3 share.
#pragma once

#include "chapters/models/family_keys.hpp"

namespace llm::models {

// Norms that multiply by 1 + w, embeddings multiplied by √C, GELU: all Gemmas.
void build_gemma(FamilyConfig& config);
// The names and the layout of models with four norms in each block.
Family gemma_with_four_norms(const std::string& type, const std::string& architecture,
                             const std::string& gguf_architecture,
                             const ClassDefaults& defaults);

// Scores are divided by the root of this number.
void set_query_pre_attn_scalar(FamilyConfig& config, double number);
// Windows, unless every full_every-th layer sees all, and the scale of scores; soft caps,
// which a key may set to null. Throws FileError.
void read_windows_and_scores(const JsonFile& json, std::size_t full_every,
                             std::optional<double> score_cap, std::optional<double> logit_cap,
                             FamilyConfig& config);
void write_windows_and_scores(const FamilyConfig& config, JsonMembers& json);

// llama.cpp has full attention in every full_every-th layer, and scores of 1/√D. Throws
// ValueError.
void check_gemma_gguf(const FamilyConfig& config, std::size_t full_every);
void add_gemma_gguf(const FamilyConfig& config, GgufMetadata& metadata);
// The models of 27 billion parameters, with so many layers, scale scores by C / H.
void read_score_scale_of_27b(std::size_t num_layers, FamilyConfig& config);

}  // namespace llm::models
