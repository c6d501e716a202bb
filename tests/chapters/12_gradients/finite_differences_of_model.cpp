// The backward passes of attention layers, blocks and models against central differences of the
// loss, in double.
#include "chapters/12_gradients/model_backward.hpp"
#include "tests/support/finite_differences.hpp"

using namespace llm;
using namespace llm::finite_differences;

TEST_CASE("attention_backward: input, weights and biases, with every QK norm") {
    for (const QKNormType qk_norm : {QKNormType::none, QKNormType::without_weights,
                                     QKNormType::with_weights, QKNormType::over_all_heads}) {
        AttentionLayer layer = attention_layer(qk_norm);
        AttentionLayer gradient = zeros_of(layer);
        const AttentionInputs inputs = causal_attention_inputs(small_config(), B, T);
        Tensor3 input = random_states(C, 3);
        const Loss<3> loss_of({B, T, C});
        const auto loss = [&] { return loss_of(layer(input, inputs).hidden_states); };
        const auto [output, activations] = attention_forward(layer, input, inputs);
        CHECK(loss_of(output) == loss());
        const Tensor3 input_gradient =
            attention_backward(layer, inputs, activations, loss_of.weights, gradient);
        check_gradient("input", span_of(input), span_of(input_gradient), loss);

        // The softmax does not change when the same number is added to all scores of a row, so
        // a bias of the keys has no gradient without rotation and norm. All others have.
        check_parameters(layer, gradient, loss);
    }
}

TEST_CASE("attention_backward with dropout: the gradient of the weights that were kept") {
    AttentionLayer layer = attention_layer(QKNormType::with_weights);
    layer.attention_dropout = Real(0.4);
    AttentionLayer gradient = zeros_of(layer);
    const AttentionInputs inputs = causal_attention_inputs(small_config(), B, T);
    Tensor3 input = random_states(C, 3);
    const Loss<3> loss_of({B, T, C});
    const auto loss = [&] {
        Generator same(5);  // the same weights are dropped each time
        return loss_of(attention_forward(layer, input, inputs, &same).output);
    };
    Generator generator(5);
    const auto [output, activations] = attention_forward(layer, input, inputs, &generator);
    CHECK(loss_of(output) == loss());
    CHECK(loss_of(output) != loss_of(layer(input, inputs).hidden_states));
    CHECK(loss_of(attention_forward(layer, input, inputs).output) ==
          loss_of(layer(input, inputs).hidden_states));
    const Tensor3 input_gradient =
        attention_backward(layer, inputs, activations, loss_of.weights, gradient);
    check_gradient("input", span_of(input), span_of(input_gradient), loss);
    check_parameters(layer, gradient, loss);
}

namespace {

template <class AnyBlock>
void check_block(const std::string& name, AnyBlock block) {
    CAPTURE(name);
    const AttentionInputs inputs = causal_attention_inputs(small_config(), B, T);
    AnyBlock gradient = zeros_of(block);
    Tensor3 hidden_states = random_states(C, 3);
    const Loss<3> loss_of({B, T, C});
    const auto loss = [&] { return loss_of(block(hidden_states, inputs).hidden_states); };
    const auto [output, activations] = block_forward(block, hidden_states, inputs);
    CHECK(loss_of(output) == doctest::Approx(loss()).epsilon(1e-12));
    const Tensor3 input_gradient =
        block_backward(block, inputs, activations, loss_of.weights, gradient);
    check_gradient(name, span_of(hidden_states), span_of(input_gradient), loss);
    check_parameters(block, gradient, loss);
}

}  // namespace

TEST_CASE("block_backward: every norm placement of chapter 08, its input and every parameter") {
    const AttentionLayer attention = attention_layer(QKNormType::with_weights);
    const GatedMlp mlp = gated_mlp(SiLU);
    const RMSNorm first = random_norm(5), second = random_norm(15);
    check_block("pre-norm", PreNormBlock{attention, mlp, first, second});
    check_block("post-norm", PostNormBlock{attention, mlp, first, second});
    check_block("res-post-norm", ResPostNormBlock{attention, mlp, first, second});
    check_block("sandwich",
                SandwichBlock{attention, mlp, first, second, random_norm(25), random_norm(35)});
    check_block("parallel", ParallelBlock{attention, mlp, first});
    check_block("Cohere", ParallelBlockWith<LayerNorm, GatedMlp, AttentionLayer>{
                              attention, mlp, {random_vector(C, 5), std::nullopt}});
}

TEST_CASE("block_backward: GPT-2's block, with LayerNorm and an MLP without a gate") {
    const AttentionLayer attention = attention_layer(QKNormType::none);
    const Mlp mlp{{random_matrix(F, C, 1), random_vector(F, 6)},
                  {random_matrix(C, F, 4), random_vector(C, 7)},
                  GELUTanh};
    const LayerNorm first{random_vector(C, 5), random_vector(C, 8)};
    const LayerNorm second{random_vector(C, 6), random_vector(C, 9)};
    check_block("GPT-2", PreNormBlockWith<LayerNorm, Mlp>{attention, mlp, first, second});
    check_block("LayerNorm", PreNormBlockWith<LayerNorm, GatedMlp>{attention, gated_mlp(SiLU),
                                                                   first, second});
    check_block("ReLU", PreNormBlockWith<RMSNorm, Mlp>{attention, mlp, random_norm(5),
                                                       random_norm(15)});
}

namespace {

// The gradient of every parameter of a model made from the configuration.
void check_model(
    const Config& config, Generator* dropout_generator = nullptr,
    const std::function<void(Model&)>& change = [](Model&) {}) {
    Generator generator(7);
    Model model = make_model(config, generator);
    change(model);
    Model gradient = zeros_like(model);
    const IdMatrix input_ids{{1, 5, 6}, {0, 2, 2}}, targets{{5, 6, 3}, {2, 2, 0}};
    const auto loss = [&] {
        if (!dropout_generator) return evaluate_loss(model, input_ids, targets);
        Generator same(5);
        Model ignored = gradient;
        return forward_backward(model, input_ids, targets, ignored, &same);
    };
    const double value =
        forward_backward(model, input_ids, targets, gradient, dropout_generator);
    CHECK(value == doctest::Approx(loss()).epsilon(1e-12));
    const std::vector<Parameter> parameters = named_parameters(model),
                                 gradients = named_parameters(gradient);
    for (std::size_t p = 0; p < parameters.size(); ++p)
        check_gradient(parameters[p].name, parameters[p].values, gradients[p].values, loss);
}

}  // namespace

TEST_CASE("forward_backward: every parameter of a model, tied and untied") {
    for (const bool tied : {true, false}) {
        Config config = small_config();
        config.tie_word_embeddings = tied;
        check_model(config);
    }
}

TEST_CASE("forward_backward: a Qwen3 model, with QK norm") {
    Config config = small_config();
    config.qk_norm = QKNormType::with_weights;
    check_model(config);
}

TEST_CASE("forward_backward: a QK norm without weights") {
    Config config = small_config();
    config.qk_norm = QKNormType::without_weights;
    check_model(config);
}

TEST_CASE("forward_backward: a model with biases and dropout") {
    Config config = small_config();
    config.attention_bias = AttentionBias::qkvo;
    config.attention_dropout = Real(0.3);
    Generator dropout_generator(5);
    check_model(config, &dropout_generator);
}

TEST_CASE("forward_backward: a scale of the embeddings and a soft cap of the logits") {
    check_model(small_config(), nullptr, [](Model& model) {
        model.embedding_scale = 3;
        model.final_logit_softcapping = Real(0.5);
    });
}

TEST_CASE("forward_backward: learned positions that are added to the embeddings") {
    check_model(small_config(), nullptr, [](Model& model) {
        model.embed_positions = random_matrix(9, C, 11);
        model.embedding_scale = 3;
    });
}

TEST_CASE("forward_backward: Granite's multipliers of the residuals and scale of the logits") {
    check_model(small_config(), nullptr, [](Model& model) {
        for (PreNormBlock& layer : model.layers) layer.residual_multiplier = Real(0.4);
        model.logits_scaling = Real(0.3);
        model.final_logit_softcapping = Real(0.5);
    });
}

TEST_CASE("forward_backward accumulates: two batches give the sum of their gradients") {
    Generator generator(7);
    const Model model = make_model(small_config(), generator);
    const IdMatrix first_ids{{1, 5, 6}}, first_targets{{5, 6, 3}};
    const IdMatrix second_ids{{0, 2, 2}}, second_targets{{2, 2, 0}};
    Model both = zeros_like(model), first = both, second = both;
    forward_backward(model, first_ids, first_targets, both);
    forward_backward(model, second_ids, second_targets, both);
    forward_backward(model, first_ids, first_targets, first);
    forward_backward(model, second_ids, second_targets, second);
    const auto sums = named_parameters(both), firsts = named_parameters(first),
               seconds = named_parameters(second);
    for (std::size_t p = 0; p < sums.size(); ++p)
        for (std::size_t i = 0; i < sums[p].values.size(); ++i)
            CHECK(sums[p].values[i] ==
                  doctest::Approx(firsts[p].values[i] + seconds[p].values[i]).epsilon(1e-12));
    zero_grad(both);
    for (const Parameter& parameter : named_parameters(both))
        for (const Real value : parameter.values) CHECK(value == 0);
}
