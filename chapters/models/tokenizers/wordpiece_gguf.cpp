#include "chapters/models/tokenizers/wordpiece_gguf.hpp"

#include "chapters/models/tokenizers/gguf_tokenizer.hpp"

namespace llm::models {
namespace {

const std::string gguf_prefix = "tokenizer.ggml.", word_begin = "▁", hashes = "##",
                  lowercase_key = gguf_prefix + "normalizer.lowercase",
                  strip_accents_key = gguf_prefix + "normalizer.strip_accents";

// The settings of llama.cpp's only normalizer for WordPiece.
const BertNormalizer& normalizer_of(const Tokenizer& tokenizer) {
    const auto* settings = tokenizer.normalizers.size() == 1
                               ? tokenizer.normalizers[0].normalize.target<BertNormalizer>()
                               : nullptr;
    require(settings && settings->clean_text && settings->handle_chinese_chars,
            "export: llama.cpp's WordPiece has a BertNormalizer with clean_text and "
            "handle_chinese_chars");
    return *settings;
}

void check_wordpiece(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
    const auto* model = tokenizer.word_model.target<WordPiece>();
    const WordPiece only;
    require(model && model->continuing_subword_prefix == only.continuing_subword_prefix &&
                model->max_input_chars_per_word == only.max_input_chars_per_word,
            "export: llama.cpp's WordPiece continues words with {}, and here has at most {} "
            "characters in a word",
            only.continuing_subword_prefix, only.max_input_chars_per_word);
    require(tokenizer.pre_tokenizers.size() == 1 &&
                tokenizer.pre_tokenizers[0].type == "BertPreTokenizer",
            "export: llama.cpp's WordPiece has a BertPreTokenizer alone");
    require(tokenizer.prefix_tokens.size() == 1 && tokenizer.suffix_tokens.size() == 1 &&
                tokenizer.unk_token_id,
            "export: llama.cpp's WordPiece has one token before a text, one after it, and an "
            "unknown token");
    for (const std::string& token : tokens)
        require(token != hashes, "export: llama.cpp has no spelling for the token {}", hashes);
}

}  // namespace

std::string gguf_of_wordpiece(const std::string& token) {
    return token.starts_with(hashes) ? token.substr(hashes.size()) : word_begin + token;
}

std::string wordpiece_of_gguf(const std::string& token) {
    return token.starts_with(word_begin) ? token.substr(word_begin.size()) : hashes + token;
}

void read_gguf_wordpiece(const Gguf& file, Tokenizer& tokenizer) {
    const auto flag = [&](const std::string& key) {
        return file.has(key) ? file.boolean(key) : true;
    };
    BertNormalizer settings;
    settings.lowercase = flag(lowercase_key);
    settings.strip_accents = flag(strip_accents_key);
    tokenizer.normalizers = {bert_normalizer(settings)};
    tokenizer.pre_tokenizers = {bert_pre_tokenizer()};
    tokenizer.word_model = WordPiece();
}

GgufMetadata wordpiece_metadata(const Tokenizer& tokenizer,
                                const std::vector<std::string>& tokens,
                                const std::vector<std::int64_t>& types) {
    const BertNormalizer& settings = normalizer_of(tokenizer);
    check_wordpiece(tokenizer, tokens);
    std::vector<std::string> names = tokens;
    for (std::size_t id = 0; id < names.size(); ++id)
        if (types[id] == GgufTokenType::normal) names[id] = gguf_of_wordpiece(names[id]);
    const Id first = tokenizer.prefix_tokens[0], last = tokenizer.suffix_tokens[0];
    GgufMetadata metadata = {
        {gguf_prefix + "model", std::string("bert")},
        {gguf_prefix + "pre", std::string("default")},
        {gguf_prefix + "tokens", names},
        {gguf_prefix + "token_type", types},
        {lowercase_key, settings.lowercase},
        {strip_accents_key, settings.strip_accents.value_or(settings.lowercase)},
        {gguf_prefix + "bos_token_id", std::int64_t{first}},
        {gguf_prefix + "cls_token_id", std::int64_t{first}},
        {gguf_prefix + "seperator_token_id", std::int64_t{last}},  // so it is spelled
        {gguf_prefix + "unknown_token_id", std::int64_t{*tokenizer.unk_token_id}}};
    for (const auto& [key, token] :
         {std::pair{"padding_token_id", "[PAD]"}, {"mask_token_id", "[MASK]"}})
        if (const auto found = tokenizer.vocab.find(token); found != tokenizer.vocab.end())
            metadata.emplace_back(gguf_prefix + key, std::int64_t{found->second});
    return metadata;
}

}  // namespace llm::models
