// Tokenizers in the metadata of GGUF files. The files are made here from the tokenizer.json
// files of the fixtures, as llama.cpp's converter makes them.
#include <limits>
#include <random>

#include "chapters/models/tokenizers/gguf_tokenizer.hpp"
#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/files.hpp"
#include "tests/support/fixture_tokenizer.hpp"

using namespace llm;
using Ids = std::vector<Id>;
using Texts = std::vector<std::string>;
using Metadata = std::map<std::string, GgufValue>;

namespace {

void write_metadata(const fs::path& file, const Metadata& metadata) {
    write_gguf(file, {metadata.begin(), metadata.end()}, {});
}

const std::string prefix = "tokenizer.ggml.";

// The tokens of a tokenizer of the fixtures, with their types.
void add_tokens(const JsonFile& json, Metadata& metadata) {
    auto vocab = json.object("model").ids_by_name("vocab");
    std::map<std::string, std::int64_t> types;
    for (const JsonFile& token : json.objects("added_tokens")) {
        const std::string content = token.text("content");
        vocab.emplace_back(content, token.ids("id")[0]);
        types[content] = content == "<unk>" ? 2 : token.boolean("special") ? 3 : 4;
    }
    Texts tokens(vocab.size());  // at most one for each id
    for (const auto& [token, id] : vocab) tokens[static_cast<std::size_t>(id)] = token;
    while (tokens.back().empty()) tokens.pop_back();
    std::vector<std::int64_t> token_types;
    for (const std::string& token : tokens)
        token_types.push_back(types.contains(token)      ? types[token]
                              : token.starts_with("<0x") ? 6
                                                         : 1);
    metadata[prefix + "tokens"] = tokens;
    metadata[prefix + "token_type"] = token_types;
}

Texts merges_of(const JsonFile& json) {
    Texts merges;
    for (const Texts& pair : json.object("model").text_lists("merges"))
        merges.push_back(pair.size() == 1 ? pair[0] : pair[0] + " " + pair[1]);
    return merges;
}

// The metadata of a tokenizer of the fixtures: byte-level BPE with this pre-tokenizer.
Metadata byte_level_metadata(const std::string& kind, const std::string& pre) {
    const JsonFile json(fixture_path("10_tokenizer/" + kind + "/tokenizer.json"));
    Metadata metadata = {{prefix + "model", std::string("gpt2")},
                         {prefix + "pre", pre},
                         {prefix + "merges", merges_of(json)}};
    add_tokens(json, metadata);
    return metadata;
}

// The same for SentencePiece: the score of a token is lower the later its merge.
Metadata llama2_metadata() {
    const JsonFile json(fixture_path("10_tokenizer/llama2/tokenizer.json"));
    Metadata metadata = {{prefix + "model", std::string("llama")},
                         {prefix + "pre", std::string("default")}};
    add_tokens(json, metadata);
    const Texts& tokens = std::get<Texts>(metadata[prefix + "tokens"]);
    std::map<std::string, double> scores;
    for (const std::string& merge : merges_of(json))
        scores.emplace(replaced(merge, " ", ""), -double(scores.size()));
    std::vector<double> of_tokens;
    for (const std::string& token : tokens) of_tokens.push_back(scores[token]);
    metadata[prefix + "scores"] = of_tokens;
    return metadata;
}

Tokenizer tokenizer_of(const Metadata& metadata) {
    const Scratch scratch;
    const fs::path file = scratch.folder / "model.gguf";
    write_metadata(file, metadata);
    return models::read_gguf_tokenizer(Gguf(file));
}

// The texts of the fixture, texts with special tokens, and random ones.
Texts example_texts(const std::string& kind) {
    Texts texts = {"",
                   " ",
                   "a",
                   "  two  spaces  ",
                   "\n\n x\r\n\ty",
                   "1234567 ½ ²³ 12a3",
                   "It's we'LL THEY'RE 'Tis don't",
                   "naïve café e\u0301 Ångström",
                   "中文，の!!",
                   "\U0001F600\U0001F468\u200d\U0001F469",
                   "a\u00a0b\u3000c\u200b",
                   "<s>the</s> cat<s> <unk>x",
                   "a<|endoftext|> b<|im_start|>user\nc<|im_end|>",
                   "<think>the</think>",
                   "<|begin_of_text|>x<|eot_id|>",
                   "▁a▁ <0x41> Ġ",
                   "return values[i][j];\n    }\n",
                   std::string(200, ' ') + "x"};
    const std::string folder = fixture_path("10_tokenizer/" + kind);
    for (const JsonFile& example : JsonFile(folder + "/encodings.json").objects("cases"))
        texts.push_back(example.text("text"));
    const Texts alphabet =
        characters("aeehhttnorsx    \n\r\t12é中'.,!?<>|[]{}_-ßI\u0301\u00a0\U0001F600");
    std::mt19937 random(42);
    for (int i = 0; i < 200; ++i) {
        std::string& text = texts.emplace_back();
        for (std::size_t n = random() % 100; n > 0; --n)
            text += alphabet[random() % alphabet.size()];
    }
    return texts;
}

void check_equal(const Tokenizer& actual, const Tokenizer& expected, const Texts& texts) {
    CHECK(actual.vocab_size() == expected.vocab_size());
    CHECK(actual.all_special_ids == expected.all_special_ids);
    for (const std::string& text : texts) {
        INFO(text);
        const Ids ids = actual.encode(text);
        CHECK(ids == expected.encode(text));
        CHECK(actual.decode(ids) == expected.decode(ids));
    }
}

// The message of the error, without the path of the file.
std::string rejection(const Metadata& metadata, std::optional<std::size_t> vocab_size = {}) {
    const Scratch scratch;
    const std::string file = (scratch.folder / "model.gguf").string();
    write_metadata(file, metadata);
    try {
        models::read_gguf_tokenizer(Gguf(file), vocab_size);
        return "it was accepted";
    } catch (const FileError& error) {
        const std::string message = error.what();
        CHECK(message.starts_with(file + ": "));
        CHECK(message.find('\n') == message.npos);
        return message.substr(std::min(message.size(), file.size() + 2));
    }
}

// Byte-level BPE with the tokens a, b, ab, <|end|> (control) and <x> (user-defined).
Metadata small_metadata() {
    return {{prefix + "model", std::string("gpt2")},
            {prefix + "pre", std::string("gpt-2")},
            {prefix + "tokens", Texts{"a", "b", "ab", "<|end|>", "<x>"}},
            {prefix + "token_type", std::vector<std::int64_t>{1, 1, 1, 3, 4}},
            {prefix + "merges", Texts{"a b"}}};
}

Metadata with(Metadata metadata, const std::string& name, const GgufValue& value) {
    metadata[prefix + name] = value;
    return metadata;
}

Metadata without(Metadata metadata, const std::string& name) {
    metadata.erase(prefix + name);
    return metadata;
}

// A SentencePiece vocabulary in which scores and ids are in different orders.
Metadata small_llama_metadata() {
    return {
        {prefix + "model", std::string("llama")},
        {prefix + "tokens", Texts{"<unk>", "<s>", "</s>", "<0xC3>", "<0xBC>", "▁", "a", "b",
                                  "ab", "ba", "▁a", "aba", "<unused>"}},
        {prefix + "token_type",
         std::vector<std::int64_t>{2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 5}},
        {prefix + "scores", std::vector<double>{0, 0, 0, 0, 0, -9, -9, -9, -3, -2, -4, -1, 0}}};
}

}  // namespace

TEST_CASE("byte-level BPE of a GGUF file gives the ids and texts of its tokenizer.json") {
    const std::vector<std::array<std::string, 2>> kinds = {
        {"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen", "qwen2"}, {"smol", "smollm"}};
    for (const auto& [kind, pre] : kinds) {
        const std::string& tried = kind;  // a lambda cannot capture a structured binding
        INFO(tried);
        const Tokenizer expected = fixture_tokenizer(kind);
        Metadata metadata = byte_level_metadata(kind, pre);
        if (kind == "llama3") metadata[prefix + "bos_token_id"] = expected.prefix_tokens[0];
        check_equal(tokenizer_of(metadata), expected, example_texts(kind));
    }
}

TEST_CASE("the SentencePiece tokenizer of a GGUF file gives the ids of its tokenizer.json") {
    // With scores, every way to split a token in two is a merge.
    Tokenizer expected = fixture_tokenizer("llama2");
    const Metadata metadata = llama2_metadata();
    const auto& scores = std::get<std::vector<double>>(metadata.at(prefix + "scores"));
    for (const auto& [left, left_id] : expected.vocab)
        for (const auto& [right, right_id] : expected.vocab)
            if (const auto found = expected.vocab.find(left + right);
                found != expected.vocab.end())
                expected.merges[{left_id, right_id}] = {
                    -scores[static_cast<std::size_t>(found->second)], found->second};
    check_equal(tokenizer_of(metadata), expected, example_texts("llama2"));
}

TEST_CASE("the ids of GGUF tokenizers are those of llama.cpp, for texts with special tokens") {
    const Tokenizer llama2 = tokenizer_of(llama2_metadata());
    CHECK(llama2.encode("<s>the</s> cat<s> <unk>x") ==
          Ids{1, 1, 314, 2, 307, 277, 328, 1, 307, 0, 259, 305});
    CHECK(llama2.encode("  two  spaces  ") ==
          Ids{1, 307, 308, 272, 267, 307, 268, 115, 265, 277, 322, 307});
    CHECK(llama2.encode("naïve café") ==
          Ids{1, 381, 265, 198, 178, 284, 260, 343, 265, 278, 298});
    const Tokenizer llama3 = tokenizer_of(
        with(byte_level_metadata("llama3", "llama-bpe"), "bos_token_id", std::int64_t(406)));
    CHECK(llama3.encode("the<|end_of_text|>  café 12345") ==
          Ids{406, 83, 259, 407, 220, 294, 64, 69, 292, 220, 16, 17, 18, 19, 20});
}

TEST_CASE("SentencePiece: the highest score first, unknown characters as bytes, then <unk>") {
    const Tokenizer tokenizer = tokenizer_of(small_llama_metadata());
    CHECK(tokenizer.encode("") == Ids{1});
    CHECK(tokenizer.encode("ab") == Ids{1, 5, 8});    // a + b has -3, ▁ + a -4
    CHECK(tokenizer.encode("aba") == Ids{1, 5, 11});  // b + a has -2, then a + ba -1
    CHECK(tokenizer.encode("aa") == Ids{1, 10, 6});
    CHECK(tokenizer.encode("bü") == Ids{1, 5, 7, 3, 4});
    CHECK(tokenizer.encode("b中文b") == Ids{1, 5, 7, 0, 7});
    CHECK(tokenizer.encode("a</s>a") == Ids{1, 10, 2, 10});
    CHECK(tokenizer.encode("b b") == Ids{1, 5, 7, 5, 7});
    CHECK(tokenizer.decode({1, 10, 6, 5, 7, 2}) == "aa b");
    CHECK(tokenizer.decode({7, 3, 4, 0, 12}) == "bü");
    CHECK(tokenizer.decode_bytes({7, 3}) == "b\xc3");
    CHECK(tokenizer.eos_token_ids == Ids{2});
    CHECK(tokenizer.bos_token_id == 1);
    CHECK(tokenizer.all_special_ids == std::set<Id>{0, 1, 2});

    // Without the space in front, as in Gemma.
    const Tokenizer gemma =
        tokenizer_of(with(small_llama_metadata(), "add_space_prefix", false));
    CHECK(gemma.encode("ab") == Ids{1, 8});
    CHECK(gemma.decode({1, 10, 6}) == " aa");
}

TEST_CASE("Phi-3 in a GGUF file: white space after special tokens is a part of them") {
    const auto named = [](const std::string& name) {
        Metadata metadata = small_llama_metadata();
        metadata["general.name"] = name;
        return tokenizer_of(metadata);
    };
    const std::string text = "a</s>\n b<s> b";
    for (const std::string name : {"Phi 3", "Llama", ""})
        CHECK(named(name).encode("a</s> b") == Ids{1, 10, 2, 5, 5, 7});
    for (const std::string name : {"Phi-3 mini", "my phi3"}) {
        CHECK(named(name).encode("a</s> b") == Ids{1, 10, 2, 5, 7});
        CHECK(named(name).encode("a</s> \n\t b") == Ids{1, 10, 2, 5, 7});
        CHECK(named(name).encode("a<s> b") == Ids{1, 10, 1, 5, 5, 7});  // but not after <s>
    }
}

TEST_CASE(
    "merges of a GGUF file are in the order of their ranks, of a pair listed twice the later") {
    Metadata metadata = small_metadata();
    metadata[prefix + "tokens"] = Texts{"a", "b", "c", "ab", "bc"};
    metadata[prefix + "token_type"] = std::vector<std::int64_t>(5, 1);
    metadata[prefix + "merges"] = Texts{"a b", "b c"};
    CHECK(tokenizer_of(metadata).encode("abc") == Ids{3, 2});
    metadata[prefix + "merges"] = Texts{"a b", "b c", "a b"};
    CHECK(tokenizer_of(metadata).encode("abc") == Ids{0, 4});
}

TEST_CASE("tokens of a GGUF file decode by their type") {
    Metadata metadata = small_metadata();
    metadata[prefix + "tokens"] =
        Texts{"Ġa", "中", "<|end|>", "Ġ", "[PAD]", "", "Ċ"};  // 中 is not a byte's character
    metadata[prefix + "token_type"] = std::vector<std::int64_t>{1, 1, 3, 4, 5, 1, 1};
    metadata[prefix + "merges"] = Texts{};
    const Tokenizer tokenizer = tokenizer_of(metadata);
    CHECK(tokenizer.decode({0, 1, 2, 3, 4, 5, 6}) == " a中Ġ\n");
    CHECK(tokenizer.encode("\n<|end|>Ġ\n") == Ids{6, 2, 3, 6});
    CHECK_FALSE(tokenizer.vocab.contains(""));
}

TEST_CASE("an empty token of a GGUF file is not searched in texts, whatever its type") {
    for (const std::int64_t type : {1, 2, 3, 4, 5}) {
        Metadata metadata = with(small_metadata(), "tokens", Texts{"a", "b", "ab", "", "<x>"});
        metadata[prefix + "token_type"] = std::vector<std::int64_t>{1, 1, 1, type, 4};
        CHECK(tokenizer_of(metadata).encode("aab<x>") == Ids{0, 2, 4});
    }
}

TEST_CASE("special tokens of a GGUF file: BOS in front if the file or its model says so") {
    const Metadata bos = with(small_metadata(), "bos_token_id", std::int64_t(3));
    const auto prefix_of = [](const Metadata& metadata) {
        return tokenizer_of(metadata).prefix_tokens;
    };
    CHECK(prefix_of(bos).empty());
    CHECK(tokenizer_of(bos).encode("") == Ids{3});
    CHECK(tokenizer_of(small_metadata()).encode("").empty());
    CHECK(prefix_of(with(bos, "add_bos_token", true)) == Ids{3});
    for (const std::string pre : {"llama-bpe", "llama3", "llama-v3", "tekken"}) {
        CHECK(prefix_of(with(bos, "pre", pre)) == Ids{3});
        CHECK(tokenizer_of(with(bos, "pre", pre)).ignore_merges);
        CHECK(prefix_of(with(with(bos, "pre", pre), "add_bos_token", false)).empty());
    }
    for (const std::string pre : {"qwen2", "qwen35", "smollm"})
        CHECK(prefix_of(with(bos, "pre", pre)).empty());
    CHECK(prefix_of(with(small_llama_metadata(), "add_bos_token", false)).empty());
    CHECK(prefix_of(with(small_llama_metadata(), "bos_token_id", std::int64_t(7))) == Ids{7});

    Metadata ends = with(bos, "eos_token_id", std::int64_t(3));
    CHECK(tokenizer_of(ends).eos_token_ids == Ids{3});
    ends = with(with(ends, "eot_token_id", std::int64_t(4)), "eom_token_id", std::int64_t(3));
    CHECK(tokenizer_of(ends).eos_token_ids == Ids{3, 4});
    CHECK(tokenizer_of(small_metadata()).eos_token_ids.empty());
    CHECK(tokenizer_of(with(small_llama_metadata(), "eos_token_id", std::int64_t(8)))
              .eos_token_ids == Ids{8});

    // SentencePiece's usual ids, unless the vocabulary is smaller.
    Metadata one = {{prefix + "model", std::string("llama")},
                    {prefix + "tokens", Texts{"a"}},
                    {prefix + "token_type", std::vector<std::int64_t>{1}},
                    {prefix + "scores", std::vector<double>{0}}};
    CHECK(rejection(one) == "tokenizer.ggml.bos_token_id is missing");
    one[prefix + "add_bos_token"] = false;
    CHECK(!tokenizer_of(one).bos_token_id);
    CHECK(tokenizer_of(one).eos_token_ids.empty());
    CHECK(tokenizer_of(one).unk_token_id == 0);

    CHECK_THROWS_AS(tokenizer_of(bos).encode("c"), TextError);
    const Metadata unknown = with(bos, "unknown_token_id", std::int64_t(4));
    CHECK(tokenizer_of(unknown).encode("acé") == Ids{0, 4, 4, 4});
    const Metadata none = with(bos, "unknown_token_id", std::int64_t(0xFFFFFFFF));
    CHECK(!tokenizer_of(none).unk_token_id);
    CHECK_THROWS_AS(tokenizer_of(none).encode("c"), TextError);
}

TEST_CASE("pre-tokenizers of GGUF files split as the published tokenizers do") {
    std::string text = "We'LL see 12345 DoesIt naïve!!\n/\n  x";
    const auto words = [&](const std::string& pre) {
        const Tokenizer tokenizer = tokenizer_of(
            with(with(small_metadata(), "pre", pre), "bos_token_id", std::int64_t(3)));
        std::string line;
        for (const std::string& word : tokenizer.pre_tokenize(text, true))
            line += (line.empty() ? "" : "·") + unicode_to_bytes(word);
        return line;
    };
    CHECK(words("gpt-2") == "We·'·LL· see· 12345· DoesIt· naïve·!!·\n·/·\n · x");
    CHECK(words("smollm") == "We·'·LL· see· ·1·2·3·4·5· DoesIt· naïve·!!·\n·/·\n · x");
    CHECK(words("llama-bpe") == "We·'LL· see· ·123·45· DoesIt· naïve·!!\n·/\n· · x");
    CHECK(words("qwen2") == "We·'LL· see· ·1·2·3·4·5· DoesIt· naïve·!!\n·/\n· · x");
    CHECK(words("qwen35") == words("qwen2"));
    CHECK(words("tekken") == "We·'LL· see· ·1·2·3·4·5· Does·It· naïve·!!\n/\n· · x");
    text = "x̣̄y मि́ !̄\n?";  // marks in words, at their ends and after punctuation
    CHECK(words("qwen2") == "x·̣̄·y· म·ि́· !̄\n·?");
    CHECK(words("qwen35") == "x̣̄y· मि́· !·̄·\n·?");
}

TEST_CASE("damaged or unsupported tokenizers of GGUF files are rejected") {
    using Integers = std::vector<std::int64_t>;
    const Metadata small = small_metadata(), llama = small_llama_metadata();
    const std::string tokens = "tokenizer.ggml.tokens";
    REQUIRE(rejection(small) == "it was accepted");
    REQUIRE(rejection(llama) == "it was accepted");

    for (const std::string model : {"t5", "rwkv", "no_vocab", "gemma4", "line\nfeed"})
        CHECK(rejection(with(small, "model", model)) ==
              "tokenizer.ggml.model " + replaced(model, "\n", "?") +
                  " is not supported; llama, gpt2 and bert are");
    const std::string names =
        "gpt-2, llama-bpe, llama-v3, llama3, qwen2, qwen35, smollm, tekken";
    for (const std::string pre : {"default", "deepseek-llm"})
        CHECK(rejection(with(small, "pre", pre)) ==
              "tokenizer.ggml.pre " + pre + " is not supported; " + names + " are");
    CHECK(rejection(without(small, "pre")) ==
          "tokenizer.ggml.pre is missing; supported are " + names);
    for (const std::string name :
         {"add_eos_token", "add_sep_token", "remove_extra_whitespaces", "not_known"}) {
        CHECK(rejection(with(small, name, true)) ==
              "tokenizer.ggml." + name + " is not supported: nothing reads it");
        CHECK(rejection(with(small, name, false)) == "it was accepted");
    }
    for (const std::string name : {"padding_token_id", "fim_pre_token_id"})
        CHECK(rejection(with(small, name, std::int64_t(1))) == "it was accepted");
    for (const std::string name : {"model", "tokens", "token_type", "merges"})
        CHECK(mentions(rejection(without(small, name)), "tokenizer.ggml." + name));
    CHECK(mentions(rejection(without(llama, "scores")), "tokenizer.ggml.scores"));
    CHECK(mentions(rejection(with(small, "tokens", true)), tokens));

    CHECK(rejection(with(with(small, "tokens", Texts{}), "token_type", Integers{})) ==
          tokens + " is empty");
    CHECK(rejection(with(small, "token_type", Integers{1, 1})) ==
          "tokenizer.ggml.token_type has 2 elements, but there are 5 tokens");
    CHECK(rejection(with(llama, "scores", std::vector<double>(14))) ==
          "tokenizer.ggml.scores has 14 elements, but there are 13 tokens");
    CHECK(rejection(small, 4) == tokens + " has 5 elements, but the vocabulary size is 4");
    CHECK(rejection(small, 5) == "it was accepted");
    const Metadata twice = with(small, "tokens", Texts{"a", "b", "ab", "<|end|>", "b"});
    CHECK(tokenizer_of(twice).encode("b") == tokenizer_of(small).encode("b"));
    CHECK(tokenizer_of(twice).decode({1, 4}) == "bb");
    CHECK(rejection(with(small, "tokens", Texts{"a", "b", "ab", "<|end|>", "\xff"})) ==
          tokens + ": token 4 is not UTF-8");
    for (const std::int64_t type : {0, 7, -1})
        CHECK(rejection(with(small, "token_type", Integers{1, 1, 1, 3, type})) ==
              tokens + ": token 4 has the unknown type " + to_text(type));
    CHECK(mentions(rejection(with(small, "token_type", Integers{1, 1, 1, 3, 6})),
                   tokens + ": token 4 has the type of a byte"));
    std::vector<double> scores(13);
    scores[12] = std::numeric_limits<double>::quiet_NaN();
    CHECK(mentions(rejection(with(llama, "scores", scores)), "tokenizer.ggml."));
    Texts long_tokens = std::get<Texts>(llama.at(tokens));
    long_tokens[12] = std::string(513, 'a');
    CHECK(rejection(with(llama, "tokens", long_tokens)) ==
          tokens + ": token 12 has more than 512 bytes");

    const std::string merge = "tokenizer.ggml.merges: merge 1 ";
    for (const std::string text : {"", " ", "ab", " ab"})
        CHECK(rejection(with(small, "merges", Texts{"a b", text})) == merge + "has no space");
    CHECK(rejection(with(small, "merges", Texts{"a b", "a c"})) ==
          merge + "needs the unknown token c");
    CHECK(rejection(with(small, "merges", Texts{"a b", "b a"})) ==
          merge + "needs the unknown token ba");
    CHECK(rejection(with(small, "merges", Texts{"a b", "ab "})) ==
          merge + "needs the unknown token ");

    for (const std::string name : {"bos", "eos", "eot", "eom", "unknown"})
        for (const std::int64_t id : {5, -1})
            CHECK(rejection(with(small, name + "_token_id", id)) ==
                  prefix + name + "_token_id is " + to_text(id) + ", but there are 5 tokens");
    CHECK(rejection(with(small, "add_bos_token", true)) ==
          "tokenizer.ggml.bos_token_id is missing");
    CHECK(rejection(with(small, "pre", std::string("llama-bpe"))) ==
          "tokenizer.ggml.bos_token_id is missing");
}

TEST_CASE(
    "load_tokenizer reads GGUF files of any name, and a GGUF model is its own tokenizer") {
    const Scratch scratch;
    for (const std::string name : {"model.gguf", "model.bin"}) {
        const std::string file = (scratch.folder / name).string();
        write_metadata(file, small_metadata());
        CHECK(models::find_tokenizer_file(file, 5) == file);
        const Tokenizer tokenizer = models::load_tokenizer(file, 8);  // more rows than tokens
        CHECK(tokenizer.encode("ab<x>") == Ids{2, 4});
        CHECK(tokenizer.vocab_size() == 8);
        CHECK(tokenizer.decode({2, 7}) == "ab");
        CHECK_THROWS_AS(models::load_tokenizer(file, 4), FileError);
    }
    const std::string other = (scratch.folder / "other.gguf").string();
    overwrite(other, "no GGUF file");
    try {
        models::load_tokenizer(other);
        FAIL("it was accepted");
    } catch (const FileError& error) {
        mentions(error.what(), "GGUF");
    }
    CHECK_THROWS_AS(models::find_tokenizer_file(other, 5), FileError);
}
