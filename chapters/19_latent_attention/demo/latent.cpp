#include "chapters/19_latent_attention/demo/latent.hpp"

#include <cmath>

#include "chapters/19_latent_attention/absorbed_attention.hpp"
#include "chapters/19_latent_attention/latent_from_gqa.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/show.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

const std::vector<std::string> words = {"And", "the", "LORD", "said"};
const std::vector<std::string> latent_names = {"c0", "c1", "c2"};
const Matrix latents = {{1, 0, 1}, {0, 2, 1}, {2, 1, 0}, {1, 1, 1}};  // (T, R)
const Matrix up_keys = {{1, 0, 2}, {0, 1, -1}};                       // W_UK: (Dn, R)

// The rotation of two features by an angle.
Matrix rotation(double angle) {
    const Real cosine = Real(std::cos(angle)), sine = Real(std::sin(angle));
    return {{cosine, -sine}, {sine, cosine}};
}

constexpr std::size_t T = 10;
const LatentSizes demo_sizes{128, 16, std::nullopt, 32, 8, 4, 8};

PatternAttentionInputs demo_inputs(std::size_t seq_len, std::size_t past_len = 0) {
    const Vector frequencies = inverse_frequencies(demo_sizes.qk_rope_head_dim, 10'000);
    return pattern_attention_inputs({make_rotary_table(frequencies, past_len + seq_len)},
                                    seq_len, past_len);
}

}  // namespace

void absorb_by_hand() {
    step("One head by hand: the same scores from keys and from latent vectors");
    const Matrix query = {{1, 2}};  // (1, Dn), of "said"
    show("latents", latents, words, latent_names);
    show("W_UK", up_keys, {"k0", "k1"}, latent_names);
    const Matrix keys = matmul_transposed(latents, up_keys);  // (T, Dn): W_UK c of each token
    show("keys", keys, words, {"k0", "k1"});
    show("scores_of_keys", matmul_transposed(query, keys), {"said"}, words);
    const Matrix absorbed = matmul(query, up_keys);  // (1, R)
    show("absorbed_query", absorbed, {"said"}, latent_names);
    show("scores_of_latents", matmul_transposed(absorbed, latents), {"said"}, words);
}

void rope_between() {
    step("Why RoPE cannot be absorbed: W_UK with a rotation before it");
    for (const int distance : {0, 1, 2})
        show("distance_" + to_text(distance), matmul(rotation(-distance), up_keys),
             {"k0", "k1"}, latent_names);
}

void shapes_of_a_layer(Generator& generator) {
    step("A layer: what is computed of 10 tokens, and what is cached");
    const LatentAttention layer = make_latent_attention(demo_sizes, Real(1e-6), generator);
    const Tensor3 hidden_states = randn({2, T, demo_sizes.hidden_size}, generator);
    const PatternAttentionInputs inputs = demo_inputs(T);
    show("kv_a_proj_with_mqa", describe(layer.kv_a_proj_with_mqa));
    show("kv_b_proj", describe(layer.kv_b_proj));
    const Tensor3 compressed = layer.kv_a_proj_with_mqa(hidden_states);
    const Tensor4 entries = latent_entries(layer, compressed, inputs);
    const auto [keys, values] = expand(layer, entries);
    show_shape("hidden_states", hidden_states);
    show_shape("compressed", compressed);
    show_shape("cached", entries);
    show_shape("queries",
               latent_queries(layer, project_queries(layer.q_proj, hidden_states), inputs));
    show_shape("expanded_keys", keys);
    show_shape("expanded_values", values);
    show("hidden_states_after", layer(hidden_states, inputs).hidden_states);
    show("cached_numbers_per_token", entries.shape(3));
    show("of_expanded_keys_and_values", keys.shape(1) * (keys.shape(3) + values.shape(3)));
}

void two_orders(Generator& generator) {
    step("Both orders give the same output");
    const LatentAttention layer = make_latent_attention(demo_sizes, Real(1e-6), generator);
    const Tensor3 hidden_states = randn({2, T, demo_sizes.hidden_size}, generator);
    const PatternAttentionInputs inputs = demo_inputs(T);
    const Tensor4 entries =
        latent_entries(layer, layer.kv_a_proj_with_mqa(hidden_states), inputs);
    const Tensor4 queries =
        latent_queries(layer, project_queries(layer.q_proj, hidden_states), inputs);
    const Tensor4 mask = latent_mask(inputs, T, 2);
    show_shape("queries", queries);
    show_shape("absorbed_queries", absorb_queries(layer, queries));
    const AttentionOutput expanded = expanded_attention(layer, queries, entries, mask);
    const AttentionOutput absorbed = absorbed_attention(layer, queries, entries, mask);
    show("context", expanded.context);
    show("same_context", largest_difference(expanded.context, absorbed.context) < 1e-6);

    step("Token by token, with the cache of latent vectors");
    const Tensor3 whole = layer(hidden_states, inputs).hidden_states;
    LatentCache cache = layer.make_cache();
    double largest = 0;
    for (std::size_t t = 0; t < T; ++t) {
        const Tensor3 token = xt::view(hidden_states, xt::all(), xt::range(t, t + 1));
        const Tensor3 expected = xt::view(whole, xt::all(), xt::range(t, t + 1));
        const Tensor3 output = layer(token, demo_inputs(1, t), &cache).hidden_states;
        largest = std::max(largest, double(largest_difference(output, expected)));
    }
    show_shape("cached", cache.entries);
    show("same_as_in_one_call", largest < 1e-6);
}

void grouped_as_latent(Generator& generator) {
    step("Grouped-query attention as latent attention");
    Config config;
    config.hidden_size = 12;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 2;
    config.qk_norm = QKNormType::none;
    const AttentionLayer layer = make_attention_layer(config, generator);
    const LatentAttention latent = latent_from_gqa(layer);
    show("selection", latent.kv_b_proj.weight);
    PatternAttention grouped = make_pattern_attention(layer, 2, FullAttention{});
    grouped.position_encoding = NoPE{};
    const Tensor3 hidden_states = randn({1, T, 12}, generator);
    const PatternAttentionInputs inputs = pattern_attention_inputs({}, T);
    const Tensor3 output = latent(hidden_states, inputs).hidden_states;
    show("same_output",
         largest_difference(output, grouped(hidden_states, inputs).hidden_states) < 1e-6);
}

}  // namespace llm
