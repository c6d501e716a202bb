#include "chapters/17_long_context/demo/pattern.hpp"

#include <algorithm>

#include "chapters/01_masking/masking.hpp"
#include "chapters/09_full_model/run_layers.hpp"
#include "chapters/17_long_context/pattern_attention.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/timer.hpp"

namespace llm {
namespace {

// 1 where a query attends to a key, 0 elsewhere.
Matrix visible_keys(const AttentionPattern& pattern, std::size_t seq_len) {
    Matrix visible = pattern_mask(pattern, seq_len, seq_len);  // (T, T)
    for (Real& value : visible) value = value == 0 ? 1 : 0;
    return visible;
}

// Blocks of random weights that all have this pattern.
std::vector<PatternBlock> random_layers(const Config& config, std::size_t num_layers,
                                        const AttentionPattern& pattern) {
    Generator generator(77);
    const RMSNorm norm{xt::ones<Real>({config.hidden_size})};
    std::vector<PatternBlock> layers;
    for (std::size_t n = 0; n < num_layers; ++n) {
        const AttentionLayer layer = make_attention_layer(config, generator);
        layers.push_back({make_pattern_attention(layer, config.head_dim, pattern),
                          make_gated_mlp(config.hidden_size, config.intermediate_size, false,
                                         SiLU, generator),
                          norm, norm});
    }
    return layers;
}

Config demo_config() {
    Config config;
    config.hidden_size = 32;
    config.intermediate_size = 64;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 8;
    return config;
}

PatternAttentionInputs demo_inputs(std::size_t seq_len, std::size_t past_len = 0) {
    const Vector frequencies = inverse_frequencies(8, 10000);
    return pattern_attention_inputs({make_rotary_table(frequencies, past_len + seq_len)},
                                    seq_len, past_len);
}

Tensor3 run(const std::vector<PatternBlock>& layers, const Tensor3& embeddings,
            const PatternAttentionInputs& inputs, std::vector<RollingCache>* caches = nullptr) {
    return run_layers(layers, embeddings, inputs, caches).last_hidden_state;  // (B, T, C)
}

// The last token whose output changes when the input of token 0 changes.
std::size_t last_token_that_depends_on_the_first(std::size_t num_layers, std::size_t window,
                                                 std::size_t seq_len) {
    const auto layers = random_layers(demo_config(), num_layers, SlidingWindow{window});
    Generator generator(1);
    Tensor3 embeddings = randn({1, seq_len, 32}, generator);  // (1, T, C)
    const Tensor3 before = run(layers, embeddings, demo_inputs(seq_len));
    xt::view(embeddings, 0, 0, xt::all()) += Real(1);
    const Tensor3 after = run(layers, embeddings, demo_inputs(seq_len));
    std::size_t last = 0;
    for (std::size_t t = 0; t < seq_len; ++t)
        for (std::size_t c = 0; c < 32; ++c)
            if (before(0, t, c) != after(0, t, c)) last = t;
    return last;
}

std::string list_of(const std::vector<Id>& positions) {
    std::string text;
    for (const Id position : positions)
        text += (text.empty() ? "" : " ") + std::to_string(position);
    return text;
}

// The positions of a published model's caches.
struct CachedModel {
    std::string name;
    std::size_t num_hidden_layers, num_key_value_heads, head_dim;
    AttentionPattern local;
    std::size_t full_every;
};
const std::vector<CachedModel> cached_models = {
    {"Mistral 7B v0.1", 32, 8, 128, SlidingWindow{4096}, 0},
    {"Gemma 2 9B", 42, 8, 256, SlidingWindow{4096}, 2},
    {"Gemma 3 27B", 62, 16, 128, SlidingWindow{1024}, 6},
    {"gpt-oss-20b", 24, 8, 64, SlidingWindow{128}, 2},
    {"Llama 4 Scout", 48, 8, 128, ChunkedAttention{8192}, 4}};

double gigabytes(const CachedModel& model, bool full, std::uint64_t seq_len) {
    const auto patterns =
        full ? std::vector<AttentionPattern>(model.num_hidden_layers, FullAttention{})
             : layer_patterns(model.num_hidden_layers, model.local, model.full_every);
    return double(rolling_cache_bytes(patterns, seq_len, model.num_key_value_heads,
                                      model.head_dim, 2)) /
           1e9;
}

}  // namespace

void masks_of_patterns(Generator& generator) {
    step("A sliding window of three tokens");
    const Matrix window_mask = pattern_mask(SlidingWindow{3}, 6, 6);  // (T, T)
    show("window_mask", window_mask);
    const Matrix scores = randn({6, 6}, generator);
    show("window_weights", softmax(scores + window_mask));
    show("last_two_queries", pattern_mask(SlidingWindow{3}, 2, 6));

    step("Chunks of three tokens");
    show("chunk_mask", pattern_mask(ChunkedAttention{3}, 6, 6));

    step("The first token and a window of two");
    show("sink_mask", pattern_mask(SinksAndWindow{1, 2}, 6, 6));
    plot("patterns",
         {Heatmap{"sliding window of 4", "key", "query", visible_keys(SlidingWindow{4}, 8)},
          Heatmap{"chunks of 4", "key", "query", visible_keys(ChunkedAttention{4}, 8)},
          Heatmap{"1 sink, window of 3", "key", "query",
                  visible_keys(SinksAndWindow{1, 3}, 8)}});
}

void receptive_field_of_layers() {
    step("How far does information travel? A window of 4, up to four layers");
    std::vector<TableRow> rows;
    for (std::size_t num_layers = 1; num_layers <= 4; ++num_layers)
        rows.push_back({to_text(num_layers), to_text(num_layers * 3),
                        to_text(last_token_that_depends_on_the_first(num_layers, 4, 16))});
    show_table({"layers", "L (W - 1)", "last token that depends on token 0"}, rows);
    const AttentionPattern window = SlidingWindow{3};
    plot("receptive_field",
         {Heatmap{"a window of 3", "input", "output", receptive_field({window}, 8)},
          Heatmap{"two such layers", "input", "output", receptive_field({window, window}, 8)},
          Heatmap{"one, then full attention", "input", "output",
                  receptive_field({window, FullAttention{}}, 8)}});
}

void rolling_cache_by_hand() {
    step("A rolling cache of four entries");
    RollingCache cache{4};
    Generator generator(1);
    std::vector<TableRow> rows;
    for (std::size_t t = 0; t < 8; ++t) {
        const Tensor4 states = randn({1, 2, 1, 8}, generator);  // (B, Hkv, 1, D)
        cache.update(states, states);
        TableRow row = {to_text(t)};
        for (std::size_t entry = 0; entry < 4; ++entry)
            row.push_back(entry < cache.position_ids.size()
                              ? std::to_string(cache.position_ids(entry))
                              : "");
        rows.push_back(row);
    }
    show_table({"after token", "entry 0", "entry 1", "entry 2", "entry 3"}, rows);

    // A prompt that is longer than the window, in parts.
    const auto layers = random_layers(demo_config(), 3, SlidingWindow{4});
    const Tensor3 embeddings = randn({1, 16, 32}, generator);  // (1, T, C)
    const Tensor3 expected = run(layers, embeddings, demo_inputs(16));
    std::vector<RollingCache> caches(3, make_rolling_cache(SlidingWindow{4}));
    Real largest = 0;
    std::size_t first = 0;
    for (const std::size_t count : {7u, 1u, 5u, 3u}) {
        const Tensor3 part = xt::view(embeddings, xt::all(), xt::range(first, first + count));
        const Tensor3 output = run(layers, part, demo_inputs(count, first), &caches);
        for (std::size_t t = 0; t < count; ++t)
            for (std::size_t c = 0; c < 32; ++c)
                largest =
                    std::max(largest, std::abs(output(0, t, c) - expected(0, first + t, c)));
        first += count;
    }
    show("parts of 7, 1, 5 and 3 tokens equal one pass", largest < Real(1e-5));
}

void wrong_ring_buffer() {
    step("Wrong: write all new tokens first, then attend to what is in the ring");
    say("Tokens 0 to 5 are cached, W = 4. Tokens 6, 7 and 8 arrive together.");
    std::vector<TableRow> rows;
    for (Id query = 6; query <= 8; ++query) {
        std::vector<Id> in_the_ring, right;
        for (Id key = 5; key <= 8; ++key) in_the_ring.push_back(key);
        for (Id key = 0; key <= 8; ++key)
            if (attends(SlidingWindow{4}, query, key)) right.push_back(key);
        std::vector<Id> causal;
        for (const Id key : in_the_ring)
            if (key <= query) causal.push_back(key);
        rows.push_back(
            {std::to_string(query), list_of(in_the_ring), list_of(causal), list_of(right)});
    }
    show_table({"query", "keys in the ring", "with a causal mask", "right"}, rows);
}

void bytes_of_caches() {
    step("GB of the KV cache of one sequence, in bfloat16");
    std::vector<TableRow> rows;
    for (const CachedModel& model : cached_models)
        rows.push_back({model.name, fixed(gigabytes(model, true, 8192), 2),
                        fixed(gigabytes(model, false, 8192), 2),
                        fixed(gigabytes(model, true, 131072), 2),
                        fixed(gigabytes(model, false, 131072), 2)});
    show_table({"model", "8k, full", "8k, own", "128k, full", "128k, own"}, rows);
    std::vector<Line> lines;
    for (const CachedModel& model : cached_models) {
        Line line{model.name, {}, {}};
        for (std::uint64_t seq_len = 1024; seq_len <= 131072; seq_len *= 2) {
            line.x.push_back(double(seq_len) / 1024);
            line.y.push_back(gigabytes(model, false, seq_len));
        }
        lines.push_back(line);
    }
    LinePlot panel{"KV cache", "tokens, in thousands", "GB", lines};
    panel.log_x = panel.log_y = true;
    plot("cache_bytes", {panel});
}

void time_by_length(const Config& config) {
    step("Milliseconds for one token, by the number of tokens before it");
    Generator generator(1);
    const Tensor3 token = randn({1, 1, config.hidden_size}, generator);  // (1, 1, C)
    const Vector frequencies = inverse_frequencies(config.head_dim, config.rope_theta);
    const std::vector<RotaryTable> tables = {make_rotary_table(frequencies, 4200)};
    std::vector<TableRow> rows;
    for (const std::size_t past_len : {256u, 512u, 1024u, 2048u, 4096u}) {
        TableRow row = {to_text(past_len)};
        for (const AttentionPattern& pattern :
             {AttentionPattern{FullAttention{}}, AttentionPattern{SlidingWindow{128}}}) {
            const auto layers = random_layers(config, config.num_hidden_layers, pattern);
            std::vector<RollingCache> caches(layers.size(), make_rolling_cache(pattern));
            const Tensor4 states =
                randn({1, config.num_key_value_heads, past_len, config.head_dim}, generator);
            for (RollingCache& cache : caches) cache.update(states, states);
            std::size_t position = past_len;
            const double seconds = fastest_seconds(8, [&] {
                run(layers, token, pattern_attention_inputs(tables, 1, position++), &caches);
            });
            row.push_back(fixed(1000 * seconds, 2));
        }
        rows.push_back(row);
    }
    show_table({"tokens before it", "full attention", "window of 128"}, rows);
}

}  // namespace llm
