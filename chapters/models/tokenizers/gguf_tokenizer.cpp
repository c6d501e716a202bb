#include "chapters/models/tokenizers/gguf_tokenizer.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/models/tokenizers/gguf_pre_types.hpp"
#include "chapters/models/tokenizers/llama2c_tokenizer.hpp"
#include "chapters/models/tokenizers/wordpiece_gguf.hpp"
#include "common/files/unicode.hpp"

namespace llm::models {
namespace {

using Type = GgufTokenType;

// Keys under tokenizer.ggml that may be unread.
const std::set<std::string> unused_keys = {
    // Of an encoder's embeddings.
    "token_type_count",
    // Of the other model.
    "add_space_prefix", "merges", "pre", "scores",
    // Tokens that encode() does not add by itself.
    "cls_token_id", "fim_mid_token_id", "fim_pad_token_id", "fim_pre_token_id",
    "fim_rep_token_id", "fim_sep_token_id", "fim_suf_token_id", "mask_token_id",
    "middle_token_id", "padding_token_id", "prefix_token_id", "seperator_token_id",
    "suffix_token_id"};

// Reads the tokenizer of a GGUF file, component by component.
class GgufTokenizer {
 public:
    GgufTokenizer(const Gguf& file, std::optional<std::size_t> vocab_size)
        : file_(file), limit_(vocab_size.value_or(1 << 24)) {}

    Tokenizer read() {
        const std::string model = file_.text("tokenizer.ggml.model");
        if (model != "llama" && model != "gpt2" && model != "bert")
            file_.reject("tokenizer.ggml.model " + model +
                         " is not supported; llama, gpt2 and bert are");
        read_tokens(model == "bert");
        if (is_named_phi3()) strip_after_special_tokens();
        if (model == "llama") read_sentencepiece();
        if (model == "gpt2") read_byte_level_bpe();
        if (model == "bert") read_wordpiece();
        for (std::size_t id = 0; id < types_.size(); ++id)
            if (types_[id] == Type::byte &&
                !tokenizer_.byte_token_ids.contains(static_cast<Id>(id)))
                reject_token(id, "has the type of a byte, but no byte fallback token's name");
        file_.reject_unread("tokenizer.ggml.", unused_keys);
        return std::move(tokenizer_);
    }

 private:
    const Gguf& file_;
    std::size_t limit_;  // the largest number of tokens
    std::vector<std::int64_t> types_;
    Tokenizer tokenizer_;

    bool flag(const std::string& name, bool default_value) const {
        const std::string key = "tokenizer.ggml." + name;
        return file_.has(key) ? file_.boolean(key) : default_value;
    }

    [[noreturn]] void reject_token(std::size_t id, const std::string& problem) const {
        file_.reject("tokenizer.ggml.tokens: token " + to_text(id) + " " + problem);
    }

    void check_length(const std::string& name, std::size_t length) const {
        if (length != tokenizer_.vocab_size())
            file_.reject("tokenizer.ggml." + name + " has " + to_text(length) +
                         " elements, but there are " + to_text(tokenizer_.vocab_size()) +
                         " tokens");
    }

    void read_tokens(bool of_wordpiece) {
        tokenizer_.token_bytes = file_.texts("tokenizer.ggml.tokens");
        const std::size_t count = tokenizer_.vocab_size();
        if (count == 0) file_.reject("tokenizer.ggml.tokens is empty");
        if (count > limit_)
            file_.reject("tokenizer.ggml.tokens has " + to_text(count) +
                         " elements, but the vocabulary size is " + to_text(limit_));
        types_ = file_.integers("tokenizer.ggml.token_type");
        check_length("token_type", types_.size());
        for (std::size_t id = 0; id < count && of_wordpiece; ++id)
            if (std::string& token = tokenizer_.token_bytes[id]; types_[id] == Type::normal)
                token = wordpiece_of_gguf(token);
        for (std::size_t id = 0; id < count; ++id) add(id);
    }

    // Adds a token to the vocabulary. Control and user-defined tokens, and the unknown token,
    // are matched literally in the text. decode skips control tokens and the unknown token.
    void add(std::size_t index) {
        const std::string& token = tokenizer_.token_bytes[index];
        const Id id = static_cast<Id>(index);
        if (replace_invalid_utf8(token) != token) reject_token(index, "is not UTF-8");
        // Of equal tokens, the first one encodes; the others and empty ones only decode.
        const bool encodes = !token.empty() && tokenizer_.vocab.emplace(token, id).second;
        const std::int64_t type = types_[index];
        if (type < Type::normal || type > Type::byte)
            reject_token(index, "has the unknown type " + to_text(type));
        const bool special = type == Type::unknown || type == Type::control;
        if (special) tokenizer_.all_special_ids.insert(id);
        if (encodes && (special || type == Type::user_defined))
            tokenizer_.added_tokens.push_back({token, id});
    }

    // llama.cpp knows by the model's name that white space after Phi-3's special tokens is a
    // part of them: no key of the file says it. Source: llama-vocab.cpp, "set attributes by
    // model/tokenizer/architecture name".
    bool is_named_phi3() const {
        const std::string key = "general.name";
        std::string name = file_.has(key) ? file_.text(key) : "";
        for (char& letter : name)
            if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
        return name.find("phi-3") != name.npos || name.find("phi3") != name.npos;
    }
    void strip_after_special_tokens() {
        const std::set<std::string> others = {"<unk>", "<s>", "<|endoftext|>"};
        for (AddedToken& token : tokenizer_.added_tokens)
            token.rstrip = !others.contains(token.content);
    }

    // Replaces normal tokens with their bytes in a decoded text. Unused ones have none.
    void decode_tokens(const std::function<std::string(const std::string&)>& bytes_of) {
        for (std::size_t id = 0; id < types_.size(); ++id) {
            std::string& token = tokenizer_.token_bytes[id];
            if (types_[id] == Type::normal) token = bytes_of(token);
            if (types_[id] == Type::unused) token.clear();
        }
    }

    // The merges are the same as in a file of llama2.c. The prepended ▁ and the replaced spaces
    // are the normalizers of Llama 2's tokenizer.json.
    void read_sentencepiece() {
        const std::vector<double>& scores = file_.numbers("tokenizer.ggml.scores");
        check_length("scores", scores.size());
        for (std::size_t id = 0; id < scores.size(); ++id) {
            if (!std::isfinite(scores[id])) reject_token(id, "has a score that is not finite");
            if (tokenizer_.token_bytes[id].size() > 512)
                reject_token(id, "has more than 512 bytes");
        }
        tokenizer_.merges = merges_from_scores(tokenizer_.vocab, scores);

        decode_tokens([](const std::string& token) { return replaced(token, "▁", " "); });
        decode_byte_fallback_tokens(tokenizer_);
        tokenizer_.byte_fallback = true;
        tokenizer_.fuse_unk = true;
        if (flag("add_space_prefix", true)) {
            tokenizer_.normalizers.push_back(prepend_normalizer("▁"));
            tokenizer_.strip_leading_space = true;
        }
        tokenizer_.normalizers.push_back(replace_normalizer(" ", "▁"));
        read_special_tokens({1, 2, 0}, true);
    }

    void read_byte_level_bpe() {
        const PreType pre = read_pre_type();
        if (pre.nfc) tokenizer_.normalizers.push_back(nfc_normalizer());
        tokenizer_.pre_tokenizers = pre.pre_tokenizers();
        tokenizer_.ignore_merges = pre.ignore_merges;
        read_merges();
        decode_tokens(unicode_to_bytes);
        read_special_tokens({}, pre.add_bos);
    }

    // llama.cpp adds [CLS] and [SEP] in any case. Their ids, if missing, are those of the
    // published BERT.
    void read_wordpiece() {
        read_gguf_wordpiece(file_, tokenizer_);
        decode_tokens([](const std::string& token) { return token; });
        decode_wordpieces(tokenizer_, "##", true);
        for (const char* unused : {"add_bos_token", "add_eos_token", "add_sep_token"})
            flag(unused, true);
        const auto cls = read_id("cls", 101), sep = read_id("seperator", 102);
        read_special_tokens({cls, sep, 100}, false);
        if (!tokenizer_.bos_token_id || !sep || !tokenizer_.unk_token_id)
            file_.reject("tokenizer.ggml: there is no token [CLS], [SEP] or [UNK]");
        tokenizer_.prefix_tokens = {*tokenizer_.bos_token_id};
        tokenizer_.suffix_tokens = {*sep};
    }

    // "default", and a missing name in older files, are llama.cpp's guess for unknown
    // tokenizers and match no published one.
    PreType read_pre_type() const {
        const std::string key = "tokenizer.ggml.pre", names = names_of_pre_types();
        if (!file_.has(key)) file_.reject(key + " is missing; supported are " + names);
        for (const PreType& pre : pre_types())
            if (std::count(pre.names.begin(), pre.names.end(), file_.text(key)) > 0) return pre;
        file_.reject(key + " " + file_.text(key) + " is not supported; " + names + " are");
    }

    // Each merge is "a b". A pair that is listed twice has the later rank, as in Hugging Face's
    // library.
    void read_merges() {
        const std::vector<std::string>& merges = file_.texts("tokenizer.ggml.merges");
        for (std::size_t rank = 0; rank < merges.size(); ++rank) {
            const std::string& both = merges[rank];
            const auto reject = [&](const std::string& problem) {
                file_.reject("tokenizer.ggml.merges: merge " + to_text(rank) + " " + problem);
            };
            const auto id_of = [&](const std::string& token) {
                const auto found = tokenizer_.vocab.find(token);
                if (found == tokenizer_.vocab.end()) reject("needs the unknown token " + token);
                return found->second;
            };
            const std::size_t space = both.find(' ', 1);
            if (space == both.npos) reject("has no space");
            const std::string left = both.substr(0, space), right = both.substr(space + 1);
            const TokenPair pair{id_of(left), id_of(right)};
            tokenizer_.merges[pair] = {double(rank), id_of(left + right)};
        }
    }

    // The id under a key, which may be missing.
    std::optional<Id> read_id(const std::string& name, std::optional<Id> default_id) const {
        const auto count = static_cast<std::int64_t>(types_.size());
        const std::string key = "tokenizer.ggml." + name + "_token_id";
        if (!file_.has(key))
            return default_id && *default_id < count ? default_id : std::nullopt;
        const std::int64_t id = file_.integer(key);
        if (id == 0xFFFFFFFF) return std::nullopt;  // llama.cpp's LLAMA_TOKEN_NULL
        if (id < 0 || id >= count)
            file_.reject(key + " is " + to_text(id) + ", but there are " + to_text(count) +
                         " tokens");
        return static_cast<Id>(id);
    }

    // Generation stops at the EOS tokens of a text, of a turn and of a message.
    struct DefaultIds {
        std::optional<Id> bos, eos, unk;
    };
    void read_special_tokens(const DefaultIds& default_ids, bool add_bos) {
        tokenizer_.bos_token_id = read_id("bos", default_ids.bos);
        tokenizer_.unk_token_id = read_id("unknown", default_ids.unk);
        for (const std::string name : {"eos", "eot", "eom"}) {
            const auto id = read_id(name, name == "eos" ? default_ids.eos : std::nullopt);
            std::vector<Id>& ids = tokenizer_.eos_token_ids;
            if (id && std::count(ids.begin(), ids.end(), *id) == 0) ids.push_back(*id);
        }
        if (!flag("add_bos_token", add_bos) || tokenizer_.word_model) return;
        if (!tokenizer_.bos_token_id) file_.reject("tokenizer.ggml.bos_token_id is missing");
        tokenizer_.prefix_tokens = {*tokenizer_.bos_token_id};
    }
};

}  // namespace

Tokenizer read_gguf_tokenizer(const Gguf& file, std::optional<std::size_t> vocab_size) {
    Tokenizer tokenizer = GgufTokenizer(file, vocab_size).read();
    for (auto* bytes : {&tokenizer.token_bytes, &tokenizer.first_token_bytes})
        if (vocab_size && !bytes->empty()) bytes->resize(*vocab_size);
    return tokenizer;
}

}  // namespace llm::models
