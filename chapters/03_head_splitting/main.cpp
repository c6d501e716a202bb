// Chapter 03 — How does one vector become many heads? The program shows what six heads attend
// to, splits a tensor whose values encode their origin, and then the queries, keys and values
// of chapter 02.
#include "chapters/02_projections/projections.hpp"
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/words.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

Matrix first_sequence(const Tensor3& states) { return xt::view(states, 0); }

// The heads of the first sequence in memory order: one row of D features per head and token.
Matrix rows_in_memory(const Tensor4& heads) {  // (B, H, T, D) -> (H*T, D)
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(heads);
    return first_sequence(reshape(heads, {batch_size, num_heads * seq_len, head_dim}));
}

void split_words(const Words& words) {
    const std::size_t last = words.tokens.size() - 1;
    const std::string name = "\"" + words.tokens[last] + "\"";
    const std::vector<std::string> heads = {"head 0", "head 1", "head 2",
                                            "head 3", "head 4", "head 5"};

    step(words.count() + ": what the query of " + name + " attends to, in each of six heads");
    const Matrix weights = xt::view(words.attentions, xt::all(), last);  // (H, T)
    show("word_weights", weights, heads, words.tokens);

    step(words.count() + ": the 192 query features of " + name + " are six heads of 32");
    const auto [seq_len, width] = dims(words.queries);
    const Tensor4 queries = split_heads(reshape(words.queries, {1, seq_len, width}), 6);
    const Matrix last_queries = xt::view(queries, 0, xt::all(), last);  // (H, D)
    show("word_queries", last_queries, heads, {"feature 0", "feature 1", "feature 2"});
    plot("words", {Heatmap{"Attention weights of the query of " + name, "key", "", weights,
                           words.tokens, heads}});
}

Tensor3 make_small_tensor() {
    step("A tensor whose values encode their origin");
    say("2 tokens, 3 heads of 4 features. The value is 100 * token + feature index.");
    Tensor3 states = xt::zeros<Real>({1, 2, 12});
    for (std::size_t token = 0; token < 2; ++token)
        for (std::size_t feature = 0; feature < 12; ++feature)
            states(0, token, feature) = static_cast<Real>(100 * token + feature);
    show("states", states);
    return states;
}

void split_and_merge(const Tensor3& states) {  // (1, 2, 12)
    step("Right: view, then transpose");
    const Tensor4 by_token = reshape(states, {1, 2, 3, 4});
    show("by_token", by_token);
    const Tensor4 heads = split_heads(states, 3);
    show("heads", heads);

    step("Wrong: the same shape by view alone");
    const Tensor4 scrambled = reshape(states, {1, 3, 2, 4});
    show("scrambled", scrambled);
    say("Head 0 now holds two slices of token 0 and none of token 1.");

    step("merge_heads is the inverse of split_heads");
    show("merged", merge_heads(heads));
    show("merged == states", merge_heads(heads) == states);

    step("Wrong: merging by view alone");
    show("merged_scrambled", reshape(heads, {1, 2, 12}));
    const std::string rows = "row in memory; head h is rows 2h and 2h + 1";
    plot("origin",
         {Heatmap{"states: one row per token", "feature", "token", first_sequence(states)},
          Heatmap{"Right: view, then transpose", "feature d", rows, rows_in_memory(heads)},
          Heatmap{"Wrong: view alone", "feature d", rows, rows_in_memory(scrambled)}});
}

void show_strides() {
    // A stride is the distance in memory, in elements, between neighbors along an axis.
    const auto strides = [](const auto& matrix) {
        return to_text(matrix.strides()[0]) + ", " + to_text(matrix.strides()[1]);
    };

    step("A transpose moves no elements: same memory, other strides");
    const Matrix matrix{{0, 1, 2}, {3, 4, 5}};
    const auto transposed = xt::transpose(matrix);  // a view, not a copy: hence auto
    show("matrix", matrix);
    show("strides of matrix", strides(matrix));
    show("strides of its transpose", strides(transposed));

    step("Assigning it to a Matrix copies the elements in the new order");
    const Matrix copied = transposed;
    show("copied", copied);
    show("strides of copied", strides(copied));
    say("reshape reads the elements in the new order, so it needs this copy. For the same "
        "reason PyTorch's view() raises an error for most transposed tensors; call "
        "contiguous() first.");
}

void split_sample_input(const Config& config,
                        const Tensor3& hidden_states,  // (B, T, C)
                        Generator& generator) {
    const Projections projections = make_projections(config, generator);
    const Tensor4 query_states =
        split_heads(projections.q_proj(hidden_states), config.num_attention_heads);
    const Tensor4 key_states =
        split_heads(projections.k_proj(hidden_states), config.num_key_value_heads);
    const Tensor4 value_states =
        split_heads(projections.v_proj(hidden_states), config.num_key_value_heads);

    step("Shapes of the sample input's heads");
    show_shape("query_states", query_states);
    show_shape("key_states", key_states);
    show_shape("value_states", value_states);

    step("Queries, keys and values, split into heads");
    show("query_states", query_states);
    show("key_states", key_states);
    show("value_states", value_states);

    step("Query heads per key/value head");
    show("num_key_value_groups", num_key_value_groups(config));
    say("Query head h uses key/value head h / num_key_value_groups (chapter 05).");
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    std::string words = asset("words");
    Options options("03_head_splitting", "How does one vector become many heads?");
    options.sizes(batch_size, seq_len, config);
    options.path("--words", words,
                 "other words: a folder written by 11_generation --words DIR --prompt TEXT");

    return options.run(argc, argv, [&] {
        const Config checked = validate(config, seq_len);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, checked.hidden_size}, generator);
        split_words(load_words(words));
        split_and_merge(make_small_tensor());
        show_strides();
        split_sample_input(checked, hidden_states, generator);
    });
}
