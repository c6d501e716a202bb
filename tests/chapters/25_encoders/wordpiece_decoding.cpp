// From tokens of WordPiece to a text.
#include <numeric>

#include "chapters/25_encoders/wordpiece.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

using Tokens = std::vector<std::string>;

// The text of these tokens, spelled as in a vocabulary.
std::string decoded(const Tokens& tokens, const std::string& prefix, bool cleanup) {
    Tokenizer tokenizer;
    tokenizer.token_bytes = tokens;
    decode_wordpieces(tokenizer, prefix, cleanup);
    std::vector<Id> ids(tokens.size());
    std::iota(ids.begin(), ids.end(), 0);
    CHECK(replace_invalid_utf8(tokenizer.decode_bytes(ids)) == tokenizer.decode(ids));
    return tokenizer.decode(ids);
}

}  // namespace

TEST_CASE("wordpiece_text: the text of a token within a decoded text") {
    CHECK(wordpiece_text("##ing", "##", true) == "ing");
    CHECK(wordpiece_text("play", "##", true) == " play");
    CHECK(wordpiece_text(".", "##", true) == ".");
    CHECK(wordpiece_text(".", "##", false) == " .");
    CHECK(wordpiece_text("#", "##", true) == " #");
    CHECK(wordpiece_text("n't", "##", true) == "n't");
}

TEST_CASE("decode_wordpieces: the first token of a text keeps its prefix, and has no space") {
    // With and without cleanup, the texts of the npm package tokenizers 0.23.2.
    struct Decoded {
        Tokens tokens;
        std::string cleaned_up, as_is;
    };
    const std::vector<Decoded> texts = {{{"##ing"}, "##ing", "##ing"},
                                        {{"##ing", "play"}, "##ing play", "##ing play"},
                                        {{"##ing", "##ed"}, "##inged", "##inged"},
                                        {{"##"}, "##", "##"},
                                        {{"##", "##", "a"}, "## a", "## a"},
                                        {{"####", "####"}, "######", "######"},
                                        {{"##n't"}, "##n't", "##n't"},
                                        {{"n't", "n't"}, "n'tn't", "n't n't"},
                                        {{".", "."}, "..", ". ."},
                                        {{"play", "##n't"}, "playn't", "playn't"},
                                        {{"a . b", "c . d"}, "a. b c. d", "a . b c . d"},
                                        {{"x", "?"}, "x?", "x ?"},
                                        {{"x", "!"}, "x!", "x !"},
                                        {{"x", ","}, "x,", "x ,"},
                                        {{"x", "'m"}, "x'm", "x 'm"},
                                        {{"x", "'s"}, "x's", "x 's"},
                                        {{"x", "'ve"}, "x've", "x 've"},
                                        {{"x", "'re"}, "x're", "x 're"},
                                        {{"x", "do not"}, "x don't", "x do not"},
                                        {{"do not"}, "do not", "do not"},
                                        {{"I do not"}, "I don't", "I do not"},
                                        {{"x", "' a"}, "x'a", "x ' a"},
                                        {{"x", "'", "s"}, "x ' s", "x ' s"},
                                        {{"' a"}, "' a", "' a"}};
    for (const auto& [tokens, cleaned_up, as_is] : texts) {
        CHECK(decoded(tokens, "##", true) == cleaned_up);
        CHECK(decoded(tokens, "##", false) == as_is);
    }
    // Each token continues a word if the prefix is empty.
    CHECK(decoded({"##ing", "play"}, "", true) == "##ingplay");
    CHECK(decoded({"x", "'", "s", "."}, "", false) == "x's.");
    CHECK(decoded({"@a", "##ed", "@b"}, "@", true) == "@a ##edb");
    // Ids without a token and special tokens are left out, and are no first token.
    Tokenizer tokenizer;
    tokenizer.token_bytes = {"", "[CLS]", "##ing", "play"};
    tokenizer.all_special_ids = {1};
    decode_wordpieces(tokenizer, "##", true);
    CHECK(tokenizer.decode({0, 1, 2, 0, 2, 1, 3}) == "##inging play");
}
