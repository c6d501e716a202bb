// Chapter 05 — How does a token attend to other tokens? This program computes attention for one
// query in five steps, then runs a whole attention layer with shared key/value heads, and
// prints the size of the KV cache.
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/05_gqa/attention.hpp"
#include "chapters/05_gqa/dropout.hpp"
#include "chapters/05_gqa/rms_normalize.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

void attention_example() {
    step("One query and three keys; the third key is in the future");
    const Matrix query{{2, 0, 2, 0}};
    const Matrix keys{{1, 0, 1, 0}, {0, 1, 1, 0}, {2, 2, 2, 2}};
    const Matrix values{{10, 0, 0, 0}, {0, 10, 0, 0}, {0, 0, 10, 0}};
    const Matrix mask{{0, 0, -infinity}};
    show("query", query);
    show("keys", keys);
    show("values", values);

    step("Five steps: dot products, scaling, mask, softmax, weighted sum");
    const Linear dot_with_keys{keys, std::nullopt};  // q Kᵀ is a linear layer with weight K
    const Matrix products = dot_with_keys(query);
    show("products", products);
    const Matrix scores = attention_scores(query, keys);
    show("scores", scores);
    show("masked_scores", scores + mask);
    const HeadAttentionOutput head = attention(query, keys, values, mask);
    show("weights_example", head.weights);
    show("context_example", head.context);
    say("The products 4 and 2, divided by √4, give the scores 2 and 1. Their softmax is 0.73 "
        "and 0.27, so the context is 0.73 times the first value plus 0.27 times the second.");
}

// The perplexity of the attention weights: exp of the mean entropy of the rows.
Real effective_number_of_keys(const Matrix& weights) {  // (T, S)
    Real entropy = 0;
    for (const Real weight : weights)
        if (weight > 0) entropy -= weight * std::log(weight);
    return std::exp(entropy / static_cast<Real>(weights.shape(0)));
}

void why_scaled_by_root_of_head_dim(Generator& generator) {
    step("Why divide by √D? Random queries and 64 random keys");
    Line scaled{"scaled by 1/√D", {}, {}}, unscaled{"not scaled", {}, {}};
    for (std::size_t head_dim = 2; head_dim <= 512; head_dim *= 2) {
        const Matrix queries = randn({64, head_dim}, generator);
        const Matrix keys = randn({64, head_dim}, generator);
        const Matrix scores = attention_scores(queries, keys);
        const Real root = std::sqrt(static_cast<Real>(head_dim));
        for (Line* line : {&scaled, &unscaled})
            line->x.push_back(static_cast<double>(head_dim));
        scaled.y.push_back(effective_number_of_keys(softmax(scores)));
        unscaled.y.push_back(effective_number_of_keys(softmax(scores * root)));
        if (head_dim == 8 || head_dim == 128) {
            show("head_dim", head_dim);
            show("  effective number of keys, scaled", scaled.y.back());
            show("  effective number of keys, not scaled", unscaled.y.back());
        }
    }
    plot("scale", {LinePlot{"Effective number of keys, of 64",
                            "head_dim",
                            "perplexity of the attention weights",
                            {scaled, unscaled},
                            false,
                            true}});
}

QueriesKeysValues project_and_rotate(const AttentionLayer& layer, const Tensor3& hidden_states,
                                     const AttentionInputs& inputs) {
    step("Attention layer, 1: project and split into heads");
    const QueriesKeysValues projected = project_qkv(layer, hidden_states);
    show_shape("query_states", projected.queries);
    show_shape("key_states", projected.keys);
    show_shape("value_states", projected.values);

    step("Attention layer, 2: RoPE, then QK norm without weights (the order of Llama 4)");
    show("query_states_rotated",
         apply_rotary_embedding(projected.queries, inputs.rotary_table, inputs.position_ids));
    const QueriesKeysValues heads = apply_qk_norm_and_rope(layer.qk_norm, projected, inputs);
    show("query_states", heads.queries);
    show("key_states", heads.keys);
    show("value_states", heads.values);
    return heads;
}

void scores_to_output(const AttentionLayer& layer, const QueriesKeysValues& heads,
                      const Tensor4& mask) {
    step("Attention layer, 3: scores, mask, softmax (head 0 of sequence 0)");
    const Matrix scores =
        attention_scores(head_of(heads.queries, 0, 0), head_of(heads.keys, 0, 0));
    const Matrix masked = scores + head_of(mask, 0, 0);
    show("attn_scores", scores);
    show("attn_scores_masked", masked);
    const AttentionOutput result =
        grouped_query_attention(heads.queries, heads.keys, heads.values, mask);
    show("attn_weights", result.weights);
    plot("head", {Heatmap{"Scores of head 0", "key", "query", scores},
                  Heatmap{"Masked scores", "key", "query", masked},
                  Heatmap{"Attention weights", "key", "query", head_of(result.weights, 0, 0)}});

    step("Attention layer, 4: context, merged heads, output projection");
    show("attn_context", result.context);
    show("attn_merged", merge_heads(result.context));
    show("attn_output", project_output(layer, result.context));
}

// The common mistake: key/value heads 0 1 2 3 0 1 2 3 ... instead of 0 0 0 0 1 1 1 1 ...
Tensor4 tile_kv(const Tensor4& states,               // (B, Hkv, S, D)
                std::size_t num_key_value_groups) {  // G -> (B, H, S, D)
    Tensor4 tiled = repeat_kv(states, num_key_value_groups);
    for (std::size_t h = 0; h < tiled.shape(1); ++h)
        xt::view(tiled, xt::all(), h) = xt::view(states, xt::all(), h % states.shape(1));
    return tiled;
}

void from_multi_head_to_multi_query(const QueriesKeysValues& heads, const Tensor4& mask) {
    const auto& [queries, keys, values] = heads;
    const std::size_t num_key_value_groups = queries.shape(1) / keys.shape(1);
    const Tensor4 grouped = grouped_query_attention(queries, keys, values, mask).context;

    step("Grouped-query attention equals multi-head attention with repeated heads");
    const Tensor4 repeated_keys = repeat_kv(keys, num_key_value_groups);
    const Tensor4 repeated_values = repeat_kv(values, num_key_value_groups);
    show_shape("repeated keys", repeated_keys);
    const Tensor4 repeated =
        multi_head_attention(queries, repeated_keys, repeated_values, mask).context;
    show("largest difference", largest_difference(grouped, repeated));

    step("Wrong: heads tiled, 0 1 2 3 0 1 2 3 ..., instead of repeated, 0 0 0 0 1 1 1 1 ...");
    const Tensor4 tiled_keys = tile_kv(keys, num_key_value_groups);
    const Tensor4 tiled_values = tile_kv(values, num_key_value_groups);
    const Tensor4 tiled = multi_head_attention(queries, tiled_keys, tiled_values, mask).context;
    show_shape("tiled keys", tiled_keys);
    show("largest difference", largest_difference(grouped, tiled));
    if (num_key_value_groups == 1 || keys.shape(1) == 1)
        say("With one key/value head, or with one per query head, tiling and repeating give "
            "the same result.");
}

void einsum_that_sums_over_the_group(const QueriesKeysValues& heads) {
    const auto [batch_size, num_heads, query_len, head_dim] = dims(heads.queries);
    const std::size_t num_kv_heads = heads.keys.shape(1);
    if (num_heads == num_kv_heads) return;

    step("Wrong: an einsum that sums over the query heads of a group");
    // bghnd,bhsd->bhns has no g in its output, so the queries of a group are summed.
    Matrix summed_queries = xt::zeros<Real>({query_len, head_dim});
    for (std::size_t g = 0; g < num_heads / num_kv_heads; ++g)
        summed_queries = summed_queries + head_of(heads.queries, 0, g);
    show("query heads in the result", num_kv_heads);
    show("attn_scores_summed", attention_scores(summed_queries, head_of(heads.keys, 0, 0)));
    say("There is one score matrix per group instead of one per query head, so the result has "
        "Hkv heads. The correct einsum keeps the g: bghnd,bhsd->bghns.");
}

void order_of_norm_and_rope(const Tensor4& states,  // (B, Hkv, T, D), any states
                            const AttentionInputs& inputs, Real eps, Generator& generator) {
    const auto rotate = [&](const Tensor4& x) {
        return apply_rotary_embedding(x, inputs.rotary_table, inputs.position_ids);
    };
    step("QK norm before or after RoPE?");
    const Tensor4 norm_first = rotate(rms_normalize(states, eps));
    const Tensor4 rope_first = rms_normalize(rotate(states), eps);
    show("without weights, difference", largest_difference(norm_first, rope_first));
    const Tensor4 weight = rand({1, 1, 1, states.shape(3)}, generator);
    const Tensor4 weighted_norm_first = rotate(rms_normalize(states, eps) * weight);
    const Tensor4 weighted_rope_first = rms_normalize(rotate(states), eps) * weight;
    show("with weights, difference",
         largest_difference(weighted_norm_first, weighted_rope_first));
    say("A rotation preserves the norm of a vector, so without weights the order does not "
        "matter. Weights scale each feature differently, and RoPE then mixes the two features "
        "of a pair, so with weights it does.");
}

void dropout_of_weights(Generator& generator) {
    step("Dropout: sets random attention weights to 0 in training and scales up the others");
    const Tensor4 ones = xt::ones<Real>({1, 1, 2, 8});
    const Tensor4 weights = ones / Real(8);
    show("weights_before_dropout", weights);
    show("weights_after_dropout", dropout(weights, Real(0.25), generator));
}

void size_of_the_kv_cache() {
    struct Sizes {
        std::string name;
        std::size_t num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim,
            max_position_embeddings;
    };
    const std::vector<Sizes> models = {{"Llama-2-7B", 32, 32, 32, 128, 4096},
                                       {"Llama-3-8B", 32, 32, 8, 128, 8192},
                                       {"Qwen3-0.6B", 28, 16, 8, 128, 40960},
                                       {"Mini-LLM", 16, 6, 6, 64, 2048}};
    step("Memory of the KV cache, with 16-bit elements");
    std::vector<Line> lines;
    for (const auto& [name, num_layers, num_heads, num_kv_heads, head_dim, context] : models) {
        const double kib = 1024, mib = 1024 * kib, gib = 1024 * mib;
        const auto bytes = static_cast<double>(
            kv_cache_bytes_per_token(num_layers, num_kv_heads, head_dim, 2));
        const auto multi_head_bytes =
            static_cast<double>(kv_cache_bytes_per_token(num_layers, num_heads, head_dim, 2));
        show(name + ", KiB per token", bytes / kib);
        show("  with one key/value head per query head", multi_head_bytes / kib);
        show("  MiB for its context of " + to_text(context),
             bytes * static_cast<double>(context) / mib);
        lines.push_back({name, {0, 32768}, {0, 32768 * bytes / gib}});
    }
    plot("cache", {LinePlot{"KV cache of one sequence", "tokens", "GiB", lines}});
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    bool attention_bias = false;
    Options options("05_gqa", "How does a token attend to other tokens?");
    options.sizes(batch_size, seq_len, config);
    options.flag("--attention-bias", attention_bias, "give the projections a bias");

    return options.run(argc, argv, [&] {
        if (attention_bias) config.attention_bias = AttentionBias::qkvo;
        config = validate(config, seq_len);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, config.hidden_size}, generator);
        const AttentionLayer layer = make_attention_layer(config, generator);
        const AttentionInputs inputs = causal_attention_inputs(config, batch_size, seq_len);

        attention_example();
        why_scaled_by_root_of_head_dim(generator);
        const QueriesKeysValues heads = project_and_rotate(layer, hidden_states, inputs);
        scores_to_output(layer, heads, inputs.attention_mask);
        from_multi_head_to_multi_query(heads, inputs.attention_mask);
        einsum_that_sums_over_the_group(heads);
        order_of_norm_and_rope(heads.values, inputs, config.rms_norm_eps, generator);
        dropout_of_weights(generator);
        size_of_the_kv_cache();
    });
}
