// BERT's tokenizer in other files than a whole tokenizer.json: vocab.txt, older versions of
// tokenizer.json, GGUF. The expected ids and texts are those of the npm package tokenizers
// 0.23.2; that llama.cpp has the same ids, tests/checks/check_llama_cpp.mjs checks.
#include "chapters/25_encoders/wordpiece.hpp"
#include "chapters/models/tokenizers/gguf_tokenizer.hpp"
#include "chapters/models/tokenizers/gguf_tokenizer_export.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/wordpiece_gguf.hpp"
#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/files.hpp"
#include "tests/support/gguf_edit.hpp"

using namespace llm;
using models::load_tokenizer;

namespace {

const std::vector<std::string> bert_kinds = {"bert_uncased", "bert_cased"};

JsonFile encodings_of(const std::string& kind) {
    return JsonFile(fixture_path("25_encoders/" + kind) + "/encodings.json");
}

// The texts and pairs of a fixture have its ids, and its decoded texts.
void check_encodings(const Tokenizer& tokenizer, const std::string& kind) {
    const JsonFile json = encodings_of(kind);
    REQUIRE(json.objects("cases").size() >= 50);
    for (const JsonFile& expected : json.objects("cases")) {
        INFO(kind, ": ", expected.text("text"));
        const std::vector<Id> ids = tokenizer.encode(expected.text("text"));
        CHECK(ids == expected.ids("ids"));
        CHECK(tokenizer.decode(ids) == expected.text("decoded"));
    }
    for (const JsonFile& expected : json.objects("pairs")) {
        const auto [ids, types] =
            encode_pair(tokenizer, expected.text("first"), expected.text("second"));
        CHECK(ids == expected.ids("ids"));
        CHECK(types == expected.ids("type_ids"));
    }
    // The first token of a text keeps its prefix.
    const auto id = [&](const char* token) { return tokenizer.vocab.at(token); };
    CHECK(tokenizer.decode({id("##ing")}) == "##ing");
    CHECK(tokenizer.decode({2, id("##ing"), id("##ing"), id("text"), id("."), 3}) ==
          "##inging text.");
}

std::string tokenizer_json_of(const std::string& kind) {
    return fixture_path("25_encoders/" + kind) + "/tokenizer.json";
}

// A folder with the vocabulary of a fixture, one token a line, and other files.
struct VocabFolder {
    Scratch scratch;
    std::string folder = scratch.folder.string(), file = folder + "/vocab.txt";

    explicit VocabFolder(const std::string& kind, const std::string& line_end = "\n") {
        std::map<std::int64_t, std::string> tokens;
        for (const auto& [token, id] :
             JsonFile(tokenizer_json_of(kind)).ids_by_name("model.vocab"))
            tokens[id] = token;
        std::string lines;
        for (const auto& [id, token] : tokens) lines += token + line_end;
        overwrite(file, lines);
    }
    void write(const std::string& name, const std::string& text) const {
        overwrite(folder + "/" + name, text);
    }
    std::string rejection() const {
        try {
            load_tokenizer(file);
        } catch (const FileError& error) {
            return replaced(error.what(), folder + "/", "");
        }
        return "not rejected";
    }
};

// A GGUF file of this tokenizer alone.
std::string gguf_file(const Scratch& scratch, const Tokenizer& tokenizer) {
    const std::string file = (scratch.folder / "tokenizer.gguf").string();
    write_gguf(file, models::tokenizer_metadata(tokenizer, tokenizer.vocab_size()), {});
    return file;
}

std::string rejection_of_metadata(const std::function<void(Tokenizer&)>& change) {
    Tokenizer tokenizer = load_tokenizer(tokenizer_json_of("bert_uncased"));
    change(tokenizer);
    try {
        models::tokenizer_metadata(tokenizer, tokenizer.vocab_size());
    } catch (const ValueError& error) {
        return error.what();
    }
    return "not rejected";
}

}  // namespace

TEST_CASE("vocab.txt: the ids, texts and pairs are those of the same tokenizer.json") {
    const VocabFolder uncased("bert_uncased"), cased("bert_cased", "\r\n");
    CHECK(models::find_tokenizer_file(uncased.folder, 0) == uncased.file);
    check_encodings(load_tokenizer(uncased.file), "bert_uncased");
    cased.write("tokenizer_config.json", R"({"do_lower_case": false})");
    check_encodings(load_tokenizer(cased.file), "bert_cased");
    // tokenizer.json comes first.
    uncased.write("tokenizer.json", "{}");
    CHECK(models::find_tokenizer_file(uncased.folder, 0) == uncased.folder + "/tokenizer.json");
}

TEST_CASE("vocab.txt: each setting of tokenizer_config.json has its effect") {
    const VocabFolder files("bert_uncased");
    const auto normalized = [&](const std::string& settings, const std::string& text) {
        files.write("tokenizer_config.json", "{" + settings + "}");
        return load_tokenizer(files.file).normalize(text);
    };
    CHECK(normalized("", "É中") == "e 中 ");
    CHECK(normalized(R"("do_lower_case": false)", "É中") == "É 中 ");
    CHECK(normalized(R"("strip_accents": false)", "É中") == "é 中 ");
    CHECK(normalized(R"("do_lower_case": false, "strip_accents": true)", "É中") == "E 中 ");
    CHECK(normalized(R"("tokenize_chinese_chars": false)", "É中") == "e中");
    // Other names of special tokens, from either file.
    files.write("tokenizer_config.json", R"({"cls_token": "[MASK]"})");
    files.write("special_tokens_map.json",
                R"({"cls_token": "[PAD]", "sep_token": {"content": "[UNK]"}})");
    CHECK(load_tokenizer(files.file).encode("the").front() == 4);
    CHECK(load_tokenizer(files.file).encode("the").back() == 1);
    // A token of the vocabulary that is matched literally.
    const Id id = load_tokenizer(files.file).vocab.at("##al");
    files.write("tokenizer_config.json", R"({"added_tokens_decoder": {")" + std::to_string(id) +
                                             R"(": {"content": "##al", "special": false}}})");
    CHECK(load_tokenizer(files.file).encode("##al") == std::vector<Id>{0, id, 1});
}

TEST_CASE("vocab.txt: what is missing or would change the ids is rejected") {
    const VocabFolder files("bert_uncased");
    const auto rejection = [&](const std::string& settings) {
        files.write("tokenizer_config.json", settings);
        return files.rejection();
    };
    CHECK(rejection("{}") == "not rejected");
    CHECK(rejection(R"({"do_basic_tokenize": false})") ==
          "tokenizer_config.json: do_basic_tokenize false is not supported; supported: true");
    CHECK(rejection(R"({"never_split": ["a"]})") ==
          "tokenizer_config.json: never_split of some words is not supported; supported: none");
    CHECK(rejection(R"({"mask_token": "<mask>"})") == "vocab.txt: there is no token <mask>");
    CHECK(rejection(R"({"added_tokens_decoder": {"7": {"content": "[CLS]"}}})") ==
          "tokenizer_config.json: added_tokens_decoder.7 [CLS] is not that token of vocab.txt");
    files.write("tokenizer_config.json", "{}");
    CHECK_THROWS_WITH_AS(
        load_tokenizer(files.file, 319),
        (files.file + " has more tokens than the vocabulary size, 319").c_str(), FileError);
    CHECK(load_tokenizer(files.file, 330).vocab_size() == 330);
}

TEST_CASE("tokenizer.json of BERT: the settings of tokenizer_config.json come first") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("25_encoders/bert_uncased");
    overwrite(folder + "/tokenizer_config.json",
              R"({"do_lower_case": false, "strip_accents": null})");
    CHECK(load_tokenizer(folder + "/tokenizer.json").normalize("É") == "É");
}

TEST_CASE("tokenizer.json of BERT: BertProcessing is the template of one text and of a pair") {
    const Scratch scratch;
    const std::string file = scratch.copy_of("25_encoders/bert_uncased") + "/tokenizer.json";
    const std::string json = content(file);
    const std::size_t begin = json.find("\"post_processor\""), end = json.find("\"decoder\"");
    const auto with = [&](const std::string& cls, const std::string& sep) {
        overwrite(file, json.substr(0, begin) +
                            R"("post_processor": {"type": "BertProcessing", "cls": )" + cls +
                            R"(, "sep": )" + sep + "}, " + json.substr(end));
        return load_tokenizer(file);
    };
    check_encodings(with(R"(["[CLS]", 2])", R"(["[SEP]", 3])"), "bert_uncased");
    CHECK(with(R"(["[CLS]", 4])", R"(["[SEP]", 5])").encode("") == std::vector<Id>{4, 5});
    for (const std::string wrong : {"2", "[\"[CLS]\"]", "[\"[CLS]\", 320]", "[\"[CLS]\", -1]"})
        CHECK_THROWS_WITH_AS(with(wrong, R"(["[SEP]", 3])"),
                             (file + ": post_processor.cls must be a token and its id").c_str(),
                             FileError);
}

TEST_CASE("GGUF: a tokenizer of BERT is read as it was written") {
    for (const std::string& kind : bert_kinds) {
        const Scratch scratch;
        const std::string path = gguf_file(scratch, load_tokenizer(tokenizer_json_of(kind)));
        check_encodings(load_tokenizer(path), kind);
        const Gguf file(path);
        CHECK(file.text("tokenizer.ggml.model") == "bert");
        const std::vector<std::string>& tokens = file.texts("tokenizer.ggml.tokens");
        const auto ids = JsonFile(tokenizer_json_of(kind)).object("model.vocab");
        CHECK(tokens[std::size_t(ids.ids("text")[0])] == "▁text");
        CHECK(tokens[std::size_t(ids.ids("##ing")[0])] == "ing");
        CHECK(tokens[4] == "[MASK]");
        CHECK(file.integers("tokenizer.ggml.token_type")[4] == models::GgufTokenType::control);
        CHECK(file.boolean("tokenizer.ggml.normalizer.lowercase") == (kind == "bert_uncased"));
        for (const auto& [key, id] : {std::pair{"bos", 2},
                                      {"cls", 2},
                                      {"seperator", 3},
                                      {"unknown", 1},
                                      {"padding", 0},
                                      {"mask", 4}})
            CHECK(file.integer("tokenizer.ggml." + std::string(key) + "_token_id") == id);
    }
}

TEST_CASE("GGUF: missing settings of BERT's tokenizer are llama.cpp's") {
    const Scratch scratch;
    const std::string file =
                          gguf_file(scratch, load_tokenizer(tokenizer_json_of("bert_cased"))),
                      copy = file + ".copy.gguf", prefix = "tokenizer.ggml.";
    REQUIRE(load_tokenizer(file).normalize("É") == "É");
    edit_gguf(file, copy, {{prefix + "normalizer.lowercase", std::nullopt}});
    CHECK(load_tokenizer(copy).normalize("É") == "é");
    edit_gguf(file, copy, {{prefix + "normalizer.strip_accents", std::nullopt}});
    CHECK(load_tokenizer(copy).normalize("É") == "E");
    // Without bos_token_id, that of [CLS]; without either and without [SEP], the published ids.
    edit_gguf(file, copy, {{prefix + "bos_token_id", std::nullopt}});
    CHECK(load_tokenizer(copy).encode("") == std::vector<Id>{2, 3});
    edit_gguf(file, copy,
              {{prefix + "bos_token_id", std::nullopt},
               {prefix + "cls_token_id", std::nullopt},
               {prefix + "seperator_token_id", std::nullopt},
               {prefix + "unknown_token_id", std::nullopt}});
    CHECK(load_tokenizer(copy).encode("🜚") == std::vector<Id>{101, 100, 102});
    edit_gguf(file, copy,
              {{prefix + "add_bos_token", false}, {prefix + "add_eos_token", true}});
    CHECK(load_tokenizer(copy).encode("") == std::vector<Id>{2, 3});
    // Ids of the model without a token decode to nothing.
    const Id size = Id(load_tokenizer(file).vocab_size());
    const Tokenizer padded = load_tokenizer(file, std::size_t(size) + 2);
    CHECK(padded.decode({size, padded.vocab.at("##ing"), size + 1, padded.vocab.at("the")}) ==
          "##ing the");
    edit_gguf(file, copy, {{prefix + "seperator_token_id", std::int64_t{0xFFFFFFFF}}});
    CHECK_THROWS_WITH_AS(
        load_tokenizer(copy),
        (copy + ": tokenizer.ggml: there is no token [CLS], [SEP] or [UNK]").c_str(),
        FileError);
}

TEST_CASE("GGUF: tokenizers of BERT that llama.cpp does not have are not written") {
    CHECK(rejection_of_metadata([](Tokenizer&) {}) == "not rejected");
    const std::string normalizer =
        "export: llama.cpp's WordPiece has a BertNormalizer with clean_text and "
        "handle_chinese_chars";
    CHECK(rejection_of_metadata([](Tokenizer& tokenizer) {
              tokenizer.normalizers = {bert_normalizer({.clean_text = false})};
          }) == normalizer);
    CHECK(rejection_of_metadata([](Tokenizer& tokenizer) {
              tokenizer.normalizers = {bert_normalizer({.handle_chinese_chars = false})};
          }) == normalizer);
    CHECK(rejection_of_metadata([](Tokenizer& tokenizer) { tokenizer.normalizers.clear(); }) ==
          normalizer);
    CHECK(rejection_of_metadata([](Tokenizer& tokenizer) {
              tokenizer.pre_tokenizers = {gpt2_pre_tokenizer()};
          }) == "export: llama.cpp's WordPiece has a BertPreTokenizer alone");
    const std::string model =
        "export: llama.cpp's WordPiece continues words with ##, and here has at most 100 "
        "characters in a word";
    CHECK(rejection_of_metadata([](Tokenizer& tokenizer) {
              tokenizer.word_model = WordPiece{"@@", 100};
          }) == model);
    CHECK(rejection_of_metadata([](Tokenizer& tokenizer) {
              tokenizer.word_model = WordPiece{"##", 99};
          }) == model);
    const std::string around =
        "export: llama.cpp's WordPiece has one token before a text, one after it, and an "
        "unknown token";
    CHECK(rejection_of_metadata(
              [](Tokenizer& tokenizer) { tokenizer.suffix_tokens.clear(); }) == around);
    CHECK(rejection_of_metadata(
              [](Tokenizer& tokenizer) { tokenizer.prefix_tokens.push_back(5); }) == around);
    CHECK(rejection_of_metadata([](Tokenizer& tokenizer) {
              tokenizer.vocab["##"] = Id(tokenizer.vocab_size());
              tokenizer.token_bytes.push_back("");
          }) == "export: llama.cpp has no spelling for the token ##");
    CHECK(models::gguf_of_wordpiece("▁") == "▁▁");
    CHECK(models::wordpiece_of_gguf("▁▁") == "▁");
}
