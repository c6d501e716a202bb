// A rolling cache against attention over the whole sequence, for random cuts of a prompt.
#include <algorithm>
#include <random>

#include "chapters/01_masking/masking.hpp"
#include "chapters/05_gqa/attention.hpp"
#include "chapters/17_long_context/attention_pattern.hpp"
#include "chapters/17_long_context/rolling_cache.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

// The tokens first to first + count - 1 of each head.
Tensor4 part_of(const Tensor4& states, std::size_t first, std::size_t count) {
    return xt::view(states, xt::all(), xt::all(), xt::range(first, first + count), xt::all());
}

struct Sequence {
    Tensor4 queries, keys, values;  // (B, H, T, D), (B, Hkv, T, D) twice
};
Sequence random_sequence(std::size_t length) {
    Generator generator(11);
    return {randn({2, 4, length, 3}, generator), randn({2, 2, length, 3}, generator),
            randn({2, 2, length, 3}, generator)};
}

// Attention over the whole sequence at once.
Tensor4 recomputed(const Sequence& sequence, const AttentionPattern& pattern) {
    const std::size_t length = sequence.queries.shape(2);
    return grouped_query_attention(sequence.queries, sequence.keys, sequence.values,
                                   expand_mask(pattern_mask(pattern, length, length), 2))
        .context;
}

// The next tokens, through the cache.
Tensor4 cached(const Sequence& sequence, std::size_t first, std::size_t count,
               const AttentionPattern& pattern, RollingCache& cache) {
    const auto [keys, values, key_positions] = cache.update(
        part_of(sequence.keys, first, count), part_of(sequence.values, first, count));
    const IdVector query_positions =
        xt::arange<Id>(static_cast<Id>(first), static_cast<Id>(first + count));
    const Matrix mask = pattern_mask(pattern, query_positions, key_positions);
    return grouped_query_attention(part_of(sequence.queries, first, count), keys, values,
                                   expand_mask(mask, 2))
        .context;
}

}  // namespace

TEST_CASE("a rolling cache equals recomputation for a thousand random cuts of a prompt") {
    std::mt19937 random(22);
    const auto between = [&](std::size_t low, std::size_t high) {
        return low + random() % (high - low + 1);
    };
    const Sequence sequence = random_sequence(23);
    for (int run = 0; run < 1000; ++run) {
        const std::size_t window = between(1, 9), num_sinks = between(0, 3);
        CAPTURE(window);
        CAPTURE(num_sinks);
        const AttentionPattern pattern =
            num_sinks ? AttentionPattern{SinksAndWindow{num_sinks, window}}
                      : AttentionPattern{SlidingWindow{window}};
        const Tensor4 expected = recomputed(sequence, pattern);
        RollingCache cache{window, num_sinks};
        for (std::size_t first = 0; first < 23;) {
            // Parts from one token to more than twice the window.
            const std::size_t count = std::min(between(1, 2 * window + 3), 23 - first);
            CAPTURE(first);
            CAPTURE(count);
            REQUIRE_CLOSE(cached(sequence, first, count, pattern, cache),
                          part_of(expected, first, count), 1e-5);
            first += count;
            REQUIRE(cache.seq_len == first);
            REQUIRE(cache.keys.shape(2) == std::min(first, num_sinks + window));
        }
    }
}

TEST_CASE("a rolling cache of a chunk's size serves chunked attention") {
    const Sequence sequence = random_sequence(17);
    const AttentionPattern pattern = ChunkedAttention{5};
    const Tensor4 expected = recomputed(sequence, pattern);
    RollingCache cache{5};
    for (std::size_t first = 0; first < 17; ++first)
        CHECK_CLOSE(cached(sequence, first, 1, pattern, cache), part_of(expected, first, 1),
                    1e-5);
}

TEST_CASE("the token of position p overwrites that of p - W, sinks stay") {
    const Sequence sequence = random_sequence(12);
    RollingCache cache{4, 2};
    for (std::size_t t = 0; t < 6; ++t) {
        cache.update(part_of(sequence.keys, t, 1), part_of(sequence.values, t, 1));
        CHECK(cache.entry_of(t) == t);
    }
    CHECK((cache.position_ids == IdVector{0, 1, 2, 3, 4, 5}));
    cache.update(part_of(sequence.keys, 6, 1), part_of(sequence.values, 6, 1));
    CHECK((cache.position_ids == IdVector{0, 1, 6, 3, 4, 5}));
    cache.update(part_of(sequence.keys, 7, 5), part_of(sequence.values, 7, 5));
    CHECK((cache.position_ids == IdVector{0, 1, 10, 11, 8, 9}));

    // Each entry holds the key and the value of its position.
    for (auto [b, h, s, d] : every_index(2, 2, 6, 3)) {
        const auto position = static_cast<std::size_t>(cache.position_ids(s));
        CHECK(cache.keys(b, h, s, d) == sequence.keys(b, h, position, d));
        CHECK(cache.values(b, h, s, d) == sequence.values(b, h, position, d));
    }
}

TEST_CASE("positions_in_cache: ranks, whatever the order of the entries") {
    CHECK((positions_in_cache({0, 1, 10, 11, 8, 9, 12}) == IdVector{0, 1, 4, 5, 2, 3, 6}));
    CHECK((positions_in_cache({0, 1, 2}) == IdVector{0, 1, 2}));
}

TEST_CASE("a rolling cache names a window of 0 and shapes that do not match") {
    const Tensor4 keys = counting({1, 2, 3, 4});
    RollingCache none{0};
    CHECK_THROWS_WITH_AS(none.update(keys, keys),
                         "rolling cache: a window needs at least 1 token", ValueError);
    RollingCache cache{2};
    CHECK_THROWS_WITH_AS(
        cache.update(keys, counting({1, 2, 3, 5})),
        "rolling cache: keys of (1, 2, 3, 4) do not match values of (1, 2, 3, 5)", ValueError);
    cache.update(keys, keys);
    const Tensor4 other = counting({1, 3, 3, 4});
    CHECK_THROWS_WITH_AS(cache.update(other, other),
                         "cache: (1, 3, 3, 4) cannot be appended to (1, 2, 2, 4)", ValueError);
    CHECK(cache.seq_len == 3);
}
