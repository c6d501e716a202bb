#include "chapters/25_encoders/wordpiece.hpp"

#include <algorithm>
#include <map>

#include "common/files/unicode.hpp"
#include "common/files/unicode_properties.hpp"

namespace llm {
namespace {

// The longest token of the vocabulary that begins at a byte of the word, and where it ends.
struct LongestToken {
    Id id;
    std::size_t end;  // in bytes
};
std::optional<LongestToken> longest_token(const Tokenizer& tokenizer, const std::string& word,
                                          std::size_t begin, const std::string& prefix) {
    std::string token = (begin > 0 ? prefix : "") + word.substr(begin);
    for (std::size_t end = word.size(); end > begin; --end, token.pop_back())
        if (const auto found = tokenizer.vocab.find(token); found != tokenizer.vocab.end())
            return LongestToken{found->second, end};
    return std::nullopt;
}

}  // namespace

std::vector<Id> WordPiece::operator()(const Tokenizer& tokenizer,
                                      const std::string& word) const {
    require(tokenizer.unk_token_id.has_value(), "WordPiece: there is no unknown token");
    const std::vector<Id> unknown = {*tokenizer.unk_token_id};
    const std::size_t most = max_input_chars_per_word;
    if (word.size() > most && characters(word).size() > most) return unknown;

    // Take the longest token that matches, then go on after it.
    std::vector<Id> ids;
    for (std::size_t at = 0; at < word.size();) {
        const auto token = longest_token(tokenizer, word, at, continuing_subword_prefix);
        if (!token) return unknown;  // also if the tokens before it were known
        ids.push_back(token->id);
        at = token->end;
    }
    return ids;
}

namespace {

bool is_white_space_character(const std::string& character) {
    return white_space_end(character, 0) > 0;
}

// Control characters, and those for formats and private use, which are not shown.
bool is_removed_by_cleaning(const std::string& character) {
    const std::string_view category = general_category(character);
    return category == "Cc" || category == "Cf" || category == "Co" || character == "\ufffd";
}

std::string cleaned(const std::string& text) {
    std::string result;
    for (const std::string& character : characters(text))
        if (!is_removed_by_cleaning(character))
            result += is_white_space_character(character) ? " " : character;
    return result;
}

// The blocks of Chinese characters, which Japanese and Korean texts have, too: such a text has
// no spaces between words. Kana and Hangul are not among them.
bool is_chinese(const std::string& character) {
    const char32_t c = code_point_of(character);
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b820 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

std::string with_spaces_around_chinese(const std::string& text) {
    std::string result;
    for (const std::string& character : characters(text))
        result += is_chinese(character) ? " " + character + " " : character;
    return result;
}

// NFD writes "é" as "e" and an accent, a nonspacing mark, which is then removed.
std::string without_accents(const std::string& text) {
    std::string result;
    for (const std::string& character : characters(decomposed(text)))
        if (general_category(character) != "Mn") result += character;
    return result;
}

std::string normalize_other(const BertNormalizer& steps, std::string text) {
    if (steps.clean_text) text = cleaned(text);
    if (steps.handle_chinese_chars) text = with_spaces_around_chinese(text);
    if (steps.strip_accents.value_or(steps.lowercase)) text = without_accents(text);
    return steps.lowercase ? lower_case(text) : text;
}

// The same for ASCII, of which most texts consist: it has no Chinese characters and no accents.
std::string normalize_ascii(const BertNormalizer& steps, std::string text) {
    const auto is_space = [](char c) { return c == '\t' || c == '\n' || c == '\r'; };
    const auto is_control = [](char c) { return c < ' ' || c == '\x7f'; };
    if (steps.clean_text) {
        std::replace_if(text.begin(), text.end(), is_space, ' ');
        std::erase_if(text, is_control);
    }
    return steps.lowercase ? lower_case(text) : text;
}

bool is_bert_punctuation(const std::string& character) {
    const char c = character[0];
    if (!is_ascii(character)) return general_category(character).starts_with('P');
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

}  // namespace

std::string BertNormalizer::operator()(const std::string& text) const {
    // The steps change each character by itself, but for the order of the accents of a letter.
    std::string result;
    for (const std::string& run : ascii_runs(text))
        result += is_ascii(run) ? normalize_ascii(*this, run) : normalize_other(*this, run);
    return result;
}

Normalizer bert_normalizer(const BertNormalizer& settings) {
    return {"BertNormalizer", settings};
}

PreTokenizer bert_pre_tokenizer() {
    return {"BertPreTokenizer", [](const std::string& text, bool) {
                std::vector<std::string> words;
                bool in_word = false;  // does the next character continue the last word?
                for (const std::string& character : characters(text)) {
                    const bool is_space = is_white_space_character(character);
                    const bool is_punctuation = is_bert_punctuation(character);
                    if (in_word && !is_space && !is_punctuation) {
                        words.back() += character;
                    } else if (!is_space) {
                        words.push_back(character);
                    }
                    in_word = !is_space && !is_punctuation;
                }
                return words;
            }};
}

namespace {

// Source: Hugging Face tokenizers, decoders/wordpiece.rs, cleanup.
std::string cleaned_up(std::string text) {
    const std::vector<std::pair<std::string, std::string>> replacements = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [old_text, new_text] : replacements)
        text = replaced(text, old_text, new_text);
    return text;
}

}  // namespace

std::string wordpiece_text(const std::string& token, const std::string& prefix, bool cleanup) {
    const bool continues = token.starts_with(prefix);
    std::string text = continues ? token.substr(prefix.size()) : " " + token;
    return cleanup ? cleaned_up(std::move(text)) : text;
}

void decode_wordpieces(Tokenizer& tokenizer, const std::string& prefix, bool cleanup) {
    tokenizer.first_token_bytes = tokenizer.token_bytes;
    if (cleanup)
        for (std::string& token : tokenizer.first_token_bytes) token = cleaned_up(token);
    for (std::string& token : tokenizer.token_bytes)
        if (!token.empty()) token = wordpiece_text(token, prefix, cleanup);
}

namespace {

const std::string continuing = "##";

// The id of a token, which is added if it is new. Its bytes are those of the decoded text: a
// space is where a word begins, so that the bytes of a merge are those of its parts.
Id id_of_token(Tokenizer& tokenizer, const std::string& token) {
    const auto found = tokenizer.vocab.find(token);
    return found != tokenizer.vocab.end()
               ? found->second
               : add_token(tokenizer, wordpiece_text(token, continuing, false));
}

// A tokenizer of the special tokens alone.
Tokenizer special_tokens_of_bert(const WordPieceOptions& options) {
    Tokenizer tokenizer;
    tokenizer.word_model = WordPiece();
    tokenizer.spelling = [](const std::string& bytes) {
        return bytes.starts_with(' ') ? bytes.substr(1) : continuing + bytes;
    };
    tokenizer.normalizers = {bert_normalizer({.lowercase = options.lowercase})};
    tokenizer.pre_tokenizers = {bert_pre_tokenizer()};
    for (const std::string& token : options.special_tokens) {
        require(!token.empty(), "train_wordpiece: a special token is empty");
        require(!tokenizer.vocab.contains(token), "train_wordpiece: {} is given twice", token);
        const Id id = id_of_token(tokenizer, token);
        tokenizer.added_tokens.push_back({token, id});
        tokenizer.all_special_ids.insert(id);
    }
    for (const char* token : {"[UNK]", "[CLS]", "[SEP]"})
        require(tokenizer.vocab.contains(token), "train_wordpiece: {} is no special token",
                token);
    tokenizer.unk_token_id = tokenizer.vocab.at("[UNK]");
    tokenizer.prefix_tokens = {tokenizer.vocab.at("[CLS]")};
    tokenizer.suffix_tokens = {tokenizer.vocab.at("[SEP]")};
    return tokenizer;
}

// The initial state of training: the vocabulary is the special tokens, all characters, sorted,
// and those that continue a word.
BPETrainer make_wordpiece_trainer(const std::string& text, const WordPieceOptions& options) {
    BPETrainer trainer{special_tokens_of_bert(options), {}};
    Tokenizer& tokenizer = trainer.tokenizer;
    std::map<std::string, std::size_t> word_counts;
    for (const std::string& word : tokenizer.pre_tokenize(tokenizer.normalize(text), true))
        ++word_counts[word];
    if (word_counts.empty()) throw TextError("the text is empty");

    std::set<std::string> alphabet;
    for (const auto& [word, count] : word_counts)
        for (const std::string& character : characters(word)) alphabet.insert(character);
    for (const std::string& character : alphabet) id_of_token(tokenizer, character);

    for (const auto& [word, count] : word_counts) {
        std::vector<Id> ids;
        for (const std::string& character : characters(word))
            ids.push_back(id_of_token(tokenizer, (ids.empty() ? "" : continuing) + character));
        trainer.words.push_back({ids, count});
    }
    return trainer;
}

}  // namespace

Tokenizer train_wordpiece(const std::string& text, const WordPieceOptions& options) {
    BPETrainer trainer = make_wordpiece_trainer(text, options);
    Tokenizer& tokenizer = trainer.tokenizer;
    require(tokenizer.vocab_size() <= options.vocab_size,
            "train_wordpiece: {} special tokens and characters are too many for a vocabulary "
            "of {}",
            tokenizer.vocab_size(), options.vocab_size);

    // Merge as BPE does, and forget the merges: encoding needs the vocabulary alone.
    train_merges(trainer, {options.vocab_size, {}, options.min_frequency});
    tokenizer.merges.clear();

    // From here on, a token has the bytes to which decode cleans it up.
    for (std::string& bytes : tokenizer.token_bytes) bytes = tokenizer.spelling(bytes);
    decode_wordpieces(tokenizer, continuing, true);
    return tokenizer;
}

std::string spelling_of(const Tokenizer& tokenizer, Id id) {
    for (const auto& [token, each] : tokenizer.vocab)
        if (each == id) return token;
    return tokenizer.token_text(id);
}

std::string tokens_of_text(const Tokenizer& tokenizer, const std::string& text) {
    std::string tokens;
    for (const Id id : tokenizer.encode(text))
        tokens += (tokens.empty() ? "" : " ") + spelling_of(tokenizer, id);
    return tokens;
}

EncodedPair encode_pair(const Tokenizer& tokenizer, const std::string& first,
                        const std::string& second) {
    require(!tokenizer.word_model || tokenizer.word_model.target<WordPiece>(),
            "encode_pair: this is no tokenizer of BERT");
    std::vector<Id> ids = tokenizer.encode(first);
    const std::size_t num_first = ids.size();
    std::vector<Id> rest = tokenizer.encode(second);
    const auto num_prefix = static_cast<std::ptrdiff_t>(tokenizer.prefix_tokens.size());
    ids.insert(ids.end(), rest.begin() + num_prefix, rest.end());
    std::vector<Id> types(ids.size(), 1);
    std::fill_n(types.begin(), num_first, 0);
    return {ids, types};
}

}  // namespace llm
