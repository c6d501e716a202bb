// Unigram in a tokenizer.json. The fixtures' ids and texts are those of the npm package
// tokenizers 0.23.2 (tests/make/make_unigram_fixtures.mjs).
#include "chapters/26_encoder_decoder/unigram.hpp"

#include <cmath>

#include "chapters/25_encoders/wordpiece.hpp"
#include "chapters/models/gguf/gguf_export.hpp"
#include "chapters/models/tokenizers/gguf_tokenizer_export.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/normalizer_json.hpp"
#include "chapters/models/tokenizers/precompiled_charsmap.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "chapters/models/tokenizers/unigram_json.hpp"
#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/files.hpp"

using namespace llm;

namespace {

const std::vector<std::string> unigram_kinds = {"t5",     "xlm_r",        "albert", "bytes",
                                                "spaces", "hugging_face", "ties"};

std::string unigram_folder(const std::string& kind) {
    return fixture_path("26_encoder_decoder/unigram/" + kind);
}

Tokenizer unigram_of_file(const std::string& kind) {
    return models::load_tokenizer(unigram_folder(kind) + "/tokenizer.json");
}

// All texts of a file have its ids and its decoded texts; returns how many there are.
std::size_t check_unigram_cases(const Tokenizer& tokenizer, const std::string& folder) {
    const auto cases = JsonFile(folder + "/encodings.json").objects("cases");
    for (const JsonFile& expected : cases) {
        INFO(folder, ": ", escaped(expected.text("text")));
        const std::vector<Id> ids = tokenizer.encode(expected.text("text"));
        CHECK(ids == expected.ids("ids"));
        CHECK(tokenizer.decode(ids) == expected.text("decoded"));
        if (tokenizer.byte_token_ids.empty())
            CHECK(tokenizer.decode_bytes(ids) == expected.text("decoded"));
    }
    return cases.size();
}

// The message with which an edited file is rejected, without its path.
std::string unigram_error(const std::string& kind, const std::string& old_text,
                          const std::string& new_text) {
    const Scratch scratch;
    const std::string file =
        scratch.copy_of("26_encoder_decoder/unigram/" + kind) + "/tokenizer.json";
    edit(file, old_text, new_text);
    try {
        models::load_tokenizer(file).encode("ab 中");
    } catch (const std::runtime_error& error) {
        return replaced(error.what(), file + ": ", "");
    }
    return "it was accepted";
}

// Bits for each character of the words of a text without unknown characters.
double bits_per_character(const Tokenizer& tokenizer, const Unigram& model,
                          const std::string& text) {
    std::vector<std::string> tokens(model.scores.size());
    for (const auto& [token, id] : tokenizer.vocab)
        if (std::size_t(id) < tokens.size()) tokens[std::size_t(id)] = token;
    UnigramTrainer trainer{tokens, tokenizer.vocab, model, {}};
    double num_characters = 0;
    for (const auto& [word, count] : make_unigram_trainer(text, 1).word_counts) {
        bool is_known = true;
        for (const LatticeEdge& edge : lattice(model, tokenizer.vocab, word))
            is_known = is_known && edge.id;
        if (!is_known) continue;
        trainer.word_counts.emplace_back(word, count);
        num_characters += double(count * characters(word).size());
    }
    return -expected_counts(trainer).log_likelihood / std::log(2) / num_characters;
}

// The normalizer of the fixture t5.
std::string t5_normalized(const std::string& text) {
    return unigram_of_file("t5").normalize(text);
}

}  // namespace

TEST_CASE("tokenizer.json with Unigram: ids and texts are those of Hugging Face's library") {
    for (const std::string& kind : unigram_kinds)
        CHECK(check_unigram_cases(unigram_of_file(kind), unigram_folder(kind)) >= 45);
}

TEST_CASE("UNIGRAM_CASES names a folder with more cases of make_unigram_fixtures") {
    const char* const folder = std::getenv("UNIGRAM_CASES");
    if (!folder) return;
    for (const fs::directory_entry& kind : fs::directory_iterator(folder)) {
        const Tokenizer tokenizer =
            models::load_tokenizer((kind.path() / "tokenizer.json").string());
        MESSAGE(kind.path().string(), ": ",
                check_unigram_cases(tokenizer, kind.path().string()), " cases");
    }
}

TEST_CASE("tokenizer.json with Unigram: what is written is read as the same tokenizer") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    for (const std::string& kind : unigram_kinds) {
        models::save_tokenizer(unigram_of_file(kind), file);
        check_unigram_cases(models::load_tokenizer(file), unigram_folder(kind));
        const JsonFile written(file), original(unigram_folder(kind) + "/tokenizer.json");
        for (const std::string component : {"added_tokens", "normalizer", "pre_tokenizer",
                                            "post_processor", "decoder", "model.vocab"}) {
            INFO(kind, ": ", component);
            CHECK(written.has(component) == original.has(component));
            if (written.has(component))
                CHECK(written.value(component) == original.value(component));
        }
    }
}

TEST_CASE("tokenizer.json with Unigram: a trained tokenizer is written and read") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    const std::string text = content(fixture_path("25_encoders/text.txt"));
    const Tokenizer trained = train_unigram(text, 150);
    models::save_tokenizer(trained, file);
    const Tokenizer loaded = models::load_tokenizer(file);
    CHECK(loaded.vocab == trained.vocab);
    for (const std::string& written : {text, std::string("  中 <pad>the cat</s> ")}) {
        CHECK(loaded.encode(written) == trained.encode(written));
        CHECK(loaded.decode(loaded.encode(written)) == trained.decode(trained.encode(written)));
    }
}

TEST_CASE("tokenizer.json with Unigram: a file without a type of model is known by its list") {
    const Scratch scratch;
    const std::string file =
        scratch.copy_of("26_encoder_decoder/unigram/t5") + "/tokenizer.json";
    edit(file, "\"type\": \"Unigram\",", "");
    check_unigram_cases(models::load_tokenizer(file), unigram_folder("t5"));
}

TEST_CASE("Unigram: trained tokens give a text a higher likelihood than SentencePiece's do") {
    // As many tokens as SentencePiece has learned from the same text.
    const Tokenizer other = unigram_of_file("t5");
    const std::string text = content(fixture_path("25_encoders/text.txt"));
    const auto& scores = other.word_model.target<models::UnigramOfFile>()->scores;
    const Tokenizer ours = train_unigram(text, scores.size());
    const double bits = bits_per_character(other, Unigram(other.vocab, scores), text);
    CHECK(bits > 3);
    CHECK(bits_per_character(ours, *ours.word_model.target<Unigram>(), text) < bits);
}

// The texts are those of npm's tokenizers 0.23.2.
TEST_CASE("the normalizers of a tokenizer.json change a text as Hugging Face's library does") {
    const auto apply = [](const std::string& settings, const std::string& text) {
        return models::read_normalizer(JsonFile("a file", settings)).normalize(text);
    };
    const auto strip = [&](const std::string& left, const std::string& right,
                           const std::string& text) {
        return apply("{\"type\": \"Strip\", \"strip_left\": " + left +
                         ", \"strip_right\": " + right + "}",
                     text);
    };
    CHECK(strip("true", "false", " \n a ") == "a ");
    CHECK(strip("false", "true", " a \u3000") == " a");
    CHECK(strip("true", "true", "  ").empty());
    CHECK(apply(R"({"type": "StripAccents"})", "a\u0903\u20dde\u0301") == "ae");
    CHECK(apply(R"({"type": "Lowercase"})", "\u0130\u03a3") == "i\u0307\u03c3");
    CHECK(apply(R"({"type": "NFKD"})", "\u00e9\ufb01") == "e\u0301fi");
}

TEST_CASE("Precompiled: the shortest rule replaces a short cluster as a whole") {
    CHECK(t5_normalized("\u00aa") == "a");
    CHECK(t5_normalized("\u00aa\u0300") == "a");        // SentencePiece: à
    CHECK(t5_normalized("e\u0301") == "\u00e9");        // "e" alone has no rule
    CHECK(t5_normalized("a\u0300\u0301") == "\u00e0");  // 5 bytes: an accent is lost
    CHECK(t5_normalized("\u00aa\u0300\u0301") == "a\u0300\u0301");  // 6 bytes: each character
    CHECK(t5_normalized("a\r\nb\t") == "a b ");
    CHECK(t5_normalized(std::string("\0a", 2)) == std::string("\0a", 2));
}

TEST_CASE("Precompiled: damaged tables are found") {
    const auto read = [](const std::string& base64) {
        return models::read_precompiled_charsmap(models::base64_decoded(base64));
    };
    CHECK(models::base64_decoded("YWI=") == "ab");
    CHECK(models::base64_decoded("YWJj") == "abc");
    CHECK(models::base64_decoded("").empty());
    CHECK_THROWS_WITH_AS(models::base64_decoded("YW!="), "character 2 is not in base 64",
                         TextError);
    CHECK_THROWS_WITH_AS(models::base64_decoded("YWI"), "3 characters are no text in base 64",
                         TextError);
    CHECK_THROWS_WITH_AS(read("YWI="), "there is no size of the trie", TextError);
    CHECK_THROWS_WITH_AS(read("BAAAAAE="), "a trie of 4 bytes in 1", TextError);
    models::PrecompiledCharsmap charsmap{{0}, ""};  // one node, whose children would be outside
    CHECK_THROWS_WITH_AS(charsmap("a"),
                         "precompiled_charsmap is damaged: its trie has 1 nodes, but leads to "
                         "node 97",
                         TextError);
    charsmap.trie.resize(98);
    charsmap.trie[97] = 'a' | 0x100 | 97 << 10;  // a leaf, whose value is in node 0
    CHECK_THROWS_WITH_AS(charsmap("a"),
                         "precompiled_charsmap is damaged: a replacement is at byte 0 of 0",
                         TextError);
}

TEST_CASE("tokenizer.json with Unigram: what is not supported is rejected by its name") {
    CHECK(unigram_error("t5", "\"unk_id\": 2", "\"unk_id\": 204") ==
          "model.unk_id has no token");
    CHECK(unigram_error("t5", "[\"<pad>\",0]", "[\"<pad>\"]") ==
          "model.vocab must hold pairs of a token and a score, not [\"<pad>\"]");
    CHECK(unigram_error("t5", "[\"<pad>\",0]", "[\"<pad>\",\"0\"]") ==
          "model.vocab must hold pairs of a token and a score, not [\"<pad>\",\"0\"]");
    CHECK(unigram_error("t5", "\"byte_fallback\": false", "\"alpha\": 0.1") ==
          "model.alpha 0.1 is not supported: nothing reads it");
    CHECK(unigram_error("t5", "\"type\": \"Precompiled\"", "\"type\": \"Nmt\"") ==
          "normalizer.type Nmt is not supported");
    CHECK(
        unigram_error("t5", "\"precompiled_charsmap\": \"", "\"precompiled_charsmap\": \"!") ==
        "normalizer: precompiled_charsmap: character 0 is not in base 64");
    CHECK(unigram_error("t5", "\"unk_id\": 2", "\"unk_id\": null") ==
          "there is no token for '中'");
    CHECK(unigram_error("t5", "    \"prepend_scheme\": \"always\"",
                        "    \"prepend_scheme\": \"first\"") ==
          "pre_tokenizer.pretokenizers.1.prepend_scheme first after another pre-tokenizer is "
          "not supported");
    CHECK(unigram_error("xlm_r", "\"always\"", "\"never again\"") ==
          "decoder.prepend_scheme never again is not supported");
    CHECK(unigram_error("xlm_r", "\"strip_right\"", "\"right\"") ==
          "normalizer.normalizers.1.strip_right is missing");
}

TEST_CASE("Unigram is not written where it would be read as something else") {
    const std::string message =
        "save_tokenizer: Unigram is written with the components of train_unigram, or with "
        "those "
        "of the file that it was read from";
    Tokenizer changed = unigram_of_file("t5");
    changed.normalizers.push_back(nfc_normalizer());
    CHECK_THROWS_WITH_AS(models::save_tokenizer(changed, "unwritten.json"), message.c_str(),
                         ValueError);
    changed = train_unigram("ab ab", 20);
    changed.normalizers.push_back(nfc_normalizer());
    CHECK_THROWS_WITH_AS(models::save_tokenizer(changed, "unwritten.json"), message.c_str(),
                         ValueError);
    CHECK_THROWS_WITH_AS(encode_pair(changed, "a", "b"),
                         "encode_pair: this is no tokenizer of BERT", ValueError);
    CHECK(!fs::exists("unwritten.json"));
}
