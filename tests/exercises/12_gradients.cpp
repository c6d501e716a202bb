#include "chapters/12_gradients/exercise.hpp"

#include <array>
#include <cmath>
#include <functional>

#include "chapters/01_masking/masking.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/norms_backward.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

Matrix random_matrix(std::size_t rows, std::size_t columns, std::uint32_t seed) {
    Generator generator(seed);
    return randn({rows, columns}, generator);
}

// The four gradients by central differences of the loss.
Vector chain_of_exercise() {
    const auto loss_of_y = [](double y) { return (y - 1) * (y - 1); };
    const auto loss_of = [&](double a, double b) { return loss_of_y(a * b); };
    const auto loss = [&](double w) { return loss_of(w * 2, w + 2); };
    const auto slope = [](double at, const std::function<double(double)>& function) {
        return Real((function(at + 1e-4) - function(at - 1e-4)) / 2e-4);
    };
    return {slope(6, loss_of_y), slope(2, [&](double a) { return loss_of(a, 3); }),
            slope(3, [&](double b) { return loss_of(2, b); }), slope(1, loss)};
}

// The loss Σ context · upstream of one causal head, in double.
double loss_of_head(const std::array<Matrix, 3>& inputs, const Matrix& upstream,
                    std::size_t changed = 3, std::size_t element = 0, double change = 0) {
    const auto at = [&](std::size_t matrix, std::size_t row, std::size_t d) {
        const std::size_t i = row * inputs[matrix].shape(1) + d;
        const double kept = double(inputs[matrix].data()[i]);
        return matrix == changed && i == element ? kept + change : kept;
    };
    const std::size_t T = upstream.shape(0), D = upstream.shape(1);
    const std::size_t S = inputs[1].shape(0);
    double loss = 0;
    for (std::size_t t = 0; t < T; ++t) {
        double sum = 0, weighted = 0;
        for (std::size_t s = 0; s < S - T + t + 1; ++s) {
            double score = 0, product = 0;
            for (std::size_t d = 0; d < D; ++d) {
                score += at(0, t, d) * at(1, s, d);
                product += at(2, s, d) * double(upstream(t, d));
            }
            const double exponential = std::exp(score / std::sqrt(double(D)));
            sum += exponential;
            weighted += exponential * product;
        }
        loss += weighted / sum;
    }
    return loss;
}

// Its gradient by central differences: 0, 1 or 2 for queries, keys or values.
Matrix difference_quotients(const std::array<Matrix, 3>& inputs, const Matrix& upstream,
                            std::size_t changed) {
    Matrix gradient = xt::zeros<Real>(inputs[changed].shape());
    for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient.data()[i] = Real((loss_of_head(inputs, upstream, changed, i, 1e-4) -
                                   loss_of_head(inputs, upstream, changed, i, -1e-4)) /
                                  2e-4);
    return gradient;
}

}  // namespace

TEST_CASE("12.1 predict a chain of four gradients") {
    const Vector prediction = predicted_chain();
    INFO("the gradients with respect to y, a, b and w");
    CHECK_CLOSE(prediction, chain_of_exercise(), 1e-4);
}

TEST_CASE("12.2 predict the gradient of two rows of logits") {
    const Matrix prediction = predicted_logits_gradient();
    const Matrix logits{{std::log(Real(5)), std::log(Real(3)), 0, 0},
                        {0, 0, std::log(Real(2)), 0}};
    INFO("the gradient of the logits");
    CHECK_CLOSE(prediction, cross_entropy_backward(logits, {1, 2}), 1e-3);
}

TEST_CASE("12.3 predict the gradient of a weight") {
    const Matrix prediction = predicted_weight_gradient();
    Matrix gradient = xt::zeros<Real>({2, 2});
    accumulate_product(gradient, {{1, 0}, {0, 2}, {1, 1}}, {{1, -1}, {2, 0}, {0, 3}});
    INFO("the gradient of the weight");
    CHECK_CLOSE(prediction, gradient, 1e-6);
}

TEST_CASE("12.4 predict the gradient of three scores") {
    const Vector prediction = predicted_score_gradient();
    const Matrix gradient = softmax_backward({{0.5, 0.25, 0.25}}, {{4, 0, 8}});
    INFO("the gradient of the scores");
    CHECK_CLOSE(prediction, reshape(gradient, {3}), 1e-6);
}

TEST_CASE("12.5 predict the gradient through three blocks") {
    const Vector prediction = predicted_residual();
    double with_skip = 1, without_skip = 1;
    for (int n = 0; n < 3; ++n) {
        with_skip += 0.5 * with_skip;
        without_skip = 0.5 * without_skip;
    }
    INFO("the derivative with skip connections, then without");
    CHECK_CLOSE(prediction, (Vector{Real(with_skip), Real(without_skip)}), 0.01);
}

TEST_CASE("12.6 find the bug: gradients after a few hundred steps") {
    {
        INFO("at initialization all weights are 1, and the input is (1, 7)");
        CHECK_CLOSE(rms_norm_backward({Vector{1, 1}, 0}, {{1, 7}}, {{1, 0}}),
                    (Matrix{{0.196f, -0.028f}}), 1e-6);
    }
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

TEST_CASE("12.7 find the bug: gradients of shared keys and values") {
    const Tensor4 upstream = reshape(Matrix{{1, 2}, {10, 20}, {100, 200}, {1000, 2000}},
                                     {1, 4, 1, 2});  // four query heads of one token
    {
        INFO("with H = Hkv each head keeps its gradient");
        CHECK_CLOSE(repeat_kv_backward(upstream, 1), upstream, 0);
    }
    {
        INFO("a key affects the loss through both query heads that attend to it");
        CHECK_CLOSE(repeat_kv_backward(upstream, 2),
                    reshape(Matrix{{11, 22}, {1100, 2200}}, {1, 2, 1, 2}), 1e-6);
    }
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

TEST_CASE("12.8 find the bug: embeddings of frequent tokens") {
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

TEST_CASE("12.9 write log_softmax_backward") {
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

TEST_CASE("12.10 write smoothed_cross_entropy") {
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

TEST_CASE("12.11 write gradient_of_values") {
    {
        INFO("two queries, two keys: the second key has weight only in the second row");
        CHECK_CLOSE(gradient_of_values({{1, 0}, {0.25, 0.75}}, {{1, 10}, {4, 40}}),
                    (Matrix{{2, 20}, {3, 30}}), 1e-6);
    }
    INFO("weightsᵀ · upstream, for 3 queries and 5 keys of 2 features");
    const Matrix weights = random_matrix(3, 5, 1), upstream = random_matrix(3, 2, 2);
    CHECK_CLOSE(gradient_of_values(weights, upstream),
                Matrix(xt::linalg::dot(xt::transpose(weights), upstream)), 1e-5);
}

TEST_CASE("12.12 write gradient_of_weights") {
    {
        INFO("one query, two keys: dot products of the upstream gradient and each value");
        CHECK_CLOSE(gradient_of_weights({{1, 2}, {3, -1}}, {{10, 1}}), (Matrix{{12, 29}}),
                    1e-6);
    }
    INFO("upstream · valuesᵀ, for 3 queries and 5 keys of 2 features");
    const Matrix values = random_matrix(5, 2, 1), upstream = random_matrix(3, 2, 2);
    CHECK_CLOSE(gradient_of_weights(values, upstream),
                Matrix(xt::linalg::dot(upstream, xt::transpose(values))), 1e-5);
}

TEST_CASE("12.13 write gradient_of_scores") {
    {
        INFO("the third key of the first row is masked: weights 0.5, 0.5, 0");
        CHECK_CLOSE(
            gradient_of_scores({{0.5, 0.5, 0}, {0.25, 0.25, 0.5}}, {{3, 1, 100}, {8, 0, 4}}),
            (Matrix{{0.5, -0.5, 0}, {1, -1, 0}}), 1e-6);
    }
    INFO("the lesson's softmax_backward");
    const Matrix weights = softmax(random_matrix(3, 5, 1)), upstream = random_matrix(3, 5, 2);
    CHECK_CLOSE(gradient_of_scores(weights, upstream), softmax_backward(weights, upstream),
                1e-5);
}

TEST_CASE("12.14 write gradient_of_queries_and_keys") {
    {
        INFO("one query, two keys of four features: the scores are divided by 2");
        const QueryKeyGradient gradient = gradient_of_queries_and_keys(
            {{1, 2, 0, 0}}, {{4, 0, 0, 2}, {0, 6, 0, 0}}, {{1, 10}});
        CHECK_CLOSE(gradient.queries, (Matrix{{2, 30, 0, 1}}), 1e-6);
        CHECK_CLOSE(gradient.keys, (Matrix{{0.5, 1, 0, 0}, {5, 10, 0, 0}}), 1e-6);
    }
    const Matrix queries = random_matrix(3, 2, 1), keys = random_matrix(5, 2, 2);
    const Matrix upstream = random_matrix(3, 5, 3);
    const QueryKeyGradient gradient = gradient_of_queries_and_keys(queries, keys, upstream);
    INFO("3 queries and 5 keys of 2 features");
    const Real divisor = std::sqrt(Real(2));
    CHECK_CLOSE(gradient.queries, Matrix(xt::linalg::dot(upstream, keys) / divisor), 1e-5);
    CHECK_CLOSE(gradient.keys,
                Matrix(xt::linalg::dot(xt::transpose(upstream), queries) / divisor), 1e-5);
}

TEST_CASE("12.15 write head_attention_backward") {
    {
        INFO("one query, one key: the weight is 1 for any score, so only the value matters");
        const HeadGradient gradient =
            head_attention_backward({{1, 2}}, {{3, 4}}, {{5, 6}}, {{7, 8}});
        CHECK_CLOSE(gradient.values, (Matrix{{7, 8}}), 1e-6);
        CHECK_CLOSE(gradient.queries, (Matrix{{0, 0}}), 1e-6);
        CHECK_CLOSE(gradient.keys, (Matrix{{0, 0}}), 1e-6);
    }
    const Matrix queries = random_matrix(4, 3, 1), upstream = random_matrix(4, 3, 4);
    for (const std::size_t kv_len : {4, 6}) {
        const Matrix keys = random_matrix(kv_len, 3, 2), values = random_matrix(kv_len, 3, 3);
        const HeadGradient gradient = head_attention_backward(queries, keys, values, upstream);
        const std::array<Matrix, 3> inputs{queries, keys, values};
        INFO("finite differences, for 4 queries and this number of keys: ", kv_len);
        CHECK_CLOSE(gradient.queries, difference_quotients(inputs, upstream, 0), 1e-4);
        CHECK_CLOSE(gradient.keys, difference_quotients(inputs, upstream, 1), 1e-4);
        CHECK_CLOSE(gradient.values, difference_quotients(inputs, upstream, 2), 1e-4);
    }
    {
        INFO("a score of 100 · 100: the exponential must not overflow");
        const HeadGradient gradient =
            head_attention_backward({{0}, {100}}, {{100}, {0}}, {{1}, {2}}, {{1}, {1}});
        CHECK_CLOSE(gradient.values, (Matrix{{2}, {0}}), 1e-6);
    }
    const Matrix keys = random_matrix(4, 3, 2), values = random_matrix(4, 3, 3);
    const auto head = [](const Matrix& matrix) { return reshape(matrix, {1, 1, 4, 3}); };
    const Tensor4 weights =
        reshape(attention(queries, keys, values, causal_mask(4, 4)).weights, {1, 1, 4, 4});
    const QueriesKeysValues expected = grouped_query_attention_backward(
        {head(queries), head(keys), head(values)}, weights, {}, head(upstream));
    const HeadGradient gradient = head_attention_backward(queries, keys, values, upstream);
    INFO("the lesson's grouped_query_attention_backward with one head");
    CHECK_CLOSE(head(gradient.values), expected.values, 1e-5);
    CHECK_CLOSE(head(gradient.queries), expected.queries, 1e-5);
    CHECK_CLOSE(head(gradient.keys), expected.keys, 1e-5);
}
