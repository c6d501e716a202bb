#include "chapters/10_tokenizer/encoding_steps.hpp"

#include <functional>

namespace llm {
namespace {

using Segments = std::vector<Segment>;
using Split = std::function<Segments(const std::string& text, bool at_start)>;

// Splits each segment of the last step that is not an added token.
void add_step(std::vector<EncodingStep>& steps, const std::string& name, const Split& split) {
    const Segments before = steps.back().segments;
    Segments after;
    for (std::size_t i = 0; i < before.size(); ++i) {
        const bool is_added_token = before[i].id.has_value();
        for (const Segment& part :
             is_added_token ? Segments{before[i]} : split(before[i].text, i == 0))
            after.push_back(part);
    }
    steps.push_back({name, after});
}

void add_split(std::vector<EncodingStep>& steps, const std::string& name,
               const std::vector<AddedToken>& added_tokens) {
    if (added_tokens.empty()) return;
    add_step(steps, name, [&](const std::string& text, bool) {
        return split_at_added_tokens(added_tokens, text);
    });
}

}  // namespace

std::vector<EncodingStep> encoding_steps(const Tokenizer& tokenizer, const std::string& text) {
    std::vector<EncodingStep> steps = {{"text", text.empty() ? Segments{} : Segments{{text}}}};
    add_split(steps, "added tokens", tokenizer.added_tokens);
    for (const Normalizer& normalizer : tokenizer.normalizers)
        add_step(steps, normalizer.type, [&](const std::string& part, bool) {
            return Segments{{normalizer.normalize(part)}};
        });
    add_split(steps, "normalized added tokens", tokenizer.normalized_added_tokens);
    for (const PreTokenizer& pre_tokenizer : tokenizer.pre_tokenizers)
        add_step(steps, pre_tokenizer.type, [&](const std::string& part, bool at_start) {
            Segments words;
            for (const std::string& word : pre_tokenizer.split(part, at_start))
                words.push_back({word});
            return words;
        });
    return steps;
}

}  // namespace llm
