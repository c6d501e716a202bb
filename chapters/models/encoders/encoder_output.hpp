// What is shown of an encoder's outputs.
#pragma once

#include "chapters/models/encoders/encoder_input.hpp"
#include "chapters/models/encoders/encoder_model.hpp"

namespace llm::models {

// A step with all outputs: each tensor has Hugging Face's name, which is that of its file with
// --save. Of texts also their tokens; what is likely where a token is masked; whether the
// second text of a pair follows the first; and, if they are no pairs, one vector for each text,
// and how similar these are.
void show_outputs(const AnyEncoder& encoder, const EncoderInput& input);

// The probabilities of a classifier's labels: a softmax, or, of one label or of labels that do
// not exclude each other, the sigmoid of each; numbers of a regression stay. Source: Hugging
// Face, TextClassificationPipeline.
Matrix label_scores(const Matrix& logits, const EncoderFamilyConfig& config);  // (B, labels)

// The most likely ones, with their percentages: "river 62, bank 9".
std::string percentages(const Vector& probabilities, std::size_t count,
                        const std::function<std::string(std::size_t)>& name_of);

}  // namespace llm::models
