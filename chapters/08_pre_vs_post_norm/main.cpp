// Chapter 08 — Where do the norms go? The program follows one word through the layers of a
// pre-norm model, runs one pre-norm block step by step, compares five norm placements with the
// same weights, and measures the residual stream over many layers.
#include "chapters/07_rmsnorm_vs_layernorm/norms.hpp"
#include "chapters/08_pre_vs_post_norm/demo/depth.hpp"
#include "common/files/words.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

// The residual stream of one token, (1, C), before the first and after each layer, and the
// factor by which each term, the embedding or an addition of a layer, has been multiplied.
struct Stream {
    std::vector<Matrix> states;
    Vector rms_of_sums;  // (L), after each addition, before a norm
    Matrix factors;      // (L + 1, L + 1): of each term, after each layer
};

// Adds the additions to the embedding, in post-norm with a norm after each of them.
Stream add_to_stream(const Matrix& embedding, const std::vector<Matrix>& additions,
                     bool post_norm) {
    const std::size_t num_layers = additions.size();
    Stream stream{{embedding},
                  xt::zeros<Real>({num_layers}),
                  xt::zeros<Real>({num_layers + 1, num_layers + 1})};
    stream.factors(0, 0) = 1;
    for (std::size_t layer = 0; layer < num_layers; ++layer) {
        const Matrix sum = stream.states.back() + additions[layer];
        const Real rms = Real(root_mean_square(sum));
        const Real factor = post_norm ? 1 / rms : 1;
        stream.states.push_back(sum * factor);
        stream.rms_of_sums(layer) = rms;
        for (std::size_t term = 0; term <= layer; ++term)
            stream.factors(layer + 1, term) = stream.factors(layer, term) * factor;
        stream.factors(layer + 1, layer + 1) = factor;
    }
    return stream;
}

// One line per layer: the RMS before it, of its addition, and of the sum; the second divided by
// the first; in post-norm also the RMS after the norm.
Matrix additions_table(const Stream& stream, const std::vector<Matrix>& additions,
                       bool post_norm) {
    Matrix table = xt::zeros<Real>({additions.size(), std::size_t(post_norm ? 5 : 4)});
    for (std::size_t layer = 0; layer < additions.size(); ++layer) {
        table(layer, 0) = Real(root_mean_square(stream.states[layer]));
        table(layer, 1) = Real(root_mean_square(additions[layer]));
        table(layer, 2) = table(layer, 1) / table(layer, 0);
        table(layer, 3) = stream.rms_of_sums(layer);
        if (post_norm) table(layer, 4) = Real(root_mean_square(stream.states[layer + 1]));
    }
    return table;
}

// The RMS and the embedding's factor after each layer.
Line rms_line(const std::string& name, const Stream& stream) {
    Line line{name, {}, {}};
    for (std::size_t n = 0; n < stream.states.size(); ++n) {
        line.x.push_back(double(n));
        line.y.push_back(root_mean_square(stream.states[n]));
    }
    return line;
}
Line factor_line(const std::string& name, const Stream& stream) {
    const Vector factors = xt::view(stream.factors, xt::all(), 0);
    return {name, rms_line(name, stream).x, numbers_of(factors)};
}

void plot_word(const Stream& pre_norm, const Stream& post_norm) {
    plot("word",
         {LinePlot{"RMS of the hidden state",
                   "number of layers",
                   "",
                   {rms_line("pre-norm", pre_norm), rms_line("post-norm", post_norm)}},
          LinePlot{"Factor of the embedding",
                   "number of layers",
                   "",
                   {factor_line("pre-norm", pre_norm), factor_line("post-norm", post_norm)}}});
}

void show_word() {
    const Words words = load_words();
    const auto [num_states, seq_len, hidden_size] = dims(words.residual_stream);
    std::vector<Matrix> states, additions;  // of the word "LORD"
    std::vector<std::string> layers, terms = {"embedding"};
    for (std::size_t n = 0; n < num_states; ++n)
        states.push_back(xt::view(words.residual_stream, n, xt::range(2, 3)));
    for (std::size_t n = 0; n + 1 < num_states; ++n) {
        additions.push_back(states[n + 1] - states[n]);
        layers.push_back("layer " + to_text(n));
    }
    terms.insert(terms.end(), layers.begin(), layers.end());
    const Stream pre_norm = add_to_stream(states[0], additions, false);
    const Stream post_norm = add_to_stream(states[0], additions, true);

    step("The word \"LORD\": how much each layer adds to the residual stream (RMS)");
    show("word_pre_norm", additions_table(pre_norm, additions, false), layers,
         {"before", "added", "added / before", "after"});

    step("The same additions, the sum normalized after each layer (post-norm)");
    show("word_post_norm", additions_table(post_norm, additions, true), layers,
         {"before", "added", "added / before", "sum", "after"});

    step("What each term is multiplied by until the last hidden state");
    const Matrix factors = xt::stack(xt::xtuple(xt::row(pre_norm.factors, num_states - 1),
                                                xt::row(post_norm.factors, num_states - 1)));
    show("word_factors", factors, {"pre-norm", "post-norm"}, terms);
    plot_word(pre_norm, post_norm);
}

void show_two_sublayers() {
    step("Two sublayers by hand: x0 = (1, -1), outputs (1, 3) and (6, 0)");
    const Matrix x0{{1, -1}};
    const std::vector<Matrix> outputs = {Matrix{{1, 3}}, Matrix{{6, 0}}};
    for (const bool post_norm : {false, true}) {
        const Stream stream = add_to_stream(x0, outputs, post_norm);
        const Matrix states = xt::concatenate(
            xt::xtuple(stream.states[0], stream.states[1], stream.states[2]), 0);
        show(post_norm ? "small_post_norm" : "small_pre_norm", states, {"x0", "x1", "x2"},
             {"feature 0", "feature 1"});
    }
}

void run_pre_norm_block(const Weights& weights, const RMSNorm& norm,
                        const Tensor3& hidden_states, const AttentionInputs& inputs) {
    step("A pre-norm block: normalize, attend, add to the input");
    show("hidden_states", hidden_states);
    const Tensor3 attention_output =
        weights.self_attn(norm(hidden_states), inputs).hidden_states;
    show("attention_output", attention_output);
    const Tensor3 after_attention = hidden_states + attention_output;
    show("after_attention", after_attention);

    step("The MLP reads the normalized sum, and its output is added, too");
    const Tensor3 mlp_output = weights.mlp(norm(after_attention));
    show("mlp_output", mlp_output);
    const Tensor3 block_output = after_attention + mlp_output;
    show("block_output", block_output);
    show_table({"", "RMS"},
               {{"input of the block", fixed(root_mean_square(hidden_states), 3)},
                {"attention output", fixed(root_mean_square(attention_output), 3)},
                {"MLP output", fixed(root_mean_square(mlp_output), 3)},
                {"output of the block", fixed(root_mean_square(block_output), 3)}});
}

// The first four features of token 0, and the RMS of the whole output.
TableRow output_row(const std::string& name, const Tensor3& output) {
    TableRow row = {name};
    for (std::size_t i = 0; i < 4; ++i)
        row.push_back(fixed(output.data()[i % output.size()], 4));
    row.push_back(fixed(root_mean_square(output), 3));
    return row;
}
const TableRow output_headings = {"token 0 of the output", "0", "1", "2", "3", "RMS"};

void compare_norm_placements(const Weights& weights, const RMSNorm& norm,
                             const Tensor3& hidden_states, const AttentionInputs& inputs) {
    step("Five norm placements with the same weights");
    std::vector<TableRow> rows;
    for (const auto& [name, placement] : placements) {
        const Block block = make_block(placement, weights.self_attn, weights.mlp, norm.eps);
        rows.push_back(output_row(name, apply(block, hidden_states, inputs)));
    }
    show_table(output_headings, rows);
}

void compare_wrong_residuals(const Weights& weights, const RMSNorm& norm,
                             const Tensor3& hidden_states, const AttentionInputs& inputs) {
    const auto& [self_attn, mlp] = weights;
    const Tensor3 normalized = norm(hidden_states);
    const Tensor3 attention_output = self_attn(normalized, inputs).hidden_states;
    const Tensor3 after_attention = hidden_states + attention_output;
    const Tensor3 normalized_residual = normalized + attention_output;

    step("Wrong: two residual connections in the wrong place");
    show_table(output_headings,
               {output_row("right: pre-norm", after_attention + mlp(norm(after_attention))),
                output_row("wrong: second residual from the input",
                           hidden_states + mlp(norm(after_attention))),
                output_row("wrong: residual taken after the norm",
                           norm(normalized_residual) + mlp(norm(normalized_residual)))});
    say("In the first wrong block, the attention output is not added to the residual stream. "
        "In the second, the residual stream is normalized before each sublayer, so there is no "
        "identity path through the block.");
}

std::vector<std::string> norm_placement_names() {
    std::vector<std::string> names = {"all"};
    for (const NamedNormPlacement& placement : placements) names.push_back(placement.name);
    return names;
}

int main(int argc, char** argv) {
    Config config;
    std::size_t batch_size = 2, seq_len = 10, intermediate_size = 0;
    DepthOptions depth;
    Options options("08_pre_vs_post_norm", "Where do the norms go?");
    options.sizes(batch_size, seq_len, config);
    options.size("--intermediate-size", intermediate_size);
    options.choice("--norm-placement", depth.norm_placement, norm_placement_names(),
                   "norm placement over many layers");
    options.size("--num-hidden-layers", depth.num_hidden_layers);

    return options.run(argc, argv, [&] {
        config = validate(config, seq_len);
        const std::size_t hidden_size = config.hidden_size;
        if (intermediate_size == 0)
            intermediate_size = llama_intermediate_size(hidden_size, 32);
        Generator generator(options.seed());
        const Tensor3 hidden_states = randn({batch_size, seq_len, hidden_size}, generator);
        const Weights weights(config, intermediate_size, generator);
        const RMSNorm norm = make_rms_norm(hidden_size, config.rms_norm_eps);
        const AttentionInputs inputs = causal_attention_inputs(config, batch_size, seq_len);

        show_word();
        show_two_sublayers();
        run_pre_norm_block(weights, norm, hidden_states, inputs);
        compare_norm_placements(weights, norm, hidden_states, inputs);
        compare_wrong_residuals(weights, norm, hidden_states, inputs);
        compare_depths(depth, options.seed());
    });
}
