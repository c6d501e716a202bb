// Chapter 02 — Where do queries, keys and values come from? The program projects five words,
// initializes the four linear layers of attention, applies them to the sample input, and counts
// their parameters.
#include <cmath>

#include "chapters/02_projections/projections.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/words.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

void apply_small_layer() {
    step("Example of a linear layer: 3 input features, 2 output features");
    const Linear small{Matrix{{1, 2, 3}, {10, 20, 30}}, Vector{0.5, -0.5}};
    const Matrix token{{1, 0, 2}};
    show("small_weight", small.weight);
    show("small_bias", *small.bias);
    show("small_token", token);
    show("small_output", small(token));
    say("7.5 = 1*1 + 2*0 + 3*2 + 0.5: row 0 of the weight gives output feature 0.");
}

// Scores of all pairs, with the dot products divided by the square root of the width.
Matrix scores_of(const Matrix& queries, const Matrix& keys) {  // (T, D) each -> (T, T)
    const Matrix products = xt::linalg::dot(queries, xt::transpose(keys));
    return products / std::sqrt(static_cast<Real>(queries.shape(1)));
}

void project_words(const Words& words) {
    const std::vector<std::string>& tokens = words.tokens;
    const std::vector<std::string> features = {"feature 0", "feature 1", "feature 2"};

    step(words.count() + ": W_q maps the 192 features of a word to 32 of its query");
    const Linear q_proj{words.head_query_weight, std::nullopt};
    show("q_proj of one head", describe(q_proj));
    show("word_inputs", words.attention_input, tokens, features);           // (T, C)
    show("word_queries", q_proj(words.attention_input), tokens, features);  // (T, D)

    step("Wrong: no projections, the inputs themselves are queries and keys");
    const Matrix unprojected = scores_of(words.attention_input, words.attention_input);
    show("word_scores_unprojected", unprojected, tokens, tokens);  // (T, T)
    say("Row i, column j equals row j, column i, and each word matches itself best.");

    step("Right: the scores of projected queries and keys");
    const Matrix projected = scores_of(words.head_queries, words.head_keys);
    show("word_scores", projected, tokens, tokens);  // (T, T)
    plot("words",
         {Heatmap{"Scores without projections", "key", "query", unprojected, tokens, tokens},
          Heatmap{"Scores with projections", "key", "query", projected, tokens, tokens}});
}

Projections initialize_projections(const Config& config, Generator& generator) {
    step("Projection layers");
    const Projections projections = make_projections(config, generator);
    show("q_proj", describe(projections.q_proj));
    show("k_proj", describe(projections.k_proj));
    show("v_proj", describe(projections.v_proj));
    show("o_proj", describe(projections.o_proj));

    step("Their weights are stored as (out, in)");
    show("q_proj.weight", projections.q_proj.weight);
    show("k_proj.weight", projections.k_proj.weight);
    return projections;
}

double standard_deviation(const Tensor3& tensor) {
    double sum = 0, sum_of_squares = 0;
    for (const Real value : tensor) {
        sum += double(value);
        sum_of_squares += double(value) * double(value);
    }
    const double count = double(tensor.size()), mean = sum / count;
    return std::sqrt(sum_of_squares / count - mean * mean);
}

Tensor3 project(const Projections& projections, const Tensor3& hidden_states) {
    step("Shapes of queries, keys and values");
    const Tensor3 query_states = projections.q_proj(hidden_states);
    const Tensor3 key_states = projections.k_proj(hidden_states);
    const Tensor3 value_states = projections.v_proj(hidden_states);
    show_shape("query_states", query_states);
    show_shape("key_states", key_states);
    show_shape("value_states", value_states);

    step("Queries, keys and values");
    show("query_states", query_states);
    show("key_states", key_states);
    show("value_states", value_states);

    step("Standard deviations before and after the projection");
    show("std of hidden_states", standard_deviation(hidden_states));
    show("std of query_states", standard_deviation(query_states));
    show("1 / sqrt(3)", 1 / std::sqrt(3.0));
    say("Weights that are uniform between -1/sqrt(in) and 1/sqrt(in) have a standard deviation "
        "of 1/sqrt(3 * in). That of a sum of \"in\" products is then 1/sqrt(3) times that of "
        "the input, whatever the width.");
    return query_states;
}

void count_parameters(const Config& config, const Projections& projections) {
    step("Parameters: fewer key/value heads make k_proj and v_proj smaller");
    show("parameters of q_proj", num_parameters(projections.q_proj));
    show("parameters of k_proj", num_parameters(projections.k_proj));
    show("parameters of v_proj", num_parameters(projections.v_proj));
    show("parameters of o_proj", num_parameters(projections.o_proj));
    show("query features per token", config.num_attention_heads * config.head_dim);
    show("key features per token", config.num_key_value_heads * config.head_dim);

    step("A bias adds one parameter per output feature");
    Config with_bias = config;
    with_bias.attention_bias = AttentionBias::qkvo;
    Generator generator(0);
    const bool has_bias = config.attention_bias != AttentionBias::none;
    const Projections biased = has_bias ? projections : make_projections(with_bias, generator);
    show("k_proj", describe(biased.k_proj));
    show("parameters of k_proj", num_parameters(biased.k_proj));
    show("k_proj.bias", *biased.k_proj.bias);
}

bool is_square(const Linear& linear) {
    return linear.weight.shape(0) == linear.weight.shape(1);
}

// x W is what a layer with the transposed weight computes: x (Wᵀ)ᵀ.
Linear without_transposing(const Linear& linear) {
    return {xt::transpose(linear.weight), std::nullopt};
}

void use_weights_without_transposing(const Projections& projections,
                                     const Tensor3& hidden_states,   // (B, T, C)
                                     const Tensor3& query_states) {  // (B, T, H*D)
    step("Wrong: y = x W instead of x Wᵀ");
    if (is_square(projections.q_proj)) {
        const Tensor3 wrong = without_transposing(projections.q_proj)(hidden_states);
        show_shape("query_states, wrong", wrong);
        show("right, first value", query_states(0, 0, 0));
        show("wrong, first value", wrong(0, 0, 0));
        say("q_proj.weight is square here: the shape is right and every value is wrong.");
    }
    if (is_square(projections.k_proj)) {
        say("k_proj.weight is square with these sizes: the mistake raises no error.");
        return;
    }
    say("k_proj.weight is not square: the same mistake raises an error with both shapes.");
    try {
        without_transposing(projections.k_proj)(hidden_states);
    } catch (const ValueError& error) {
        show("ValueError", error.what());
    }
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10;
    bool attention_bias = false;
    std::string words = asset("words");
    Options options("02_projections", "Where do queries, keys and values come from?");
    options.sizes(batch_size, seq_len, config);
    options.path("--words", words,
                 "other words: a folder written by 11_generation --words DIR --prompt TEXT");
    options.flag("--attention-bias", attention_bias, "add a bias to the four projections");

    return options.run(argc, argv, [&] {
        if (attention_bias) config.attention_bias = AttentionBias::qkvo;
        const Config checked = validate(config, seq_len);
        const Words loaded_words = load_words(words);
        Generator generator(options.seed());
        const Tensor3 hidden_states =
            randn({batch_size, seq_len, checked.hidden_size}, generator);
        apply_small_layer();
        project_words(loaded_words);
        const Projections projections = initialize_projections(checked, generator);
        const Tensor3 query_states = project(projections, hidden_states);
        count_parameters(checked, projections);
        use_weights_without_transposing(projections, hidden_states, query_states);
    });
}
