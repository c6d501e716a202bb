// Chapter 05 — How does a token attend to other tokens? This program computes attention in five
// steps for numbers small enough to check by hand, then the attention of three query heads over
// five words and one key/value head, then a whole attention layer.
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "chapters/05_gqa/attention.hpp"
#include "chapters/05_gqa/demo/optional.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/words.hpp"
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

// Query heads 3, 4 and 5 of layer 2 with the key/value head 1 that they share, after RoPE.
QueriesKeysValues heads_of_words(const Words& words) {
    const std::size_t seq_len = words.tokens.size(), head_dim = 32;
    // The columns of `count` heads, beginning with head `first`: (T, ...) -> (1, count, T, D).
    const auto heads = [&](const Matrix& states, std::size_t first, std::size_t count) {
        const Matrix columns = xt::view(
            states, xt::all(), xt::range(first * head_dim, (first + count) * head_dim));
        return split_heads(reshape(columns, {1, seq_len, count * head_dim}), count);
    };
    const RotaryTable table = make_rotary_table(inverse_frequencies(head_dim, 10000), seq_len);
    return apply_qk_norm_and_rope(
        NoQKNorm{},
        {heads(words.queries, 3, 3), heads(words.keys, 1, 1), heads(words.values, 1, 1)},
        causal_attention_inputs(table, 1, seq_len));
}

void three_heads_over_words(const Words& words) {
    const std::vector<std::string>& tokens = words.tokens;
    const std::size_t seq_len = tokens.size(), last = seq_len - 1;
    const std::string name = "\"" + tokens[last] + "\"";
    const auto [queries, keys, values] = heads_of_words(words);
    const std::vector<std::string> heads{"head 3", "head 4", "head 5"};
    const std::vector<std::string> features{"feature 0", "feature 1", "feature 2"};

    step(words.count() + ": three queries of " + name + ", and one key for each word");
    show("word_queries", xt::view(queries, 0, xt::all(), last), heads, features);
    show("word_keys", head_of(keys, 0, 0), tokens, features);

    step(words.count() + ": the weights of heads 3, 4 and 5, over the same keys");
    const Tensor4 mask = expand_mask(causal_mask(seq_len, seq_len), 1);
    const AttentionOutput output = grouped_query_attention(queries, keys, values, mask);
    std::vector<Panel> panels;
    for (std::size_t h = 0; h < heads.size(); ++h) {
        const Matrix weights = head_of(output.weights, 0, h);
        show("word_weights_head_" + to_text(h + 3), weights, tokens, tokens);
        panels.push_back(
            Heatmap{"Weights of " + heads[h], "key", "query", weights, tokens, tokens});
    }
    plot("words", panels);

    step(words.count() + ": the output of each head for " + name + ", from the same values");
    show("word_values", head_of(values, 0, 0), tokens, features);
    show("word_context", xt::view(output.context, 0, xt::all(), last), heads, features);

    step(words.count() + ": numbers in the KV cache of this layer for each word");
    show("with 2 key/value heads", 2 * 2 * values.shape(3));
    show("with 6, one for each query head", 2 * 6 * values.shape(3));
}

// The largest attention weight of each query, on average.
Real mean_largest_weight(const Matrix& weights) {  // (T, S)
    const Vector largest = xt::amax(weights, {1});
    return xt::mean(largest)();
}

void why_scaled_by_root_of_head_dim(Generator& generator) {
    step("Why divide by √D? 64 random queries and 64 random keys");
    std::vector<TableRow> rows;
    for (std::size_t head_dim = 2; head_dim <= 512; head_dim *= 2) {
        const Matrix queries = randn({64, head_dim}, generator);
        const Matrix keys = randn({64, head_dim}, generator);
        const Matrix scores = attention_scores(queries, keys);
        const Real root = std::sqrt(static_cast<Real>(head_dim));
        const Matrix products = scores * root;
        rows.push_back({to_text(head_dim), fixed(root, 2), fixed(root_mean_square(products), 2),
                        fixed(mean_largest_weight(softmax(products)), 2),
                        fixed(mean_largest_weight(softmax(scores)), 2)});
    }
    show_table({"D", "√D", "std of q·k", "largest weight", "largest weight, scaled"}, rows);
}

QueriesKeysValues project_and_rotate(const AttentionLayer& layer, const Tensor3& hidden_states,
                                     const AttentionInputs& inputs) {
    step("Attention layer, 1: project and split into heads");
    const QueriesKeysValues projected = project_qkv(layer, hidden_states);
    show_shape("query_states", projected.queries);
    show_shape("key_states", projected.keys);
    show_shape("value_states", projected.values);

    step("Attention layer, 2: RoPE");
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

    step("GQA equals multi-head attention with repeated heads");
    const Tensor4 repeated_keys = repeat_kv(keys, num_key_value_groups);
    const Tensor4 repeated_values = repeat_kv(values, num_key_value_groups);
    show_shape("repeated keys", repeated_keys);
    const Tensor4 repeated =
        multi_head_attention(queries, repeated_keys, repeated_values, mask).context;
    show("largest difference", largest_difference(grouped, repeated));

    step("Wrong: heads tiled, 0 1 2 3 0 1 ..., not repeated, 0 0 0 0 1 1 ...");
    const Tensor4 tiled_keys = tile_kv(keys, num_key_value_groups);
    const Tensor4 tiled_values = tile_kv(values, num_key_value_groups);
    const Tensor4 tiled = multi_head_attention(queries, tiled_keys, tiled_values, mask).context;
    show_shape("tiled keys", tiled_keys);
    show("largest difference", largest_difference(grouped, tiled));
    if (num_key_value_groups == 1 || keys.shape(1) == 1)
        say("With one key/value head, or with one per query head, tiling and repeating give "
            "the same result.");
}

void size_of_the_kv_cache() {
    struct Sizes {
        std::string name;
        std::size_t num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim,
            max_position_embeddings;
    };
    const std::vector<Sizes> models = {{"king_james", 4, 6, 2, 32, 256},
                                       {"Llama-2-7B", 32, 32, 32, 128, 4096},
                                       {"Llama-3-8B", 32, 32, 8, 128, 8192},
                                       {"Qwen3-0.6B", 28, 16, 8, 128, 40960},
                                       {"Mini-LLM", 16, 6, 6, 64, 2048}};
    step("Memory of the KV cache, with 16-bit elements");
    std::vector<TableRow> rows;
    for (const auto& [name, num_layers, num_heads, num_kv_heads, head_dim, context] : models) {
        const std::uint64_t bytes =
            kv_cache_bytes_per_token(num_layers, num_kv_heads, head_dim, 2);
        const std::uint64_t multi_head_bytes =
            kv_cache_bytes_per_token(num_layers, num_heads, head_dim, 2);
        rows.push_back({name, to_text(num_heads), to_text(num_kv_heads), to_text(bytes >> 10),
                        to_text(multi_head_bytes >> 10), to_text(context),
                        brief(static_cast<double>(bytes * context) / (1 << 20))});
    }
    show_table({"model", "H", "Hkv", "KiB per token", "with Hkv = H", "context", "MiB"}, rows);
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    bool attention_bias = false;
    std::string words = asset("words");
    Options options("05_gqa", "How does a token attend to other tokens?");
    options.sizes(batch_size, seq_len, config);
    options.path("--words", words,
                 "other words: a folder written by 11_generation --words DIR --prompt TEXT");
    options.flag("--attention-bias", attention_bias, "give the projections a bias");

    return options.run(argc, argv, [&] {
        if (attention_bias) config.attention_bias = AttentionBias::qkvo;
        config.qk_norm = QKNormType::none;
        config = validate(config, seq_len);
        const Words shown_words = load_words(words);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, config.hidden_size}, generator);
        const AttentionLayer layer = make_attention_layer(config, generator);
        const AttentionInputs inputs = causal_attention_inputs(config, batch_size, seq_len);

        attention_example();
        three_heads_over_words(shown_words);
        why_scaled_by_root_of_head_dim(generator);
        const QueriesKeysValues heads = project_and_rotate(layer, hidden_states, inputs);
        scores_to_output(layer, heads, inputs.attention_mask);
        from_multi_head_to_multi_query(heads, inputs.attention_mask);
        size_of_the_kv_cache();
        einsum_that_sums_over_the_group(heads);
        norm_of_queries_and_keys(heads, config.rms_norm_eps);
        order_of_norm_and_rope(heads.values, inputs, config.rms_norm_eps, generator);
        dropout_of_weights(generator);
    });
}
