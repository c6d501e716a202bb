// Chapter 02 — Where do queries, keys and values come from? The walk: four weight matrices,
// what they do to the sample input, and what a bias changes.
#include <cmath>

#include "chapters/02_projections/projections.hpp"
#include "common/system/options.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

using namespace llm;

void a_weight_small_enough_to_read() {
    step("One linear layer by hand: 3 numbers in, 2 out");
    const Linear small{Matrix{{1, 2, 3}, {10, 20, 30}}, Vector{0.5, -0.5}};
    const Matrix token{{1, 0, 2}};
    show("small_weight", small.weight);
    show("small_bias", *small.bias);
    show("small_token", token);
    show("small_output", small(token));
    say("7.5 = 1*1 + 2*0 + 3*2 + 0.5: row 0 of the weight makes number 0 of the output.");
}

Projections draw_projections(const Config& config, Generator& generator) {
    step("Projection layers");
    const Projections projections = make_projections(config, generator);
    show("q_proj", describe(projections.q_proj));
    show("k_proj", describe(projections.k_proj));
    show("v_proj", describe(projections.v_proj));
    show("o_proj", describe(projections.o_proj));

    step("Their weights are stored as (out, in)");
    show("q_proj.weight", projections.q_proj.weight);
    show("k_proj.weight", projections.k_proj.weight);
    plot("weights",
         {Heatmap{"q_proj.weight (H*D, C)", "in", "out", projections.q_proj.weight},
          Heatmap{"k_proj.weight (Hkv*D, C)", "in", "out", projections.k_proj.weight}});
    return projections;
}

double standard_deviation(const Tensor3& tensor) {
    double sum = 0, sum_of_squares = 0;
    for (const Real number : tensor) {
        sum += double(number);
        sum_of_squares += double(number) * double(number);
    }
    const double count = double(tensor.size()), mean = sum / count;
    return std::sqrt(sum_of_squares / count - mean * mean);
}

Tensor3 project(const Projections& projections, const Tensor3& hidden_states) {
    step("Projections shape");
    const Tensor3 query_states = projections.q_proj(hidden_states);
    const Tensor3 key_states = projections.k_proj(hidden_states);
    const Tensor3 value_states = projections.v_proj(hidden_states);
    show_shape("query_states", query_states);
    show_shape("key_states", key_states);
    show_shape("value_states", value_states);

    step("The projected numbers");
    show("query_states", query_states);
    show("key_states", key_states);
    show("value_states", value_states);

    step("How large are they? Standard deviations");
    show("std of hidden_states", standard_deviation(hidden_states));
    show("std of query_states", standard_deviation(query_states));
    show("1 / sqrt(3)", 1 / std::sqrt(3.0));
    say("Uniform weights within 1/sqrt(in) have a standard deviation of 1/sqrt(3 * in); a sum "
        "of \"in\" products makes that 1/sqrt(3) of the input's, whatever the width.");
    plot("histogram", {Histogram{"Queries, keys and values of the sample input",
                                 "value",
                                 {Series{"query_states", numbers_of(query_states)},
                                  Series{"key_states", numbers_of(key_states)},
                                  Series{"value_states", numbers_of(value_states)}}}});
    return query_states;
}

void count_parameters(const Config& config, const Projections& projections) {
    step("Parameters: sharing key/value heads makes k_proj and v_proj narrow");
    show("parameters of q_proj", num_parameters(projections.q_proj));
    show("parameters of k_proj", num_parameters(projections.k_proj));
    show("parameters of v_proj", num_parameters(projections.v_proj));
    show("parameters of o_proj", num_parameters(projections.o_proj));
    show("query numbers per token", config.num_attention_heads * config.head_dim);
    show("key numbers per token", config.num_key_value_heads * config.head_dim);

    step("A bias adds one number per output");
    Config with_bias = config;
    with_bias.attention_bias = true;
    Generator generator(0);
    const Projections biased =
        config.attention_bias ? projections : make_projections(with_bias, generator);
    show("k_proj", describe(biased.k_proj));
    show("parameters of k_proj", num_parameters(biased.k_proj));
    show("k_proj.bias", *biased.k_proj.bias);
}

void the_famous_mistake(const Projections& projections, const Tensor3& hidden_states,
                        const Tensor3& query_states) {
    // x W is what a layer with the transposed weight computes: x (Wᵀ)ᵀ.
    const auto without_transposing = [](const Linear& linear) {
        return Linear{xt::transpose(linear.weight), std::nullopt};
    };
    const auto is_square = [](const Linear& linear) {
        return linear.weight.shape(0) == linear.weight.shape(1);
    };

    step("Wrong: y = x W instead of x Wᵀ");
    if (is_square(projections.q_proj)) {
        const Tensor3 wrong = without_transposing(projections.q_proj)(hidden_states);
        show_shape("query_states, wrong", wrong);
        show("right, first number", query_states(0, 0, 0));
        show("wrong, first number", wrong(0, 0, 0));
        say("q_proj is square here, so both fit. The shape is right, every number is wrong.");
    }
    if (is_square(projections.k_proj)) {
        say("k_proj is square with these sizes: nothing would stop the mistake.");
        return;
    }
    say("k_proj is not square: the same mistake fails there, with both shapes.");
    try {
        without_transposing(projections.k_proj)(hidden_states);
    } catch (const ShapeError& error) {
        show("ShapeError", error.what());
    }
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    Options options("02_projections", "Where do queries, keys and values come from?");
    options.sizes(batch_size, seq_len, config);
    options.flag("--attention-bias", config.attention_bias, "give the projections a bias");

    return options.run(argc, argv, [&] {
        const Config checked = complete(config, seq_len);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, checked.hidden_size}, generator);
        a_weight_small_enough_to_read();
        const Projections projections = draw_projections(checked, generator);
        const Tensor3 query_states = project(projections, hidden_states);
        count_parameters(checked, projections);
        the_famous_mistake(projections, hidden_states, query_states);
    });
}
