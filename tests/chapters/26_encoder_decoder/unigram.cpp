#include "chapters/26_encoder_decoder/unigram.hpp"

#include <cmath>

#include "chapters/10_tokenizer/bpe_training.hpp"
#include "chapters/25_encoders/wordpiece.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/files.hpp"

using namespace llm;

namespace {

using Texts = std::vector<std::string>;
using ScoredTokens = std::vector<std::pair<std::string, double>>;

// The tokens of the page: logarithms to the base 2, so that the numbers are whole.
const ScoredTokens onion_tokens = {{"o", -4},  {"n", -4},   {"i", -4},
                                   {"on", -3}, {"ion", -3}, {"oni", -5}};

// A tokenizer of these tokens, after the unknown token.
Tokenizer unigram_tokenizer(const ScoredTokens& tokens) {
    Tokenizer tokenizer;
    tokenizer.unk_token_id = add_token(tokenizer, "<unk>");
    std::vector<double> scores = {0};
    for (const auto& [token, score] : tokens) {
        add_token(tokenizer, token);
        scores.push_back(score);
    }
    tokenizer.word_model = Unigram(tokenizer.vocab, scores);
    tokenizer.fuse_unk = true;
    return tokenizer;
}

Texts unigram_tokens(const Tokenizer& tokenizer, const std::string& word) {
    Texts tokens;
    for (const Id id : tokenizer.encode(word))
        tokens.push_back(tokenizer.token_bytes.at(std::size_t(id)));
    return tokens;
}

// A state of training with these tokens.
UnigramTrainer trainer_of(const ScoredTokens& scored,
                          const std::vector<std::pair<std::string, std::size_t>>& words) {
    Texts tokens;
    std::vector<double> scores;
    Vocabulary vocab;
    for (const auto& [token, score] : scored) {
        vocab[token] = static_cast<Id>(tokens.size());
        tokens.push_back(token);
        scores.push_back(score);
    }
    return {tokens, vocab, Unigram(vocab, scores), words};
}

// All segmentations of a word into tokens, by trying each.
std::vector<std::vector<std::size_t>> all_segmentations(const Texts& tokens,
                                                        const std::string& word) {
    if (word.empty()) return {{}};
    std::vector<std::vector<std::size_t>> result;
    for (std::size_t id = 0; id < tokens.size(); ++id)
        if (word.starts_with(tokens[id]))
            for (auto& rest : all_segmentations(tokens, word.substr(tokens[id].size()))) {
                rest.insert(rest.begin(), id);
                result.push_back(rest);
            }
    return result;
}

std::string encoder_text() { return content(fixture_path("25_encoders/text.txt")); }

}  // namespace

TEST_CASE("Unigram takes the segmentation with the highest score, not the longest token") {
    const Tokenizer tokenizer = unigram_tokenizer(onion_tokens);
    CHECK(unigram_tokens(tokenizer, "onion") == Texts{"on", "ion"});
    Tokenizer greedy = tokenizer;
    greedy.word_model = WordPiece{.continuing_subword_prefix = ""};
    CHECK(unigram_tokens(greedy, "onion") == Texts{"oni", "on"});
}

TEST_CASE("Viterbi: the best score to each letter, and the token with which it ends") {
    const UnigramTrainer trainer = trainer_of(onion_tokens, {});
    const auto best = viterbi(lattice(trainer.model, trainer.vocab, "onion"), 5);
    const Texts last = {"o", "on", "oni", "o", "ion"};
    const std::vector<double> scores = {-4, -3, -5, -9, -6};
    REQUIRE(best.size() == 6);
    CHECK(best[0].score == 0);
    for (std::size_t end = 1; end <= 5; ++end) {
        CHECK(best[end].score == scores[end - 1]);
        CHECK(trainer.tokens.at(std::size_t(best[end].last_edge.id.value())) == last[end - 1]);
        CHECK(best[end].last_edge.end == end);
    }
}

TEST_CASE("Unigram: of equal scores, the one whose last token is longest") {
    CHECK(unigram_tokens(unigram_tokenizer({{"a", -1}, {"aa", -2}, {"aaa", -4}}), "aaa") ==
          Texts{"a", "aa"});
}

TEST_CASE("Unigram: the lattice has all tokens of a word, sorted, with positions in bytes") {
    const UnigramTrainer trainer = trainer_of({{"é", -1}, {"éa", -2}, {"a", -3}}, {});
    const auto edges = lattice(trainer.model, trainer.vocab, "éaé中");
    REQUIRE(edges.size() == 5);
    const std::vector<std::array<std::size_t, 2>> places = {
        {0, 2}, {0, 3}, {2, 3}, {3, 5}, {5, 8}};
    for (std::size_t i = 0; i < edges.size(); ++i) {
        CHECK(edges[i].begin == places[i][0]);
        CHECK(edges[i].end == places[i][1]);
    }
    CHECK(!edges[4].id);
    CHECK(edges[4].score == -13);  // 10 below the lowest
}

TEST_CASE("Unigram: a character with more bytes than the longest token is unknown, too") {
    const UnigramTrainer trainer = trainer_of({{"a", -1}, {"ab", -2}}, {});
    const auto edges = lattice(trainer.model, trainer.vocab, "ab中a");
    REQUIRE(edges.size() == 5);
    CHECK(edges[1].end == 2);  // as long as the longest token
    CHECK(edges[3].begin == 2);
    CHECK(edges[3].end == 5);
    CHECK(!edges[3].id);
}

TEST_CASE("Unigram: unknown characters are one token, or each is, or its bytes are") {
    Tokenizer tokenizer = unigram_tokenizer({{"a", -1}, {"b", -2}, {"xyz", -3}});
    CHECK(unigram_tokens(tokenizer, "axyb") == Texts{"a", "<unk>", "b"});
    CHECK(unigram_tokens(tokenizer, "xyz") == Texts{"xyz"});
    CHECK(unigram_tokens(tokenizer, "a<unk>xb") == Texts{"a", "<unk>", "b"});
    tokenizer.fuse_unk = false;
    CHECK(unigram_tokens(tokenizer, "axyb") == Texts{"a", "<unk>", "<unk>", "b"});
    tokenizer.byte_fallback = true;
    CHECK(unigram_tokens(tokenizer, "ax") == Texts{"a", "<unk>"});  // there is no <0x78>
    add_token(tokenizer, "<0x78>");
    CHECK(unigram_tokens(tokenizer, "ax") == Texts{"a", "<0x78>"});
    tokenizer.unk_token_id = std::nullopt;
    CHECK_THROWS_WITH_AS(tokenizer.encode("ay"), "there is no token for 'y'", TextError);
}

TEST_CASE("Unigram: an added token is none of the model") {
    Tokenizer tokenizer = unigram_tokenizer({{"a", -1}, {"b", -1}});
    tokenizer.added_tokens.push_back({"ab", add_token(tokenizer, "ab")});
    CHECK(unigram_tokens(tokenizer, "aab") == Texts{"a", "ab"});
    tokenizer.added_tokens.clear();
    CHECK(unigram_tokens(tokenizer, "aab") == Texts{"a", "a", "b"});
    CHECK_THROWS_WITH_AS(Unigram({}, {}), "Unigram: there is no token", ValueError);
}

TEST_CASE(
    "Unigram: best score, expected counts and likelihood equal those of all segmentations") {
    const ScoredTokens scored = {{"a", -1.5},   {"b", -2.25}, {"ab", -2.5}, {"ba", -3},
                                 {"aba", -3.5}, {"bb", -4},   {"bab", -2}};
    const std::string word = "abababba";
    const UnigramTrainer trainer = trainer_of(scored, {{word, 3}});
    double best = -1e9, total = 0;
    std::vector<double> counts(scored.size());
    const auto segmentations = all_segmentations(trainer.tokens, word);
    CHECK(segmentations.size() == 61);
    for (const auto& ids : segmentations) {
        double score = 0;
        for (const std::size_t id : ids) score += scored[id].second;
        best = std::max(best, score);
        total += std::exp(score);
        for (const std::size_t id : ids) counts[id] += 3 * std::exp(score);
    }
    const auto paths = viterbi(lattice(trainer.model, trainer.vocab, word), word.size());
    CHECK(paths.back().score == doctest::Approx(best).epsilon(1e-12));
    const ExpectedCounts expected = expected_counts(trainer);
    CHECK(expected.log_likelihood == doctest::Approx(3 * std::log(total)).epsilon(1e-12));
    for (std::size_t id = 0; id < scored.size(); ++id)
        CHECK(expected.counts[id] == doctest::Approx(counts[id] / total).epsilon(1e-12));
}

TEST_CASE("Unigram: a step of expectation maximization never lowers the likelihood") {
    UnigramTrainer trainer = trainer_of(
        {{"a", -1}, {"b", -1}, {"c", -2}, {"ab", -3}, {"abc", -4}, {"bc", -2}, {"ca", -5}},
        {{"abcabc", 5}, {"bcab", 2}, {"cab", 7}});
    ExpectedCounts before = expected_counts(trainer);
    for (int step = 0; step < 5; ++step) {
        maximize(trainer, before.counts);
        if (trainer.vocab.size() < 7) break;  // a token was removed
        const ExpectedCounts after = expected_counts(trainer);
        CHECK(after.log_likelihood >= before.log_likelihood);
        before = after;
    }
}

TEST_CASE("Unigram: the maximization step removes rare tokens, but no character") {
    UnigramTrainer trainer =
        trainer_of({{"a", -1}, {"b", -1}, {"ab", -1}, {"ba", -1}}, {{"ab", 1}});
    maximize(trainer, {3, 0.25, 6.5, 0.25});
    CHECK(trainer.vocab.size() == 3);
    CHECK(!trainer.vocab.contains("ba"));
    CHECK(trainer.model.scores[0] == doctest::Approx(std::log(0.3)));
    CHECK(trainer.model.scores[1] ==
          doctest::Approx(std::log(0.05)));  // as if it occurred 0.5 times
    CHECK(trainer.model.scores[2] == doctest::Approx(std::log(0.65)));
}

TEST_CASE("Unigram: pruning removes the tokens that are most easily written otherwise") {
    // Without ab, a word costs 1 more, 20 times; without bc, 5 more, 2 times; cd occurs twice.
    const ScoredTokens scored = {{"a", -2},  {"b", -2},  {"c", -4}, {"d", -4},
                                 {"ab", -3}, {"bc", -1}, {"cd", -1}};
    const std::vector<double> counts = {9, 9, 9, 9, 20, 2, 2};  // losses 20, 10, 14
    UnigramTrainer trainer = trainer_of(scored, {});
    prune(trainer, counts, 6);
    CHECK(!trainer.vocab.contains("bc"));
    CHECK(trainer.vocab.size() == 6);
    prune(trainer, counts, 5);
    CHECK(!trainer.vocab.contains("cd"));
    prune(trainer, counts, 2);  // characters stay
    CHECK(trainer.vocab.size() == 4);
}

TEST_CASE("Unigram: training begins with characters and substrings that occur twice") {
    const UnigramTrainer trainer = make_unigram_trainer("aba  ab</s>\tc", 2);
    CHECK(trainer.word_counts ==
          std::vector<std::pair<std::string, std::size_t>>{{"▁ab", 1}, {"▁aba", 1}, {"▁c", 1}});
    CHECK(trainer.tokens == Texts{"a", "ab", "b", "c", "▁", "▁a"});
    // Weights: a 3, ab 2 * 2, b 2, c 1, ▁ 3, ▁a 2 * 2; together 17.
    CHECK(trainer.model.scores[1] == doctest::Approx(std::log(4.0 / 17)));
    CHECK(trainer.model.scores[3] == doctest::Approx(std::log(1.0 / 17)));
}

TEST_CASE("Unigram: a trained tokenizer has all characters, and encodes as T5's") {
    const std::string text = encoder_text();
    const Tokenizer tokenizer = train_unigram(text, 200);
    CHECK(tokenizer.vocab_size() <= 200);
    CHECK(tokenizer.vocab_size() >= 195);
    CHECK(tokenizer.vocab.at("<pad>") == 0);
    CHECK(tokenizer.vocab.at("</s>") == 1);
    CHECK(tokenizer.vocab.at("<unk>") == 2);
    for (const char* token : {"z", "ß", "{", "▁the", "ing"})
        CHECK(tokenizer.vocab.contains(token));
    const auto& scores = tokenizer.word_model.target<Unigram>()->scores;
    double sum = 0;
    for (std::size_t id = 3; id < scores.size(); ++id) {
        sum += std::exp(scores[id]);
        CHECK((id == 3 || scores[id] <= scores[id - 1]));
    }
    CHECK(sum == doctest::Approx(1).epsilon(1e-9));
    const std::vector<Id> ids = tokenizer.encode(" the  cat\n中 ");
    CHECK(ids.back() == 1);
    CHECK(tokenizer.decode(ids) == "the cat ");
    CHECK(std::count(ids.begin(), ids.end(), 2) == 1);
}

TEST_CASE("Unigram: training gives the tokens and scores of the description") {
    // Expected values: 50 lines of Python after unigram.hpp, whose forward-backward algorithm
    // has probabilities instead of logarithms. Of 25 tokens that are left, a vocabulary of 20
    // keeps 18, then 17; one of 24 keeps 21; one of 28 keeps all.
    const std::string text =
        "the cat sat on the mat, and the other cat sat on the other mat: that is what the cat "
        "did";
    const auto check = [&](std::size_t vocab_size, std::size_t expected_size,
                           const ScoredTokens& best) {
        const Tokenizer tokenizer = train_unigram(text, vocab_size);
        CHECK(tokenizer.vocab_size() == expected_size);
        const auto& scores = tokenizer.word_model.target<Unigram>()->scores;
        for (const auto& [token, score] : best)
            CHECK(scores.at(std::size_t(tokenizer.vocab.at(token))) ==
                  doctest::Approx(score).epsilon(1e-6));
    };
    check(20, 20,
          {{"▁", -1.5313932}, {"t", -1.8189963}, {"a", -2.0016336}, {"▁the", -2.6955390}});
    check(24, 24,
          {{"▁", -1.9144330}, {"t", -2.2510152}, {"a", -2.2510805}, {"▁the", -2.2514723}});
    check(28, 28,
          {{"▁the", -2.0177328}, {"▁", -2.2171453}, {"d", -2.5260822}, {"▁cat", -2.5267172}});
}

TEST_CASE("Unigram: training names what is wrong with a text") {
    CHECK_THROWS_WITH_AS(train_unigram(" \n", 50), "the text is empty", TextError);
    CHECK_THROWS_AS(train_unigram("a\xff", 50), TextError);
    CHECK_THROWS_WITH_AS(
        train_unigram("abcd abcd", 7),
        "train_unigram: 8 special tokens and characters are too many for a vocabulary of 7",
        ValueError);
    CHECK(train_unigram("abcd abcd", 8).vocab_size() == 8);
}
