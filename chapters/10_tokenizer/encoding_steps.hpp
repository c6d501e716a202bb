// Chapter 10, file 5 of 5: the intermediate results of encode.
#pragma once

#include <string>
#include <vector>

#include "chapters/10_tokenizer/tokenizer.hpp"

namespace llm {

// All segments of a text after one step of encode. Added tokens stay whole in all later steps.
struct EncodingStep {
    std::string name;
    std::vector<Segment> segments;
};

// The text itself, its added tokens, then each normalizer, the added tokens of the normalized
// text, and each pre-tokenizer. encode applies BPE to the segments of the last step.
std::vector<EncodingStep> encoding_steps(const Tokenizer& tokenizer, const std::string& text);

}  // namespace llm
