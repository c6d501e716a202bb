// The layer of chapter 17 against the one of chapter 05, and its caches against recomputation.
#include <algorithm>
#include <random>

#include "chapters/01_masking/masking.hpp"
#include "chapters/05_gqa/rms_normalize.hpp"
#include "chapters/08_pre_vs_post_norm/block.hpp"
#include "chapters/09_full_model/run_layers.hpp"
#include "chapters/17_long_context/pattern_attention.hpp"
#include "chapters/17_long_context/yarn.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

constexpr std::size_t B = 2, C = 12, D = 6, seq_len = 17;

Config windowed_config() {
    Config config;
    config.hidden_size = C;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = D;
    config.intermediate_size = 10;
    return config;
}

std::vector<RotaryTable> rotary_tables() {
    return {make_rotary_table(inverse_frequencies(D, 10000), seq_len),
            make_yarn_rotary_table(D, 1000, {4, 8}, seq_len)};
}

PatternBlock make_test_block(const AttentionPattern& pattern, Generator& generator) {
    const Config config = windowed_config();
    const Vector ones = xt::ones<Real>({C});
    return {
        make_pattern_attention(make_attention_layer(config, generator), D, pattern),
        make_gated_mlp(config.hidden_size, config.intermediate_size, false, SiLU, generator),
        RMSNorm{ones}, RMSNorm{ones}};
}

// A sliding window with sinks and a cap, a chunk with the second RoPE, a full NoPE layer with a
// temperature, and StreamingLLM's pattern.
std::vector<PatternBlock> mixed_layers() {
    Generator generator(8);
    std::vector<PatternBlock> layers;
    for (const AttentionPattern& pattern :
         {AttentionPattern{SlidingWindow{3}}, AttentionPattern{ChunkedAttention{4}},
          AttentionPattern{FullAttention{}}, AttentionPattern{SinksAndWindow{2, 3}}})
        layers.push_back(make_test_block(pattern, generator));
    layers[0].self_attn.score_mod.sinks = Vector{0.5f, -1, 2, 0};
    layers[0].self_attn.score_mod.attn_logit_softcapping = Real(1.5);
    layers[1].self_attn.position_encoding = RoPE{1};
    layers[2].self_attn.position_encoding = NoPE{};
    layers[2].self_attn.temperature_tuning = TemperatureTuning{3, Real(0.4)};
    return layers;
}

std::vector<RollingCache> make_caches(const std::vector<PatternBlock>& layers) {
    std::vector<RollingCache> caches;
    for (const PatternBlock& layer : layers)
        caches.push_back(make_rolling_cache(layer.self_attn.pattern));
    return caches;
}

Tensor3 run(const std::vector<PatternBlock>& layers, const Tensor3& embeddings,
            const PatternAttentionInputs& inputs, std::vector<RollingCache>* caches = nullptr) {
    return run_layers(layers, embeddings, inputs, caches).last_hidden_state;
}

Tensor3 part_of(const Tensor3& states, std::size_t first, std::size_t count) {
    return xt::view(states, xt::all(), xt::range(first, first + count), xt::all());
}

Tensor3 random_embeddings() {
    Generator generator(9);
    return randn({B, seq_len, C}, generator) * Real(2);
}

}  // namespace

TEST_CASE("with full attention and RoPE, the layer is that of chapter 05") {
    Generator generator(4);
    const AttentionLayer layer = make_attention_layer(windowed_config(), generator);
    const Tensor3 states = random_embeddings();
    const AttentionLayer::Output expected =
        layer(states, causal_attention_inputs(rotary_tables()[0], B, seq_len));
    const auto output = make_pattern_attention(layer, D, FullAttention{})(
        states, pattern_attention_inputs(rotary_tables(), seq_len));
    CHECK_CLOSE(output.hidden_states, expected.hidden_states, 1e-5);
    CHECK_CLOSE(output.attentions, expected.attentions, 1e-5);
}

TEST_CASE("with full attention and RoPE, the block is the pre-norm block of chapter 08") {
    Generator generator(4);
    const PatternBlock block = make_test_block(FullAttention{}, generator);
    const PreNormBlock expected{block.self_attn.layer, block.mlp, block.attention_norm,
                                block.ffn_norm};
    const Tensor3 states = random_embeddings();
    CHECK_CLOSE(
        block(states, pattern_attention_inputs(rotary_tables(), seq_len)).hidden_states,
        expected(states, causal_attention_inputs(rotary_tables()[0], B, seq_len)).hidden_states,
        1e-5);
}

TEST_CASE("a NoPE layer depends on the mask only: shifted positions change nothing") {
    Generator generator(4);
    PatternAttention attention = make_pattern_attention(
        make_attention_layer(windowed_config(), generator), D, SlidingWindow{5});
    const Tensor3 states = part_of(random_embeddings(), 0, 7);
    const auto at = [&](std::size_t past_len) {
        return attention(states, pattern_attention_inputs({rotary_tables()[1]}, 7, past_len))
            .hidden_states;
    };
    attention.position_encoding = NoPE{};
    CHECK_CLOSE(at(9), at(0), 0);

    // With a QK norm, the normalized queries and keys; without one, the projections themselves.
    const auto [queries, keys, values] = project_qkv(attention.layer, states);
    const Tensor4 mask = expand_mask(pattern_mask(SlidingWindow{5}, 7, 7), B);
    REQUIRE(std::holds_alternative<QKNormWithoutWeights>(attention.layer.qk_norm));
    CHECK_CLOSE(
        at(0),
        project_output(attention.layer,
                       grouped_query_attention(rms_normalize(queries, Real(1e-5)),
                                               rms_normalize(keys, Real(1e-5)), values, mask)
                           .context),
        1e-5);
    attention.layer.qk_norm = NoQKNorm{};
    CHECK_CLOSE(at(0),
                project_output(attention.layer,
                               grouped_query_attention(queries, keys, values, mask).context),
                1e-5);

    // A temperature changes the queries only, and depends on the position.
    const TemperatureTuning tuning{4, 1};
    attention.temperature_tuning = tuning;
    const IdMatrix positions = position_ids(B, 7);
    CHECK_CLOSE(
        at(0),
        project_output(attention.layer,
                       grouped_query_attention(tune_temperature(queries, positions, tuning),
                                               keys, values, mask)
                           .context),
        1e-5);
    CHECK(difference(at(9), at(0), 1e-3) != "");
}

TEST_CASE("each layer of a mixed stack keeps its own window: caches equal recomputation") {
    const auto layers = mixed_layers();
    const Tensor3 embeddings = random_embeddings();
    const Tensor3 expected =
        run(layers, embeddings, pattern_attention_inputs(rotary_tables(), seq_len));
    std::mt19937 random(3);
    for (int repetition = 0; repetition < 50; ++repetition) {
        auto caches = make_caches(layers);
        for (std::size_t first = 0; first < seq_len;) {
            const std::size_t count = std::min<std::size_t>(1 + random() % 9, seq_len - first);
            CAPTURE(first);
            CAPTURE(count);
            const auto inputs = pattern_attention_inputs(rotary_tables(), count, first);
            REQUIRE_CLOSE(run(layers, part_of(embeddings, first, count), inputs, &caches),
                          part_of(expected, first, count), 1e-5);
            first += count;
        }
        for (std::size_t n = 0; n < layers.size(); ++n)
            CHECK(caches[n].keys.shape(2) ==
                  num_cached_tokens(layers[n].self_attn.pattern, seq_len));
    }
}

TEST_CASE("each choice of a layer changes the result") {
    const Tensor3 embeddings = random_embeddings();
    const auto inputs = pattern_attention_inputs(rotary_tables(), seq_len);
    const Tensor3 expected = run(mixed_layers(), embeddings, inputs);
    for (int choice = 0; choice < 5; ++choice) {
        CAPTURE(choice);
        auto layers = mixed_layers();
        if (choice == 0) layers[0].self_attn.score_mod.sinks = std::nullopt;
        if (choice == 1) layers[0].self_attn.score_mod.attn_logit_softcapping = std::nullopt;
        if (choice == 2) layers[1].self_attn.position_encoding = RoPE{0};
        if (choice == 3) layers[2].self_attn.temperature_tuning = std::nullopt;
        if (choice == 4) layers[3].self_attn.pattern = SinksAndWindow{2, 4};
        CHECK(difference(run(layers, embeddings, inputs), expected, 1e-4) != "");
    }
}

TEST_CASE("rolling_cache_bytes by hand: Gemma 3's five windows and one full layer") {
    const auto patterns = layer_patterns(6, SlidingWindow{512}, 6);
    // Keys and values, 4 heads of 256, bf16: 4096 bytes a token and layer.
    CHECK(rolling_cache_bytes(patterns, 100, 4, 256, 2) == 6 * 100 * 4096);
    CHECK(rolling_cache_bytes(patterns, 32768, 4, 256, 2) == (5 * 512 + 32768) * 4096ull);
    CHECK(num_cached_tokens(SinksAndWindow{4, 1020}, 5000) == 1024);
    CHECK(num_cached_tokens(ChunkedAttention{8192}, 9000) == 8192);
    CHECK(num_cached_tokens(FullAttention{}, 1ull << 40) == 1ull << 40);
}

TEST_CASE("a layer names a missing rotary table and positions that leave a gap") {
    Generator generator(4);
    PatternAttention attention = make_pattern_attention(
        make_attention_layer(windowed_config(), generator), D, SlidingWindow{5});
    const Tensor3 states = random_embeddings();
    RollingCache cache{5};
    CHECK_THROWS_WITH_AS(
        attention(part_of(states, 0, 2), pattern_attention_inputs(rotary_tables(), 2, 1),
                  &cache),
        "pattern_attention: position ids do not begin at 0, after the cached tokens",
        ValueError);
    attention.position_encoding = RoPE{2};
    CHECK_THROWS_WITH_AS(attention(states, pattern_attention_inputs(rotary_tables(), seq_len)),
                         "pattern_attention: rotary table 2 of 2 does not exist", ValueError);
}
