#include "chapters/models/tokenizers/gguf_pre_types.hpp"

namespace llm::models {
namespace {

// The patterns and NFC are those of the published tokenizer.json, with which the model was
// trained. llama.cpp's ids differ for combining characters: it applies no NFC for qwen2
// and qwen35, and its pattern for tekken lacks \p{M}.
std::vector<PreType> make_pre_types() {
    const std::string contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|";
    const std::string letters = R"([^\r\n\p{L}\p{N}]?\p{L}+|)";
    const std::string others = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
    const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
    const std::string before_word = R"([^\r\n\p{L}\p{N}]?)";
    const PreType llama3{.names = {"llama-bpe", "llama-v3", "llama3"},
                         .patterns = {contractions + letters + R"(\p{N}{1,3})" + others},
                         .ignore_merges = true,
                         .add_bos = true};
    const PreType qwen2{.names = {"qwen2"},
                        .patterns = {contractions + letters + R"(\p{N})" + others},
                        .nfc = true};
    // Marks, such as the vowels of Hindi, belong to words.
    const PreType qwen35{
        .names = {"qwen35"},
        .patterns = {contractions + R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})" +
                     R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
        .nfc = true};
    const PreType tekken{
        .names = {"tekken"},
        .patterns = {before_word + upper + "*" + lower + "+|" + before_word + upper + "+" +
                     lower + R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
        .ignore_merges = true,
        .add_bos = true};
    return {{.names = {"gpt-2"}, .patterns = {gpt2_split_pattern}},
            llama3,
            qwen2,
            qwen35,
            {.names = {"smollm"}, .patterns = {R"(\p{N})", gpt2_split_pattern}},
            tekken};
}

}  // namespace

std::vector<PreTokenizer> PreType::pre_tokenizers() const {
    std::vector<PreTokenizer> result;
    for (const std::string& pattern : patterns)
        result.push_back(regex_pre_tokenizer("Split", pattern));
    result.push_back(byte_level_pre_tokenizer(false, false));
    return result;
}

const std::vector<PreType>& pre_types() {
    static const std::vector<PreType> types = make_pre_types();
    return types;
}

std::string names_of_pre_types() {
    std::string names;
    for (const PreType& pre : pre_types())
        for (const std::string& name : pre.names) names += (names.empty() ? "" : ", ") + name;
    return names;
}

}  // namespace llm::models
