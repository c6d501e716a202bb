#include "chapters/12_gradients/exercise.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

Matrix random_matrix(std::size_t rows, std::size_t columns, std::uint32_t seed) {
    Generator generator(seed);
    return randn({rows, columns}, generator);
}

}  // namespace

TEST_CASE("12.1 find the bug: a loss that stops falling") {
    // RMS 5; the upstream gradient times the weight is (1, 0).
    const Matrix row{{1, 7}}, upstream{{0.5f, 0}};
    const RMSNorm norm{Vector{2, 3}, 0};
    const Matrix input_gradient = rms_norm_backward(norm, row, upstream);
    {
        INFO(
            "scaling the row does not change the output, so the gradient has no component "
            "along it");
        CHECK(input_gradient(0, 0) * row(0, 0) + input_gradient(0, 1) * row(0, 1) ==
              doctest::Approx(0));
    }
    INFO("the gradient with respect to the input");
    CHECK_CLOSE(input_gradient, (Matrix{{0.196f, -0.028f}}), 1e-6);
    const Matrix input = random_matrix(5, 8, 1), output_gradient = random_matrix(5, 8, 2);
    const Vector weight = reshape(random_matrix(1, 8, 3), {8});
    for (const Real eps : {Real(1e-6), Real(0.5)}) {
        RMSNorm unused{xt::zeros<Real>({8}), eps};
        CHECK_CLOSE(rms_norm_backward({weight, eps}, input, output_gradient),
                    norm_backward(RMSNorm{weight, eps}, input, output_gradient, unused), 1e-5);
    }
}

TEST_CASE("12.2 find the bug: gradients of shared keys and values") {
    const Tensor4 upstream = reshape(Matrix{{1, 2}, {10, 20}, {100, 200}, {1000, 2000}},
                                     {1, 4, 1, 2});  // four query heads of one token
    {
        INFO("with H = Hkv each head keeps its gradient");
        CHECK_CLOSE(repeat_kv_backward(upstream, 1), upstream, 0);
    }
    INFO("a key affects the loss through both query heads that attend to it");
    CHECK_CLOSE(repeat_kv_backward(upstream, 2),
                reshape(Matrix{{11, 22}, {1100, 2200}}, {1, 2, 1, 2}), 1e-6);
    Generator generator(2);
    const Tensor4 queries = randn({2, 6, 5, 4}, generator),
                  keys = randn({2, 2, 5, 4}, generator),
                  values = randn({2, 2, 5, 4}, generator),
                  gradient = randn({2, 6, 5, 4}, generator);
    const Tensor4 weights =
        grouped_query_attention(queries, keys, values, expand_mask(causal_mask(5, 5), 2))
            .weights;
    const QueriesKeysValues shared =
        grouped_query_attention_backward({queries, keys, values}, weights, {}, gradient);
    const QueriesKeysValues repeated = grouped_query_attention_backward(
        {queries, repeat_kv(keys, 3), repeat_kv(values, 3)}, weights, {}, gradient);
    INFO("the lesson's gradients for 2 shared heads, from those for 6 heads");
    CHECK_CLOSE(repeat_kv_backward(repeated.keys, 3), shared.keys, 1e-5);
    CHECK_CLOSE(repeat_kv_backward(repeated.values, 3), shared.values, 1e-5);
}

TEST_CASE("12.3 find the bug: embeddings of frequent tokens") {
    {
        INFO("token 2 at two positions gets the sum of their gradients");
        CHECK_CLOSE(embedding_gradient({2, 0, 2}, {{1, 10}, {2, 20}, {4, 40}}, 3),
                    (Matrix{{2, 20}, {0, 0}, {5, 50}}), 0);
    }
    const IdVector ids{3, 1, 3, 3, 0, 1};
    const Matrix upstream = random_matrix(6, 4, 1);
    Matrix expected = xt::zeros<Real>({5, 4});
    llm::embedding_backward(reshape(ids, {1, 6}), reshape(upstream, {1, 6, 4}), expected);
    INFO("the lesson's embedding_backward");
    CHECK_CLOSE(embedding_gradient(ids, upstream, 5), expected, 1e-6);
}

TEST_CASE("12.4 write log_softmax_backward") {
    const Matrix halves = xt::log(Matrix{{0.5f, 0.25f, 0.25f}, {0.5f, 0.25f, 0.25f}});
    {
        INFO(
            "probabilities 1/2, 1/4, 1/4, upstream gradients of one log-probability, then of "
            "all three");
        CHECK_CLOSE(log_softmax_backward(halves, {{1, 0, 0}, {1, 1, 1}}),
                    (Matrix{{0.5f, -0.25f, -0.25f}, {-0.5f, 0.25f, 0.25f}}), 1e-6);
    }

    const Matrix logits = random_matrix(4, 6, 6), upstream = random_matrix(4, 6, 7);
    const Matrix probabilities = softmax(logits);
    const Matrix log_probabilities = xt::log(probabilities);
    {
        INFO("the lesson's softmax_backward, after a logarithm with derivative 1 / p");
        CHECK_CLOSE(log_softmax_backward(log_probabilities, upstream),
                    softmax_backward(probabilities, upstream / probabilities), 1e-5);
    }

    const IdVector targets{5, 0, 3, 3};
    Matrix loss_gradient = xt::zeros<Real>({4, 6});
    for (std::size_t n = 0; n < 4; ++n)
        loss_gradient(n, static_cast<std::size_t>(targets(n))) = -0.25f;
    {
        INFO("the mean of -ln p of the targets: the lesson's cross_entropy_backward");
        CHECK_CLOSE(log_softmax_backward(log_probabilities, loss_gradient),
                    cross_entropy_backward(logits, targets), 1e-5);
    }

    INFO("a probability of e to the -200, which is 0 in a float");
    CHECK_CLOSE(log_softmax_backward({{0, -200}}, {{3, 5}}), (Matrix{{-5, 5}}), 1e-6);
}

TEST_CASE("12.5 write smoothed_cross_entropy") {
    const Matrix halves = xt::log(Matrix{{0.5f, 0.25f, 0.25f}});
    const LossAndGradient result = smoothed_cross_entropy(halves, {0}, 0.3f);
    {
        INFO("probabilities 1/2, 1/4, 1/4 and a target distribution of 0.8, 0.1, 0.1");
        CHECK(result.loss == doctest::Approx(1.2 * std::log(2)).epsilon(1e-5));
        CHECK_CLOSE(result.gradient, (Matrix{{-0.3f, 0.15f, 0.15f}}), 1e-6);
    }

    const Matrix logits{{1, -2, 0.5f, 3}, {0, 2, -1, 0.25f}, {-0.5f, 0.5f, 1.5f, -2}};
    const IdVector targets{3, 0, 2};
    {
        INFO("without smoothing, the lesson's cross_entropy");
        const LossAndGradient plain = smoothed_cross_entropy(logits, targets, 0);
        CHECK(plain.loss == doctest::Approx(cross_entropy(logits, targets)).epsilon(1e-5));
        CHECK_CLOSE(plain.gradient, cross_entropy_backward(logits, targets), 1e-6);
    }

    {
        INFO("PyTorch's, with label_smoothing=0.4");
        const LossAndGradient smoothed = smoothed_cross_entropy(logits, targets, 0.4f);
        CHECK(smoothed.loss == doctest::Approx(1.470473886).epsilon(1e-5));
        CHECK_CLOSE(smoothed.gradient,
                    (Matrix{{0.00351792f, -0.03149862f, -0.01098192f, 0.03896262f},
                            {-0.20013598f, 0.21196378f, -0.02112071f, 0.00929291f},
                            {-0.00391413f, 0.04663635f, -0.0159532f, -0.02676902f}}),
                    1e-6);
    }

    INFO("a target whose probability is 0 in a float");
    CHECK(smoothed_cross_entropy({{200, 0}}, {1}, 0.1f).loss == doctest::Approx(190));
}

TEST_CASE("12.6 write head_attention_backward") {
    {
        INFO(
            "one query, one key: the weight is 1 whatever the score, so only the value learns");
        const HeadGradient gradient =
            head_attention_backward({{1, 2}}, {{3, 4}}, {{5, 6}}, {{0}}, {{7, 8}});
        CHECK_CLOSE(gradient.values, (Matrix{{7, 8}}), 1e-6);
        CHECK_CLOSE(gradient.queries, (Matrix{{0, 0}}), 1e-6);
        CHECK_CLOSE(gradient.keys, (Matrix{{0, 0}}), 1e-6);
    }
    const Matrix queries = random_matrix(4, 3, 1), keys = random_matrix(4, 3, 2);
    const Matrix values = random_matrix(4, 3, 3), upstream = random_matrix(4, 3, 4);
    const Matrix mask = causal_mask(4, 4);
    const HeadGradient gradient =
        head_attention_backward(queries, keys, values, mask, upstream);
    const auto head = [](const Matrix& matrix) { return reshape(matrix, {1, 1, 4, 3}); };
    const Tensor4 weights =
        reshape(attention(queries, keys, values, mask).weights, {1, 1, 4, 4});
    const QueriesKeysValues expected = grouped_query_attention_backward(
        {head(queries), head(keys), head(values)}, weights, {}, head(upstream));
    INFO("the lesson's grouped_query_attention_backward with one head");
    CHECK_CLOSE(head(gradient.values), expected.values, 1e-5);
    CHECK_CLOSE(head(gradient.queries), expected.queries, 1e-5);
    CHECK_CLOSE(head(gradient.keys), expected.keys, 1e-5);
}
