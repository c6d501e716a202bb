#include "chapters/13_training/exercise.hpp"

#include <cmath>

#include "tests/check.hpp"

using namespace exercise;

namespace {

Matrix random_matrix(std::size_t rows, std::size_t columns, std::uint32_t seed) {
    Generator generator(seed);
    return randn({rows, columns}, generator);
}

// The loss of these rows, and the gradient of a bias that was added to each of them.
MeanLoss mean_loss(const Matrix& logits, const IdVector& targets, std::size_t begin,
                   std::size_t end) {
    const Loss loss = cross_entropy(xt::view(logits, xt::range(begin, end)),
                                    xt::view(targets, xt::range(begin, end)));
    return {loss.value, xt::sum<Real>(loss.gradient, {0}), end - begin};
}

void check_mean(const MeanLoss& actual, const MeanLoss& expected) {
    CHECK(actual.num_tokens == expected.num_tokens);
    CHECK(actual.loss == doctest::Approx(expected.loss).epsilon(1e-5));
    CHECK_CLOSE(actual.gradient, expected.gradient, 1e-5);
}

}  // namespace

TEST_CASE("11.1 find the bug: a loss that stops falling") {
    // Root mean square 5, gradient behind the weight (1, 0).
    const Matrix row{{1, 7}}, pull{{0.5f, 0}};
    const RMSNorm norm{Vector{2, 3}, 0};
    const Matrix back = norm_backward(norm, row, pull);
    {
        INFO("twice the row gives the same output, so no part of the gradient points along it");
        CHECK(back(0, 0) * row(0, 0) + back(0, 1) * row(0, 1) == doctest::Approx(0));
    }
    INFO("the gradient with respect to the input");
    CHECK_CLOSE(back, (Matrix{{0.196f, -0.028f}}), 1e-6);
    const Matrix input = random_matrix(5, 8, 1), output_gradient = random_matrix(5, 8, 2);
    const Vector weight = reshape(random_matrix(1, 8, 3), {8});
    for (const Real eps : {Real(1e-6), Real(0.5)}) {
        RMSNorm unused{xt::zeros<Real>({8}), eps};
        CHECK_CLOSE(norm_backward({weight, eps}, input, output_gradient),
                    rms_norm_backward({weight, eps}, input, output_gradient, unused), 1e-5);
    }
}

TEST_CASE("11.2 find the bug: keys and values learn slowly") {
    const Tensor4 pulls = reshape(Matrix{{1, 2}, {10, 20}, {100, 200}, {1000, 2000}},
                                  {1, 4, 1, 2});  // four query heads of one token
    {
        INFO("with H = Hkv each head keeps its gradient");
        CHECK_CLOSE(repeat_kv_backward(pulls, 1), pulls, 0);
    }
    INFO("a key that two query heads read has an effect through both of them");
    CHECK_CLOSE(repeat_kv_backward(pulls, 2),
                reshape(Matrix{{11, 22}, {1100, 2200}}, {1, 2, 1, 2}), 1e-6);
    Generator generator(2);
    const Tensor4 queries = randn({2, 6, 5, 4}, generator),
                  keys = randn({2, 2, 5, 4}, generator),
                  values = randn({2, 2, 5, 4}, generator),
                  pull = randn({2, 6, 5, 4}, generator);
    const Tensor4 weights =
        grouped_query_attention(queries, keys, values, expand_mask(causal_mask(5, 5), 2))
            .weights;
    const AttentionGradient shared = attention_backward(queries, keys, values, weights, pull);
    const AttentionGradient repeated =
        attention_backward(queries, repeat_kv(keys, 3), repeat_kv(values, 3), weights, pull);
    INFO("the lesson's gradients for 2 shared heads, from those for 6 heads");
    CHECK_CLOSE(repeat_kv_backward(repeated.keys, 3), shared.keys, 1e-5);
    CHECK_CLOSE(repeat_kv_backward(repeated.values, 3), shared.values, 1e-5);
}

TEST_CASE("11.3 find the bug: first steps of the wrong length") {
    const Vector zeros{0, 0, 0};
    Adam adam{zeros, zeros};
    Vector numbers{1, -2, 3};
    adam_step(adam, numbers, Vector{0.5f, -8, 0.01f}, 0.125f);
    {
        INFO("the first step moves every number by the learning rate, 0.125, downhill");
        REQUIRE_CLOSE(numbers, (Vector{0.875f, -1.875f, 2.875f}), 1e-5);
    }
    for (const auto& pair : {std::pair{0.95f, 1e-8f}, {0.999f, 1e-8f}, {0.7f, 0.5f}}) {
        const Real beta2 = pair.first, eps = pair.second;
        Adam tried{zeros, zeros, 0.8f, beta2, eps};
        AdamW lesson{0.8f, beta2, eps, 0, 0, {}, {}};
        Vector expected = numbers, gradient = zeros;  // step sees both through parameters
        const std::vector<Parameter> parameters = {
            {"w", {expected.data(), 3}, {gradient.data(), 3}, false}};
        for (int step = 1; step <= 20; ++step) {
            gradient(0) = 1;
            gradient(1) = 1 / static_cast<Real>(step);
            gradient(2) = static_cast<Real>(step % 3 - 1);
            lesson.step(parameters, 0.1f);
            adam_step(tried, numbers, gradient, 0.1f);
            INFO("step ", step, " with beta2 = ", beta2, ", eps = ", eps, " as in the lesson");
            REQUIRE_CLOSE(numbers, expected, 1e-5);
        }
    }
}

TEST_CASE("11.4 find the bug: one letter for ever") {
    const Batch batch = pieces_at({3, 1, 4, 1, 5, 9, 2, 6, 5, 8}, {0, 3, 5}, 4);
    {
        INFO("the inputs are the pieces that begin at token 0, 3 and 5");
        CHECK_CLOSE(batch.inputs, (IdMatrix{{3, 1, 4, 1}, {1, 5, 9, 2}, {9, 2, 6, 5}}), 0);
    }
    INFO("what is to be predicted at each token of the text 3 1 4 1 5 9 2 6 5 8");
    CHECK_CLOSE(batch.targets, (IdMatrix{{1, 4, 1, 5}, {5, 9, 2, 6}, {2, 6, 5, 8}}), 0);
}

TEST_CASE("11.5 find the bug: weights that shrink for no reason") {
    Vector weight{1, 1}, gradient{0, 0};
    const std::string name = "model.norm.weight";
    AdamW optimizer;
    for (int step = 0; step < 100; ++step)
        optimizer.step({{name, {weight.data(), 2}, {gradient.data(), 2}, decays(name, 1)}},
                       0.01f);
    {
        INFO("a norm's weights, which are 1, after 100 steps with a gradient of 0");
        CHECK_CLOSE(weight, (Vector{1, 1}), 0);
    }
    for (const std::string one_axis :
         {"model.layers.0.input_layernorm.weight", "layers.0.ffn_norm.weight",
          "model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.q_norm.weight",
          "transformer.h.0.ln_1.weight", "transformer.ln_f.bias"}) {
        INFO(one_axis, ", with one axis, does not decay");
        CHECK_FALSE(decays(one_axis, 1));
    }
    for (const std::string matrix :
         {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
          "model.layers.0.mlp.down_proj.weight", "transformer.wte.weight", "lm_head.weight"}) {
        INFO(matrix, ", with two axes, decays");
        CHECK(decays(matrix, 2));
    }
}

TEST_CASE("11.6 write log_softmax_backward") {
    const Matrix halves = xt::log(Matrix{{0.5f, 0.25f, 0.25f}, {0.5f, 0.25f, 0.25f}});
    {
        INFO("probabilities 1/2, 1/4, 1/4, and one logarithm, then all three, asked to grow");
        CHECK_CLOSE(log_softmax_backward(halves, {{1, 0, 0}, {1, 1, 1}}),
                    (Matrix{{0.5f, -0.25f, -0.25f}, {-0.5f, 0.25f, 0.25f}}), 1e-6);
    }

    const Matrix logits = random_matrix(4, 6, 6), pull = random_matrix(4, 6, 7);
    const Matrix probabilities = softmax(logits);
    const Matrix logarithms = xt::log(probabilities);
    {
        INFO("the lesson's softmax_backward, behind a logarithm of slope 1 / p");
        CHECK_CLOSE(log_softmax_backward(logarithms, pull),
                    softmax_backward(probabilities, pull / probabilities), 1e-5);
    }

    const IdVector targets{5, 0, 3, 3};
    Matrix loss_gradient = xt::zeros<Real>({4, 6});
    for (std::size_t n = 0; n < 4; ++n)
        loss_gradient(n, static_cast<std::size_t>(targets(n))) = -0.25f;
    {
        INFO("the mean of -ln p of the tokens that came: the lesson's cross_entropy");
        CHECK_CLOSE(log_softmax_backward(logarithms, loss_gradient),
                    cross_entropy(logits, targets).gradient, 1e-5);
    }

    INFO("a probability of e to the -200, which is 0 in a float");
    CHECK_CLOSE(log_softmax_backward({{0, -200}}, {{3, 5}}), (Matrix{{-5, 5}}), 1e-6);
}

TEST_CASE("11.7 write smoothed_cross_entropy") {
    const Matrix halves = xt::log(Matrix{{0.5f, 0.25f, 0.25f}});
    const Loss loss = smoothed_cross_entropy(halves, {0}, 0.3f);
    {
        INFO("probabilities 1/2, 1/4, 1/4 where 0.8, 0.1, 0.1 are expected");
        CHECK(loss.value == doctest::Approx(1.2 * std::log(2)).epsilon(1e-5));
        CHECK_CLOSE(loss.gradient, (Matrix{{-0.3f, 0.15f, 0.15f}}), 1e-6);
    }

    const Matrix logits{{1, -2, 0.5f, 3}, {0, 2, -1, 0.25f}, {-0.5f, 0.5f, 1.5f, -2}};
    const IdVector targets{3, 0, 2};
    {
        INFO("without smoothing, the lesson's cross_entropy");
        const Loss plain = smoothed_cross_entropy(logits, targets, 0);
        CHECK(plain.value ==
              doctest::Approx(cross_entropy(logits, targets).value).epsilon(1e-5));
        CHECK_CLOSE(plain.gradient, cross_entropy(logits, targets).gradient, 1e-6);
    }

    {
        INFO("PyTorch's, with label_smoothing=0.4");
        const Loss smoothed = smoothed_cross_entropy(logits, targets, 0.4f);
        CHECK(smoothed.value == doctest::Approx(1.470473886).epsilon(1e-5));
        CHECK_CLOSE(smoothed.gradient,
                    (Matrix{{0.00351792f, -0.03149862f, -0.01098192f, 0.03896262f},
                            {-0.20013598f, 0.21196378f, -0.02112071f, 0.00929291f},
                            {-0.00391413f, 0.04663635f, -0.0159532f, -0.02676902f}}),
                    1e-6);
    }

    INFO("a token that came although its probability is 0 in a float");
    CHECK(smoothed_cross_entropy({{200, 0}}, {1}, 0.1f).value == doctest::Approx(190));
}

TEST_CASE("11.8 write mean_of_all") {
    {
        INFO("one token of loss 4 and three of loss 0 have a mean of 1");
        check_mean(mean_of_all({{4, Vector{8, 0}, 1}, {0, Vector{0, 4}, 3}}),
                   {1, Vector{2, 3}, 4});
    }
    const Matrix logits = random_matrix(7, 5, 8);
    const IdVector targets{1, 0, 4, 4, 2, 3, 0};
    const MeanLoss a = mean_loss(logits, targets, 0, 1), b = mean_loss(logits, targets, 1, 5),
                   c = mean_loss(logits, targets, 5, 7);
    {
        INFO("batches of 1, 4 and 2 tokens, as if all 7 had been in one");
        check_mean(mean_of_all({a, b, c}), mean_loss(logits, targets, 0, 7));
    }
    INFO("also if the first two were put together before");
    check_mean(mean_of_all({mean_of_all({a, b}), c}), mean_loss(logits, targets, 0, 7));
}
