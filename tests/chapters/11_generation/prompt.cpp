#include <algorithm>
#include <array>
#include <sstream>

#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/gguf.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/standard_input.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"

using namespace llm;

namespace {

using Ids = std::vector<Id>;

std::string prompt_from(const std::string& bytes) {
    std::istringstream input(bytes);
    return read_stream(input);
}

// Two folders, each with the tokenizer of the qwen fixture: that of a model, and another one.
// 402 is <|endoftext|>, 404 <|im_end|>.
struct Folders {
    Scratch scratch;
    std::string model = (scratch.folder / "model").string();
    std::string tokenizer = (scratch.folder / "tokenizer").string();

    Folders() {
        for (const std::string& folder : {model, tokenizer}) {
            fs::create_directories(folder);
            fs::copy_file(fixture_path("10_tokenizer/qwen/tokenizer.json"),
                          folder + "/tokenizer.json");
        }
    }
    // The tokenizer beside the model, or that of --tokenizer.
    Tokenizer load(bool beside_model = true) const {
        return models::load_tokenizer_of_model(
            model, beside_model ? "" : tokenizer + "/tokenizer.json", 410);
    }
    // The EOS tokens, sorted.
    Ids eos(bool beside_model = true) const {
        Ids ids = load(beside_model).eos_token_ids;
        std::sort(ids.begin(), ids.end());
        return ids;
    }
};

}  // namespace

TEST_CASE("an EOS token counts if any of three files names it, in the model's folder") {
    const std::vector<std::array<std::string, 2>> files = {
        {"config.json", R"({"eos_token_id": 404})"},
        {"config.json", R"({"eos_token_id": [404]})"},
        {"config.json", R"({"text_config": {"eos_token_id": 404}})"},
        {"config.json", R"({"eos_token_id": 404, "text_config": {"eos_token_id": 3}})"},
        {"config.json", R"({"eos_token_id": null, "text_config": {"eos_token_id": [404]}})"},
        {"generation_config.json", R"({"eos_token_id": 404})"},
        {"generation_config.json", R"({"eos_token_id": [404]})"},
        {"tokenizer_config.json", R"({"eos_token": "<|im_end|>"})"},
        {"tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>", "lstrip": 0}})"}};
    for (const auto& [name, json] : files) {
        const std::string& content = json;  // a lambda cannot capture a structured binding
        INFO(content);
        const Folders folders;
        CHECK(folders.eos().empty());
        overwrite(folders.model + "/" + name, json);
        CHECK(folders.eos() == Ids{404});
        CHECK(folders.eos(false) == Ids{404});  // with --tokenizer in another folder

        const Folders others;
        overwrite(others.tokenizer + "/" + name, json);
        CHECK(others.eos().empty());
        CHECK(others.eos(false) == Ids{404});
    }
}

TEST_CASE("the EOS tokens of all files and folders are united") {
    const Folders folders;
    overwrite(folders.model + "/config.json", R"({"eos_token_id": [3, 5]})");
    overwrite(folders.model + "/generation_config.json", R"({"eos_token_id": [5, 7]})");
    overwrite(folders.model + "/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
    CHECK(folders.eos() == Ids{3, 5, 7, 404});
    overwrite(folders.tokenizer + "/config.json", R"({"eos_token_id": 7})");
    overwrite(folders.tokenizer + "/generation_config.json", R"({"eos_token_id": 9})");
    overwrite(folders.tokenizer + "/tokenizer_config.json",
              R"({"eos_token": {"content": "<|endoftext|>"}})");
    CHECK(folders.eos() == Ids{3, 5, 7, 404});
    CHECK(folders.eos(false) == Ids{3, 5, 7, 9, 402, 404});
}

TEST_CASE(
    "an EOS token that is null or not in the vocabulary is none, another type is rejected") {
    const Folders folders;
    const std::string file = folders.model + "/tokenizer_config.json";
    for (const std::string json : {"null", "\"<|eot_id|>\"", "{\"content\": \"</s>\"}"}) {
        overwrite(file, "{\"eos_token\": " + json + "}");
        CHECK(folders.eos().empty());
    }
    overwrite(file, R"({"eos_token": 404})");
    CHECK_THROWS_WITH_AS(folders.eos(), (file + ": eos_token must be a text, not 404").c_str(),
                         FileError);
    overwrite(file, R"({"eos_token": {"id": 404}})");
    CHECK_THROWS_WITH_AS(folders.eos(), (file + ": eos_token.content is missing").c_str(),
                         FileError);
}

TEST_CASE("a llama2.c tokenizer has the EOS tokens of the model's folder, too") {
    const Folders folders;
    std::string tokens(4, '\0');  // three tokens: a score of 0, a length of 1 and a letter
    for (const char letter : {'a', 'b', 'c'})
        tokens += std::string(4, '\0') + std::string("\1\0\0\0", 4) + letter;
    const std::string file = folders.tokenizer + "/tokenizer.bin";
    overwrite(file, tokens);
    overwrite(folders.model + "/config.json", R"({"eos_token_id": 0})");
    CHECK(models::load_tokenizer_of_model(folders.model, file, 3).eos_token_ids ==
          Ids{1, 2, 0});
}

TEST_CASE("a GGUF model has its own tokenizer, unless --tokenizer names another one") {
    const Folders folders;
    const std::string file = (folders.scratch.folder / "model.gguf").string();
    write_gguf(file,
               {{"tokenizer.ggml.model", std::string("gpt2")},
                {"tokenizer.ggml.pre", std::string("gpt-2")},
                {"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<|end|>"}},
                {"tokenizer.ggml.token_type", std::vector<std::int64_t>{1, 1, 1, 3}},
                {"tokenizer.ggml.merges", std::vector<std::string>{"a b"}},
                {"tokenizer.ggml.bos_token_id", std::int64_t(1)},
                {"tokenizer.ggml.eos_token_id", std::int64_t(3)}},
               {});
    const Tokenizer own = models::load_tokenizer_of_model(file, "", 4);
    CHECK(models::encode_prompt(own, "ab<|end|>") == Ids{2, 3});
    CHECK(models::encode_prompt(own, "") == Ids{1});
    CHECK(own.eos_token_ids == Ids{3});

    overwrite(folders.tokenizer + "/config.json", R"({"eos_token_id": 404})");
    const std::string other = folders.tokenizer + "/tokenizer.json";
    CHECK(models::load_tokenizer_of_model(file, other, 410).eos_token_ids == Ids{404});
    overwrite(folders.model + "/config.json", R"({"eos_token_id": 2, "bos_token_id": 0})");
    const Tokenizer of_folder = models::load_tokenizer_of_model(folders.model, file, 4);
    CHECK(of_folder.eos_token_ids == Ids{3, 2});
    CHECK(of_folder.bos_token_id == 1);
}

TEST_CASE("an empty prompt is the BOS token of any file, and rejected if there is none") {
    const std::vector<std::array<std::string, 2>> files = {
        {"config.json", R"({"bos_token_id": 402})"},
        {"config.json", R"({"text_config": {"bos_token_id": 402}})"},
        {"generation_config.json", R"({"bos_token_id": 402})"},
        {"tokenizer_config.json", R"({"bos_token": "<|endoftext|>"})"},
        {"tokenizer_config.json", R"({"bos_token": {"content": "<|endoftext|>"}})"}};
    for (const auto& [name, json] : files) {
        const std::string& content = json;  // a lambda cannot capture a structured binding
        INFO(content);
        const Folders folders;
        CHECK_THROWS_WITH_AS(models::encode_prompt(folders.load(), ""),
                             "this model needs a --prompt to begin with: it has no BOS token",
                             ValueError);
        overwrite(folders.model + "/" + name, json);
        for (const bool beside_model : {true, false}) {
            CHECK(models::encode_prompt(folders.load(beside_model), "") == Ids{402});
            CHECK(models::encode_prompt(folders.load(beside_model), "a").front() != 402);
        }
        // The folder of the tokenizer comes first.
        overwrite(folders.tokenizer + "/config.json", R"({"bos_token_id": 5})");
        CHECK(models::encode_prompt(folders.load(false), "") == Ids{5});
    }
    const Tokenizer llama3 =
        models::load_tokenizer(fixture_path("10_tokenizer/llama3/tokenizer.json"));
    CHECK(models::encode_prompt(llama3, "") ==
          Ids{406});  // its tokenizer.json prepends it to any text
}

TEST_CASE("generation_config.json of transformers 5: null and an empty list name no token") {
    const Folders folders;
    overwrite(folders.model + "/config.json", R"({"bos_token_id": 402, "eos_token_id": 404})");
    for (const std::string none : {"null", "[]"}) {
        overwrite(folders.model + "/generation_config.json",
                  R"({"_from_model_config": true, "bos_token_id": )" + none +
                      R"(, "eos_token_id": )" + none +
                      R"(, "pad_token_id": -1, "transformers_version": "5.2.0"})");
        CHECK(folders.eos() == Ids{404});
        CHECK(models::encode_prompt(folders.load(), "") == Ids{402});
        const Tokenizer beside = models::load_tokenizer(folders.model + "/tokenizer.json");
        CHECK(beside.eos_token_ids == Ids{404});
        CHECK(beside.bos_token_id == 402);
    }
}

TEST_CASE("the sampling parameters of generation_config.json are not read") {
    const Folders folders;
    overwrite(folders.model + "/generation_config.json",
              R"({"eos_token_id": 404, "do_sample": "?", "temperature": [], "top_k": -1,
                  "top_p": "?", "repetition_penalty": {}})");
    CHECK(folders.eos() == Ids{404});
}

TEST_CASE(
    "standard input as a prompt: read_stream reads to the end, without the last line feed") {
    CHECK(prompt_from("And God said") == "And God said");
    std::istringstream input("And God said");
    read_stream(input);
    CHECK(input.good());
    CHECK(prompt_from("And God\nsaid\n") == "And God\nsaid");
    CHECK(prompt_from("said\n\n") == "said\n");
    CHECK(prompt_from("").empty());
    CHECK(prompt_from("\n").empty());
    CHECK(prompt_from(std::string(16384, 'x')).size() == 16384);
    CHECK(prompt_from(std::string(16384, 'x') + "\n").size() == 16384);
}

TEST_CASE(
    "standard input as a prompt: read_stream rejects what is too long or not text, in one "
    "line") {
    const std::string too_long = "standard input: the text has more than 16384 bytes";
    for (const std::string end : {"x", "x\n", "xx", "\nx", "\n\n"})
        CHECK_THROWS_WITH_AS(prompt_from(std::string(16384, 'x') + end), too_long.c_str(),
                             TextError);
    CHECK_THROWS_WITH_AS(prompt_from("ab\xff"),
                         "standard input: the text is not UTF-8 at byte 2", TextError);
    CHECK_THROWS_WITH_AS(prompt_from(std::string("a\0b", 3)),
                         "standard input: the text has a zero byte at byte 1", TextError);
}
