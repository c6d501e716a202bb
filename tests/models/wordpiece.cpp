// BERT's tokenizer.json. The fixtures' ids and texts are those of the npm package tokenizers
// 0.23.2 (tests/make/make_tokenizer_fixtures.mjs).
#include "chapters/25_encoders/wordpiece.hpp"

#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/files.hpp"

using namespace llm;

namespace {

std::string bert_folder(const std::string& kind) { return fixture_path("25_encoders/" + kind); }

Tokenizer bert_tokenizer(const std::string& kind) {
    return models::load_tokenizer(bert_folder(kind) + "/tokenizer.json");
}

// All texts of the fixture have its ids and its decoded texts.
void check_bert_cases(const Tokenizer& tokenizer, const std::string& kind) {
    const JsonFile json(bert_folder(kind) + "/encodings.json");
    const auto cases = json.objects("cases");
    CHECK(cases.size() >= 50);
    for (const JsonFile& expected : cases) {
        INFO(kind, ": ", expected.text("text"));
        const std::vector<Id> ids = tokenizer.encode(expected.text("text"));
        CHECK(ids == expected.ids("ids"));
        CHECK(tokenizer.decode(ids) == expected.text("decoded"));
        REQUIRE(ids.size() >= 2);
        CHECK(std::vector<Id>(ids.begin() + 1, ids.end() - 1) ==
              expected.ids("without_special"));
    }
}

void check_bert_pairs(const Tokenizer& tokenizer, const std::string& kind) {
    const auto pairs = JsonFile(bert_folder(kind) + "/encodings.json").objects("pairs");
    CHECK(pairs.size() == 5);
    for (const JsonFile& expected : pairs) {
        const auto [ids, types] =
            encode_pair(tokenizer, expected.text("first"), expected.text("second"));
        CHECK(ids == expected.ids("ids"));
        CHECK(types == expected.ids("type_ids"));
    }
}

// The message with which an edited file is rejected, without its path.
std::string bert_error(const std::string& old_text, const std::string& new_text) {
    const Scratch scratch;
    const std::string file = scratch.copy_of("25_encoders/bert_uncased") + "/tokenizer.json";
    edit(file, old_text, new_text);
    try {
        models::load_tokenizer(file);
    } catch (const FileError& error) {
        return replaced(error.what(), file + ": ", "");
    }
    return "it was accepted";
}

// The ids of a text after such an edit.
std::vector<Id> edited_ids(const std::string& old_text, const std::string& new_text,
                           const std::string& text) {
    const Scratch scratch;
    const std::string file = scratch.copy_of("25_encoders/bert_uncased") + "/tokenizer.json";
    edit(file, old_text, new_text);
    return models::load_tokenizer(file).encode(text);
}

}  // namespace

TEST_CASE("tokenizer.json of BERT: ids, texts and pairs are those of Hugging Face's library") {
    for (const std::string kind : {"bert_uncased", "bert_cased"}) {
        check_bert_cases(bert_tokenizer(kind), kind);
        check_bert_pairs(bert_tokenizer(kind), kind);
    }
}

TEST_CASE("tokenizer.json of BERT: what is written is read as the same tokenizer") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    for (const std::string kind : {"bert_uncased", "bert_cased"}) {
        models::save_tokenizer(bert_tokenizer(kind), file);
        check_bert_cases(models::load_tokenizer(file), kind);
        check_bert_pairs(models::load_tokenizer(file), kind);
        const JsonFile written(file), original(bert_folder(kind) + "/tokenizer.json");
        for (const std::string component :
             {"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"})
            CHECK(written.value(component) == original.value(component));
        CHECK(written.ids_by_name("model.vocab") == original.ids_by_name("model.vocab"));
    }
}

TEST_CASE("tokenizer.json of BERT: a trained tokenizer is written and read") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    const std::string text = content(fixture_path("25_encoders/text.txt"));
    const Tokenizer trained = train_wordpiece(text, {.vocab_size = 300, .lowercase = false});
    models::save_tokenizer(trained, file);
    const Tokenizer loaded = models::load_tokenizer(file);
    CHECK(loaded.vocab == trained.vocab);
    CHECK(loaded.encode(text) == trained.encode(text));
    CHECK(loaded.decode(loaded.encode(text)) == trained.decode(trained.encode(text)));
    CHECK(loaded.encode("[MASK] ÉTÉ") == std::vector<Id>{2, 4, 1, 3});
}

TEST_CASE("tokenizer.json of BERT: each setting has its effect, and is written") {
    const Scratch scratch;
    const std::string file = scratch.copy_of("25_encoders/bert_uncased") + "/tokenizer.json";
    edit(file, "\"clean_text\": true", "\"clean_text\": false");
    edit(file, "\"handle_chinese_chars\": true", "\"handle_chinese_chars\": false");
    edit(file, "\"strip_accents\": null", "\"strip_accents\": false");
    edit(file, "\"cleanup\": true", "\"cleanup\": false");
    edit(file, "\"max_input_chars_per_word\": 100", "\"max_input_chars_per_word\": 5");
    const Tokenizer tokenizer = models::load_tokenizer(file);
    CHECK(tokenizer.normalize("É中\ufffd") == "é中\ufffd");
    CHECK(tokenizer.encode("the again").size() == 4);
    CHECK(tokenizer.encode("beginning") == std::vector<Id>{2, 1, 3});
    CHECK(tokenizer.decode(tokenizer.encode("the , again.")) == "the , again .");
    const std::string written = (scratch.folder / "written.json").string();
    models::save_tokenizer(tokenizer, written);
    for (const std::string component : {"normalizer", "decoder"})
        CHECK(JsonFile(written).value(component) == JsonFile(file).value(component));
    CHECK(JsonFile(written).value("model.max_input_chars_per_word") == Json(5));
}

TEST_CASE("tokenizer.json of BERT: a file without a type of model is known by a setting") {
    const std::string text = "the small readings!";
    CHECK(edited_ids("\"type\": \"WordPiece\",\n  \"unk", "\"unk", text) ==
          bert_tokenizer("bert_uncased").encode(text));
}

TEST_CASE("tokenizer.json of BERT: added tokens are matched in the normalized text if asked") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    const auto token = [](int id, const std::string& text, const std::string& normalized) {
        return "{\"id\": " + std::to_string(id) + ", \"content\": \"" + text +
               "\", \"normalized\": " + normalized + "}";
    };
    overwrite(file, "{\"added_tokens\": [" + token(6, "NéwTok", "true") + ", " +
                        token(7, "中x", "true") + ", " + token(8, "Raw", "false") +
                        R"(], "normalizer": {"type": "BertNormalizer", "clean_text": true,
                   "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
                   "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null,
                   "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
                   "model": {"type": "WordPiece", "unk_token": "[UNK]",
                   "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                   "vocab": {"[UNK]": 0, "a": 3, "##b": 4, "中": 5}}})");
    const std::string written = (scratch.folder / "written.json").string();
    models::save_tokenizer(models::load_tokenizer(file), written);
    for (const std::string& path : {file, written}) {
        const Tokenizer tokenizer = models::load_tokenizer(path);
        using Ids = std::vector<Id>;
        CHECK(tokenizer.encode("aNéwTok a") == Ids{3, 6, 3});
        CHECK(tokenizer.encode("NEWTOK") == Ids{6});
        CHECK(tokenizer.encode("a中xa") == Ids{3, 7, 3});
        CHECK(tokenizer.encode("rawRaw") == Ids{0, 8});
        CHECK(tokenizer.encode("ab").size() == 2);
    }
}

TEST_CASE("tokenizer.json of BERT: what is not supported is rejected by its name") {
    const std::string model = R"("type": "WordPiece",)";
    CHECK(bert_error(model + "\n  \"unk", "\"type\": \"WordLevel\",\n  \"unk") ==
          "model.type WordLevel is not supported");
    CHECK(bert_error("\"unk_token\": \"[UNK]\"", "\"unk_token\": \"<unk>\"") ==
          "model: there is no token <unk>");
    CHECK(bert_error("\"unk_token\"", "\"unknown\"") == "model.unk_token is missing");
    CHECK(bert_error("\"continuing_subword_prefix\"", "\"suffix\"") ==
          "model.continuing_subword_prefix is missing");
    CHECK(bert_error("\"max_input_chars_per_word\": 100", "\"max_input_chars_per_word\": -1") ==
          "model.max_input_chars_per_word must be a whole number from 1 to 16777216, not -1");
    CHECK(bert_error("\"lowercase\"", "\"lower\"") == "normalizer.lowercase is missing");
    CHECK(bert_error("\"clean_text\": true", "\"clean_text\": 1") ==
          "normalizer.clean_text must be true or false, not 1");
    CHECK(bert_error("\"BertPreTokenizer\"", "\"Whitespace\"") ==
          "pre_tokenizer.type Whitespace is not supported");
    CHECK(bert_error("\"cleanup\"", "\"clean\"") == "decoder.cleanup is missing");
    CHECK(bert_error("\"TemplateProcessing\"", "\"RobertaProcessing\"") ==
          "post_processor.type RobertaProcessing is not supported");
}

TEST_CASE("tokenizer.json of BERT: a template of pairs that encode_pair has not is rejected") {
    const Scratch scratch;
    const std::string file = scratch.copy_of("25_encoders/bert_uncased") + "/tokenizer.json";
    std::string json = content(file);
    const std::size_t b = json.find("\"id\": \"B\"");
    REQUIRE(b != json.npos);
    json.replace(json.find("\"type_id\": 1", b), 12, "\"type_id\": 0");
    overwrite(file, json);
    CHECK_THROWS_WITH_AS(
        models::load_tokenizer(file),
        (file + ": post_processor.pair [CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:1 is not supported; "
                "supported: [CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
            .c_str(),
        FileError);
}

TEST_CASE("tokens after a text: BPE may have them, models that continue a text may not") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("10_tokenizer/llama2");
    const std::string file = folder + "/tokenizer.json";
    const std::vector<Id> before = models::load_tokenizer(file).encode("the cat");
    std::string json = content(file);
    const std::size_t single = json.find("\"single\""), end = json.find("\n  ],", single);
    json.insert(end, ",\n {\"SpecialToken\": {\"id\": \"</s>\", \"type_id\": 0}}");
    const std::size_t pair = json.find("\"pair\"");
    overwrite(file, json.replace(pair, 6, "\"other\""));
    std::vector<Id> ids = models::load_tokenizer(file).encode("the cat");
    REQUIRE(ids.size() == before.size() + 1);
    CHECK(ids.back() == 2);
    CHECK_THROWS_WITH_AS(models::load_tokenizer_of_model(folder, "", 1000),
                         (file + ": a model that continues a text needs a tokenizer that adds "
                                 "no token after it, but got </s>")
                             .c_str(),
                         FileError);
    // transformers writes the template of Llama's class anew, without </s>.
    overwrite(folder + "/tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
    CHECK(models::load_tokenizer(file).encode("the cat") == before);
}

TEST_CASE("WordPiece is not written where it would be read as something else") {
    const Tokenizer bert = bert_tokenizer("bert_uncased");
    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    Tokenizer other = bert;
    other.normalizers.push_back(nfc_normalizer());
    CHECK_THROWS_WITH_AS(models::save_tokenizer(other, file),
                         "save_tokenizer: WordPiece is written with BertNormalizer alone, not "
                         "with BertNormalizer of 2 normalizers",
                         ValueError);
    other = bert;
    other.pre_tokenizers = {gpt2_pre_tokenizer()};
    CHECK_THROWS_WITH_AS(models::save_tokenizer(other, file),
                         "save_tokenizer: WordPiece is written with BertPreTokenizer alone, "
                         "not with Split of 1 pre-tokenizers",
                         ValueError);
    other = bert;
    other.word_model = [](const Tokenizer&, const std::string&) { return std::vector<Id>(); };
    CHECK_THROWS_WITH_AS(
        models::save_tokenizer(other, file),
        "save_tokenizer: only BPE, and WordPiece with an unknown token, can be written",
        ValueError);
    CHECK(!fs::exists(file));
}
