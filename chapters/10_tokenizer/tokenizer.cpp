#include "chapters/10_tokenizer/tokenizer.hpp"

#include "common/files/unicode.hpp"

namespace llm {

std::vector<Id> apply_merges(std::vector<Id> ids, const Merges& merges) {
    while (true) {
        // Find the adjacent pair with the lowest rank.
        auto best = merges.end();
        std::size_t position = 0;
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
            const auto merge = merges.find({ids[i], ids[i + 1]});
            if (merge == merges.end()) continue;
            if (best == merges.end() || merge->second.rank < best->second.rank) {
                best = merge;
                position = i;
            }
        }
        if (best == merges.end()) return ids;

        // Merge it, and search again: the merged token forms new pairs with its neighbors.
        ids[position] = best->second.merged;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(position) + 1);
    }
}

bool Tokenizer::is_byte_level() const {
    return !pre_tokenizers.empty() && pre_tokenizers.back().type == "ByteLevel";
}

std::string Tokenizer::normalize(const std::string& text) const {
    std::string normalized = text;
    for (const Normalizer& normalizer : normalizers)
        normalized = normalizer.normalize(normalized);
    return normalized;
}

std::vector<std::string> Tokenizer::pre_tokenize(const std::string& text, bool at_start) const {
    std::vector<std::string> words = {text};
    for (const PreTokenizer& pre_tokenizer : pre_tokenizers)
        words = split_words(pre_tokenizer, words, at_start);
    return words;
}

std::vector<Id> Tokenizer::encode_character(const std::string& character) const {
    if (const auto token = vocab.find(character); token != vocab.end()) return {token->second};
    if (!byte_fallback) return {};
    std::vector<Id> ids;
    for (const char byte : character) {
        const auto token = vocab.find(byte_fallback_token(static_cast<unsigned char>(byte)));
        if (token == vocab.end()) return {};
        ids.push_back(token->second);
    }
    return ids;
}

// A word of more characters than this is merged with a priority queue.
constexpr std::size_t max_tokens_without_queue = 64;

std::vector<Id> Tokenizer::encode_word(const std::string& word) const {
    if (word_model) return word_model(*this, word);
    if (const auto token = vocab.find(word); ignore_merges && token != vocab.end())
        return {token->second};

    // Start with the characters. Unknown ones are encoded as bytes or as the unknown token.
    std::vector<Id> ids;
    bool after_unknown = false;
    for (const std::string& character : characters(word)) {
        const std::vector<Id> known = encode_character(character);
        if (known.empty()) {
            if (!unk_token_id) throw TextError("there is no token for '" + character + "'");
            if (!(after_unknown && fuse_unk)) ids.push_back(*unk_token_id);
        }
        after_unknown = known.empty();
        ids.insert(ids.end(), known.begin(), known.end());
    }
    return ids.size() > max_tokens_without_queue ? apply_merges_with_queue(ids, merges)
                                                 : apply_merges(std::move(ids), merges);
}

std::vector<Id> Tokenizer::encode(const std::string& text) const {
    if (text.empty() && prefix_tokens.empty() && bos_token_id) return {*bos_token_id};
    check_utf8(text);
    std::vector<Id> ids = prefix_tokens;
    bool at_start = true;
    const auto encode_segment = [&](const Segment& segment) {
        if (segment.id) {
            ids.push_back(*segment.id);
        } else {
            for (const std::string& word : pre_tokenize(segment.text, at_start))
                for (const Id id : encode_word(word)) ids.push_back(id);
        }
        at_start = false;
    };
    for (const Segment& segment : split_at_added_tokens(added_tokens, text)) {
        if (segment.id) {
            encode_segment(segment);
        } else {
            for (const Segment& part :
                 split_at_added_tokens(normalized_added_tokens, normalize(segment.text)))
                encode_segment(part);
        }
    }
    ids.insert(ids.end(), suffix_tokens.begin(), suffix_tokens.end());
    return ids;
}

namespace {

// Is the id that of a token that decode does not skip?
bool has_text(const Tokenizer& tokenizer, Id id) {
    if (id < 0 || static_cast<std::size_t>(id) >= tokenizer.vocab_size()) return false;
    const auto has_bytes = [id](const std::vector<std::string>& bytes) {
        return !bytes.empty() && !bytes[static_cast<std::size_t>(id)].empty();
    };
    return !tokenizer.all_special_ids.contains(id) &&
           (has_bytes(tokenizer.token_bytes) || has_bytes(tokenizer.first_token_bytes));
}

// The bytes of a token that decode does not skip.
const std::string& bytes_of(const Tokenizer& tokenizer, Id id, bool is_first) {
    const bool differs = is_first && !tokenizer.first_token_bytes.empty();
    return (differs ? tokenizer.first_token_bytes
                    : tokenizer.token_bytes)[static_cast<std::size_t>(id)];
}

}  // namespace

std::string Tokenizer::decode_bytes(const std::vector<Id>& token_ids) const {
    std::string bytes;
    bool is_first = true;
    for (const Id id : token_ids) {
        if (!has_text(*this, id)) continue;
        bytes += bytes_of(*this, id, std::exchange(is_first, false));
    }
    if (strip_leading_space && bytes.starts_with(' ')) bytes.erase(0, 1);
    return bytes;
}

std::string Tokenizer::decode(const std::vector<Id>& token_ids) const {
    std::string bytes, run;
    const auto end_run = [&] {
        const bool is_utf8 = replace_invalid_utf8(run) == run;
        for (const char byte : run) bytes += is_utf8 ? std::string(1, byte) : character(0xfffd);
        run.clear();
    };
    bool is_first = true;
    for (const Id id : token_ids) {
        if (!has_text(*this, id)) continue;
        const std::string& token = bytes_of(*this, id, std::exchange(is_first, false));
        if (byte_token_ids.contains(id)) {
            run += token;
        } else {
            end_run();
            bytes += token;
        }
    }
    end_run();
    const std::string text = replace_invalid_utf8(bytes);
    return strip_leading_space && text.starts_with(' ') ? text.substr(1) : text;
}

std::string Tokenizer::token_text(Id id) const {
    const std::string bytes = id >= 0 && static_cast<std::size_t>(id) < vocab_size()
                                  ? token_bytes[static_cast<std::size_t>(id)]
                                  : "";
    return bytes.empty() ? "<" + to_text(id) + ">" : replaced(escaped(bytes), " ", "▁");
}

void decode_byte_fallback_tokens(Tokenizer& tokenizer) {
    for (int byte = 0; byte < 256; ++byte) {
        const auto token =
            tokenizer.vocab.find(byte_fallback_token(static_cast<unsigned char>(byte)));
        if (token == tokenizer.vocab.end()) continue;
        tokenizer.token_bytes[static_cast<std::size_t>(token->second)] =
            static_cast<char>(byte);
        tokenizer.byte_token_ids.insert(token->second);
    }
}

Tokenizer byte_tokenizer() {
    Tokenizer tokenizer;
    tokenizer.token_bytes = {"<unk>", "<s>", "</s>"};
    for (int byte = 0; byte < 256; ++byte) {
        tokenizer.vocab[byte_fallback_token(static_cast<unsigned char>(byte))] = byte + 3;
        tokenizer.token_bytes.push_back(std::string(1, static_cast<char>(byte)));
    }
    tokenizer.byte_fallback = true;
    tokenizer.prefix_tokens = {1};
    tokenizer.eos_token_ids = {1, 2};
    tokenizer.all_special_ids = {1, 2};
    return tokenizer;
}

}  // namespace llm
