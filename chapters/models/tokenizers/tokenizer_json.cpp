#include "chapters/models/tokenizers/tokenizer_json.hpp"

#include "chapters/models/tokenizers/normalizer_json.hpp"
#include "chapters/models/tokenizers/unigram_json.hpp"
#include "chapters/models/tokenizers/wordpiece_json.hpp"
#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"

namespace llm::models {
namespace {

// An optional boolean.
bool flag(const JsonFile& json, const std::string& key, bool default_value) {
    return json.has(key) ? json.boolean(key) : default_value;
}

// Reads a tokenizer.json, component by component.
class TokenizerJson {
 public:
    TokenizerJson(const std::string& path, std::optional<std::size_t> vocab_size)
        : json_(path), vocab_size_(vocab_size) {
        tokenizer_.token_bytes.resize(vocab_size.value_or(0));
    }

    Tokenizer read() {
        read_model(json_.object("model"));
        for_each(json_, "normalizer", "normalizers", &TokenizerJson::add_normalizer);
        assign_normalized_tokens();
        for_each(json_, "pre_tokenizer", "pretokenizers", &TokenizerJson::read_pre_tokenizer);
        for_each(json_, "post_processor", "processors", &TokenizerJson::read_post_processor);
        if (!json_.has("decoder")) json_.reject("a tokenizer without decoder is not supported");
        for_each(json_, "decoder", "decoders", &TokenizerJson::read_decoder);
        if (tokenizer_.word_model.target<Unigram>()) keep_components(json_, tokenizer_);
        return std::move(tokenizer_);
    }

 private:
    JsonFile json_;
    std::optional<std::size_t> vocab_size_;
    Tokenizer tokenizer_;
    std::vector<AddedToken> normalized_;  // added tokens with "normalized": true
    bool fused_ = false;                  // has a "Fuse" decoder been read?

    // Reads a component or, if its type is "Sequence", each of the components in its list.
    void for_each(const JsonFile& json, const std::string& key, const std::string& list,
                  void (TokenizerJson::*read_one)(const JsonFile&, const std::string&)) {
        if (!json.has(key)) return;
        const JsonFile component = json.object(key);
        const std::string type = component.text("type");
        if (type != "Sequence") return (this->*read_one)(component, type);
        for (const JsonFile& element : component.objects(list))
            (this->*read_one)(element, element.text("type"));
    }

    [[noreturn]] static void reject(const JsonFile& json, const std::string& what) {
        json.reject(what + " is not supported");
    }

    Id id_of(const JsonFile& json, const std::string& token) const {
        const auto found = tokenizer_.vocab.find(token);
        if (found == tokenizer_.vocab.end()) json.reject("there is no token " + token);
        return found->second;
    }

    void add(const std::string& token, Id id) {
        const auto index = static_cast<std::size_t>(id);
        const std::size_t limit = vocab_size_.value_or(1 << 24);
        if (index >= limit)
            json_.reject("token " + token + " has the id " + to_text(id) +
                         ", but the vocabulary size is " + to_text(limit));
        if (index >= tokenizer_.vocab_size()) tokenizer_.token_bytes.resize(index + 1);
        tokenizer_.vocab[token] = id;
        tokenizer_.token_bytes[index] = token;
    }

    static void check_bpe(const JsonFile& model) {
        const std::string type = model.has("type") ? model.text("type") : "BPE";
        if (type != "BPE") model.reject("type", type + " is not supported");
        if (model.has("dropout") && model.number("dropout") > 0)
            model.reject("dropout", "is not supported");
        for (const std::string key : {"continuing_subword_prefix", "end_of_word_suffix"})
            if (model.has(key) && !model.text(key).empty())
                model.reject(key, "is not supported");
    }

    void read_model(const JsonFile& model) {
        if (is_unigram(model)) return read_unigram(model);
        const bool has_merges = !is_wordpiece(model);
        if (has_merges) check_bpe(model);
        for (const auto& [token, id] : model.ids_by_name("vocab")) add(token, id);
        if (has_merges) read_merges(model);
        if (!has_merges) tokenizer_.word_model = read_wordpiece(model);
        read_added_tokens();
        if (model.has("unk_token") || !has_merges)
            tokenizer_.unk_token_id = id_of(model, model.text("unk_token"));
        tokenizer_.fuse_unk = flag(model, "fuse_unk", false);
        tokenizer_.byte_fallback = flag(model, "byte_fallback", false);
        tokenizer_.ignore_merges = flag(model, "ignore_merges", false);
    }

    void read_unigram(const JsonFile& model) {
        std::vector<double> scores;
        for (const auto& [token, score] : read_scored_tokens(model)) {
            add(token, static_cast<Id>(scores.size()));
            scores.push_back(score);
        }
        tokenizer_.word_model = Unigram(tokenizer_.vocab, scores);
        if (model.has("unk_id")) {
            tokenizer_.unk_token_id = static_cast<Id>(model.count_or("unk_id", 0));
            if (std::size_t(*tokenizer_.unk_token_id) >= scores.size())
                model.reject("unk_id", "has no token");
        }
        tokenizer_.fuse_unk = true;
        tokenizer_.byte_fallback = flag(model, "byte_fallback", false);
        model.reject_unread({});
        read_added_tokens();
    }

    // Each merge is "a b" or, in newer files, ["a", "b"]. The first one has rank 0. A pair that
    // is listed twice has the later rank, as in Hugging Face's library.
    void read_merges(const JsonFile& model) {
        double rank = 0;
        for (std::vector<std::string> pair : model.text_lists("merges")) {
            if (pair.size() == 1) {
                const std::string both = pair[0];
                const std::size_t space = both.find(' ');
                if (space != both.npos) pair = {both.substr(0, space), both.substr(space + 1)};
            }
            if (pair.size() != 2) model.reject("a merge must name two tokens");
            const Id merged = id_of(model, pair[0] + pair[1]);
            tokenizer_.merges[{id_of(model, pair[0]), id_of(model, pair[1])}] = {rank++,
                                                                                 merged};
        }
    }

    // An added token may stand in the vocabulary, too, but not with another id or name.
    void check_new(const JsonFile& json, const std::string& content, Id id) const {
        const auto known = tokenizer_.vocab.find(content);
        if (known != tokenizer_.vocab.end() && known->second != id)
            json.reject(content + " has the id " + to_text(id) + ", and in the vocabulary " +
                        to_text(known->second));
        const auto index = static_cast<std::size_t>(id);
        if (index >= tokenizer_.vocab_size()) return;
        const std::string& token = tokenizer_.token_bytes[index];
        if (!token.empty() && token != content)
            json.reject(content + " has the id " + to_text(id) + " of the token " + token);
    }

    void read_added_tokens() {
        if (!json_.has("added_tokens")) return;
        for (const JsonFile& token : json_.objects("added_tokens")) {
            const std::string content = token.text("content");
            const auto ids = token.ids("id");
            if (content.empty() || ids.size() != 1) token.reject("needs a content and an id");
            check_new(token, content, ids[0]);
            add(content, ids[0]);
            const bool normalized = flag(token, "normalized", false);
            (normalized ? normalized_ : tokenizer_.added_tokens)
                .push_back({content, ids[0], flag(token, "lstrip", false),
                            flag(token, "rstrip", false), flag(token, "single_word", false)});
            if (flag(token, "special", false)) tokenizer_.all_special_ids.insert(ids[0]);
        }
    }

    // Added tokens with "normalized": true are normalized, too, and matched in the normalized
    // text. With Llama 2's Prepend, <s> becomes ▁<s>, which matches at the beginning of a text
    // and not in "a<s>".
    void assign_normalized_tokens() {
        for (AddedToken& token : normalized_) {
            token.content = tokenizer_.normalize(token.content);
            tokenizer_.normalized_added_tokens.push_back(token);
        }
    }

    void add_normalizer(const JsonFile& json, const std::string&) {
        tokenizer_.normalizers.push_back(read_normalizer(json));
    }

    void read_pre_tokenizer(const JsonFile& json, const std::string& type) {
        if (type == "ByteLevel") {
            tokenizer_.pre_tokenizers.push_back(byte_level_pre_tokenizer(
                flag(json, "add_prefix_space", true), flag(json, "use_regex", true)));
        } else if (type == "BertPreTokenizer") {
            tokenizer_.pre_tokenizers.push_back(bert_pre_tokenizer());
        } else if (type == "WhitespaceSplit") {
            tokenizer_.pre_tokenizers.push_back(whitespace_split_pre_tokenizer());
        } else if (type == "Digits") {
            tokenizer_.pre_tokenizers.push_back(
                digits_pre_tokenizer(flag(json, "individual_digits", false)));
        } else if (type == "Split") {
            read_split(json);
        } else if (type == "Metaspace") {
            read_metaspace(json);
        } else {
            json.reject("type", type + " is not supported");
        }
    }

    void read_split(const JsonFile& json) try {
        const std::string behavior = json.text("behavior");
        const bool invert = flag(json, "invert", false);
        if (behavior == "MergedWithPrevious" && !invert) {
            const std::string separator = read_pattern(json, "String");
            tokenizer_.pre_tokenizers.push_back(split_after_pre_tokenizer(separator));
            return;
        }
        const bool only_matches = behavior == "Removed" && invert;
        if (behavior != "Isolated" && !only_matches)
            json.reject("behavior",
                        (invert ? "inverted " : "") + behavior + " is not supported");
        tokenizer_.pre_tokenizers.push_back(
            regex_pre_tokenizer("Split", read_pattern(json, "Regex"), !only_matches));
    } catch (const TextError& error) {
        json.reject(std::string("pattern.Regex: ") + error.what());
    }

    void read_metaspace(const JsonFile& json) {
        const std::string replacement = json.text("replacement");
        if (replacement.empty()) json.reject("replacement", "must not be empty");
        const PrependScheme scheme = read_prepend_scheme(json);
        if (scheme == PrependScheme::first && !tokenizer_.pre_tokenizers.empty())
            json.reject("prepend_scheme", "first after another pre-tokenizer is not supported");
        tokenizer_.pre_tokenizers.push_back(
            metaspace_pre_tokenizer(replacement, scheme, flag(json, "split", true)));
    }

    // Special tokens before and after the text, as in "<s> A" and "[CLS] A [SEP]".
    void read_post_processor(const JsonFile& json, const std::string& type) {
        if (type == "ByteLevel") return;
        if (type == "BertProcessing") return read_bert_processing(json, tokenizer_);
        if (type != "TemplateProcessing") json.reject("type", type + " is not supported");
        bool after_text = false;
        for (const JsonFile& part : json.objects("single")) {
            if (part.has("SpecialToken")) {
                read_special_token(
                    json, part,
                    after_text ? tokenizer_.suffix_tokens : tokenizer_.prefix_tokens);
            } else {
                if (after_text) reject(part, "a second text");
                after_text = true;
            }
        }
        const bool has_pairs = !tokenizer_.word_model.target<Unigram>();
        if (has_pairs && (!tokenizer_.suffix_tokens.empty() || tokenizer_.word_model))
            check_pair_template(json);
    }

    // The ids of a special token stand in a table of the template; its name may be another one.
    void read_special_token(const JsonFile& json, const JsonFile& part,
                            std::vector<Id>& tokens) {
        const std::string name = part.text("SpecialToken.id");
        const std::string ids = "special_tokens." + name + ".ids";
        if (!json.has(ids)) return tokens.push_back(id_of(part, name));
        for (const std::int64_t id : json.ids(ids)) {
            if (static_cast<std::size_t>(id) >= tokenizer_.vocab_size())
                json.reject(ids, "has no token " + to_text(id));
            tokens.push_back(id);
        }
    }

    // Applies each decoder to all tokens once, instead of to every decoded text.
    void read_decoder(const JsonFile& json, const std::string& type) {
        if (type == "ByteLevel") {
            for (std::string& token : tokenizer_.token_bytes) token = unicode_to_bytes(token);
        } else if (type == "ByteFallback") {
            decode_byte_fallback_tokens(tokenizer_);
        } else if (type == "WordPiece") {
            read_wordpiece_decoder(json, tokenizer_);
        } else if (type == "Metaspace") {
            read_metaspace_decoder(json, tokenizer_);
        } else if (type == "Fuse") {
            fused_ = true;
        } else if (type == "Replace") {
            const std::string old_text = read_pattern(json, "String");
            for (std::string& token : tokenizer_.token_bytes)
                token = replaced(token, old_text, json.text("content"));
        } else if (type == "Strip") {
            if (json.text("content") != " " || json.number("start") != 1 ||
                json.number("stop") != 0 || !fused_)
                reject(json, "this Strip");
            tokenizer_.strip_leading_space = true;
        } else {
            json.reject("type", type + " is not supported");
        }
    }
};

}  // namespace

Tokenizer load_tokenizer_json(const std::string& path,
                              std::optional<std::size_t> vocab_size) try {
    return TokenizerJson(path, vocab_size).read();
} catch (const TextError& error) {
    throw FileError(path + ": " + error.what());
}

}  // namespace llm::models
