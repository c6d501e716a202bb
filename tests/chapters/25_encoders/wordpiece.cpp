#include "chapters/25_encoders/wordpiece.hpp"

#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/files.hpp"

using namespace llm;

namespace {

using Strings = std::vector<std::string>;

// A tokenizer with these tokens, of which the first is the unknown token.
Tokenizer tokenizer_of_tokens(const Strings& tokens) {
    Tokenizer tokenizer;
    tokenizer.word_model = WordPiece();
    tokenizer.pre_tokenizers = {bert_pre_tokenizer()};
    for (const std::string& token : tokens) add_token(tokenizer, token);
    tokenizer.unk_token_id = 0;
    return tokenizer;
}

// The tokens of a text, spelled as in the vocabulary.
Strings spelled_tokens(const Tokenizer& tokenizer, const std::string& text) {
    std::unordered_map<Id, std::string> spellings;
    for (const auto& [token, id] : tokenizer.vocab) spellings[id] = token;
    Strings tokens;
    for (const Id id : tokenizer.encode(text)) tokens.push_back(spellings.at(id));
    return tokens;
}

// All tokens of a vocabulary, by id.
Strings tokens_by_id(const Tokenizer& tokenizer) {
    Strings tokens(tokenizer.vocab_size());
    for (const auto& [token, id] : tokenizer.vocab) tokens.at(std::size_t(id)) = token;
    return tokens;
}

// The vocabulary that Hugging Face's WordPieceTrainer has learned from text.txt.
Strings vocabulary_of_hugging_face(const std::string& kind) {
    const JsonFile json(fixture_path("25_encoders/" + kind + "/tokenizer.json"));
    Strings tokens(json.object("model").object("vocab").members().size());
    for (const auto& [token, id] : json.ids_by_name("model.vocab"))
        tokens.at(std::size_t(id)) = token;
    return tokens;
}

Strings split_by_bert(const std::string& text) {
    return bert_pre_tokenizer().split(text, true);
}

}  // namespace

TEST_CASE("WordPiece takes the longest token that matches, from the left") {
    // The example of google-research/bert, tokenization_test.py, and a token that is too short.
    const Tokenizer tokenizer =
        tokenizer_of_tokens({"[UNK]", "want", "##want", "##ed", "wa", "un", "runn", "##ing",
                             "##w", "##wanted", "u"});
    CHECK(spelled_tokens(tokenizer, "unwanted running") ==
          Strings{"un", "##wanted", "runn", "##ing"});
    CHECK(spelled_tokens(tokenizer, "unwanting") == Strings{"un", "##want", "##ing"});
    CHECK(spelled_tokens(tokenizer, "want") == Strings{"want"});
}

TEST_CASE("WordPiece: a word of which a part has no token is unknown as a whole") {
    const Tokenizer tokenizer = tokenizer_of_tokens({"[UNK]", "un", "##want", "##ed", "ed"});
    CHECK(spelled_tokens(tokenizer, "unwantedX un") == Strings{"[UNK]", "un"});
    CHECK(spelled_tokens(tokenizer, "want") == Strings{"[UNK]"});  // it has only ##want
    CHECK(spelled_tokens(tokenizer, "uned") == Strings{"un", "##ed"});
    CHECK(spelled_tokens(tokenizer, "unun") == Strings{"[UNK]"});
    CHECK(spelled_tokens(tokenizer, "") == Strings{});
    // Greedy: "und" would be "u" + "##nd", but the longest beginning is "un".
    CHECK(spelled_tokens(tokenizer_of_tokens({"[UNK]", "un", "u", "##nd"}), "und") ==
          Strings{"[UNK]"});
}

TEST_CASE("WordPiece: a word of more than 100 characters is unknown, whatever its bytes") {
    const Tokenizer tokenizer = tokenizer_of_tokens({"[UNK]", "é", "##é"});
    std::string word;
    for (int i = 0; i < 100; ++i) word += "é";
    CHECK(tokenizer.encode(word).size() == 100);
    CHECK(spelled_tokens(tokenizer, word + "é") == Strings{"[UNK]"});
}

TEST_CASE("WordPiece names what it needs: an unknown token") {
    Tokenizer tokenizer = tokenizer_of_tokens({"a"});
    tokenizer.unk_token_id.reset();
    CHECK_THROWS_WITH_AS(tokenizer.encode("b"), "WordPiece: there is no unknown token",
                         ValueError);
}

TEST_CASE("BertNormalizer cleans, separates Chinese characters, strips accents, lowers case") {
    const BertNormalizer none{false, false, false, false};
    const std::string text = "É\tÅ\u200d中\u00a0\ufffd\u0007İ";
    CHECK(none(text) == text);
    BertNormalizer settings = none;
    settings.clean_text = true;
    CHECK(settings(text) == "É Å中 İ");
    CHECK(settings("a\nb\rc\ue000d\u00ade\x7f.") == "a b cde.");
    settings = none;
    settings.handle_chinese_chars = true;
    CHECK(settings("a中文b かな 한글 \u3400\U00020000豈") ==
          "a 中  文 b かな 한글  \u3400  \U00020000  豈 ");
    settings = none;
    settings.strip_accents = true;
    CHECK(settings("ÉÅñ ợ ø ß \u0301") == "EAn o ø ß ");
    settings = none;
    settings.lowercase = true;
    CHECK(settings("ÀÉ ΣΑΣ STRASSE ẞ İ 中") == "àé σασ strasse ß i\u0307 中");
}

TEST_CASE("BertNormalizer changes each ASCII character by itself, also beside accents") {
    const BertNormalizer none{false, false, false, false};
    BertNormalizer cleaning = none, lowering = none;
    cleaning.clean_text = true;
    lowering.lowercase = true;
    for (char c = 1; c > 0 && c < 127; ++c) {
        CAPTURE(int(c));
        const std::string one(1, c), text = "é" + one + "\u0301" + one + one + "中";
        const bool is_space = c == '\t' || c == '\n' || c == '\r';
        const std::string clean = is_space ? " " : c < ' ' ? "" : one;
        const std::string lower = c >= 'A' && c <= 'Z' ? std::string(1, char(c + 32)) : one;
        CHECK(none(text) == text);
        CHECK(cleaning(text) == "é" + clean + "\u0301" + clean + clean + "中");
        CHECK(lowering(text) == "é" + lower + "\u0301" + lower + lower + "中");
        const std::string both = clean == one ? lower : clean;
        CHECK(BertNormalizer()(text) == "e" + both + both + both + " 中 ");
    }
    CHECK_THROWS_WITH_AS(BertNormalizer()("ab\xff"), "the text is not UTF-8 at byte 2",
                         TextError);
}

TEST_CASE("BertNormalizer: Chinese are the characters of eight blocks, and no others") {
    const BertNormalizer settings{.clean_text = false, .lowercase = false};
    const auto is_separated = [&](char32_t c) {
        return settings(character(c)) == " " + character(c) + " ";
    };
    for (const auto& [first, last] :
         std::vector<std::pair<char32_t, char32_t>>{{0x4e00, 0x9fff},
                                                    {0x3400, 0x4dbf},
                                                    {0x20000, 0x2a6df},
                                                    {0x2a700, 0x2b73f},
                                                    {0x2b740, 0x2b81f},
                                                    {0x2b820, 0x2ceaf},
                                                    {0xf900, 0xfaff},
                                                    {0x2f800, 0x2fa1f}}) {
        CHECK(is_separated(first));
        CHECK(is_separated(last));
    }
    for (const char32_t c : {0x33ff, 0x4dc0, 0x4dff, 0xa000, 0xf8ff, 0xfb00, 0x1ffff, 0x2a6e0,
                             0x2a6ff, 0x2ceb0, 0x2f7ff, 0x2fa20})
        CHECK(settings(character(c)) == character(c));
}

TEST_CASE("BertNormalizer: strip_accents is as lowercase unless it is set") {
    CHECK(BertNormalizer{}("Élan") == "elan");
    CHECK(BertNormalizer{.lowercase = false}("Élan") == "Élan");
    CHECK(BertNormalizer{.strip_accents = false}("Élan") == "élan");
    CHECK(BertNormalizer{.strip_accents = true, .lowercase = false}("Élan") == "Elan");
}

TEST_CASE("bert_pre_tokenizer: white space is removed, each punctuation character a word") {
    CHECK(split_by_bert("  don't stop\u00a0now...\n") ==
          Strings{"don", "'", "t", "stop", "now", ".", ".", "."});
    // ASCII symbols are punctuation, other symbols are not.
    CHECK(split_by_bert("a$b+c^d`e|f~g<h>i=j") == Strings{"a", "$", "b", "+", "c", "^", "d",
                                                          "`", "e", "|", "f", "~", "g", "<",
                                                          "h", ">", "i", "=", "j"});
    CHECK(split_by_bert("5€×3 «x»—y") == Strings{"5€×3", "«", "x", "»", "—", "y"});
    CHECK(split_by_bert(" \t ") == Strings{});
    for (char32_t c = 0x21; c < 0x7f; ++c) {
        const bool is_letter_or_digit =
            (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        CHECK(split_by_bert("x" + character(c)).size() == (is_letter_or_digit ? 1 : 2));
    }
}

TEST_CASE("train_wordpiece merges the most frequent pair, and counts with ## in mind") {
    // "ab" occurs 2 + 1 times at the beginning of a word, and 3 times within one: two pairs.
    const Tokenizer tokenizer =
        train_wordpiece("ab ab abc cab cab cab",
                        {.vocab_size = 13, .special_tokens = {"[UNK]", "[CLS]", "[SEP]"}});
    // Three special tokens, then a, b, c, then ##b and ##c of abc, ##a of cab. Of the pairs
    // c ##a, ##a ##b and a ##b, all of which occur 3 times, a ##b has the lowest ids.
    CHECK(tokens_by_id(tokenizer) == Strings{"[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "##b",
                                             "##c", "##a", "ab", "ca", "cab", "abc"});
    CHECK(tokenizer.merges.empty());
    CHECK(spelled_tokens(tokenizer, "abcab CAB b") ==
          Strings{"[CLS]", "abc", "##a", "##b", "cab", "b", "[SEP]"});
}

TEST_CASE("train_wordpiece learns the vocabulary of Hugging Face's WordPieceTrainer") {
    // That trainer numbers the characters with ## in a random order. They are given as special
    // tokens here, in its order, so that equally frequent pairs have the same order, too.
    const std::string text = content(fixture_path("25_encoders/text.txt"));
    for (const bool lowercase : {true, false}) {
        const Strings expected =
            vocabulary_of_hugging_face(lowercase ? "bert_uncased" : "bert_cased");
        WordPieceOptions options{.vocab_size = expected.size(), .lowercase = lowercase};
        for (const std::string& token : expected) {
            const std::string letters = token.starts_with("##") ? token.substr(2) : token;
            if (characters(letters).size() == 1) options.special_tokens.push_back(token);
        }
        CHECK(tokens_by_id(train_wordpiece(text, options)) == expected);
        // Without a limit it goes on until each word is one token.
        options.vocab_size = 100'000;
        const Strings all = tokens_by_id(train_wordpiece(text, options));
        CHECK((lowercase ? all.size() > expected.size() : all == expected));
    }
}

TEST_CASE("train_wordpiece: min_frequency ends training before pairs that are rarer") {
    const auto num_tokens = [](std::size_t min_frequency) {
        return train_wordpiece("ab ab ab cd cd ef",
                               {.vocab_size = 100, .min_frequency = min_frequency})
            .vocab_size();
    };
    CHECK(num_tokens(0) == 5 + 6 + 3 + 3);
    CHECK(num_tokens(2) == 5 + 6 + 3 + 2);
    CHECK(num_tokens(3) == 5 + 6 + 3 + 1);
    CHECK(num_tokens(4) == 5 + 6 + 3);
}

TEST_CASE("train_wordpiece: special tokens are added tokens, and decode leaves them out") {
    const Tokenizer tokenizer =
        train_wordpiece("Hello, don't go. \"Hello\" again!", {.vocab_size = 100});
    const std::vector<Id> ids = tokenizer.encode("Hello[MASK], don't go .");
    CHECK(ids.front() == 2);
    CHECK(std::count(ids.begin(), ids.end(), 4) == 1);
    CHECK(ids.back() == 3);
    CHECK(tokenizer.decode(ids) == "hello, don ' t go.");
    CHECK(tokenizer.encode("") == std::vector<Id>{2, 3});
    CHECK(tokenizer.encode("中") == std::vector<Id>{2, 1, 3});
}

TEST_CASE("train_wordpiece says what is wrong with its input") {
    const auto train = [](const std::string& text, const WordPieceOptions& options) {
        train_wordpiece(text, options);
    };
    CHECK_THROWS_WITH_AS(train("ab", {.vocab_size = 7}),
                         "train_wordpiece: 8 special tokens and characters are too many for a "
                         "vocabulary of 7",
                         ValueError);
    CHECK_THROWS_WITH_AS(train("ab", {.vocab_size = 9, .special_tokens = {"[UNK]", "[CLS]"}}),
                         "train_wordpiece: [SEP] is no special token", ValueError);
    CHECK_THROWS_WITH_AS(train("ab", {.vocab_size = 9, .special_tokens = {""}}),
                         "train_wordpiece: a special token is empty", ValueError);
    CHECK_THROWS_WITH_AS(train("ab", {.vocab_size = 9, .special_tokens = {"x", "x"}}),
                         "train_wordpiece: x is given twice", ValueError);
    CHECK_THROWS_WITH_AS(train(" \n", {.vocab_size = 9}), "the text is empty", TextError);
    CHECK_THROWS_WITH_AS(train("a\xff", {.vocab_size = 9}), "the text is not UTF-8 at byte 1",
                         TextError);
}

TEST_CASE(
    "encode_pair frames two texts with special tokens, and says which text a token is of") {
    const Tokenizer tokenizer = train_wordpiece("a b c", {.vocab_size = 8});
    const Id a = tokenizer.vocab.at("a"), b = tokenizer.vocab.at("b");
    const auto [ids, types] = encode_pair(tokenizer, "a b", "b");
    CHECK(ids == std::vector<Id>{2, a, b, 3, b, 3});
    CHECK(types == std::vector<Id>{0, 0, 0, 0, 1, 1});
    CHECK(encode_pair(tokenizer, "", "").input_ids == std::vector<Id>{2, 3, 3});
    CHECK(encode_pair(tokenizer, "", "").token_type_ids == std::vector<Id>{0, 0, 1});
}
