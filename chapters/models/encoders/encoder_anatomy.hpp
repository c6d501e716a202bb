// The design choices and the size of an encoder: ./learn model --diff and --size.
#pragma once

#include "chapters/models/anatomy.hpp"
#include "chapters/models/encoders/encoder_family.hpp"

namespace llm::models {

// The settings of a config.json, or of that in a folder; none if it is missing or of another
// model. Throws FileError.
std::optional<EncoderFamilyConfig> find_encoder_config(const std::string& file_or_folder);

// The same choices as those of models that write. The parameters count the heads of the class.
Anatomy anatomy_of(const std::string& name, const EncoderFamilyConfig& config);

// The choices of an encoder, or else those of find_example. Throws FileError and ValueError.
Anatomy find_anatomy(const std::string& name_or_folder);

// FLOPs of the forward pass for a text of so many tokens, without heads: two for each token and
// element of each matrix, and four for each feature and pair of tokens of which one attends to
// the other.
double flops_of_text(const EncoderFamilyConfig& config, std::uint64_t seq_len);

// Prints what an encoder needs for a batch of texts of this length. Throws ValueError if they
// are longer than its positions.
void show_size(const std::string& name, const EncoderFamilyConfig& config,
               std::uint64_t seq_len, std::uint64_t batch_size);

}  // namespace llm::models
