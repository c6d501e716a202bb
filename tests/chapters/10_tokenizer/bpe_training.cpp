#include <set>

#include "chapters/10_tokenizer/bpe_training.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/regex.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"

using namespace llm;

TEST_CASE("train_bpe: the merges of Sennrich's example, also after saving and loading") {
    std::string text;
    for (const auto& [word, count] : std::vector<std::pair<std::string, int>>{
             {"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}})
        for (int i = 0; i < count; ++i) text += word + "\n";
    const Tokenizer tokenizer = train_bpe(text, 18);
    const auto has = [&](const std::string& token) { return tokenizer.vocab.contains(token); };
    CHECK(tokenizer.vocab_size() == 18);
    CHECK(tokenizer.token_bytes[0] == "<unk>");
    CHECK((has("es") && has("est") && has("lo") && has("low")));
    CHECK(tokenizer.token_bytes[12] == "es");
    CHECK(tokenizer.token_bytes[13] == "est");
    CHECK(tokenizer.encode("lowest").size() == 2);
    CHECK(tokenizer.encode("x") == std::vector<Id>{0});
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);

    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    models::save_tokenizer(tokenizer, file);
    const Tokenizer loaded = models::load_tokenizer(file, 18);
    for (const std::string& written : {text, std::string("lowest newer wides x!")})
        CHECK(loaded.encode(written) == tokenizer.encode(written));
    CHECK(loaded.decode(loaded.encode(text)) == text);

    CHECK(train_bpe(text, 0).merges.empty());
    CHECK(train_bpe("ab ab", 100).vocab_size() == 5);
    CHECK_THROWS_AS(train_bpe("", 0), TextError);
    CHECK_THROWS_AS(train_bpe("abc", 3), TextError);
    CHECK_THROWS_AS(train_bpe("ab\xff", 0), TextError);
}

TEST_CASE("train_bpe: with vocab_size 0 the vocabulary is the sorted characters of the text") {
    const std::string text = "Don't stop: café 中 12\n\n  \U0001F600!\t";
    const std::vector<std::string> in_text = characters(text);
    const std::set<std::string> alphabet(in_text.begin(), in_text.end());
    const Tokenizer tokenizer = train_bpe(text, 0);
    std::vector<std::string> expected = {"<unk>"};
    expected.insert(expected.end(), alphabet.begin(), alphabet.end());
    CHECK(tokenizer.token_bytes == expected);
    CHECK(tokenizer.encode(text).size() == in_text.size());
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    CHECK(train_bpe(text, expected.size()).token_bytes == expected);
    CHECK_THROWS_WITH_AS(train_bpe(text, expected.size() - 1),
                         ("the text has " + std::to_string(alphabet.size()) +
                          " different characters, too many for a vocabulary of " +
                          std::to_string(alphabet.size()))
                             .c_str(),
                         TextError);
    CHECK_THROWS_AS(train_bpe("a", 1), TextError);
    CHECK(train_bpe("a", 2).token_bytes == std::vector<std::string>{"<unk>", "a"});
}

TEST_CASE("train_bpe merges characters beyond ASCII, never their bytes") {
    std::string text;
    for (int i = 0; i < 4; ++i) text += "über中文 ";
    const Tokenizer tokenizer = train_bpe(text, 13);
    CHECK(tokenizer.vocab_size() == 13);
    for (const std::string& token : tokenizer.token_bytes) CHECK_NOTHROW(characters(token));
    CHECK(tokenizer.vocab.contains("über中文"));
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
}

TEST_CASE("train_bpe: the most frequent pair first, until there are vocab_size tokens") {
    // x y: 4 times; a b and c d: 3 times each, and a has the lower id; after that nothing.
    const std::string text = "xy\nxy\nxy\nxy\ncd\ncd\ncd\nab\nab\nab\n";
    const std::vector<std::string> merged = {"xy", "ab", "cd"};
    for (std::size_t count = 0; count <= 4; ++count) {
        const Tokenizer tokenizer = train_bpe(text, 8 + count);
        const std::size_t learned = std::min<std::size_t>(count, 3);
        REQUIRE(tokenizer.vocab_size() == 8 + learned);
        CHECK(tokenizer.merges.size() == learned);
        for (std::size_t i = 0; i < learned; ++i)
            CHECK(tokenizer.token_bytes[8 + i] == merged[i]);
    }
}

TEST_CASE("train_bpe: merges never cross the words of GPT-2's pattern") {
    // The pair b 1 is as frequent as a b, but ab and 1 are different words.
    const std::vector<std::string> expected = {"<unk>", "1", "a", "b", "ab"};
    CHECK(train_bpe("ab1ab1ab1ab1", 100).token_bytes == expected);

    const std::string text = read_text(asset("data/names.txt")).substr(0, 4000);
    std::string sentences;
    for (const std::string& name : lines_of(text))
        sentences += name + " isn't 12, it's  " + name;
    const Tokenizer tokenizer = train_bpe(sentences, 200);
    CHECK(tokenizer.vocab_size() == 200);
    for (std::size_t id = 1; id < 200; ++id) {
        const std::string& token = tokenizer.token_bytes[id];
        CHECK_MESSAGE(Pattern(gpt2_split_pattern).matches(token).size() == 1, token);
        CHECK(tokenizer.encode_word(token) == std::vector<Id>{static_cast<Id>(id)});
    }
    CHECK(tokenizer.decode(tokenizer.encode(sentences)) == sentences);

    // After saving and loading, the merges have the same order.
    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    models::save_tokenizer(tokenizer, file);
    CHECK(models::load_tokenizer(file, 200).encode(sentences) == tokenizer.encode(sentences));
}

TEST_CASE("merge_most_frequent_pair: Sennrich's merges, one by one, in every word") {
    std::string text;
    for (const auto& [word, count] : std::vector<std::pair<std::string, int>>{
             {"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}})
        for (int i = 0; i < count; ++i) text += word + "\n";
    BPETrainer trainer = make_bpe_trainer(text, 0);
    CHECK(trainer.words.size() == 5);  // four words and the line feed
    const Tokenizer& tokenizer = trainer.tokenizer;
    const auto count_of = [&](const std::string& left, const std::string& right) {
        const PairCounts counts = count_pairs(trainer.words);
        const auto found = counts.find({tokenizer.vocab.at(left), tokenizer.vocab.at(right)});
        return found == counts.end() ? 0 : found->second;
    };
    CHECK(count_of("l", "o") == 7);
    CHECK(count_of("w", "e") == 8);
    CHECK(count_of("e", "s") == 9);
    CHECK(count_of("s", "t") == 9);

    const std::vector<std::string> merged = {"es", "est", "lo", "low", "ew", "new"};
    for (const std::string& token : merged) {
        REQUIRE(merge_most_frequent_pair(trainer));
        CHECK(tokenizer.token_bytes.back() == token);
        CHECK(tokenizer.merges.size() + 12 == tokenizer.vocab_size());
        // Words hold the tokens that the merges so far give them.
        for (const WordCount& word : trainer.words)
            CHECK(tokenizer.encode_word(tokenizer.decode(word.ids)) == word.ids);
    }
    CHECK(count_of("e", "s") == 0);
    while (merge_most_frequent_pair(trainer)) {
    }
    for (const WordCount& word : trainer.words) CHECK(word.ids.size() == 1);
    CHECK_FALSE(merge_most_frequent_pair(trainer));
}
