// Chapter 03 — How does one vector become many heads? The walk: first on numbers that carry
// their origin, then on the queries, keys and values of chapter 02.
#include "chapters/03_head_splitting/head_splitting.hpp"
#include "common/system/options.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

using namespace llm;

Matrix first_sequence(const Tensor3& states) { return xt::view(states, 0); }

// The heads of the first sequence as they lie in memory: one line of D numbers after another.
Matrix lines_of_heads(const Tensor4& heads) {
    const auto [batch_size, num_heads, seq_len, head_dim] = dims(heads);
    return first_sequence(reshape(heads, {batch_size, num_heads * seq_len, head_dim}));
}

void every_element_carries_its_origin() {
    step("Every element carries its origin");
    say("2 tokens, 3 heads of 4 numbers. The value is 100 * token + place.");
    Tensor3 states = xt::zeros<Real>({1, 2, 12});
    for (std::size_t token = 0; token < 2; ++token)
        for (std::size_t place = 0; place < 12; ++place)
            states(0, token, place) = static_cast<Real>(100 * token + place);
    show("states", states);

    step("Right: view, then transpose");
    const Tensor4 by_token = reshape(states, {1, 2, 3, 4});
    show("by_token", by_token);
    const Tensor4 heads = split_heads(states, 3);
    show("heads", heads);

    step("Wrong: the same shape by view alone");
    const Tensor4 scrambled = reshape(states, {1, 3, 2, 4});
    show("scrambled", scrambled);
    say("Head 0 now holds two slices of token 0 and none of token 1.");

    step("Back again: merging is the inverse");
    show("merged", merge_heads(heads));
    show("merged == states", merge_heads(heads) == states);

    step("Wrong: merging by view alone");
    show("merged_scrambled", reshape(heads, {1, 2, 12}));
    plot("origin",
         {Heatmap{"states: a row per token", "place", "token", first_sequence(states)},
          Heatmap{"Right: head after head, 2 tokens each", "d",
                  "line; head h is lines 2h and 2h + 1", lines_of_heads(heads)},
          Heatmap{"Wrong: view alone", "d", "line; head h is lines 2h and 2h + 1",
                  lines_of_heads(scrambled)}});
}

void memory_and_views() {
    // How far apart two neighbours along each axis lie in memory, in numbers.
    const auto strides = [](const auto& matrix) {
        return to_text(matrix.strides()[0]) + ", " + to_text(matrix.strides()[1]);
    };

    step("A transpose moves no number: same memory, other strides");
    const Matrix matrix{{0, 1, 2}, {3, 4, 5}};
    const auto transposed = xt::transpose(matrix);  // a view, not a copy: hence auto
    show("matrix", matrix);
    show("strides of matrix", strides(matrix));
    show("strides of its transpose", strides(transposed));

    step("Assigning it to a Matrix copies the numbers in the new order");
    const Matrix copied = transposed;
    show("copied", copied);
    show("strides of copied", strides(copied));
    say("reshape reads in the new order, so it needs this copy. PyTorch's view() refuses a "
        "transposed tensor for the same reason, and asks for contiguous() first.");
}

void heads_of_the_sample(const Config& config, const Tensor3& hidden_states,
                         Generator& generator) {
    const Projections projections = make_projections(config, generator);
    const Tensor4 query_states =
        split_heads(projections.q_proj(hidden_states), config.num_attention_heads);
    const Tensor4 key_states =
        split_heads(projections.k_proj(hidden_states), config.num_key_value_heads);
    const Tensor4 value_states =
        split_heads(projections.v_proj(hidden_states), config.num_key_value_heads);

    step("The individual heads' shapes");
    show_shape("query_states", query_states);
    show_shape("key_states", key_states);
    show_shape("value_states", value_states);

    step("The heads' numbers");
    show("query_states", query_states);
    show("key_states", key_states);
    show("value_states", value_states);

    step("Query heads per key/value head");
    show("num_key_value_groups", num_key_value_groups(config));
    say("Query head h will read key/value head h / num_key_value_groups (chapter 05).");
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    Options options("03_head_splitting", "How does one vector become many heads?");
    options.sizes(batch_size, seq_len, config);

    return options.run(argc, argv, [&] {
        const Config checked = complete(config, seq_len);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, checked.hidden_size}, generator);
        every_element_carries_its_origin();
        memory_and_views();
        heads_of_the_sample(checked, hidden_states, generator);
    });
}
