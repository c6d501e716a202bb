// Chapter 05 — How does a token take from others? The walk: the five steps of attention for one
// query, then a whole layer on the sample input, shared key/value heads, and what they save.
#include "chapters/05_gqa/attention.hpp"

#include <cmath>

#include "common/numbers/statistics.hpp"
#include "common/system/options.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

using namespace llm;

void one_query_by_hand() {
    step("One query, three keys, the third in the future");
    const Matrix query{{2, 0, 2, 0}};
    const Matrix keys{{1, 0, 1, 0}, {0, 1, 1, 0}, {2, 2, 2, 2}};
    const Matrix values{{10, 0, 0, 0}, {0, 10, 0, 0}, {0, 0, 10, 0}};
    const Matrix mask{{0, 0, -infinity}};
    show("query", query);
    show("keys", keys);
    show("values", values);

    step("The five steps: scores, scale, mask, softmax, context");
    const Linear fits_to_keys{keys, std::nullopt};  // q kᵀ: a layer whose weights are the keys
    const Matrix products = fits_to_keys(query);
    show("products", products);
    const Matrix scores = attention_scores(query, keys);
    show("scores", scores);
    show("masked_scores", scores + mask);
    const HeadAttention head = attention(query, keys, values, mask);
    show("weights_by_hand", head.weights);
    show("context_by_hand", head.context);
    say("4 and 2, halved by the root of 4: 2 and 1. The softmax makes 0.73 and 0.27 of them, "
        "and the context is 73 % of the first value and 27 % of the second.");
}

// How many keys a query effectively looks at: e to the entropy of its weights.
Real effective_keys(const Matrix& weights) {
    Real entropy = 0;
    for (const Real weight : weights)
        if (weight > 0) entropy -= weight * std::log(weight);
    return std::exp(entropy / static_cast<Real>(weights.shape(0)));
}

void why_the_root(Generator& generator) {
    step("Why divide by the root of D? Random queries and 64 random keys");
    Line scaled{"divided by the root of D", {}, {}}, unscaled{"not divided", {}, {}};
    for (std::size_t head_dim = 2; head_dim <= 512; head_dim *= 2) {
        const Matrix queries = randn({64, head_dim}, generator);
        const Matrix keys = randn({64, head_dim}, generator);
        const Matrix scores = attention_scores(queries, keys);
        const Real root = std::sqrt(static_cast<Real>(head_dim));
        for (Line* line : {&scaled, &unscaled})
            line->x.push_back(static_cast<double>(head_dim));
        scaled.y.push_back(effective_keys(softmax(scores)));
        unscaled.y.push_back(effective_keys(softmax(scores * root)));
        if (head_dim == 8 || head_dim == 128) {
            show("head_dim", head_dim);
            show("  keys looked at, divided", scaled.y.back());
            show("  keys looked at, not divided", unscaled.y.back());
        }
    }
    plot("scale", {LinePlot{"How many of 64 keys a query looks at",
                            "head_dim",
                            "effective number of keys",
                            {scaled, unscaled},
                            false,
                            true}});
}

struct HeadStates {
    Tensor4 queries, keys, values;
};

HeadStates placed_heads(const AttentionLayer& layer, const Tensor3& hidden_states,
                        const RotaryTable& table, const IdMatrix& positions) {
    const Config& config = layer.config;
    const Projections& projections = layer.projections;
    const Tensor4 queries =
        split_heads(projections.q_proj(hidden_states), config.num_attention_heads);
    const Tensor4 keys =
        split_heads(projections.k_proj(hidden_states), config.num_key_value_heads);
    const Tensor4 values =
        split_heads(projections.v_proj(hidden_states), config.num_key_value_heads);

    step("The layer 1: project, split into heads");
    show_shape("query_states", queries);
    show_shape("key_states", keys);
    show_shape("value_states", values);

    step("The layer 2: rotate, then normalise (Llama 4's order)");
    const Tensor4 rotated = rotate_split_half(queries, table, positions);
    show("query_states_rotated", rotated);
    const Tensor4 placed_queries = layer.placed(queries, {}, table, positions);
    const Tensor4 placed_keys = layer.placed(keys, {}, table, positions);
    show("query_states", placed_queries);
    show("key_states", placed_keys);
    show("value_states", values);
    return {placed_queries, placed_keys, values};
}

void scores_to_output(const AttentionLayer& layer, const HeadStates& heads,
                      const Tensor4& mask) {
    step("The layer 3: scores, masked scores, weights (head 0 of sequence 0)");
    const Matrix scores =
        attention_scores(head_of(heads.queries, 0, 0), head_of(heads.keys, 0, 0));
    const Matrix masked = scores + head_of(mask, 0, 0);
    show("attn_scores", scores);
    show("attn_scores_masked", masked);
    const Attention result =
        grouped_query_attention(heads.queries, heads.keys, heads.values, mask);
    show("attn_weights", result.weights);
    plot("head", {Heatmap{"Scores of head 0", "key", "query", scores},
                  Heatmap{"With the mask", "key", "query", masked},
                  Heatmap{"Weights", "key", "query", head_of(result.weights, 0, 0)}});

    step("The layer 4: context, heads merged, output");
    show("attn_context", result.context);
    const Tensor3 merged = merge_heads(result.context);
    show("attn_merged", merged);
    show("attn_output", layer.projections.o_proj(merged));
}

// The famous wrong way: heads 0 1 2 3 0 1 2 3 instead of 0 0 0 0 1 1 1 1.
Tensor4 tile(const Tensor4& states, std::size_t groups) {
    Tensor4 tiled = repeat_kv(states, groups);
    for (std::size_t h = 0; h < tiled.shape(1); ++h)
        xt::view(tiled, xt::all(), h) = xt::view(states, xt::all(), h % states.shape(1));
    return tiled;
}

void an_einsum_too_short(const HeadStates& heads, std::size_t groups) {
    step("Wrong: an einsum that sums over the heads of a group");
    // bghnd,bhsd->bhns has no g on the right: the queries of a group are added up.
    const std::size_t query_len = heads.queries.shape(2), head_dim = heads.queries.shape(3);
    Matrix summed_queries = xt::zeros<Real>({query_len, head_dim});
    for (std::size_t g = 0; g < groups; ++g)
        summed_queries = summed_queries + head_of(heads.queries, 0, g);
    const Matrix merged_scores = attention_scores(summed_queries, head_of(heads.keys, 0, 0));
    show("query heads that are left", heads.keys.shape(1));
    show("attn_scores_summed", merged_scores);
    say("One score matrix for a whole group: its heads have become one, and the result has as "
        "many heads as there are keys. The right einsum keeps the g: bghnd,bhsd->bghns.");
}

void the_ladder(const HeadStates& heads, const Tensor4& mask) {
    const std::size_t num_heads = heads.queries.shape(1), num_kv_heads = heads.keys.shape(1);
    const std::size_t groups = num_heads / num_kv_heads;
    const Tensor4 grouped =
        grouped_query_attention(heads.queries, heads.keys, heads.values, mask).context;

    step("The ladder: grouped queries are multi-head attention over repeated heads");
    const Tensor4 repeated_keys = repeat_kv(heads.keys, groups);
    const Tensor4 repeated_values = repeat_kv(heads.values, groups);
    show_shape("repeated keys", repeated_keys);
    const Tensor4 repeated =
        multi_head_attention(heads.queries, repeated_keys, repeated_values, mask).context;
    show("largest difference", largest_difference(grouped, repeated));

    step("Wrong: tiled, 0 1 2 3 0 1 2 3, instead of 0 0 0 0 1 1 1 1");
    const Tensor4 tiled_keys = tile(heads.keys, groups);
    const Tensor4 tiled_values = tile(heads.values, groups);
    const Tensor4 tiled =
        multi_head_attention(heads.queries, tiled_keys, tiled_values, mask).context;
    show_shape("tiled keys", tiled_keys);
    show("largest difference", largest_difference(grouped, tiled));
    if (groups == 1 || num_kv_heads == 1)
        say("With one key/value head, or with one for each query head, tiling and repeating "
            "are the same.");
    if (groups > 1) an_einsum_too_short(heads, groups);
}

void norm_and_rotation(const HeadStates& heads, const RotaryTable& table,
                       const IdMatrix& positions, Real eps, Generator& generator) {
    const auto rotate = [&](const Tensor4& x) {
        return rotate_split_half(x, table, positions);
    };
    const Tensor4& states = heads.values;  // any states will do

    step("Norm, then rotation, or the other way round?");
    const Tensor4 before = rotate(rms_normalize(states, eps));
    const Tensor4 after = rms_normalize(rotate(states), eps);
    show("without weights, difference", largest_difference(before, after));
    const Tensor4 weight = rand({1, 1, 1, states.shape(3)}, generator);
    const Tensor4 weighted_before = rotate(rms_normalize(states, eps) * weight);
    const Tensor4 weighted_after = rms_normalize(rotate(states), eps) * weight;
    show("with weights, difference", largest_difference(weighted_before, weighted_after));
    say("A rotation keeps lengths, so a norm without weights does not care. Weights stretch "
        "each number differently, and a rotation mixes the two of a pair.");
}

void dropped_weights(Generator& generator) {
    step("Dropout: in training, some weights are dropped and the others grow");
    const Tensor4 even = xt::ones<Real>({1, 1, 2, 8});
    const Tensor4 weights = even / Real(8);
    show("weights_before_dropout", weights);
    show("weights_after_dropout", dropout(weights, Real(0.25), generator));
}

void what_it_saves() {
    struct Model {
        std::string name;
        std::size_t layers, heads, kv_heads, head_dim, context;
    };
    const std::vector<Model> models = {{"Llama-2-7B", 32, 32, 32, 128, 4096},
                                       {"Llama-3-8B", 32, 32, 8, 128, 8192},
                                       {"Qwen3-0.6B", 28, 16, 8, 128, 40960},
                                       {"Mini-LLM", 16, 6, 6, 64, 2048}};
    step("What sharing saves: the cache of keys and values, 16-bit numbers");
    std::vector<Line> lines;
    for (const Model& model : models) {
        const std::size_t bytes =
            kv_cache_bytes_per_token(model.layers, model.kv_heads, model.head_dim, 2);
        const std::size_t unshared =
            kv_cache_bytes_per_token(model.layers, model.heads, model.head_dim, 2);
        show(model.name + ", KiB per token", static_cast<double>(bytes) / 1024);
        show("  with a key/value head per query head", static_cast<double>(unshared) / 1024);
        show("  MiB for its context of " + to_text(model.context),
             static_cast<double>(bytes * model.context) / (1024 * 1024));
        const double gib = static_cast<double>(bytes) / (1024.0 * 1024 * 1024);
        lines.push_back({model.name, {0, 32768}, {0, 32768 * gib}});
    }
    plot("cache", {LinePlot{"Cache of one sequence", "tokens", "GiB", lines}});
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    Options options("05_gqa", "How does a token take from others?");
    options.sizes(batch_size, seq_len, config);
    options.flag("--attention-bias", config.attention_bias, "give the projections a bias");

    return options.run(argc, argv, [&] {
        const Config checked = complete(config, seq_len);
        const Vector frequencies = inverse_frequencies(checked.head_dim, checked.rope_theta);
        const RotaryTable table = make_rotary_table(frequencies, seq_len);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, checked.hidden_size}, generator);
        const AttentionLayer layer{checked, make_projections(checked, generator), {}, {}};
        const IdMatrix positions = position_ids(batch_size, seq_len);
        const Tensor4 mask = expand_mask(causal_mask(seq_len, seq_len), batch_size);

        one_query_by_hand();
        why_the_root(generator);
        const HeadStates heads = placed_heads(layer, hidden_states, table, positions);
        scores_to_output(layer, heads, mask);
        the_ladder(heads, mask);
        norm_and_rotation(heads, table, positions, checked.rms_norm_eps, generator);
        dropped_weights(generator);
        what_it_saves();
    });
}
