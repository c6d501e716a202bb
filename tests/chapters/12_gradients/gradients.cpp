// The backward passes against PyTorch's autograd, in float. The files
// finite_differences_of_*.cpp check each of them by finite differences in double.
#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "common/numbers/statistics.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

// Qwen3's parts: QK norm with weights, shared heads, biases; the sizes of the fixture.
Config qwen3_config() {
    Config config;
    config.hidden_size = 12;
    config.num_attention_heads = 6;
    config.num_key_value_heads = 2;
    config.head_dim = 4;
    config.attention_bias = AttentionBias::qkvo;
    config.qk_norm = QKNormType::with_weights;
    config.rms_norm_eps = Real(1e-6);
    config.vocab_size = 7;
    config.intermediate_size = 5;
    config.num_hidden_layers = 2;
    config.tie_word_embeddings = false;
    return config;
}

void fill(const std::vector<Parameter>& parameters, const Vector& values) {
    std::size_t offset = 0;
    for (const Parameter& parameter : parameters) {
        REQUIRE(offset + parameter.values.size() <= values.size());
        std::copy_n(values.data() + offset, parameter.values.size(), parameter.values.begin());
        offset += parameter.values.size();
    }
    REQUIRE(offset == values.size());
}

}  // namespace

TEST_CASE("cross_entropy by hand: ln V for uniform logits, 0 for a certain right answer") {
    const Matrix uniform = xt::zeros<Real>({3, 5});
    CHECK(cross_entropy(uniform, {0, 4, 2}) == doctest::Approx(std::log(5.0)));
    CHECK(cross_entropy({{100, 0, 0}}, {0}) == doctest::Approx(0));
    CHECK(cross_entropy({{200, 0}}, {1}) == doctest::Approx(200));  // p is 0 in a float
    CHECK_CLOSE(cross_entropy_backward({{0, 0}, {0, 0}}, {0, 1}),
                (Matrix{{-0.25f, 0.25f}, {0.25f, -0.25f}}), 1e-6);
}

TEST_CASE("cross_entropy names targets that are not in the vocabulary, and shapes") {
    const Matrix logits = xt::zeros<Real>({2, 3});
    CHECK_THROWS_WITH_AS(cross_entropy(logits, {0}),
                         "cross_entropy: 1 targets do not fit logits of (2, 3)", ValueError);
    CHECK_THROWS_WITH_AS(cross_entropy(logits, {0, 3}),
                         "cross_entropy: there is no token 3 in a vocabulary of 3", ValueError);
    CHECK_THROWS_WITH_AS(cross_entropy_backward(logits, {-1, 0}),
                         "cross_entropy: there is no token -1 in a vocabulary of 3",
                         ValueError);
    const Tensor3 batch = xt::zeros<Real>({2, 3, 4});
    CHECK_THROWS_WITH_AS(cross_entropy(batch, IdMatrix{{0, 1}, {2, 3}, {0, 0}}),
                         "cross_entropy: targets of (3, 2) do not fit logits of (2, 3, 4)",
                         ValueError);
}

TEST_CASE("forward_backward equals PyTorch's autograd: a Qwen3 model with biases") {
    Generator generator(1);
    Model model = make_model(qwen3_config(), generator);
    fill(named_parameters(model), load_tensor<1>(fixture_file("12_gradients/weights")));
    Model gradient = zeros_like(model);
    const IdMatrix ids = load_ids<2>(fixture_file("12_gradients/ids"));
    const auto [batch_size, length] = dims(ids);
    const IdMatrix input_ids = xt::view(ids, xt::all(), xt::range(std::size_t{0}, length - 1));
    const IdMatrix targets = xt::view(ids, xt::all(), xt::range(std::size_t{1}, length));
    const double loss = forward_backward(model, input_ids, targets, gradient);
    const Vector expected_loss = load_tensor<1>(fixture_file("12_gradients/loss"));
    CHECK(loss == doctest::Approx(double(expected_loss(0))).epsilon(1e-6));

    const Vector expected = load_tensor<1>(fixture_file("12_gradients/gradients"));
    std::size_t offset = 0;
    for (const Parameter& parameter : named_parameters(gradient)) {
        CAPTURE(parameter.name);
        const Vector part =
            xt::view(expected, xt::range(offset, offset + parameter.values.size()));
        Vector actual = part;
        std::copy(parameter.values.begin(), parameter.values.end(), actual.begin());
        CHECK_CLOSE(actual, part, 1e-5);
        offset += parameter.values.size();
    }
    CHECK(offset == expected.size());
}

TEST_CASE(
    "attention_forward: dropout keeps the expected context, and none without a generator") {
    Config config = qwen3_config();
    config.attention_dropout = Real(0.25);
    Generator generator(2), dropout_generator(3);
    const AttentionLayer layer = make_attention_layer(config, generator);
    const AttentionInputs inputs = causal_attention_inputs(config, 2, 5);
    const Tensor3 input = randn({2, 5, 12}, generator);
    const AttentionActivations without = attention_forward(layer, input, inputs).activations;
    CHECK(without.dropout_mask.size() == 0);
    const Tensor4& context = without.context;

    // Each weight is either dropped or divided by 1 - p.
    Tensor4 sum = context * Real(0);
    std::size_t dropped = 0, total = 0;
    for (int run = 0; run < 400; ++run) {
        const auto [output, saved] =
            attention_forward(layer, input, inputs, &dropout_generator);
        sum = sum + saved.context;
        for (const Real factor : saved.dropout_mask) {
            CHECK((factor == 0 || factor == doctest::Approx(4.0 / 3)));
            dropped += factor == 0;
            ++total;
        }
    }
    CHECK(double(dropped) / double(total) == doctest::Approx(0.25).epsilon(0.02));
    CHECK_CLOSE(sum / Real(400), context, 0.1);
}

TEST_CASE("forward_backward names inputs and targets of different shapes") {
    Generator generator(1);
    const Model model = make_model(qwen3_config(), generator);
    Model gradient = zeros_like(model);
    CHECK_THROWS_WITH_AS(
        forward_backward(model, IdMatrix{{1, 2}, {3, 4}}, IdMatrix{{1, 2, 3, 4}}, gradient),
        "cross_entropy: targets of (1, 4) do not fit logits of (2, 2, 7)", ValueError);
    CHECK_THROWS_WITH_AS(evaluate_loss(model, IdMatrix{{1, 7}}, IdMatrix{{1, 2}}),
                         "model: there is no token 7 in a vocabulary of 7", ValueError);
}

TEST_CASE("zeros_like has every parameter, all 0, and leaves the model alone") {
    Generator generator(1);
    Model model = make_model(qwen3_config(), generator);
    Model zeros = zeros_like(model);
    const auto parameters = named_parameters(model), gradients = named_parameters(zeros);
    REQUIRE(parameters.size() == gradients.size());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        CHECK(parameters[p].name == gradients[p].name);
        CHECK(parameters[p].shape == gradients[p].shape);
        for (const Real value : gradients[p].values) CHECK(value == 0);
    }
    CHECK(root_mean_square(model.embed_tokens) > 0.5);
}
