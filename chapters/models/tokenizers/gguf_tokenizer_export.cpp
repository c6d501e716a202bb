#include "chapters/models/tokenizers/gguf_tokenizer_export.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include "chapters/models/tokenizers/gguf_pre_types.hpp"
#include "chapters/models/tokenizers/gguf_tokenizer.hpp"
#include "chapters/models/tokenizers/llama2c_tokenizer.hpp"
#include "chapters/models/tokenizers/wordpiece_gguf.hpp"
#include "common/files/unicode.hpp"

namespace llm::models {
namespace {

using Type = GgufTokenType;

using Texts = std::vector<std::string>;

const std::string prefix = "tokenizer.ggml.";

// The tokens of all ids as they are spelled in a GGUF file.
struct Tokens {
    Texts names;
    std::vector<std::int64_t> types;
};

Tokens tokens_of(const Tokenizer& tokenizer, std::size_t vocab_size) {
    require(tokenizer.vocab_size() <= vocab_size,
            "export: the tokenizer has {} tokens, but the vocabulary size is {}",
            tokenizer.vocab_size(), vocab_size);
    Tokens tokens{Texts(vocab_size), std::vector<std::int64_t>(vocab_size, Type::unused)};
    const auto set_type = [&](Id id, std::int64_t type) {
        tokens.types[static_cast<std::size_t>(id)] = type;
    };
    for (const auto& [token, id] : tokenizer.vocab) {
        tokens.names[static_cast<std::size_t>(id)] = token;
        set_type(id, Type::normal);
    }
    for (const auto* added : {&tokenizer.added_tokens, &tokenizer.normalized_added_tokens})
        for (const AddedToken& token : *added) set_type(token.id, Type::user_defined);
    for (const Id id : tokenizer.all_special_ids)
        set_type(id, id == tokenizer.unk_token_id ? Type::unknown : Type::control);
    for (const Id id : tokenizer.byte_token_ids) set_type(id, Type::byte);
    for (std::size_t id = 0; id < vocab_size; ++id)
        if (tokens.types[id] == Type::unused) tokens.names[id] = "[PAD" + to_text(id) + "]";
    return tokens;
}

// llama.cpp matches all added tokens at once, in the original text. Throws ValueError if this
// differs from a second pass over the normalized text.
void check_normalized_tokens(const Tokenizer& tokenizer) {
    for (const AddedToken& token : tokenizer.normalized_added_tokens) {
        const auto found = tokenizer.vocab.find(token.content);
        require(found != tokenizer.vocab.end() && found->second == token.id &&
                    tokenizer.normalize("a" + token.content) == "a" + token.content,
                "export: llama.cpp has no added tokens that are normalized");
        for (const AddedToken& other : tokenizer.added_tokens)
            require(token.content.find(other.content) == std::string::npos &&
                        other.content.find(token.content) == std::string::npos,
                    "export: llama.cpp matches the added tokens '{}' and '{}' at once",
                    escaped(token.content), escaped(other.content));
    }
}

// Throws ValueError for added tokens with settings that llama.cpp does not have, and for one
// that decodes to other bytes than it has.
void check_added_tokens(const Tokenizer& tokenizer) {
    for (const auto* tokens : {&tokenizer.added_tokens, &tokenizer.normalized_added_tokens})
        for (const AddedToken& token : *tokens) {
            require(
                !token.lstrip && !token.rstrip && !token.single_word,
                "export: the added token '{}' has lstrip, rstrip or single_word, which GGUF "
                "files do not have",
                escaped(token.content));
            const std::string& bytes =
                tokenizer.token_bytes[static_cast<std::size_t>(token.id)];
            require(!tokenizer.is_byte_level() || bytes == token.content,
                    "export: the added token '{}' decodes to '{}', and in llama.cpp to itself",
                    escaped(token.content), escaped(bytes));
        }
}

// Throws ValueError unless the names of normal tokens give the bytes to which they decode.
// Unused tokens decode to nothing.
void check_decoding(const Tokenizer& tokenizer, const Tokens& tokens,
                    const std::function<std::string(const std::string&)>& bytes_of) {
    for (std::size_t id = 0; id < tokenizer.vocab_size(); ++id) {
        const std::string& bytes = tokenizer.token_bytes[id];
        const std::int64_t type = tokens.types[id];
        if ((type == Type::normal && bytes_of(tokens.names[id]) != bytes) ||
            (type == Type::unused && !bytes.empty()))
            require(false, "export: token {} would not decode to '{}'", id, escaped(bytes));
    }
}

// Throws ValueError unless the scores give the same merges in the same order.
void check_scores(const Tokenizer& tokenizer, const std::vector<double>& scores) {
    const Merges by_score = merges_from_scores(tokenizer.vocab, scores);
    bool equal = by_score.size() == tokenizer.merges.size();
    std::vector<std::pair<double, double>> ranks;  // of each merge, by the list and by score
    for (const auto& [pair, merge] : tokenizer.merges) {
        const auto found = by_score.find(pair);
        equal = equal && found != by_score.end();
        if (equal) ranks.emplace_back(merge.rank, found->second.rank);
    }
    std::sort(ranks.begin(), ranks.end());
    for (std::size_t i = 1; i < ranks.size(); ++i) {
        const bool same_rank = ranks[i - 1].first == ranks[i].first;
        const bool same_score = ranks[i - 1].second == ranks[i].second;
        equal = equal && (same_score || (!same_rank && ranks[i - 1].second < ranks[i].second));
    }
    require(equal,
            "export: the merges are not SentencePiece's, which follow from a score per token");
}

// The negative rank of each token's first merge. Tokens that are not merged have the score 0.
std::vector<double> scores_of(const Tokenizer& tokenizer, std::size_t vocab_size) {
    std::map<Id, double> first_ranks;
    for (const auto& [pair, merge] : tokenizer.merges) {
        const auto [first, is_new] = first_ranks.emplace(merge.merged, merge.rank);
        if (!is_new) first->second = std::min(first->second, merge.rank);
    }
    std::vector<double> scores(vocab_size);
    for (const auto& [id, rank] : first_ranks) scores[static_cast<std::size_t>(id)] = -rank;
    check_scores(tokenizer, scores);
    return scores;
}

Texts normalizer_types(const Tokenizer& tokenizer) {
    Texts types;
    for (const Normalizer& normalizer : tokenizer.normalizers) types.push_back(normalizer.type);
    return types;
}

std::string joined(const Texts& texts, const std::string& separator) {
    std::string all;
    for (const std::string& text : texts) all += (all.empty() ? "" : separator) + text;
    return all;
}

// A text on which pre-tokenizers differ.
const std::string probe_text =
    "We'LL it's 12345 ½² DoesIt naïve e\u0301a __x!!\n/\n\n  x\ty 中文，の (a).b\r\n";

// In SentencePiece, spaces are ▁. A tokenizer of llama2.c has spaces.
GgufMetadata sentencepiece_metadata(const Tokenizer& tokenizer, Tokens tokens) {
    // The text before BPE: one word, with ▁ for spaces, and perhaps one before it.
    const auto words_of = [&](const std::string& text, bool at_start) {
        return tokenizer.pre_tokenize(tokenizer.normalize(text), at_start);
    };
    const Texts words = words_of("a  b", true);
    const bool of_llama2c = words == Texts{" a  b"};
    const bool add_space_prefix = of_llama2c || words == Texts{"▁a▁▁b"};
    Texts types = normalizer_types(tokenizer);
    const bool has_others = std::any_of(types.begin(), types.end(), [](const auto& type) {
        return type != "Prepend" && type != "Replace";
    });
    for (const PreTokenizer& one : tokenizer.pre_tokenizers) types.push_back(one.type);
    require((add_space_prefix || words == Texts{"a▁▁b"}) && !has_others,
            "export: llama.cpp's SentencePiece does not have these normalizers and "
            "pre-tokenizers: {}",
            types.empty() ? "(none)" : joined(types, ", "));
    require(words_of("a  b", false) == words,
            "export: llama.cpp's SentencePiece prepends a space after each special token, not "
            "only at the beginning of a text");
    require(words_of(probe_text, true).size() == 1 && !tokenizer.ignore_merges,
            "export: llama.cpp's SentencePiece does not split a text into words, and has no "
            "ignore_merges");
    require(tokenizer.byte_token_ids.size() == 256,
            "export: llama.cpp's SentencePiece needs 256 byte tokens, not {}",
            tokenizer.byte_token_ids.size());
    require(tokenizer.strip_leading_space == add_space_prefix,
            "export: llama.cpp removes a leading space if and only if it prepends one");
    if (of_llama2c)
        for (std::string& name : tokens.names) name = replaced(name, " ", "▁");
    check_decoding(tokenizer, tokens,
                   [](const std::string& name) { return replaced(name, "▁", " "); });
    return {{prefix + "model", std::string("llama")},
            {prefix + "pre", std::string("default")},
            {prefix + "tokens", tokens.names},
            {prefix + "scores", scores_of(tokenizer, tokens.names.size())},
            {prefix + "token_type", tokens.types},
            {prefix + "add_space_prefix", add_space_prefix}};
}

// The words of the probe text, which a byte-level pre-tokenizer spells in other characters.
Texts probe_words(const Tokenizer& tokenizer) {
    Texts words = tokenizer.pre_tokenize(probe_text, true);
    if (tokenizer.is_byte_level())
        for (std::string& word : words) word = unicode_to_bytes(word);
    return words;
}

// Finds the name by the words of a text: one pattern can be written in several ways, and
// tokenizer.json has pre-tokenizers without a pattern. llama.cpp's converter finds it by ids.
// Source: llama.cpp, convert_hf_to_gguf_update.py, chktxt.
std::string find_pre_type(const Tokenizer& tokenizer) {
    const Texts words = probe_words(tokenizer), normalizers = normalizer_types(tokenizer);
    for (const PreType& pre : pre_types()) {
        Tokenizer of_this_type;
        of_this_type.pre_tokenizers = pre.pre_tokenizers();
        if (probe_words(of_this_type) == words &&
            tokenizer.ignore_merges == pre.ignore_merges &&
            normalizers == (pre.nfc ? Texts{"NFC"} : Texts{}))
            return pre.names.front();
    }
    require(false,
            "export: pre_tokenizer, normalizer and ignore_merges are not those of a name in "
            "tokenizer.ggml.pre; supported: {}",
            names_of_pre_types());
    return "";
}

// Spells the bytes of each token as in byte-level BPE. A character of several bytes would need
// merges, so the tokens must be ASCII.
void spell_bytes(Tokens& tokens) {
    for (std::size_t id = 0; id < tokens.names.size(); ++id) {
        if (tokens.types[id] != Type::normal) continue;
        std::string spelled;
        for (const char letter : tokens.names[id]) {
            const auto value = static_cast<unsigned char>(letter);
            require(
                value < 0x80,
                "export: token {}, '{}', is not ASCII; llama.cpp has no BPE over characters",
                id, escaped(tokens.names[id]));
            spelled += byte_to_unicode(value);
        }
        tokens.names[id] = spelled;
    }
}

// The merges in the order of their ranks, each as "a b".
Texts merges_of(const Tokenizer& tokenizer, const Texts& names) {
    std::map<double, TokenPair> by_rank;
    for (const auto& [pair, merge] : tokenizer.merges) by_rank[merge.rank] = pair;
    Texts merges;
    for (const auto& [rank, pair] : by_rank)
        merges.push_back(names[static_cast<std::size_t>(pair.first)] + " " +
                         names[static_cast<std::size_t>(pair.second)]);
    return merges;
}

GgufMetadata byte_level_metadata(const Tokenizer& tokenizer, Tokens tokens) {
    const std::string pre = find_pre_type(tokenizer);
    require(!tokenizer.strip_leading_space && tokenizer.byte_token_ids.empty(),
            "export: llama.cpp's byte-level BPE has no byte tokens and strips no space");
    if (!tokenizer.is_byte_level()) spell_bytes(tokens);
    check_decoding(tokenizer, tokens, unicode_to_bytes);
    return {{prefix + "model", std::string("gpt2")},
            {prefix + "pre", pre},
            {prefix + "tokens", tokens.names},
            {prefix + "token_type", tokens.types},
            {prefix + "merges", merges_of(tokenizer, tokens.names)}};
}

// The EOS tokens. Those of llama2.c include BOS, which is not the first.
std::vector<Id> eos_token_ids(const Tokenizer& tokenizer, std::optional<Id> bos_token_id) {
    std::vector<Id> ids = tokenizer.eos_token_ids;
    std::stable_partition(ids.begin(), ids.end(), [&](Id id) { return id != bos_token_id; });
    if (ids.empty() && tokenizer.unk_token_id) ids = {*tokenizer.unk_token_id};
    require(!ids.empty() && ids.size() <= 3,
            "export: a GGUF file has 1 to 3 EOS tokens, not {}", ids.size());
    return ids;
}

void add_special_tokens(const Tokenizer& tokenizer, GgufMetadata& metadata) {
    const std::vector<Id>& first = tokenizer.prefix_tokens;
    std::optional<Id> bos = tokenizer.bos_token_id;
    if (!bos && !first.empty()) bos = first[0];
    require(first.empty() || first == std::vector{*bos},
            "export: llama.cpp begins a text with BOS or nothing, not with other tokens");
    const auto add = [&](const std::string& name, Id id) {
        metadata.emplace_back(prefix + name + "_token_id", std::int64_t{id});
    };
    if (bos) add("bos", *bos);
    const std::vector<Id> ends = eos_token_ids(tokenizer, bos);
    const std::array<std::string, 3> names = {"eos", "eot", "eom"};
    for (std::size_t i = 0; i < ends.size(); ++i) add(names[i], ends[i]);
    if (tokenizer.unk_token_id) add("unknown", *tokenizer.unk_token_id);
    metadata.emplace_back(prefix + "add_bos_token", !first.empty());
}

}  // namespace

GgufMetadata tokenizer_metadata(const Tokenizer& tokenizer, std::size_t vocab_size) {
    check_normalized_tokens(tokenizer);
    check_added_tokens(tokenizer);
    const Tokens tokens = tokens_of(tokenizer, vocab_size);
    if (tokenizer.word_model) return wordpiece_metadata(tokenizer, tokens.names, tokens.types);
    require(tokenizer.suffix_tokens.empty(),
            "export: BPE that adds a token after a text is not written to a GGUF file");
    GgufMetadata metadata = tokenizer.byte_fallback ? sentencepiece_metadata(tokenizer, tokens)
                                                    : byte_level_metadata(tokenizer, tokens);
    add_special_tokens(tokenizer, metadata);
    return metadata;
}

}  // namespace llm::models
