#include <cmath>
#include <cstring>
#include <set>

#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"

using namespace llm;
using Ids = std::vector<Id>;

TEST_CASE(
    "apply_merges: the lowest rank first, among equals the leftmost, until no pair has a "
    "merge") {
    // l 0, o 1, w 2, e 3, r 4; lo 5, low 6, er 7, ow 8
    const Merges merges{{{0, 1}, {0, 5}}, {{5, 2}, {1, 6}}, {{3, 4}, {2, 7}}, {{1, 2}, {3, 8}}};
    CHECK(apply_merges({0, 1, 2, 3, 4}, merges) == std::vector<Id>{6, 7});
    CHECK(apply_merges({2, 1, 2}, merges) == std::vector<Id>{2, 8});
    CHECK(apply_merges({4, 3, 3, 4, 3}, merges) == std::vector<Id>{4, 3, 7, 3});
    CHECK(apply_merges({}, merges).empty());
    CHECK(apply_merges({3}, merges) == std::vector<Id>{3});

    // With "ow" before "lo" the same word has other tokens.
    const Merges other{{{0, 1}, {1, 5}}, {{5, 2}, {2, 6}}, {{1, 2}, {0, 8}}};
    CHECK(apply_merges({0, 1, 2}, other) == std::vector<Id>{0, 8});

    // a a a: the left pair is merged.
    CHECK(apply_merges({9, 9, 9}, {{{9, 9}, {0, 10}}}) == std::vector<Id>{10, 9});
    CHECK(apply_merges({9, 9, 9, 9}, {{{9, 9}, {0, 10}}, {{10, 10}, {1, 11}}}) ==
          std::vector<Id>{11});
}

TEST_CASE("byte_to_unicode: GPT-2's characters, one for each byte") {
    CHECK(byte_to_unicode('A') == "A");
    CHECK(byte_to_unicode('~') == "~");
    CHECK(byte_to_unicode('!') == "!");
    CHECK(byte_to_unicode(' ') == "Ġ");
    CHECK(byte_to_unicode('\n') == "Ċ");
    CHECK(byte_to_unicode('\t') == "ĉ");
    CHECK(byte_to_unicode(0) == "Ā");
    CHECK(byte_to_unicode(0x7f) == "ġ");
    CHECK(byte_to_unicode(0xa0) == "ł");
    CHECK(byte_to_unicode(0xa1) == "¡");
    CHECK(byte_to_unicode(0xad) == "Ń");
    CHECK(byte_to_unicode(0xff) == "ÿ");
    std::set<std::string> alphabet;
    for (int byte = 0; byte < 256; ++byte)
        alphabet.insert(byte_to_unicode(static_cast<unsigned char>(byte)));
    CHECK(alphabet.size() == 256);
    CHECK(byte_fallback_token(0x0a) == "<0x0A>");
    CHECK(byte_fallback_token(0xe2) == "<0xE2>");
}

TEST_CASE("tokenizers of eight kinds encode and decode as Hugging Face's library does") {
    for (const std::string kind :
         {"gpt2", "llama3", "qwen", "smol", "llama2", "metaspace", "gpt_oss", "gemma"}) {
        const std::string folder = fixture_path("10_tokenizer/" + kind);
        const Tokenizer tokenizer = models::load_tokenizer(folder + "/tokenizer.json", 1000);
        const auto cases = JsonFile(folder + "/encodings.json").objects("cases");
        CHECK(cases.size() >= 35);
        for (const JsonFile& expected : cases) {
            INFO(kind, ": ", expected.text("text"));
            const std::vector<Id> ids = tokenizer.encode(expected.text("text"));
            CHECK(ids == expected.ids("ids"));
            CHECK(tokenizer.decode(ids) == expected.text("decoded"));
        }
    }
}

namespace {

// a 0, b 1, ab 2, unknown 3; no merges.
Tokenizer small_tokenizer() {
    Tokenizer tokenizer;
    tokenizer.vocab = {{"a", 0}, {"b", 1}, {"ab", 2}};
    tokenizer.token_bytes = {"a", "b", "ab", "?"};
    tokenizer.unk_token_id = 3;
    return tokenizer;
}

}  // namespace

TEST_CASE(
    "ignore_merges: a word of the vocabulary is one token, although no merge leads to it") {
    Tokenizer tokenizer = small_tokenizer();
    CHECK(tokenizer.encode("ab") == std::vector<Id>{0, 1});
    tokenizer.ignore_merges = true;
    CHECK(tokenizer.encode("ab") == std::vector<Id>{2});
    CHECK(tokenizer.encode("abb") == std::vector<Id>{0, 1, 1});
}

TEST_CASE(
    "an unknown character becomes <unk>, its bytes, or an error, and fuse_unk merges adjacent "
    "ones") {
    Tokenizer tokenizer = small_tokenizer();
    CHECK(tokenizer.encode("xyax") == std::vector<Id>{3, 3, 0, 3});
    tokenizer.fuse_unk = true;
    CHECK(tokenizer.encode("xyax") == std::vector<Id>{3, 0, 3});
    tokenizer.byte_fallback = true;  // of ü there is the first byte only
    tokenizer.vocab["<0xC3>"] = 4;
    CHECK(tokenizer.encode("aü") == std::vector<Id>{0, 3});
    tokenizer.vocab["<0xBC>"] = 5;
    CHECK(tokenizer.encode("aüx") == std::vector<Id>{0, 4, 5, 3});
    tokenizer.unk_token_id.reset();
    CHECK_THROWS_WITH_AS(tokenizer.encode("ax"), "there is no token for 'x'", TextError);
}

TEST_CASE("of two added tokens that match at the same position the longer one wins") {
    Tokenizer tokenizer = small_tokenizer();
    for (const bool longer_first : {true, false}) {
        tokenizer.added_tokens = {{"<a", 7}, {"<ab>", 8}};
        if (longer_first) std::swap(tokenizer.added_tokens[0], tokenizer.added_tokens[1]);
        CHECK(tokenizer.encode("a<ab><a<b") == std::vector<Id>{0, 8, 7, 3, 1});
    }
}

TEST_CASE("pre_tokenize: only the first word of a text is at its start") {
    Tokenizer tokenizer = small_tokenizer();
    using Words = std::vector<std::string>;
    tokenizer.pre_tokenizers = {
        {"letters", [](const std::string& word, bool) { return characters(word); }},
        {"mark", [](const std::string& word, bool at_start) {
             return Words{(at_start ? "^" : "") + word};
         }}};
    CHECK(split_words(tokenizer.pre_tokenizers[0], {"abc"}, true) == Words{"a", "b", "c"});
    CHECK(tokenizer.pre_tokenize("abc", true) == Words{"^a", "b", "c"});
    CHECK(tokenizer.pre_tokenize("abc", false) == Words{"a", "b", "c"});
}

TEST_CASE("tokenizer.json: variants that the six kinds do not have") {
    using Words = std::vector<std::string>;
    const Scratch scratch;
    const std::string gpt2 = scratch.copy_of("10_tokenizer/gpt2") + "/tokenizer.json";
    const Tokenizer plain = models::load_tokenizer(gpt2, 1000);
    edit(gpt2, "\"add_prefix_space\": false", "\"add_prefix_space\": true");
    const Tokenizer with_prefix = models::load_tokenizer(gpt2, 1000);
    CHECK(with_prefix.encode("the cat") == plain.encode(" the cat"));
    CHECK(with_prefix.encode(" the cat") == plain.encode(" the cat"));

    // Defaults: ByteLevel splits and adds a prefix space, an added token is not special.
    const std::string terse = (scratch.folder / "terse.json").string();
    overwrite(terse, replaced(replaced(content(gpt2), "use_regex", "-"), "special", "-"));
    CHECK(models::load_tokenizer(terse, 1000).encode("a\u00a0b") ==
          with_prefix.encode("a\u00a0b"));
    CHECK(plain.decode(plain.encode("<|endoftext|>")).empty());
    CHECK(models::load_tokenizer(terse, 1000).decode(plain.encode("<|endoftext|>")) ==
          "<|endoftext|>");
    overwrite(terse, replaced(replaced(content(gpt2), "<|endoftext|>", "<|the end|>"),
                              "special", "-"));
    const Tokenizer spaced =
        models::load_tokenizer(terse, 1000);  // a space is no byte_to_unicode character
    CHECK(spaced.decode(spaced.encode("a<|the end|>")) == " a<|the end|>");
    overwrite(terse, replaced(content(gpt2), "add_prefix_space", "-"));
    CHECK(models::load_tokenizer(terse, 1000).encode("the") == with_prefix.encode("the"));

    // Prepend leaves an empty text alone.
    const Tokenizer prepending =
        models::load_tokenizer(fixture_path("10_tokenizer/llama2/tokenizer.json"), 1000);
    CHECK(prepending.normalize("").empty());

    // Without byte fallback, unknown characters become one <unk>, or one each.
    const std::string llama2 = scratch.copy_of("10_tokenizer/llama2") + "/tokenizer.json";
    edit(llama2, "\"byte_fallback\": true", "\"byte_fallback\": false");
    const std::vector<Id> fused = models::load_tokenizer(llama2, 1000).encode("中文");
    edit(llama2, "\"fuse_unk\": true", "\"fuse_unk\": false");
    CHECK(fused.size() + 1 == models::load_tokenizer(llama2, 1000).encode("中文").size());

    // Removed and inverted: matches are kept, gaps are removed. Qwen's pattern leaves no gaps.
    const std::string qwen = scratch.copy_of("10_tokenizer/qwen") + "/tokenizer.json";
    const std::vector<Id> expected =
        models::load_tokenizer(qwen, 1000).encode("It's 12 cats!\n");
    edit(qwen, "\"Isolated\"", "\"Removed\"");
    CHECK_THROWS_AS(models::load_tokenizer(qwen, 1000), FileError);
    edit(qwen, "\"invert\": false", "\"invert\": true");
    edit(qwen, "\\\\s+(?!\\\\S)|\\\\s+", "x");
    CHECK(split_words(models::load_tokenizer(qwen, 1000).pre_tokenizers[0], {"a  b"}, true) ==
          Words{"a", " b"});
    edit(qwen, "[\\\\r\\\\n]+|x", "[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+");
    CHECK(models::load_tokenizer(qwen, 1000).encode("It's 12 cats!\n") == expected);

    // Added tokens that are searched in the normalized text: ▁<s> at the beginning only.
    overwrite(terse, replaced(content(fixture_path("10_tokenizer/llama2/tokenizer.json")),
                              "\"normalized\": false", "\"normalized\": true"));
    const Tokenizer late = models::load_tokenizer(terse, 1000);
    // The ids are Hugging Face's.
    CHECK(late.encode("<s>the") == Ids{1, 1, 261, 310});
    CHECK(late.encode("the<s>") == Ids{1, 314, 63, 268, 65});
    CHECK(late.encode("the <s>x") == Ids{1, 314, 1, 305});
    CHECK(late.encode("<s><s>") == Ids{1, 1, 63, 268, 65});
    CHECK(prepending.encode("the<s>").size() == 3);
    overwrite(terse, replaced(content(fixture_path("10_tokenizer/llama2/tokenizer.json")),
                              "\"normalized\": false,", ""));  // that is the default
    CHECK(models::load_tokenizer(terse, 1000).encode("the<s>") == prepending.encode("the<s>"));
    overwrite(terse, replaced(content(gpt2), "\"normalized\": false", "\"normalized\": true"));
    CHECK(models::load_tokenizer(terse, 1000).encode("a<|endoftext|>").size() == 2);

    // Digits together instead of one by one; a dropout of 0 is accepted.
    const std::string smol = scratch.copy_of("10_tokenizer/smol") + "/tokenizer.json";
    edit(smol, "\"individual_digits\": true", "\"individual_digits\": false");
    edit(smol, "\"dropout\": null", "\"dropout\": 0.0");
    CHECK(split_words(models::load_tokenizer(smol, 1000).pre_tokenizers[0], {"ab12"}, true) ==
          Words{"ab", "12"});

    // A pair that is listed twice has the later rank.
    overwrite(terse, R"({"model": {"vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4},
        "merges": ["a b", "b c", "a b"]}, "decoder": {"type": "Fuse"}})");
    CHECK(models::load_tokenizer(terse, 5).encode("abc") == std::vector<Id>{0, 4});

    // Metaspace: a replacement in front always or never, split into words or not.
    const std::string meta = scratch.copy_of("10_tokenizer/metaspace") + "/tokenizer.json";
    const auto words = [&](const std::string& text) {
        return models::load_tokenizer(meta, 1000).pre_tokenize(text, false);
    };
    CHECK(words("a b") == Words{"a▁b"});
    edit(meta, "\"first\"", "\"always\"");
    CHECK(words("a b") == Words{"▁a▁b"});
    CHECK(words(" b") == Words{"▁b"});
    edit(meta, "\"split\": false", "\"-\": false");
    CHECK(words("a b  c") == Words{"▁a", "▁b", "▁", "▁c"});
    edit(meta, "\"always\"", "\"never\"");
    CHECK(words("a b") == Words{"a", "▁b"});
}

TEST_CASE("decode: a part of a character gives U+FFFD, or with decode_bytes its bytes") {
    const Tokenizer tokenizer =
        models::load_tokenizer(fixture_path("10_tokenizer/gpt2/tokenizer.json"), 1000);
    const std::vector<Id> ids = tokenizer.encode("\u4e2d");  // 中, three bytes, no merges
    REQUIRE(ids.size() == 3);
    CHECK(tokenizer.decode({ids[0]}) == "\ufffd");
    CHECK(tokenizer.decode_bytes({ids[0]}) == "\xe4");
    CHECK(tokenizer.decode_bytes({ids[0], 999, 5000, -1}) == "\xe4");  // ids without a token
    CHECK_THROWS_WITH_AS(tokenizer.encode("abc\xff"), "the text is not UTF-8 at byte 3",
                         TextError);
}

TEST_CASE("byte_tokenizer: every text is encoded, and decodes to itself") {
    const Tokenizer tokenizer = byte_tokenizer();
    CHECK(tokenizer.decode({1, 2}).empty());
    CHECK(tokenizer.decode({3, 68}) == std::string("\0A", 2));
    CHECK(tokenizer.vocab_size() == 259);
    CHECK(tokenizer.eos_token_ids == std::vector<Id>{1, 2});
    CHECK(tokenizer.encode("aü") == std::vector<Id>{1, 3 + 'a', 3 + 0xc3, 3 + 0xbc});
    CHECK(tokenizer.decode(tokenizer.encode("a<0x41> ü\n")) == "a<0x41> ü\n");
}

TEST_CASE(
    "bos_token_id and eos_token_id are read from config.json and generation_config.json") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("10_tokenizer/qwen");
    const auto load = [&] { return models::load_tokenizer(folder + "/tokenizer.json", 1000); };
    CHECK(load().eos_token_ids.empty());
    CHECK(load().encode("").empty());
    overwrite(folder + "/config.json", R"({"eos_token_id": 7, "bos_token_id": 5})");
    CHECK(load().eos_token_ids == std::vector<Id>{7});
    CHECK(load().encode("") == std::vector<Id>{5});
    CHECK(load().encode("a").front() != 5);
    CHECK(load().encode("").size() == 1);
    overwrite(folder + "/config.json", R"({"eos_token_id": 7, "bos_token_id": 0})");
    CHECK(load().encode("") == std::vector<Id>{0});
    overwrite(folder + "/config.json", R"({"eos_token_id": 7, "bos_token_id": 5})");
    overwrite(folder + "/generation_config.json", R"({"eos_token_id": [8, 9]})");
    CHECK(load().eos_token_ids == std::vector<Id>{8, 9});
    CHECK(load().encode("") == std::vector<Id>{5});

    // The prefix tokens of tokenizer.json win over bos_token_id.
    const std::string llama3 = scratch.copy_of("10_tokenizer/llama3");
    overwrite(llama3 + "/config.json", R"({"bos_token_id": 5})");
    CHECK(models::load_tokenizer(llama3 + "/tokenizer.json", 1000).encode("") ==
          std::vector<Id>{406});
}

namespace {

// A tokenizer file of llama2.c: a score, a length and the bytes of each token.
std::string llama2c_file(const std::vector<std::pair<float, std::string>>& tokens) {
    std::string file(4, '\0');
    for (const auto& [score, token] : tokens) {
        std::array<char, 8> head;
        const auto length = static_cast<std::int32_t>(token.size());
        std::memcpy(head.data(), &score, 4);
        std::memcpy(head.data() + 4, &length, 4);
        file.append(head.data(), head.size()) += token;
    }
    return file;
}

const std::vector<std::pair<float, std::string>> small_vocab = {
    {0, "<unk>"},  {0, "\n<s>\n"}, {0, "\n</s>\n"}, {0, "<0xC3>"}, {0, "<0xBC>"},
    {0, "<0x0A>"}, {-9, " "},      {-9, "a"},       {-9, "b"},     {-3, "ab"},
    {-2, "ba"},    {-1, " ab"},    {-0.5f, "aba"}};

}  // namespace

TEST_CASE(
    "a llama2.c tokenizer merges into the token with the highest score, and falls back to "
    "bytes") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "tok13.bin").string();
    overwrite(file, llama2c_file(small_vocab));
    const Tokenizer tokenizer = models::load_tokenizer(file, 13);
    CHECK(tokenizer.encode("") == Ids{1});
    CHECK(tokenizer.encode("ab") == Ids{1, 11});
    // "ba" has a higher score than "ab", so " ab" is not made.
    CHECK(tokenizer.encode("aba") == Ids{1, 6, 12});
    CHECK(tokenizer.encode("abab") == Ids{1, 6, 12, 8});
    CHECK(tokenizer.encode(" ab") == Ids{1, 6, 11});
    CHECK(tokenizer.encode("ü") == Ids{1, 6, 3, 4});
    CHECK(tokenizer.encode("\n") == Ids{1, 6, 5});
    CHECK(tokenizer.encode("é") == Ids{1, 6, 0});
    CHECK(tokenizer.decode({1, 11, 6, 7, 3, 4, 5, 2}) == "ab aü\n");
    CHECK(tokenizer.decode({6, 6, 7}) == " a");
    CHECK(tokenizer.eos_token_ids == Ids{1, 2});
}

TEST_CASE("find_tokenizer_file: in the folder of the model, or an error if there is none") {
    const Scratch scratch;
    const std::string model = (scratch.folder / "model.bin").string();
    overwrite(model, "");
    CHECK_THROWS_AS(models::find_tokenizer_file(model, 13), FileError);
    overwrite(scratch.folder / "tokenizer.bin", "");
    CHECK(models::find_tokenizer_file(model, 13) ==
          (scratch.folder / "tokenizer.bin").string());
    overwrite(scratch.folder / "tok13.bin", "");
    CHECK(models::find_tokenizer_file(model, 13) == (scratch.folder / "tok13.bin").string());
    CHECK(models::find_tokenizer_file(scratch.folder.string(), 13) ==
          (scratch.folder / "tokenizer.json").string());
}

namespace {

// The error message, one line, for a file that is rejected.
std::string error_of(const std::string& file,
                     std::optional<std::size_t> vocab_size = 1000) try {
    models::load_tokenizer(file, vocab_size);
    return "it was accepted";
} catch (const FileError& error) {
    const std::string line = error.what();
    CHECK(line.find(file) != line.npos);
    CHECK(line.find('\n') == line.npos);
    return line;
}

}  // namespace

TEST_CASE("tokenizer.json: a component that is not supported is rejected by its name") {
    const std::vector<std::array<std::string, 4>> cases = {
        {"gpt2", "\"BPE\"", "\"WordLevel\"", "model.type WordLevel is not supported"},
        {"gpt2", "\"dropout\": null", "\"dropout\": 0.1", "model.dropout is not supported"},
        {"gpt2", "\"end_of_word_suffix\": \"\"", "\"end_of_word_suffix\": \"</w>\"",
         "model.end_of_word_suffix is not supported"},
        {"gpt2", "\"merges\"", "\"other\"", "model.merges is missing"},
        {"gpt2", "\"continuing_subword_prefix\": \"\"", "\"continuing_subword_prefix\": \"##\"",
         "continuing_subword_prefix is not supported"},
        {"gpt2", "\"post_processor\": {\n  \"type\": \"ByteLevel\"",
         "\"post_processor\": {\n  \"type\": \"RobertaProcessing\"",
         "RobertaProcessing is not supported"},
        {"qwen", "\"Regex\"", "\"String\"", "a pattern that is no Regex is not supported"},
        {"llama2", "\"String\": \" \"", "\"String\": \"\"", "pattern.String must not be empty"},
        {"llama2", "\"type\": \"Fuse\"", "\"type\": \"ByteFallback\"", "this Strip is not"},
        {"llama2", "\"Strip\"", "\"CTC\"", "type CTC is not supported"},
        {"llama2", "\"Fuse\"", "\"Metaspace\"", "decoders.2.replacement is missing"},
        {"metaspace", "\"replacement\": \"▁\"", "\"replacement\": \"\"",
         "replacement must not be empty"},
        {"metaspace", "\"normalized\": false", "\"normalized\": true", "accepted"},
        {"gpt2", "\"normalizer\": null", "\"normalizer\": {\"type\": \"Nmt\"}",
         "normalizer.type Nmt is not supported"},
        {"qwen", "\"NFC\"", "\"NFKC\"", "normalizer.type NFKC is not supported"},
        {"qwen", "\"Isolated\"", "\"MergedWithNext\"",
         "pre_tokenizer.pretokenizers.0.behavior MergedWithNext is not supported"},
        {"qwen", "\"Isolated\"", "\"MergedWithPrevious\"",
         "pre_tokenizer.pretokenizers.0: a pattern that is no String is not supported"},
        {"gemma", "\"invert\": false", "\"invert\": true",
         "pre_tokenizer.behavior inverted MergedWithPrevious is not supported"},
        {"qwen", "\"Regex\": \"", "\"Regex\": \"(", "the pattern '("},
        {"smol", "\"Digits\"", "\"Punctuation\"", "type Punctuation is not supported"},
        {"llama2", "\"Prepend\"", "\"Nmt\"", "normalizer.normalizers.0.type Nmt"},
        {"llama2", "\"unk_token\": \"<unk>\"", "\"unk_token\": \"<none>\"",
         "model: there is no token <none>"},
        {"metaspace", "\"first\"", "\"last\"", "prepend_scheme last is not supported"},
        {"llama3", "\"TemplateProcessing\"", "\"RobertaProcessing\"",
         "post_processor.processors.1.type RobertaProcessing is not supported"},
        {"llama2", "\"start\": 1", "\"start\": 2", "this Strip is not supported"},
        {"llama3", "\"single\": [", "\"single\": [{\"Sequence\": {\"id\": \"A\"}}, ",
         "a second text is not supported"},
    };
    for (const auto& [kind, old_text, new_text, message] : cases) {
        const Scratch scratch;
        const std::string file = scratch.copy_of("10_tokenizer/" + kind) + "/tokenizer.json";
        CHECK(mentions(error_of(file, 1000), "accepted"));
        edit(file, old_text, new_text);
        CHECK(mentions(error_of(file), message));
    }
}

namespace {

std::string added_token(Id id, const std::string& content, const std::string& setting) {
    std::string members;
    for (const std::string name : {"single_word", "lstrip", "rstrip", "normalized"})
        members +=
            ", \"" + name + "\": " + (setting.find(name) != setting.npos ? "true" : "false");
    return "{\"id\": " + std::to_string(id) + ", \"content\": \"" + content + "\"" + members +
           ", \"special\": false}";
}

// A tokenizer of the fixtures with more added tokens.
Tokenizer with_added_tokens(const std::string& kind, const std::string& tokens) {
    const Scratch scratch;
    const std::string file = scratch.copy_of("10_tokenizer/" + kind) + "/tokenizer.json";
    edit(file, "\"added_tokens\": [", "\"added_tokens\": [" + tokens + ",");
    return models::load_tokenizer(file);
}

}  // namespace

// The ids are those of npm's tokenizers 0.23.2.
TEST_CASE(
    "added tokens are matched in two passes, the normalized ones in the normalized text") {
    const Tokenizer two_passes =
        with_added_tokens("gpt2", added_token(403, "<|a|>", "") + ", " +
                                      added_token(404, "<|a|>b", "normalized"));
    CHECK(two_passes.encode("<|a|>b") == Ids{403, 65});
    CHECK(two_passes.encode("x<|a|>bc") == Ids{87, 403, 65, 66});

    const Tokenizer nfc = with_added_tokens("qwen", added_token(406, "\u1ebf", "normalized"));
    CHECK(nfc.encode("e\u0302\u0301") == Ids{406});
    CHECK(nfc.encode("a\u1ebfb") == Ids{64, 406, 65});
    CHECK(nfc.encode("xe\u0302\u0301 e") == Ids{87, 406, 220, 68});
}

TEST_CASE("lstrip, rstrip and single_word of added tokens") {
    const Tokenizer lstrip = with_added_tokens("gpt2", added_token(403, "<mask>", "lstrip"));
    CHECK(lstrip.encode("a \t<mask>b") == Ids{64, 403, 65});
    CHECK(lstrip.encode("<mask> a") == Ids{403, 262});
    CHECK(lstrip.encode(" \u3000<mask><mask>  <mask>x") == Ids{403, 403, 403, 87});
    const Tokenizer rstrip = with_added_tokens("gpt2", added_token(403, "<|user|>", "rstrip"));
    CHECK(rstrip.encode("<|user|>\n Hi") == Ids{403, 39, 72});
    CHECK(rstrip.encode("a <|user|>  <|user|>\u00a0b") == Ids{64, 220, 403, 403, 65});
    const Tokenizer both = with_added_tokens("gpt2", added_token(403, "<m>", "lstrip rstrip"));
    CHECK(both.encode("a \t<m>\n b") == Ids{64, 403, 65});
    CHECK(both.encode(" <m> <m> ") == Ids{403, 403});

    const Tokenizer word = with_added_tokens("gpt2", added_token(403, "cat", "single_word"));
    CHECK(word.encode("concat") == Ids{66, 78, 77, 66, 277});
    CHECK(word.encode("a cat, cats") == Ids{64, 220, 403, 11, 295, 277, 82});
    CHECK(word.encode("cat3 3cat cat-cat") ==
          Ids{66, 277, 18, 220, 18, 66, 277, 220, 403, 12, 403});
    CHECK(word.encode("\u00bdcat\u00bd") == Ids{126, 121, 403, 126, 121});  // ½ is no digit
    CHECK(word.encode("_cat cat_") == Ids{62, 66, 277, 295, 277, 62});
    CHECK(word.encode("e\u0301cat") == Ids{68, 136, 223, 66, 277});
    const Tokenizer left =
        with_added_tokens("gpt2", added_token(403, "cat", "lstrip single_word"));
    CHECK(left.encode("a  cat b") == Ids{64, 403, 220, 65});
    CHECK(left.encode("x  cats") == Ids{87, 220, 295, 277, 82});
}

TEST_CASE("an added token must not contradict the vocabulary") {
    const auto rejection = [](const std::string& token) -> std::string {
        try {
            with_added_tokens("gpt2", token);
        } catch (const FileError& error) {
            return error.what();
        }
        return "it was loaded";
    };
    CHECK(mentions(rejection(added_token(83, "new", "")), "new has the id 83 of the token t"));
    CHECK(mentions(rejection(added_token(403, "t", "")),
                   "t has the id 403, and in the vocabulary 83"));
    CHECK(rejection(added_token(83, "t", "")) == "it was loaded");
}

TEST_CASE("the ids of a template's special token win over its name") {
    const Scratch scratch;
    const std::string file = scratch.copy_of("10_tokenizer/llama3") + "/tokenizer.json";
    CHECK(models::load_tokenizer(file).encode("Hi") == Ids{406, 39, 72});
    const std::string text = content(file);
    const std::size_t ids = text.find("\"ids\"");
    REQUIRE(ids != text.npos);
    const std::size_t number = text.find("406", ids);
    const auto with = [&](const std::string& replacement) {
        overwrite(file, text.substr(0, number) + replacement + text.substr(number + 3));
    };
    with("5");
    CHECK(models::load_tokenizer(file).encode("Hi") == Ids{5, 39, 72});
    with("5, 6");
    CHECK(models::load_tokenizer(file).encode("Hi") == Ids{5, 6, 39, 72});
    with("9999");
    CHECK(mentions(error_of(file), "has no token 9999"));
}

TEST_CASE("tokenizer_config.json: BOS and EOS as a fallback, and add_bos_token") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("10_tokenizer/llama2");
    const auto load = [&](const std::string& members) {
        overwrite(folder + "/tokenizer_config.json", "{" + members + "}");
        return models::load_tokenizer(folder + "/tokenizer.json");
    };
    const std::string llama = R"("tokenizer_class": "LlamaTokenizerFast", )";
    CHECK(load(R"("bos_token": "<s>", "eos_token": {"content": "</s>"})").bos_token_id == 1);
    CHECK(load(R"("eos_token": {"content": "</s>"})").eos_token_ids == Ids{2});
    CHECK(!load(R"("bos_token": "<none>")").bos_token_id);
    const Ids plain = load("").encode("Hi");
    CHECK(plain.front() == 1);
    CHECK(load(llama + R"("add_bos_token": true)").encode("Hi") == plain);
    CHECK(load(llama + R"("add_bos_token": false)").encode("Hi") ==
          Ids(plain.begin() + 1, plain.end()));
    CHECK(load(R"("add_bos_token": false)").encode("Hi") == plain);  // ignored by its class
    // transformers 5.
    const std::string backend =
        R"("backend": "tokenizers", "is_local": true, "bos_token": "<s>",
           "extra_special_tokens": ["</s>"], "tokenizer_class": "TokenizersBackend")";
    const Ids without(plain.begin() + 1, plain.end());
    CHECK(load(backend).encode("Hi") == plain);
    CHECK(load(backend + R"(, "add_bos_token": true)").encode("Hi") == plain);
    CHECK(load(backend + R"(, "add_bos_token": false)").encode("Hi") == without);
    CHECK(load(backend + R"(, "add_eos_token": false)").encode("Hi") == without);
    overwrite(folder + "/tokenizer_config.json", "{" + llama + R"("add_eos_token": true})");
    CHECK_THROWS_WITH_AS(
        models::load_tokenizer(folder + "/tokenizer.json"),
        doctest::Contains("add_eos_token true is not supported; supported: false"), FileError);

    // Other files win.
    overwrite(folder + "/config.json", R"({"bos_token_id": 7, "eos_token_id": 8})");
    const Tokenizer configured = load(R"("bos_token": "<s>", "eos_token": "</s>")");
    CHECK(configured.bos_token_id == 7);
    CHECK(configured.eos_token_ids == Ids{8});
}

TEST_CASE("a damaged tokenizer file, one for another model, and a missing one are rejected") {
    const Scratch scratch;
    const std::string json = scratch.copy_of("10_tokenizer/gpt2") + "/tokenizer.json";
    CHECK(mentions(error_of(json, 402), "but the vocabulary size is 402"));
    CHECK(mentions(error_of(json, 403), "accepted"));
    const std::string good = content(json);
    overwrite(json, good.substr(0, good.size() / 2));
    CHECK(mentions(error_of(json), "not valid JSON at line "));
    overwrite(json, "{}");
    CHECK(mentions(error_of(json), "model is missing"));
    overwrite(json, R"({"model": {"vocab": {"a": -1}, "merges": []}})");
    CHECK(mentions(error_of(json), "model.vocab must hold whole numbers"));
    overwrite(json, R"({"model": {"vocab": {"a": 1}, "merges": ["a a"]}})");
    CHECK(mentions(error_of(json), "there is no token aa"));
    overwrite(json, R"({"model": {"vocab": {"a": 1}, "merges": ["a"]}})");
    CHECK(mentions(error_of(json), "a merge must name two tokens"));
    overwrite(json, R"({"model": {"vocab": {"a": 1}, "merges": [["a", 1]]}})");
    CHECK(mentions(error_of(json), "model.merges must hold texts"));
    overwrite(json, R"({"model": {"vocab": {"a": 1}, "merges": []}})");
    CHECK(mentions(error_of(json), "without decoder"));
    CHECK(mentions(error_of((scratch.folder / "nothing.json").string()), "cannot read"));

    const std::string file = (scratch.folder / "tokenizer.bin").string();
    const std::string bytes = llama2c_file(small_vocab);
    const auto after = [&](const std::string& damaged, std::size_t vocab_size = 13) {
        overwrite(file, damaged);
        return error_of(file, vocab_size);
    };
    CHECK(mentions(after(bytes), "accepted"));
    CHECK(mentions(after(bytes, 14), "too short for a llama2.c tokenizer of 14 tokens"));
    CHECK(mentions(after(bytes, 12), "more than 12 tokens"));
    CHECK(mentions(after(bytes.substr(0, bytes.size() - 1)), "token 12 is damaged"));
    CHECK(mentions(after(std::string(200, '\xff')), "token 0 is damaged"));
    CHECK(mentions(after(std::string(200, '\x7f')), "token 0 is damaged"));
    CHECK(mentions(after(""), "is empty"));
    CHECK(mentions(after(llama2c_file({{0, std::string(513, 'a')}}), 1), "is damaged"));
    CHECK(mentions(after(llama2c_file({{0, std::string(512, 'a')}}), 1), "accepted"));
    CHECK(mentions(after(llama2c_file({{std::nanf(""), "a"}}), 1), "is damaged"));
}

TEST_CASE("load_tokenizer without a vocabulary size reads all tokens of the file") {
    const std::string folder = fixture_path("10_tokenizer/gpt2");
    const Tokenizer tokenizer = models::load_tokenizer(folder + "/tokenizer.json");
    CHECK(tokenizer.vocab_size() == 403);
    CHECK(tokenizer.encode("the cat") ==
          models::load_tokenizer(folder + "/tokenizer.json", 1000).encode("the cat"));

    const Scratch scratch;
    const std::string file = (scratch.folder / "tok13.bin").string();
    overwrite(file, llama2c_file(small_vocab));
    CHECK(models::load_tokenizer(file).vocab_size() == 13);
    overwrite(file, llama2c_file(small_vocab) + "ab");
    CHECK(mentions(error_of(file, std::nullopt),
                   "too short for a llama2.c tokenizer of 14 tokens"));
    const std::string json = (scratch.folder / "tokenizer.json").string();
    overwrite(json, R"({"model": {"vocab": {"a": 2147483647}, "merges": []}})");
    CHECK(mentions(error_of(json, std::nullopt), "has the id 2147483647"));
}

TEST_CASE("token_text: a token in printable form") {
    const Tokenizer tokenizer = byte_tokenizer();
    CHECK(tokenizer.token_text(3 + ' ') == "▁");
    CHECK(tokenizer.token_text(3 + 'a') == "a");
    CHECK(tokenizer.token_text(3 + '\n') == "\\n");
    CHECK(tokenizer.token_text(3 + 0xc3) == "\\xc3");
    CHECK(tokenizer.token_text(1) == "<s>");
    CHECK(tokenizer.token_text(259) == "<259>");
    CHECK(tokenizer.token_text(-1) == "<-1>");
}

TEST_CASE("the pre-tokenizers: words of GPT-2, bytes as characters, spaces as marks") {
    using Words = std::vector<std::string>;
    const std::string text = "It's  12 naïve";
    CHECK(gpt2_pre_tokenizer().split(text, true) == Words{"It", "'s", " ", " 12", " naïve"});
    CHECK(byte_level_pre_tokenizer(false, true).split(text, true) ==
          Words{"It", "'s", "Ġ", "Ġ12", "ĠnaÃ¯ve"});
    CHECK(byte_level_pre_tokenizer(true, false).split("a b", true) == Words{"ĠaĠb"});
    CHECK(metaspace_pre_tokenizer("▁", PrependScheme::first, false).split("a b", true) ==
          Words{"▁a▁b"});
    CHECK(regex_pre_tokenizer("Digits", "[0-9]").split("a12b", true) ==
          Words{"a", "1", "2", "b"});
    CHECK(regex_pre_tokenizer("Digits", "[0-9]", false).split("a12b", true) == Words{"1", "2"});
    CHECK(nfc_normalizer().normalize("e\u0301") == "é");
}

TEST_CASE("a million spaces are encoded, with and without a pre-tokenizer") {
    const std::string spaces(1'000'000, ' ');
    for (const std::string kind : {"gpt2", "llama2", "llama3"}) {
        INFO(kind);
        const Tokenizer tokenizer = models::load_tokenizer(
            fixture_path("10_tokenizer/" + kind + "/tokenizer.json"), 1000);
        const std::string decoded = tokenizer.decode(tokenizer.encode(" " + spaces + "x"));
        const bool equal = decoded.ends_with(spaces + "x");  // Llama 2 drops the first space
        CHECK(equal);
    }
}
