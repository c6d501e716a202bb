// Training byte-level BPE with special tokens. Expected merges and ids come from Hugging Face's
// trainer (make_bpe_training_fixtures.mjs).
#include <map>
#include <random>

#include "chapters/10_tokenizer/byte_level_training.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"

using namespace llm;
using Ids = std::vector<Id>;
using Texts = std::vector<std::string>;

namespace {

const std::string training_fixtures = fixture_path("bpe_training");
const Texts chat_tokens = {"<|endoftext|>", "<|user|>", "<|assistant|>"};

// The merges of a tokenizer in the order of their ranks, as spelled in tokenizer.json.
std::vector<Texts> merges_of(const Tokenizer& tokenizer) {
    const auto spelled = [&](Id id) {
        return bytes_to_unicode(tokenizer.token_bytes[static_cast<std::size_t>(id)]);
    };
    std::vector<Texts> merges(tokenizer.merges.size());
    for (const auto& [pair, merge] : tokenizer.merges) {
        CHECK(spelled(merge.merged) == spelled(pair.first) + spelled(pair.second));
        merges[static_cast<std::size_t>(merge.rank)] = {spelled(pair.first),
                                                        spelled(pair.second)};
    }
    return merges;
}

Tokenizer trained(const std::string& text, std::size_t vocab_size, const Texts& special_tokens,
                  std::size_t min_frequency = 1, TieBreaking ties = TieBreaking::lowest_ids) {
    return train_byte_level_bpe(text, {vocab_size, special_tokens, min_frequency, ties});
}

std::vector<Texts> first(const std::vector<Texts>& merges, std::size_t count) {
    return {merges.begin(), merges.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::string sennrichs_words() {
    std::string text;
    for (const auto& [word, count] : std::vector<std::pair<std::string, int>>{
             {"low", 5}, {"lower", 2}, {"widest", 3}, {"newest", 6}})
        for (int i = 0; i < count; ++i) text += word + "\n";
    return text;
}

std::string rejection(const std::string& text, std::size_t vocab_size,
                      const Texts& special_tokens) try {
    train_byte_level_bpe(text, {vocab_size, special_tokens});
    return "it was trained";
} catch (const TextError& error) {
    return error.what();
}

}  // namespace

TEST_CASE("train_byte_level_bpe learns the merges of Hugging Face's BpeTrainer") {
    const std::string text = read_text(training_fixtures + "/text.txt");
    const std::vector<Texts> merges =
        JsonFile(training_fixtures + "/merges.json").text_lists("hugging_face");
    for (const std::size_t count : std::vector<std::size_t>{0, 1, 40, 150, merges.size()}) {
        const Tokenizer tokenizer = trained(text, 3 + 256 + count, chat_tokens);
        CHECK(tokenizer.vocab_size() == 3 + 256 + count);
        CHECK(merges_of(tokenizer) == first(merges, count));
    }
    // After the last merge, each word is one token.
    CHECK(trained(text, 2000, chat_tokens).vocab_size() == 3 + 256 + merges.size());
}

TEST_CASE("train_byte_level_bpe: ids and tokenizer.json equal Hugging Face's") {
    const std::string text = read_text(training_fixtures + "/text.txt");
    const Tokenizer tokenizer = trained(text, 400, chat_tokens, 2);
    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    models::save_tokenizer(tokenizer, file);
    const Tokenizer loaded = models::load_tokenizer(file);
    CHECK(loaded.token_bytes == tokenizer.token_bytes);
    CHECK(loaded.vocab == tokenizer.vocab);
    CHECK(loaded.all_special_ids == std::set<Id>{0, 1, 2});
    CHECK(!loaded.unk_token_id);

    const auto cases = JsonFile(training_fixtures + "/encodings.json").objects("cases");
    CHECK(cases.size() >= 10);
    for (const JsonFile& expected : cases) {
        INFO(expected.text("text"));
        CHECK(tokenizer.encode(expected.text("text")) == expected.ids("ids"));
        CHECK(loaded.encode(expected.text("text")) == expected.ids("ids"));
    }
}

TEST_CASE(
    "train_byte_level_bpe with individual digits equals Hugging Face's Digits, ByteLevel") {
    const std::string text = read_text(training_fixtures + "/text.txt");
    const std::vector<Texts> merges =
        JsonFile(training_fixtures + "/merges.json").text_lists("individual_digits");
    BPEOptions options{.vocab_size = 3 + 256 + merges.size(),
                       .special_tokens = chat_tokens,
                       .min_frequency = 1,
                       .individual_digits = true};
    CHECK(merges_of(train_byte_level_bpe(text, options)) == merges);

    options.vocab_size = 400;
    const Tokenizer tokenizer = train_byte_level_bpe(text, options);
    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    models::save_tokenizer(tokenizer, file);
    const Tokenizer loaded = models::load_tokenizer(file);
    CHECK(loaded.vocab == tokenizer.vocab);
    for (const JsonFile& expected :
         JsonFile(training_fixtures + "/encodings.json").objects("individual_digits")) {
        INFO(expected.text("text"));
        CHECK(tokenizer.encode(expected.text("text")) == expected.ids("ids"));
        CHECK(loaded.encode(expected.text("text")) == expected.ids("ids"));
    }
}

TEST_CASE("train_byte_level_bpe breaks ties as Stanford CS336 does, if asked to") {
    // The merges in the handout of assignment 1.
    const std::vector<Texts> handout = {
        {"s", "t"},     {"e", "st"}, {"o", "w"},  {"l", "ow"},    {"w", "est"}, {"n", "e"},
        {"ne", "west"}, {"w", "i"},  {"wi", "d"}, {"wid", "est"}, {"low", "e"}, {"lowe", "r"}};
    CHECK(merges_of(trained(sennrichs_words(), 268, {}, 1, TieBreaking::greatest_bytes)) ==
          handout);

    // A longer text, with tokens of any bytes.
    const std::string text = read_text(training_fixtures + "/text.txt");
    const std::vector<Texts> expected =
        JsonFile(training_fixtures + "/merges.json").text_lists("cs336");
    CHECK(merges_of(trained(text, 1000, chat_tokens, 1, TieBreaking::greatest_bytes)) ==
          expected);
    CHECK(expected != JsonFile(training_fixtures + "/merges.json").text_lists("hugging_face"));
}

TEST_CASE(
    "train_byte_level_bpe: the lowest ids or the greatest bytes of equally frequent pairs") {
    // Each pair occurs twice. A is the lowest byte, é has the greatest ones.
    const std::string text = "AB\nAB\nxy\nxy\né\né\n";
    const auto first_merge = [&](TieBreaking ties) {
        return merges_of(trained(text, 257, {}, 2, ties)).at(0);
    };
    CHECK(first_merge(TieBreaking::lowest_ids) == Texts{"A", "B"});
    CHECK(first_merge(TieBreaking::greatest_bytes) == Texts{"Ã", "©"});

    // A space is the lowest of these bytes. Its character Ġ has a higher id than a letter.
    const std::string spaced = "x ab ab cd cd";
    CHECK(merges_of(trained(spaced, 257, {}, 2, TieBreaking::lowest_ids)).at(0) ==
          Texts{"a", "b"});
    CHECK(merges_of(trained(spaced, 257, {}, 2, TieBreaking::greatest_bytes)).at(0) ==
          Texts{"c", "d"});
    CHECK(merges_of(trained("x ab ab", 257, {}, 2, TieBreaking::greatest_bytes)).at(0) ==
          Texts{"a", "b"});
}

TEST_CASE("train_byte_level_bpe: special tokens have the first ids, then come the 256 bytes") {
    const Tokenizer tokenizer = trained("low low", 300, {"<|b|>", "<|a|>"}, 2);
    CHECK(tokenizer.token_bytes[0] == "<|b|>");
    CHECK(tokenizer.token_bytes[1] == "<|a|>");
    CHECK(tokenizer.token_bytes[2] == "!");  // the first printable character
    CHECK(tokenizer.token_bytes[2 + 93] == "~");
    CHECK(tokenizer.token_bytes[2 + 94] == "\xa1");
    CHECK(tokenizer.token_bytes[2 + 188] == std::string(1, '\0'));  // Ā
    CHECK(tokenizer.vocab.at("Ġ") == 2 + 188 + 32);
    CHECK(tokenizer.token_bytes[2 + 255] == "\xad");
    CHECK(tokenizer.vocab_size() == 2 + 256 + 2);  // lo and low
    CHECK(tokenizer.encode("low<|a|>low<|b|>") == Ids{259, 1, 259, 0});
}

TEST_CASE("train_byte_level_bpe does not count the text of special tokens") {
    // "endoftext" occurs most often, but in the special token only.
    std::string text;
    for (int i = 0; i < 9; ++i) text += "the end of it<|endoftext|>";
    const Tokenizer tokenizer = trained(text, 300, {"<|endoftext|>"}, 2);
    for (const std::string part : {"en", "<|", "|>", "of", "te", "xt"})
        CHECK_MESSAGE(tokenizer.vocab.contains(part) == (part == "en" || part == "of"), part);
    CHECK(tokenizer.encode("it<|endoftext|>the").size() == 3);
    CHECK(tokenizer.encode("endoftext").size() > 3);
}

TEST_CASE("train_byte_level_bpe never merges across a special token") {
    // a and b are adjacent across the special token, b and a within a segment.
    std::string text;
    for (int i = 0; i < 9; ++i) text += "a<|end|>b";
    CHECK(trained(text, 300, {"<|end|>"}, 2).vocab_size() == 1 + 256 + 1);  // ba
    CHECK(trained(text, 300, {"<|end|>"}, 2).vocab.contains("ba"));
    CHECK_FALSE(trained(text, 300, {"<|end|>"}, 2).vocab.contains("ab"));
    CHECK(trained("a<|x|>b<|x|>a<|x|>b", 300, {"<|x|>"}, 2).vocab_size() == 257);
}

TEST_CASE("train_byte_level_bpe: the tokenizer encodes any text, and decodes it unchanged") {
    const Tokenizer tokenizer = trained("plain ASCII letters only", 260, {"<|end|>"}, 1);
    std::mt19937 random(4);
    for (int round = 0; round < 200; ++round) {
        std::string text;
        for (std::size_t i = 0; i < random() % 40; ++i) {
            const char32_t limit =
                std::vector<char32_t>{0x80, 0x800, 0xd800, 0x1f}[random() % 4];
            text += character(random() % 5 == 0 ? 0x10000 + random() % 0x100000
                                                : static_cast<char32_t>(random()) % limit);
        }
        CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
        CHECK(tokenizer.decode_bytes(tokenizer.encode(text)) == text);
    }
    CHECK(tokenizer.decode(tokenizer.encode("7 + 5<|end|> = \"12\" \U0001F600")) ==
          "7 + 5 = \"12\" \U0001F600");
}

TEST_CASE("train_byte_level_bpe equals training that counts all pairs after each merge") {
    std::mt19937 random(9);
    for (int round = 0; round < 60; ++round) {
        // Words of few letters have overlapping pairs and many ties.
        std::string text;
        const std::size_t letters = 1 + random() % 4;
        for (std::size_t word = 0; word < 12; ++word) {
            for (std::size_t i = 0; i <= random() % 15; ++i)
                text += static_cast<char>('a' + random() % letters);
            text += random() % 3 == 0 ? "<|end|>" : " ";
        }
        BPETrainer trainer = make_byte_level_trainer(text, {"<|end|>"});
        while (merge_most_frequent_pair(trainer)) {
        }
        const Tokenizer fast = trained(text, 10'000, {"<|end|>"}, 2);
        CHECK(fast.token_bytes == trainer.tokenizer.token_bytes);
        CHECK(merges_of(fast) == merges_of(trainer.tokenizer));
        // Words of the text have the tokens that they had at the end of training.
        for (const WordCount& word : trainer.words)
            CHECK(fast.encode(fast.decode(word.ids)) == word.ids);
    }
}

TEST_CASE("train_byte_level_bpe stops at vocab_size or below min_frequency") {
    const std::string text = "abab abab cd cd cd xyz";
    for (std::size_t size = 256; size < 260; ++size)
        CHECK(trained(text, size, {}).vocab_size() == size);
    CHECK(trained(text, 300, {}, 5).vocab_size() == 256);
    CHECK(trained(text, 300, {}, 4).token_bytes.back() == "ab");
    CHECK(trained(text, 300, {}, 3).vocab.contains("Ġcd"));
    CHECK_FALSE(trained(text, 300, {}, 2).vocab.contains("xy"));
    CHECK(trained(text, 300, {}, 1).vocab.contains("Ġxyz"));
    CHECK(trained(text, 300, {}, 0).vocab_size() == trained(text, 300, {}, 1).vocab_size());
    CHECK(trained("a", 300, {}, 0).vocab_size() == 256);
}

TEST_CASE("train_byte_level_bpe names what is wrong with text, size or special tokens") {
    CHECK(rejection("", 300, {}) == "the text is empty");
    CHECK(rejection("<|x|><|x|>", 300, {"<|x|>"}) == "the text is empty");
    CHECK(rejection("a\xff", 300, {}) != "it was trained");
    CHECK(rejection("ab", 257, {"<|x|>", "<|y|>"}) ==
          "256 bytes and 2 special tokens are too many for a vocabulary of 257");
    CHECK(rejection("ab", 300, {""}) == "a special token is empty");
    CHECK(rejection("ab", 300, {"\xff"}) != "it was trained");  // not UTF-8
    CHECK(rejection("ab", 300, {"<|x|>", "<|x|>"}) == "the special token <|x|> is given twice");
    CHECK(rejection("ab", 300, {"a"}) == "the token a occurs twice in the vocabulary");
    CHECK(rejection("ab", 257, {"<|x|>"}) == "it was trained");
}
