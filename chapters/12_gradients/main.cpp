// Chapter 12 — How do you compute the gradient of every parameter? The program: the chain rule
// on one number, the loss of five words, the backward pass of each part on tensors small enough
// to read, then a block and a whole model, checked by finite differences.
#include <algorithm>
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/12_gradients/demo/worked_example.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"
#include "common/numbers/statistics.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"
#include "common/system/options.hpp"

using namespace llm;

void loss_and_logits() {
    step("Cross-entropy loss and its gradient with respect to the logits");
    const Matrix logits{{3, 1, 0, 0}, {0, 0, 0, 0}};
    const IdVector targets{1, 2};
    show("logits", logits);
    show("target_ids", targets);
    show("probabilities", softmax(logits));
    show("loss", fixed(cross_entropy(logits, targets), 4));
    show("logits_gradient", cross_entropy_backward(logits, targets));
    say("The gradient is (softmax - one_hot(target)) / N. Each row adds up to 0.");
}

void linear_layer() {
    step("A linear layer: two tokens, three inputs, two outputs");
    const Linear linear{{{1, 0, 2}, {0, 1, -1}}, Vector{0, 0}};
    const Matrix input{{1, 2, 3}, {4, 5, 6}};
    const Matrix output_gradient{{1, 0}, {10, 100}};
    Linear gradient{xt::zeros<Real>({2, 3}), Vector{0, 0}};
    const Matrix input_gradient = linear_backward(linear, input, output_gradient, gradient);
    show("input", input);
    show("weight", linear.weight);
    show("output", linear(input));
    show("output_gradient", output_gradient);
    show("input_gradient", input_gradient);
    show("weight_gradient", gradient.weight);
    show("bias_gradient", *gradient.bias);
}

void what_backward_passes_remove() {
    step("RMSNorm and softmax project out a component of the gradient");
    const RMSNorm norm = make_rms_norm(4, 0);
    RMSNorm norm_gradient = make_rms_norm(4, 0);
    const Matrix row{{2, 1, 0, -1}}, upstream{{1, 0, 0, 0}};
    const Matrix row_gradient = norm_backward(norm, row, upstream, norm_gradient);
    show("row", row);
    show("upstream_gradient", upstream);
    show("rms_norm_gradient", row_gradient);
    double dot = 0;
    for (std::size_t c = 0; c < 4; ++c) dot += double(row(0, c) * row_gradient(0, c));
    show("its dot product with the row", fixed(std::abs(dot), 4));

    const Matrix weights = softmax(row);
    const Matrix score_gradient = softmax_backward(weights, upstream);
    show("weights", weights);
    show("score_gradient", score_gradient);
    double sum = 0;
    for (const Real element : score_gradient) sum += double(element);
    show("its sum", fixed(std::abs(sum), 4));
}

void shared_heads(Generator& generator) {
    step("Four query heads share a key/value head: their gradients add up");
    const Tensor4 queries = randn({1, 4, 2, 2}, generator);  // (B, H, T, D)
    const Tensor4 keys = randn({1, 1, 2, 2}, generator);     // (B, Hkv, T, D)
    const Tensor4 mask = expand_mask(causal_mask(2, 2), 1);
    const QueriesKeysValues heads{queries, keys, keys};
    const AttentionOutput attention = grouped_query_attention(queries, keys, keys, mask);
    const Tensor4 ones = xt::ones<Real>({1, 4, 2, 2});
    const QueriesKeysValues gradient =
        grouped_query_attention_backward(heads, attention.weights, {}, ones);
    show("attentions_of_head_0", head_of(attention.weights, 0, 0));
    show("value_gradient", head_of(gradient.values, 0, 0));
    say("The upstream gradient is 1 for each feature of 4 heads and 2 tokens: 8 in total per "
        "feature. Most of it reaches token 0, which both tokens attend to.");
}

Config demo_config() {
    Config config = mini_llm_config();
    config.hidden_size = 64;
    config.intermediate_size = 176;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.vocab_size = 27;
    config.max_position_embeddings = 32;
    return validate_model(config);
}

void saved_activations(Generator& generator) {
    step("What the forward pass of a block saves for its backward pass");
    const Config config = demo_config();
    const AttentionLayer self_attn = make_attention_layer(config, generator);
    const GatedMlp mlp = make_gated_mlp(64, 176, false, SiLU, generator);
    const RMSNorm norm = make_rms_norm(64, config.rms_norm_eps);
    const PreNormBlock block{self_attn, mlp, norm, norm};
    const AttentionInputs inputs = causal_attention_inputs(config, 1, 10);
    const Tensor3 hidden_states = randn({1, 10, 64}, generator);
    const auto [output, saved] = block_forward(block, hidden_states, inputs);
    show_shape("input", saved.input);
    show_shape("self_attn.input", saved.self_attn.input);
    show_shape("self_attn.rotated.queries", saved.self_attn.rotated.queries);
    show_shape("self_attn.rotated.keys", saved.self_attn.rotated.keys);
    show_shape("self_attn.attentions", saved.self_attn.attentions);
    show_shape("self_attn.context", saved.self_attn.context);
    show_shape("after_attention", saved.after_attention);
    show_shape("mlp.gate", saved.mlp.gate);
    show_shape("mlp.hidden", saved.mlp.hidden);
    show("difference from block(hidden_states)",
         largest_difference(output, block(hidden_states, inputs).hidden_states));
}

// Letters as token ids: a is 1, b is 2, and a new line is 0. Targets are the next letters.
struct Batch {
    IdMatrix input_ids, targets;  // (B, T)
};
Batch letters() {
    const std::string text =
        "mike\ndane\nburtie\nclevey\nphyllida\nkimbra\nlevey\nulrich\nvivyan\n";
    constexpr std::size_t B = 4, T = 14;
    Batch batch{xt::zeros<Id>({B, T}), xt::zeros<Id>({B, T})};
    const auto id_of = [&](std::size_t i) {
        return text[i] == '\n' ? 0 : Id(text[i] - 'a' + 1);
    };
    for (std::size_t b = 0; b < B; ++b)
        for (std::size_t t = 0; t < T; ++t) {
            batch.input_ids(b, t) = id_of(b * T + t);
            batch.targets(b, t) = id_of(b * T + t + 1);
        }
    return batch;
}

void untrained_loss(const Batch& batch, Generator& generator) {
    step("The loss of a model before training");
    Model model = make_model(demo_config(), generator);
    show("ln 27, the loss of uniform probabilities", fixed(std::log(27), 4));
    show("PyTorch's default initialization",
         fixed(evaluate_loss(model, batch.input_ids, batch.targets), 4));
    init_normal(model, Real(0.02), generator);
    show("initialized with a standard deviation of 0.02",
         fixed(evaluate_loss(model, batch.input_ids, batch.targets), 4));
}

// The loss as a function of one parameter, and the tangent that its gradient gives.
void plot_tangent(Real& value, double gradient, const std::function<double()>& loss) {
    const Real kept = value;
    const double at_kept = loss();
    Line curve{"loss", {}, {}}, tangent{"tangent: slope = gradient", {}, {}};
    for (int i = -20; i <= 20; ++i) {
        const double change = 0.1 * i;
        value = kept + Real(change);
        for (Line* line : {&curve, &tangent}) line->x.push_back(double(kept) + change);
        curve.y.push_back(loss());
        tangent.y.push_back(at_kept + gradient * change);
    }
    value = kept;
    plot("tangent", {LinePlot{"The loss as a function of one weight",
                              "value of the weight",
                              "loss",
                              {curve, tangent}}});
}

void finite_differences(const Batch& batch, Generator& generator) {
    step("A whole model: backward pass against finite differences");
    Model model = make_model(demo_config(), generator);
    init_normal(model, Real(0.02), generator);
    Model gradient = zeros_like(model);
    const auto loss = [&] { return evaluate_loss(model, batch.input_ids, batch.targets); };
    const double before = forward_backward(model, batch.input_ids, batch.targets, gradient);
    const std::vector<Parameter> parameters = named_parameters(model);
    const std::vector<Parameter> gradients = named_parameters(gradient);

    std::vector<TableRow> rows;
    for (const std::size_t p : {0, 1, 2, 3, 4, 5, 9}) {
        const auto smaller = [](Real a, Real b) { return std::abs(a) < std::abs(b); };
        const auto& values = gradients[p].values;
        const auto i = std::size_t(std::max_element(values.begin(), values.end(), smaller) -
                                   values.begin());
        Real& value = parameters[p].values[i];
        const Real kept = value, h = Real(0.01);
        value = kept + h;
        const double above = loss();
        value = kept - h;
        const double below = loss();
        value = kept;
        rows.push_back({parameters[p].name, fixed(double(values[i]), 4),
                        fixed((above - below) / (2 * double(h)), 4)});
        if (p == 5) plot_tangent(value, double(values[i]), loss);
    }
    show_table({"largest gradient of", "backward", "finite difference"}, rows);

    // One step of gradient descent: first order, the loss falls by 0.01 times the squared norm.
    double squared_norm = 0;
    for (std::size_t p = 0; p < parameters.size(); ++p)
        for (std::size_t i = 0; i < parameters[p].values.size(); ++i) {
            const Real g = gradients[p].values[i];
            squared_norm += double(g) * double(g);
            parameters[p].values[i] -= Real(0.01) * g;
        }
    show("loss", fixed(before, 4));
    show("change that the gradient predicts for a step of 0.01",
         fixed(-0.01 * squared_norm, 4));
    show("change of the loss", fixed(loss() - before, 4));
}

// The RMS of the gradient after the last block, then before each block, the last one first.
Line gradient_rms(const std::vector<Block>& blocks, const std::string& name,
                  const AttentionInputs& inputs, const Tensor3& input,
                  const Tensor3& output_gradient) {
    std::vector<BlockActivations> saved;
    Tensor3 hidden_states = input, gradient = output_gradient;
    for (const Block& any_block : blocks) {
        auto [output, activations] = std::visit(
            [&](const auto& block) { return block_forward(block, hidden_states, inputs); },
            any_block);
        hidden_states = std::move(output);
        saved.push_back(std::move(activations));
    }
    Line line{name, {double(blocks.size())}, {root_mean_square(gradient)}};
    for (std::size_t n = blocks.size(); n-- > 0;) {
        gradient = std::visit(
            [&](const auto& block) {
                auto weight_gradient = block;  // not used here
                return block_backward(block, inputs, saved[n], gradient, weight_gradient);
            },
            blocks[n]);
        line.x.push_back(double(n));
        line.y.push_back(root_mean_square(gradient));
    }
    return line;
}

void gradient_flow(Generator& generator) {
    step("The gradient of the residual stream through 24 blocks");
    const Config config = demo_config();
    const AttentionInputs inputs = causal_attention_inputs(config, 1, 10);
    const Tensor3 input = randn({1, 10, 64}, generator);
    const Tensor3 output_gradient = randn({1, 10, 64}, generator);
    std::vector<std::pair<AttentionLayer, GatedMlp>> sublayers;
    for (int n = 0; n < 24; ++n) {
        AttentionLayer self_attn = make_attention_layer(config, generator);
        sublayers.emplace_back(std::move(self_attn),
                               make_gated_mlp(64, 176, false, SiLU, generator));
    }

    std::vector<TableRow> rows;
    std::vector<Line> lines;
    for (const auto& [name, norm_placement] :
         {std::pair{"pre-norm", NormPlacement::pre_norm},
          std::pair{"post-norm", NormPlacement::post_norm},
          std::pair{"res-post-norm", NormPlacement::res_post_norm},
          std::pair{"sandwich", NormPlacement::sandwich},
          std::pair{"parallel", NormPlacement::parallel}}) {
        std::vector<Block> blocks;
        for (const auto& [self_attn, mlp] : sublayers)
            blocks.push_back(make_block(norm_placement, self_attn, mlp, config.rms_norm_eps));
        lines.push_back(gradient_rms(blocks, name, inputs, input, output_gradient));
        rows.push_back({name, brief(lines.back().y[12]), brief(lines.back().y[24])});
    }
    show_table({"RMS of the gradient (after block 24: 1)", "after block 12", "before block 1"},
               rows);
    plot("gradient_flow",
         {LinePlot{"Gradient of the residual stream", "block", "RMS", lines, true}});
}

int main(int argc, char** argv) {
    Options options("12_gradients", "How do you compute the gradient of every parameter?");
    return options.run(argc, argv, [&] {
        Generator generator(options.seed());
        const Batch batch = letters();
        show_chain_rule();
        show_loss_of_words();
        loss_and_logits();
        linear_layer();
        what_backward_passes_remove();
        shared_heads(generator);
        saved_activations(generator);
        untrained_loss(batch, generator);
        finite_differences(batch, generator);
        gradient_flow(generator);
    });
}
