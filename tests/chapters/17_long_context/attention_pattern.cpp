// Which keys a query sees: by definition, against masks written with PyTorch, and through
// layers.
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/05_gqa/attention.hpp"
#include "chapters/17_long_context/attention_pattern.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

Matrix mask_fixture(const std::string& name) {
    return fixture<2>("17_long_context/" + name + "_mask");
}

// The number of keys that the query at a position sees.
std::size_t num_keys(const AttentionPattern& pattern, Id query) {
    std::size_t count = 0;
    for (Id key = 0; key < query + 5; ++key) count += attends(pattern, query, key);
    return count;
}

// Which inputs change the output of each token, measured: in each layer attention with equal
// weights for all visible keys (queries of 0), and a residual connection.
Matrix measured_receptive_field(const std::vector<AttentionPattern>& patterns,
                                std::size_t seq_len) {
    Generator generator(5);
    const Matrix input = randn({seq_len, 3}, generator);
    const auto run = [&](Matrix states) {
        for (const AttentionPattern& pattern : patterns)
            states = states + attention(states * Real(0), states, states,
                                        pattern_mask(pattern, seq_len, seq_len))
                                  .context;
        return states;
    };
    const Matrix output = run(input);
    Matrix changed = xt::zeros<Real>({seq_len, seq_len});
    for (std::size_t s = 0; s < seq_len; ++s) {
        Matrix perturbed = input;
        perturbed(s, 1) += 2;
        const Matrix other = run(perturbed);
        for (std::size_t t = 0; t < seq_len; ++t)
            for (std::size_t c = 0; c < 3; ++c)
                if (other(t, c) != output(t, c)) changed(t, s) = 1;
    }
    return changed;
}

}  // namespace

TEST_CASE("a window of W is W keys, the query's own included, early queries see fewer") {
    CHECK(num_keys(SlidingWindow{128}, 1000) == 128);
    CHECK(attends(SlidingWindow{128}, 1000, 873));
    CHECK_FALSE(attends(SlidingWindow{128}, 1000, 872));
    CHECK(num_keys(SlidingWindow{4}, 2) == 3);
    CHECK(num_keys(SlidingWindow{1}, 9) == 1);
    CHECK(attends(SlidingWindow{1}, 9, 9));
}

TEST_CASE("a chunk begins at a multiple of its size: its first query sees only itself") {
    CHECK(num_keys(ChunkedAttention{8}, 15) == 8);
    CHECK(num_keys(ChunkedAttention{8}, 16) == 1);
    CHECK(attends(ChunkedAttention{8}, 15, 8));
    CHECK_FALSE(attends(ChunkedAttention{8}, 15, 7));
    CHECK_FALSE(attends(ChunkedAttention{8}, 13, 14));
}

TEST_CASE("sinks are visible beside the window, and none is counted twice") {
    CHECK(num_keys(SinksAndWindow{4, 16}, 100) == 20);
    CHECK(num_keys(SinksAndWindow{4, 16}, 17) == 18);
    CHECK(num_keys(SinksAndWindow{4, 16}, 2) == 3);
    CHECK_FALSE(attends(SinksAndWindow{4, 16}, 100, 4));
    CHECK_FALSE(attends(SinksAndWindow{4, 16}, 2, 3));
}

TEST_CASE("the masks equal PyTorch's, with more keys than queries") {
    const auto [T, S] = dims(mask_fixture("full"));
    CHECK_CLOSE(pattern_mask(FullAttention{}, T, S), mask_fixture("full"), 0);
    CHECK_CLOSE(pattern_mask(FullAttention{}, T, S), causal_mask(T, S), 0);
    CHECK_CLOSE(pattern_mask(SlidingWindow{4}, T, S), mask_fixture("sliding"), 0);
    CHECK_CLOSE(pattern_mask(ChunkedAttention{3}, T, S), mask_fixture("chunked"), 0);
    CHECK_CLOSE(pattern_mask(SinksAndWindow{2, 4}, T, S), mask_fixture("sinks_and_window"), 0);
}

TEST_CASE("a batch has one mask per sequence, by its own positions, keys may be in any order") {
    const IdMatrix queries = {{5, 6}, {2, 3}};
    const IdMatrix keys = {{4, 5, 2}, {3, 0, 1}};
    const Tensor4 mask = pattern_mask(SlidingWindow{2}, queries, keys);
    REQUIRE(mask.shape() == std::array<std::size_t, 4>{2, 1, 2, 3});
    for (auto [b, t, s] : every_index(2, 2, 3)) {
        const Id distance = queries(b, t) - keys(b, s);
        CHECK((mask(b, 0, t, s) == 0) == (distance == 0 || distance == 1));
        if (mask(b, 0, t, s) != 0) CHECK(mask(b, 0, t, s) == -infinity);
    }
}

TEST_CASE("layer_patterns: every sixth, every second or no layer has full attention") {
    const auto full_layers = [](std::size_t num_layers, std::size_t full_every) {
        std::vector<std::size_t> full;
        const auto patterns = layer_patterns(num_layers, SlidingWindow{4}, full_every);
        CHECK(patterns.size() == num_layers);
        for (std::size_t n = 0; n < patterns.size(); ++n)
            if (std::holds_alternative<FullAttention>(patterns[n])) full.push_back(n);
        return full;
    };
    CHECK(full_layers(13, 6) == std::vector<std::size_t>{5, 11});  // Gemma 3
    CHECK(full_layers(5, 2) == std::vector<std::size_t>{1, 3});    // gpt-oss, Gemma 2
    CHECK(full_layers(4, 4) == std::vector<std::size_t>{3});       // Llama 4
    CHECK(full_layers(3, 0) == std::vector<std::size_t>{});        // Mistral
}

TEST_CASE("the receptive field equals the one measured by changing each input") {
    const std::size_t T = 14;
    for (const std::size_t full_every : {0, 2, 3})
        for (const AttentionPattern local :
             {AttentionPattern{SlidingWindow{3}}, AttentionPattern{ChunkedAttention{4}},
              AttentionPattern{SinksAndWindow{1, 2}}}) {
            const auto patterns = layer_patterns(3, local, full_every);
            CHECK_CLOSE(receptive_field(patterns, T), measured_receptive_field(patterns, T), 0);
        }
}

TEST_CASE("L layers with a window of W reach L(W - 1) tokens back, chunks reach no further") {
    for (const std::size_t L : {1, 2, 4}) {
        const Matrix field = receptive_field(layer_patterns(L, SlidingWindow{4}, 0), 20);
        for (std::size_t s = 0; s < 20; ++s) CHECK(field(19, s) == (19 - s <= L * 3 ? 1 : 0));
        const Matrix chunks = receptive_field(layer_patterns(L, ChunkedAttention{4}, 0), 20);
        for (std::size_t s = 0; s < 20; ++s) CHECK(chunks(19, s) == (s >= 16 ? 1 : 0));
    }
}

TEST_CASE("windows without tokens and shapes that do not match are named") {
    CHECK_THROWS_WITH_AS(pattern_mask(SlidingWindow{0}, 2, 2),
                         "attention_pattern: a window needs at least 1 token", ValueError);
    CHECK_THROWS_WITH_AS(pattern_mask(SinksAndWindow{3, 0}, 2, 2),
                         "attention_pattern: a window needs at least 1 token", ValueError);
    CHECK_THROWS_WITH_AS(pattern_mask(ChunkedAttention{0}, 2, 2),
                         "attention_pattern: a chunk needs at least 1 token", ValueError);
    CHECK_THROWS_WITH_AS(pattern_mask(SlidingWindow{2}, 3, 2),
                         "attention_pattern: 3 queries cannot be the last of 2 positions",
                         ValueError);
    CHECK_THROWS_WITH_AS(
        pattern_mask(SlidingWindow{2}, IdMatrix{{1, 2}}, IdMatrix{{1, 2}, {1, 2}}),
        "attention_pattern: query positions of (1, 2) do not match key positions of (2, 2)",
        ValueError);
}
