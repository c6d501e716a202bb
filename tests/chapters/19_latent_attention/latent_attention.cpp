// Latent attention against PyTorch, its two orders of computation, its cache, and
// grouped-query attention as a special case.
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/19_latent_attention/absorbed_attention.hpp"
#include "chapters/19_latent_attention/attention_cost.hpp"
#include "chapters/19_latent_attention/latent_attention_backward.hpp"
#include "chapters/19_latent_attention/latent_from_gqa.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

constexpr std::size_t B = 2, T = 5, C = 20, H = 3, Dn = 4, Dr = 6, Dv = 5, R = 8, Rq = 7;

template <std::size_t N>
xt::xtensor<Real, N> part(const std::string& kind, const std::string& name) {
    return fixture<N>("19_latent_attention/" + kind + "_" + name);
}

// The layer of the fixtures, "plain" or "low_rank".
LatentAttention layer_of(const std::string& kind, const std::string& end = "") {
    const auto linear = [&](const std::string& name) {
        return Linear{part<2>(kind, name + end), std::nullopt};
    };
    const auto norm = [&](const std::string& name) {
        return RMSNorm{part<1>(kind, name + end), Real(1e-6)};
    };
    LatentAttention layer{H, Dn, Dr, Dv, {}, {}, {}, {}, {}, Real(0.4)};
    if (kind == "plain")
        layer.q_proj = linear("q_proj");
    else
        layer.q_proj =
            LowRankQueries{linear("q_a_proj"), norm("q_a_layernorm"), linear("q_b_proj")};
    layer.kv_a_proj_with_mqa = linear("kv_a_proj_with_mqa");
    layer.kv_a_layernorm = norm("kv_a_layernorm");
    layer.kv_b_proj = linear("kv_b_proj");
    layer.o_proj = linear("o_proj");
    return layer;
}

RotaryTable table_of(std::size_t num_positions, std::size_t rope_dim = Dr) {
    return make_rotary_table(inverse_frequencies(rope_dim, 100), num_positions);
}
PatternAttentionInputs inputs_of(std::size_t seq_len, std::size_t past_len = 0) {
    return pattern_attention_inputs({table_of(seq_len + past_len)}, seq_len, past_len);
}

LatentAttention random_layer(std::optional<std::size_t> q_lora_rank, std::uint32_t seed) {
    Generator generator(seed);
    LatentAttention layer =
        make_latent_attention({C, H, q_lora_rank, R, Dn, Dr, Dv}, Real(1e-6), generator);
    layer.kv_a_layernorm.weight = uniform({R}, Real(0.3), Real(3), generator);
    if (auto* low_rank = std::get_if<LowRankQueries>(&layer.q_proj))
        low_rank->q_a_layernorm.weight = uniform({*q_lora_rank}, Real(0.3), Real(3), generator);
    return layer;
}

Tensor3 random_input(std::size_t seq_len, std::uint32_t seed) {
    Generator generator(seed);
    return randn({B, seq_len, C}, generator);
}

Tensor3 tokens(const Tensor3& states, std::size_t first, std::size_t last) {
    return xt::view(states, xt::all(), xt::range(first, last), xt::all());
}

}  // namespace

TEST_CASE("A layer and its gradients equal PyTorch's, without and with low-rank queries") {
    for (const std::string kind : {"plain", "low_rank"}) {
        CAPTURE(kind);
        const LatentAttention layer = layer_of(kind);
        const Tensor3 input = part<3>(kind, "input");
        const AttentionLayer::Output output = layer(input, inputs_of(T));
        CHECK_CLOSE(output.hidden_states, part<3>(kind, "output"), 2e-6);
        CHECK(output.attentions.shape() == std::array{B, H, T, T});

        const auto [forward, saved] = attention_forward(layer, input, inputs_of(T));
        CHECK_CLOSE(forward, output.hidden_states, 0);
        LatentAttention gradient = layer;
        ParameterList list;
        add_parameters(list, "", gradient);
        for (const Parameter& parameter : list)
            std::fill(parameter.values.begin(), parameter.values.end(), Real(0));
        const Tensor3 input_gradient =
            attention_backward(layer, inputs_of(T), saved, part<3>(kind, "upstream"), gradient);
        CHECK_CLOSE(input_gradient, part<3>(kind, "input_gradient"), 1e-5);
        LatentAttention expected = layer_of(kind, "_gradient");
        ParameterList expected_list;
        add_parameters(expected_list, "", expected);
        REQUIRE(list.size() == expected_list.size());
        CHECK(list.size() == (kind == "plain" ? 5 : 7));
        for (std::size_t p = 0; p < list.size(); ++p) {
            CAPTURE(list[p].name);
            CHECK(difference(list[p].shape, list[p].values.data(), expected_list[p].shape,
                             expected_list[p].values.data(), 1e-5) == "");
        }
    }
}

TEST_CASE("A new layer: names of the parameters as in DeepSeek, sizes, scale") {
    LatentAttention layer = random_layer(Rq, 1);
    ParameterList list;
    add_parameters(list, "self_attn", layer);
    std::vector<std::string> names;
    for (const Parameter& parameter : list) names.push_back(parameter.name);
    CHECK(names == std::vector<std::string>{
                       "self_attn.q_a_proj.weight", "self_attn.q_a_layernorm.weight",
                       "self_attn.q_b_proj.weight", "self_attn.kv_a_proj_with_mqa.weight",
                       "self_attn.kv_a_layernorm.weight", "self_attn.kv_b_proj.weight",
                       "self_attn.o_proj.weight"});
    CHECK(sizes_of(layer).q_lora_rank == Rq);
    CHECK(!sizes_of(random_layer({}, 1)).q_lora_rank);
    CHECK(layer.scale == 1 / std::sqrt(Real(Dn + Dr)));
}

TEST_CASE("The expanded and the absorbed order give the same output") {
    const LatentAttention layer = random_layer({}, 2);
    for (const auto& [seq_len, past_len] :
         {std::pair<std::size_t, std::size_t>{T, 0}, {3, 4}}) {
        const PatternAttentionInputs all = inputs_of(seq_len + past_len),
                                     last = inputs_of(seq_len, past_len);
        const Tensor3 input = random_input(seq_len + past_len, 3);
        const Tensor4 entries = latent_entries(layer, layer.kv_a_proj_with_mqa(input), all);
        CHECK(entries.shape() == std::array{B, std::size_t{1}, seq_len + past_len, R + Dr});
        const Tensor4 queries = latent_queries(
            layer, project_queries(layer.q_proj, tokens(input, past_len, past_len + seq_len)),
            last);
        const Tensor4 mask = latent_mask(last, seq_len + past_len, B);
        const AttentionOutput expanded = expanded_attention(layer, queries, entries, mask);
        const AttentionOutput absorbed = absorbed_attention(layer, queries, entries, mask);
        CHECK_CLOSE(absorbed.weights, expanded.weights, 1e-6);
        CHECK_CLOSE(absorbed.context, expanded.context, 1e-6);
        CHECK(expanded.context.shape() == std::array{B, H, seq_len, Dv});
    }
}

TEST_CASE("A cache that is filled in random pieces gives the output of one call") {
    const std::size_t seq_len = 11;
    const LatentAttention layer = random_layer(Rq, 4);
    const Tensor3 input = random_input(seq_len, 5);
    const Tensor3 expected = layer(input, inputs_of(seq_len)).hidden_states;
    Generator generator(6);
    for (int trial = 0; trial < 200; ++trial) {
        LatentCache cache = layer.make_cache();
        while (cache.seq_len() < seq_len) {
            const std::size_t past_len = cache.seq_len();
            const std::size_t count =
                1 + std::size_t(generator.next_uniform() * double(seq_len - past_len));
            const std::size_t end = std::min(seq_len, past_len + count);
            const Tensor3 output =
                layer(tokens(input, past_len, end), inputs_of(end - past_len, past_len), &cache)
                    .hidden_states;
            CHECK_CLOSE(output, tokens(expected, past_len, end), 2e-6);
        }
        CHECK(cache.entries.shape() == std::array{B, std::size_t{1}, seq_len, R + Dr});
    }
}

TEST_CASE("A cropped cache goes on as if the later tokens had never been there") {
    const LatentAttention layer = random_layer({}, 7);
    const Tensor3 input = random_input(6, 8);
    LatentCache cache;
    layer(tokens(input, 0, 5), inputs_of(5), &cache);
    CHECK(!cache.crop(6));
    CHECK(cache.crop(5));
    CHECK(cache.seq_len() == 5);
    CHECK(cache.crop(3));
    CHECK(cache.seq_len() == 3);
    const Tensor3 output = layer(tokens(input, 3, 6), inputs_of(3, 3), &cache).hidden_states;
    CHECK_CLOSE(output, tokens(layer(input, inputs_of(6)).hidden_states, 3, 6), 2e-6);
}

TEST_CASE("Caches, position ids and sizes that do not fit are rejected") {
    const LatentAttention layer = random_layer({}, 7);
    LatentCache cache;
    layer(random_input(2, 8), inputs_of(2), &cache);
    CHECK_THROWS_WITH_AS(
        layer(random_input(2, 8), inputs_of(2, 3), &cache),
        "latent attention: position ids do not begin at 2, after the cached tokens",
        ValueError);
    CHECK(cache.seq_len() == 2);
    CHECK_THROWS_WITH_AS(
        cache.update(xt::zeros<Real>({std::size_t{1}, std::size_t{1}, std::size_t{2}, R + Dr})),
        "latent cache: new entries of (1, 1, 2, 14) do not match those of (2, 1, 2, 14)",
        ValueError);
    CHECK_THROWS_AS(
        cache.update(xt::zeros<Real>({B, std::size_t{1}, std::size_t{2}, R + Dr + 1})),
        ValueError);
    Generator generator(1);
    CHECK_THROWS_AS(make_latent_attention({C, H, {}, R, Dn, 5, Dv}, 1, generator), ValueError);
    for (const LatentSizes& sizes : {LatentSizes{0, H, {}, R, Dn, Dr, Dv},
                                     {C, 0, {}, R, Dn, Dr, Dv},
                                     {C, H, {}, 0, Dn, Dr, Dv},
                                     {C, H, {}, R, 0, Dr, Dv},
                                     {C, H, {}, R, Dn, Dr, 0}})
        CHECK_THROWS_AS(make_latent_attention(sizes, 1, generator), ValueError);
    CHECK(make_latent_attention({C, H, {}, R, Dn, 0, Dv}, 1, generator).qk_rope_head_dim == 0);
}

TEST_CASE("The norm of the latent vector does not change the shared key") {
    LatentAttention layer = random_layer({}, 9);
    const Tensor3 compressed = layer.kv_a_proj_with_mqa(random_input(T, 10));
    const Tensor4 before = latent_entries(layer, compressed, inputs_of(T));
    const Vector factors = xt::arange<Real>(1, Real(R + 1));
    layer.kv_a_layernorm.weight = layer.kv_a_layernorm.weight * factors;
    const Tensor4 after = latent_entries(layer, compressed, inputs_of(T));
    CHECK_CLOSE(features(after, R, Dr), features(before, R, Dr), 0);
    CHECK_CLOSE(features(after, 0, R),
                Tensor4(features(before, 0, R) * reshape(factors, {1, 1, 1, R})), 1e-6);
    // At position 0 nothing is rotated.
    const Tensor4 parts = reshape(compressed, {B, 1, T, R + Dr});
    const Tensor4 first = first_tokens(features(parts, R, Dr), 1);
    CHECK_CLOSE(first_tokens(features(before, R, Dr), 1), first, 0);
}

TEST_CASE("A grouped-query layer without RoPE is a latent one") {
    Config config;
    config.hidden_size = C;
    config.num_attention_heads = 6;
    config.num_key_value_heads = 2;
    config.head_dim = 4;
    config.qk_norm = QKNormType::none;
    Generator generator(11);
    const AttentionLayer layer = make_attention_layer(config, generator);
    PatternAttention grouped = make_pattern_attention(layer, 4, FullAttention{});
    grouped.position_encoding = NoPE{};
    const LatentAttention latent = latent_from_gqa(layer);
    CHECK(latent.kv_lora_rank() == 2 * 2 * 4);
    const Tensor3 input = random_input(T, 12);
    const PatternAttentionInputs inputs = pattern_attention_inputs({table_of(T, 4)}, T);
    const AttentionLayer::Output expected = grouped(input, inputs),
                                 output = latent(input, inputs);
    CHECK_CLOSE(output.attentions, expected.attentions, 1e-6);
    CHECK_CLOSE(output.hidden_states, expected.hidden_states, 1e-6);
    // With its cache, too, which holds as many numbers per token as that of the layer.
    LatentCache cache;
    latent(tokens(input, 0, 4), pattern_attention_inputs({table_of(T, 4)}, 4), &cache);
    const Tensor3 last =
        latent(tokens(input, 4, 5), pattern_attention_inputs({table_of(T, 4)}, 1, 4), &cache)
            .hidden_states;
    CHECK_CLOSE(last, tokens(expected.hidden_states, 4, 5), 1e-6);
    CHECK(cache.entries.shape(3) == attention_cost(config, 1).cached_numbers);

    AttentionLayer other = layer;
    other.qk_norm = QKNormWithoutWeights{};
    CHECK_THROWS_AS(latent_from_gqa(other), ValueError);
    for (Linear Projections::*projection :
         {&Projections::q_proj, &Projections::k_proj, &Projections::v_proj}) {
        other = layer;
        (other.projections.*projection).bias =
            xt::zeros<Real>({(other.projections.*projection).weight.shape(0)});
        CHECK_THROWS_AS(latent_from_gqa(other), ValueError);
    }
}

TEST_CASE("YaRN's factor with a coefficient") {
    CHECK(yarn_mscale(40, 1) == doctest::Approx(0.1 * std::log(40.0) + 1));
    CHECK(yarn_mscale(40, Real(0.707)) == doctest::Approx(0.0707 * std::log(40.0) + 1));
    CHECK(yarn_mscale(1, 2) == 1);
    CHECK(yarn_mscale(Real(0.5), 2) == 1);
}

TEST_CASE("FLOPs of both orders, by hand, and the length at which the better one changes") {
    const LatentSizes sizes{C, H, {}, R, Dn, Dr, Dv};
    // 3 heads; expanding 7 entries: 8 · 9 products each; 2 · 7 scores of 10 and sums of 5.
    CHECK(expanded_flops(sizes, 2, 7) == 2 * 3 * (7 * 8 * 9 + 2 * 7 * (10 + 5)));
    // Absorbing 2 queries and expanding 2 contexts; 2 · 7 scores of 14 and sums of 8.
    CHECK(absorbed_flops(sizes, 2, 7) == 2 * 3 * (2 * 8 * 9 + 2 * 7 * (14 + 8)));
    // DeepSeek-V3, 4096 cached tokens: the better order changes at 164 new tokens.
    const LatentSizes v3{7168, 128, 1536, 512, 128, 64, 128};
    CHECK(absorbing_is_cheaper(v3, 1, 4096));
    CHECK(absorbing_is_cheaper(v3, 163, 4096));
    CHECK(!absorbing_is_cheaper(v3, 164, 4096));
    CHECK(!absorbing_is_cheaper(v3, 4096, 4096));
}

TEST_CASE("Costs of published layers: cached numbers, parameters, FLOPs") {
    Config llama;  // Llama 3 8B
    llama.hidden_size = 4096;
    llama.num_attention_heads = 32;
    llama.num_key_value_heads = 8;
    llama.head_dim = 128;
    const AttentionCost grouped = attention_cost(llama, 10);
    CHECK(grouped.cached_numbers == 2048);
    CHECK(grouped.parameters == 2 * (4096 * 4096 + 4096 * 1024));
    CHECK(grouped.decode_flops == 2 * grouped.parameters + 10 * 4 * 4096);
    CHECK(grouped.prefill_flops == 10 * grouped.decode_flops);

    // DeepSeek-V3: 576 numbers (its report, section 2.1.1); 187 million parameters a layer.
    const LatentSizes v3{7168, 128, 1536, 512, 128, 64, 128};
    const AttentionCost latent = attention_cost(v3, 10);
    CHECK(latent.cached_numbers == 576);
    CHECK(latent.parameters ==
          7168 * 1536 + 1536 * 24576 + 7168 * 576 + 512 * 32768 + 16384 * 7168);
    const std::uint64_t others = latent.parameters - 512 * 32768;
    CHECK(latent.decode_flops == 2 * others + absorbed_flops(v3, 1, 10));
    CHECK(latent.prefill_flops == 20 * others + expanded_flops(v3, 10, 10));
    // Without low-rank queries: DeepSeek-V2-Lite.
    const LatentSizes lite{2048, 16, {}, 512, 128, 64, 128};
    CHECK(attention_cost(lite, 1).parameters ==
          2048 * 3072 + 2048 * 576 + 512 * 4096 + 2048 * 2048);
    Generator generator(1);
    const LatentAttention layer =
        make_latent_attention({C, H, Rq, R, Dn, Dr, Dv}, 1, generator);
    const auto& queries = std::get<LowRankQueries>(layer.q_proj);
    CHECK(attention_cost(sizes_of(layer), 3).parameters ==
          num_parameters(queries.q_a_proj) + num_parameters(queries.q_b_proj) +
              num_parameters(layer.kv_a_proj_with_mqa) + num_parameters(layer.kv_b_proj) +
              num_parameters(layer.o_proj));
}

TEST_CASE("With a cache, the order is the one with fewer FLOPs, in every bit") {
    const std::size_t seq_len = 11;
    const LatentAttention layer = random_layer({}, 14);
    const Tensor3 input = random_input(seq_len, 15);
    const auto output_of = [&](const auto& order, const Tensor3& new_states,
                               const LatentCache& cache) {
        const std::size_t past_len = seq_len - new_states.shape(1);
        const PatternAttentionInputs inputs = inputs_of(seq_len - past_len, past_len);
        const Tensor4 queries =
            latent_queries(layer, project_queries(layer.q_proj, new_states), inputs);
        const Tensor4 mask = latent_mask(inputs, seq_len, B);
        return layer.o_proj(merge_heads(order(layer, queries, cache.entries, mask).context));
    };
    // One token after ten.
    const Tensor3 last = tokens(input, seq_len - 1, seq_len);
    LatentCache cache;
    layer(tokens(input, 0, seq_len - 1), inputs_of(seq_len - 1), &cache);
    const Tensor3 decoded = layer(last, inputs_of(1, seq_len - 1), &cache).hidden_states;
    CHECK_CLOSE(decoded, output_of(absorbed_attention, last, cache), 0);
    CHECK(difference(decoded, output_of(expanded_attention, last, cache), 0) != "");
    // All at once.
    LatentCache empty;
    const Tensor3 prefilled = layer(input, inputs_of(seq_len), &empty).hidden_states;
    CHECK_CLOSE(prefilled, output_of(expanded_attention, input, empty), 0);
    CHECK(difference(prefilled, output_of(absorbed_attention, input, empty), 0) != "");
    CHECK_CLOSE(layer(input, inputs_of(seq_len)).hidden_states, prefilled, 0);
}

TEST_CASE("The initial weights are those of linear layers in the order q, kv_a, kv_b, o") {
    for (const std::optional<std::size_t> q_lora_rank : {std::optional<std::size_t>{}, {Rq}}) {
        Generator generator(16), again(16);
        const LatentAttention layer =
            make_latent_attention({C, H, q_lora_rank, R, Dn, Dr, Dv}, Real(1e-3), generator);
        if (const auto* low_rank = std::get_if<LowRankQueries>(&layer.q_proj)) {
            CHECK(low_rank->q_a_proj.weight == make_linear(C, Rq, false, again).weight);
            CHECK(low_rank->q_b_proj.weight ==
                  make_linear(Rq, H * (Dn + Dr), false, again).weight);
            CHECK(low_rank->q_a_layernorm.eps == Real(1e-3));
        } else {
            CHECK(std::get<Linear>(layer.q_proj).weight ==
                  make_linear(C, H * (Dn + Dr), false, again).weight);
        }
        CHECK(layer.kv_a_proj_with_mqa.weight == make_linear(C, R + Dr, false, again).weight);
        CHECK(layer.kv_b_proj.weight == make_linear(R, H * (Dn + Dv), false, again).weight);
        CHECK(layer.o_proj.weight == make_linear(H * Dv, C, false, again).weight);
        CHECK(layer.kv_a_layernorm.eps == Real(1e-3));
    }
}

TEST_CASE("make_latent_decoder: the rotary table, a tied and an untied head, other sizes") {
    Config config;
    config.hidden_size = C;
    config.num_attention_heads = config.num_key_value_heads = H;
    config.intermediate_size = 8;
    config.num_hidden_layers = 2;
    config.vocab_size = 11;
    config.max_position_embeddings = 9;
    config.qk_norm = QKNormType::none;
    const LatentSizes sizes{C, H, {}, R, Dn, Dr, Dv};
    for (const bool tied : {true, false}) {
        config.tie_word_embeddings = tied;
        Generator generator(17);
        const LatentDecoder decoder = make_latent_decoder(config, sizes, generator);
        CHECK(decoder.config.head_dim == Dr);
        CHECK(decoder.layers.size() == 2);
        CHECK(decoder.lm_head.has_value() == !tied);
        CHECK(decoder(IdMatrix{{1, 2, 3}}).shape() == std::array<std::size_t, 3>{1, 3, 11});
    }
    Generator generator(17);
    CHECK_THROWS_WITH_AS(make_latent_decoder(config, {C + 1, H, {}, R, Dn, Dr, Dv}, generator),
                         "latent decoder: an attention of 21 features and 3 heads does not "
                         "match a configuration of 20 and 3",
                         ValueError);
    CHECK_THROWS_AS(make_latent_decoder(config, {C, H + 1, {}, R, Dn, Dr, Dv}, generator),
                    ValueError);
    Config other = config;
    other.attention_dropout = Real(0.1);
    CHECK_THROWS_AS(make_latent_decoder(other, sizes, generator), ValueError);
    other = config;
    other.attention_bias = AttentionBias::qkvo;
    CHECK_THROWS_AS(make_latent_decoder(other, sizes, generator), ValueError);
}
