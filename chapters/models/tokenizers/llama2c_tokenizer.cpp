#include "chapters/models/tokenizers/llama2c_tokenizer.hpp"

#include <cmath>
#include <cstring>

#include "common/files/mapped_file.hpp"

namespace llm::models {
namespace {

// Reads the tokens that follow the four bytes of max_token_length: for each one a score, a
// length and its bytes, with spaces where SentencePiece has ▁. Returns the scores.
std::vector<double> read_tokens(const std::string& path, std::optional<std::size_t> vocab_size,
                                Tokenizer& tokenizer) {
    const MappedFile file(path);
    const std::size_t file_size = file.bytes().size();
    std::size_t at = sizeof(std::int32_t);
    std::vector<double> scores;
    const auto next = [&](auto number) {
        if (file_size < at + sizeof number)
            throw FileError(path + ": too short for a llama2.c tokenizer of " +
                            to_text(vocab_size.value_or(scores.size() + 1)) + " tokens");
        std::memcpy(&number, file.bytes().data() + at, sizeof number);
        at += sizeof number;
        return number;
    };
    while (vocab_size ? scores.size() < *vocab_size : at != file_size || scores.empty()) {
        const double score = double(next(float()));
        const auto length = static_cast<std::size_t>(next(std::int32_t()));
        if (length > 512 || length > file_size - at || !std::isfinite(score))
            throw FileError(path + ": token " + to_text(scores.size()) +
                            " is damaged: not a llama2.c tokenizer");
        const auto* bytes = reinterpret_cast<const char*>(file.bytes().data() + at);
        tokenizer.token_bytes.emplace_back(bytes, length);
        tokenizer.vocab.emplace(tokenizer.token_bytes.back(), static_cast<Id>(scores.size()));
        scores.push_back(score);
        at += length;
    }
    if (at != file_size)
        throw FileError(path + ": more than " + to_text(scores.size()) + " tokens");
    return scores;
}

}  // namespace

Merges merges_from_scores(const std::unordered_map<std::string, Id>& vocab,
                          const std::vector<double>& scores) {
    Merges merges;
    for (const auto& [token, id] : vocab)
        for (std::size_t middle = 1; middle < token.size(); ++middle) {
            const auto left = vocab.find(token.substr(0, middle));
            const auto right = vocab.find(token.substr(middle));
            if (left != vocab.end() && right != vocab.end())
                merges[{left->second, right->second}] = {-scores[static_cast<std::size_t>(id)],
                                                         id};
        }
    return merges;
}

Tokenizer load_llama2c_tokenizer(const std::string& path,
                                 std::optional<std::size_t> vocab_size) {
    Tokenizer tokenizer;
    const std::vector<double> scores = read_tokens(path, vocab_size, tokenizer);
    tokenizer.merges = merges_from_scores(tokenizer.vocab, scores);
    decode_byte_fallback_tokens(tokenizer);
    tokenizer.normalizers = {prepend_normalizer(" ")};
    tokenizer.byte_fallback = true;
    tokenizer.unk_token_id = 0;
    tokenizer.prefix_tokens = {1};
    tokenizer.eos_token_ids = {1, 2};
    tokenizer.all_special_ids = {1, 2};
    tokenizer.strip_leading_space = true;
    return tokenizer;
}

}  // namespace llm::models
