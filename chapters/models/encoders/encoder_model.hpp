// A published encoder with its heads: what it computes for a batch of texts.
#pragma once

#include <variant>

#include "chapters/25_encoders/masked_lm.hpp"
#include "chapters/models/encoders/encoder_family.hpp"

namespace llm::models {

// Only the heads of the configuration are there.
template <class Block>
struct EncoderFamilyModel {
    EncoderFamilyConfig config;
    Encoder<Block> encoder;
    std::optional<Pooler> pooler;
    // Of a classifier (ModernBERT), without a decoder.
    std::optional<MaskedLMHead> head;
    std::optional<Linear> seq_relationship;  // (2, C)
    std::optional<Linear> classifier;        // (labels, C)
};
using AnyEncoder =
    std::variant<EncoderFamilyModel<BertBlock>, EncoderFamilyModel<ModernBertBlock>>;
inline const EncoderFamilyConfig& config_of(const AnyEncoder& encoder) {
    return std::visit(
        [](const auto& model) -> const EncoderFamilyConfig& { return model.config; }, encoder);
}

// A model with the structure that the configuration describes, whose tensors are still empty.
AnyEncoder make_empty_encoder(const EncoderFamilyConfig& config);

// The outputs under Hugging Face's names.
struct EncoderOutputs {
    Tensor3 last_hidden_state;            // (B, T, C)
    std::optional<Matrix> pooler_output;  // (B, C)
    std::optional<Tensor3> mlm_logits;    // (B, T, V)
    std::optional<Matrix> nsp_logits;     // (B, 2): 0: the second text follows the first
    std::optional<Matrix> logits;         // (B, labels)
};
// Vectors and logits of padding have no meaning. Throws ValueError as check_batch does.
EncoderOutputs encode(const AnyEncoder& encoder, const BatchEncoding& batch);

}  // namespace llm::models
