#include "chapters/models/tokenizers/vocab_txt.hpp"

#include <algorithm>
#include <vector>

#include "common/files/unicode.hpp"

namespace llm::models {
namespace {

// The tokens by id. Of equal ones, the last encodes.
void read_lines(const std::string& path, std::optional<std::size_t> vocab_size,
                Tokenizer& tokenizer) {
    const std::size_t limit = vocab_size.value_or(1 << 24);
    for (std::string token : lines_of(read_text(path))) {
        if (token.ends_with('\r')) token.pop_back();
        const std::size_t id = tokenizer.vocab_size();
        if (id >= limit)
            throw FileError(path + " has more tokens than the vocabulary size, " +
                            to_text(limit));
        tokenizer.vocab[token] = Id(id);
        tokenizer.token_bytes.push_back(token);
    }
    if (vocab_size) tokenizer.token_bytes.resize(*vocab_size);
    decode_wordpieces(tokenizer, "##", true);
}

// The spelling of a special token: a text, or an object with a content.
std::string special_token(const std::vector<JsonFile>& settings, const std::string& key,
                          const std::string& otherwise) {
    for (const JsonFile& json : settings)
        if (json.has(key)) return json.text(json.is_object(key) ? key + ".content" : key);
    return otherwise;
}

Id add_special_token(const std::string& path, const std::string& token, Tokenizer& tokenizer) {
    const auto found = tokenizer.vocab.find(token);
    if (found == tokenizer.vocab.end()) throw FileError(path + ": there is no token " + token);
    if (tokenizer.all_special_ids.insert(found->second).second)
        tokenizer.added_tokens.push_back({token, found->second});
    return found->second;
}

// What a tokenizer of WordPiece alone has not.
void reject_other_settings(const JsonFile& json) {
    if (!json.boolean_or("do_basic_tokenize", true))
        json.reject_value("do_basic_tokenize", "false", "true");
    if (json.is_array("never_split") && !json.text_lists("never_split").empty())
        json.reject_value("never_split", "of some words", "none");
}

// Tokens that are matched literally; each one must be in the vocabulary.
void read_added_tokens(const JsonFile& json, Tokenizer& tokenizer) {
    const std::string added = "added_tokens_decoder";
    if (!json.is_object(added)) return;
    for (const JsonMember& member : json.object(added).members()) {
        const std::string token = json.text(added + "." + member.key + ".content");
        const auto found = tokenizer.vocab.find(token);
        if (found == tokenizer.vocab.end() || to_text(found->second) != member.key)
            json.reject(added + "." + member.key + " " + token +
                        " is not that token of vocab.txt");
        if (!tokenizer.all_special_ids.contains(found->second))
            tokenizer.added_tokens.push_back({token, found->second});
    }
}

}  // namespace

Tokenizer load_vocab_txt(const std::string& path, std::optional<std::size_t> vocab_size) {
    Tokenizer tokenizer;
    read_lines(path, vocab_size, tokenizer);
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    std::vector<JsonFile> settings;
    for (const std::string name : {"tokenizer_config.json", "special_tokens_map.json"})
        if (is_file(folder + name)) settings.emplace_back(folder + name);
    const auto special = [&](const std::string& key, const std::string& otherwise) {
        return add_special_token(path, special_token(settings, key, otherwise), tokenizer);
    };
    special("pad_token", "[PAD]");
    tokenizer.unk_token_id = special("unk_token", "[UNK]");
    tokenizer.prefix_tokens = {special("cls_token", "[CLS]")};
    tokenizer.suffix_tokens = {special("sep_token", "[SEP]")};
    special("mask_token", "[MASK]");
    BertNormalizer normalizer;
    for (const JsonFile& json : settings) {
        reject_other_settings(json);
        read_bert_settings(json, normalizer);
        read_added_tokens(json, tokenizer);
    }
    tokenizer.normalizers = {bert_normalizer(normalizer)};
    tokenizer.pre_tokenizers = {bert_pre_tokenizer()};
    tokenizer.word_model = WordPiece();
    return tokenizer;
}

void read_bert_settings(const JsonFile& json, BertNormalizer& settings) {
    settings.lowercase = json.boolean_or("do_lower_case", settings.lowercase);
    settings.handle_chinese_chars =
        json.boolean_or("tokenize_chinese_chars", settings.handle_chinese_chars);
    if (json.has("strip_accents")) settings.strip_accents = json.boolean("strip_accents");
}

}  // namespace llm::models
