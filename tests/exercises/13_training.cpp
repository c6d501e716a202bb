#include "chapters/13_training/exercise.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

// Loss of these rows, and the gradient of a bias that is added to each of them.
BatchGradient batch_gradient(const Matrix& logits, const IdVector& targets, std::size_t begin,
                             std::size_t end) {
    const Matrix rows = xt::view(logits, xt::range(begin, end));
    const IdVector row_targets = xt::view(targets, xt::range(begin, end));
    return {cross_entropy(rows, row_targets),
            xt::sum<Real>(cross_entropy_backward(rows, row_targets), {0}), end - begin};
}

void check_equal(const BatchGradient& actual, const BatchGradient& expected) {
    CHECK(actual.num_tokens == expected.num_tokens);
    CHECK(actual.loss == doctest::Approx(expected.loss).epsilon(1e-5));
    CHECK_CLOSE(actual.gradient, expected.gradient, 1e-5);
}

}  // namespace

TEST_CASE("13.1 predict AdamW's first step") {
    const Vector prediction = predicted_first_updates();
    Vector parameter{1, 1, 1}, gradient{Real(0.5), -8, 0};
    AdamW optimizer{Real(0.9), Real(0.95), Real(1e-8), 0, 0, {}, {}};
    optimizer.step({{"w", {3}, {parameter.data(), 3}}}, {{"w", {3}, {gradient.data(), 3}}},
                   Real(0.1));
    INFO("the three parameters after the step");
    CHECK_CLOSE(prediction, parameter, 1e-3);
}

TEST_CASE("13.2 find the bug: the model repeats one letter") {
    const Batch batch = exercise::batch_at({3, 1, 4, 1, 5, 9, 2, 6, 5, 8}, {0, 3, 5}, 4);
    {
        INFO("the inputs are the sequences that start at token 0, 3 and 5");
        CHECK_CLOSE(batch.input_ids, (IdMatrix{{3, 1, 4, 1}, {1, 5, 9, 2}, {9, 2, 6, 5}}), 0);
    }
    INFO("what is to be predicted at each token of the text 3 1 4 1 5 9 2 6 5 8");
    CHECK_CLOSE(batch.targets, (IdMatrix{{1, 4, 1, 5}, {5, 9, 2, 6}, {2, 6, 5, 8}}), 0);
}

TEST_CASE("13.3 find the bug: norm weights decay") {
    {
        INFO("a norm's weight of 1 after 100 steps of 0.1 % decay each");
        Real weight = 1;
        for (int step = 0; step < 100; ++step)
            if (exercise::has_weight_decay("model.norm.weight", 1)) weight *= Real(0.999);
        CHECK(weight == 1);
    }
    for (const std::string one_axis :
         {"model.layers.0.input_layernorm.weight", "layers.0.ffn_norm.weight",
          "model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.q_norm.weight",
          "transformer.h.0.ln_1.weight", "transformer.ln_f.bias"}) {
        INFO(one_axis, " has one axis: no weight decay");
        CHECK_FALSE(exercise::has_weight_decay(one_axis, 1));
    }
    for (const std::string matrix :
         {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
          "model.layers.0.mlp.down_proj.weight", "transformer.wte.weight", "lm_head.weight"}) {
        INFO(matrix, " has two axes: weight decay");
        CHECK(exercise::has_weight_decay(matrix, 2));
    }
}

TEST_CASE("13.4 write accumulate_gradients") {
    {
        INFO("one token of loss 4 and three of loss 0 have a mean of 1");
        check_equal(accumulate_gradients({{4, Vector{8, 0}, 1}, {0, Vector{0, 4}, 3}}),
                    {1, Vector{2, 3}, 4});
    }
    Generator generator(8);
    const Matrix logits = randn({7, 5}, generator);
    const IdVector targets{1, 0, 4, 4, 2, 3, 0};
    const BatchGradient a = batch_gradient(logits, targets, 0, 1),
                        b = batch_gradient(logits, targets, 1, 5),
                        c = batch_gradient(logits, targets, 5, 7);
    {
        INFO("batches of 1, 4 and 2 tokens equal one batch of all 7");
        check_equal(accumulate_gradients({a, b, c}), batch_gradient(logits, targets, 0, 7));
    }
    INFO("the first two may be accumulated before");
    check_equal(accumulate_gradients({accumulate_gradients({a, b}), c}),
                batch_gradient(logits, targets, 0, 7));
}

TEST_CASE("13.5 write wsd_learning_rate") {
    const WSDSchedule schedule{Real(0.5), 4, 5, 20};
    const auto check_at = [&](std::size_t step, double expected) {
        INFO("learning rate 0.5, 4 steps of warm-up, 5 of decay, 20 in all: step ", step);
        CHECK(double(wsd_learning_rate(schedule, step)) == doctest::Approx(expected));
    };
    for (std::size_t step = 0; step < 4; ++step) check_at(step, 0.125 * double(step + 1));
    for (std::size_t step = 4; step <= 15; ++step) check_at(step, 0.5);
    for (std::size_t step = 16; step <= 20; ++step) check_at(step, 0.1 * double(20 - step));
    check_at(25, 0);
    INFO("without warm-up and without decay the learning rate is constant");
    for (std::size_t step = 0; step < 10; ++step)
        CHECK(wsd_learning_rate({Real(0.25), 0, 0, 10}, step) == Real(0.25));
}

TEST_CASE("13.6 predict learning rates") {
    const Vector prediction = predicted_learning_rates();
    const LRSchedule schedule{1, Real(0.1), 4, 12};
    const Vector rates{learning_rate_at(schedule, 0), learning_rate_at(schedule, 3),
                       learning_rate_at(schedule, 8), learning_rate_at(schedule, 12)};
    INFO("the learning rates of steps 0, 3, 8 and 12");
    CHECK_CLOSE(prediction, rates, 1e-3);
}

TEST_CASE("13.7 predict the loss before training") {
    const Vector prediction = predicted_initial_loss();
    const Matrix logits = xt::zeros<Real>({1, 512});
    const double loss = cross_entropy(logits, IdVector{7});
    {
        INFO("the loss");
        CHECK_CLOSE(Vector{prediction(0)}, Vector{Real(loss)}, 0.01);
    }
    INFO("the perplexity");
    CHECK_CLOSE(Vector{prediction(1)}, Vector{Real(std::exp(loss))}, 0.01);
}

TEST_CASE("13.8 predict a clipped gradient") {
    const Vector prediction = predicted_clipping();
    Vector gradient{2, -3, 6};
    clip_grad_norm({{"w", {3}, {gradient.data(), 3}}}, 1);
    INFO("the gradient after clipping");
    CHECK_CLOSE(prediction, gradient, 1e-2);
}

TEST_CASE("13.9 write bigram_gradient") {
    Generator generator(9);
    const Matrix table = randn({4, 4}, generator) * Real(30);
    const IdVector input_ids{0, 2, 2, 3, 0}, targets{1, 2, 0, 3, 3};
    Matrix logits = xt::zeros<Real>({5, 4}), expected = xt::zeros<Real>({4, 4});
    for (const auto [i, v] : every_index(5, 4))
        logits(i, v) = table(std::size_t(input_ids(i)), v);
    const Matrix gradient = cross_entropy_backward(logits, targets);
    for (const auto [i, v] : every_index(5, 4))
        expected(std::size_t(input_ids(i)), v) += gradient(i, v);
    const BigramGradient result = exercise::bigram_gradient(table, input_ids, targets);
    {
        INFO("the mean cross-entropy of five bigrams");
        CHECK_CLOSE(Vector{Real(result.loss)}, Vector{Real(cross_entropy(logits, targets))},
                    1e-5);
    }
    INFO("the gradient of the table; rows that occur twice get two contributions");
    CHECK_CLOSE(result.gradient, expected, 1e-5);
}

TEST_CASE("13.10 write adamw_step") {
    Generator generator(10);
    const Matrix start = randn({3, 3}, generator);
    Matrix actual = start, expected = start;
    AdamWState state{xt::zeros<Real>({3, 3}), xt::zeros<Real>({3, 3})};
    AdamW lesson{Real(0.9), Real(0.95), Real(1e-8), Real(0.1), 0, {}, {}};
    for (int step = 1; step <= 5; ++step) {
        Matrix gradient = randn({3, 3}, generator);
        lesson.step({{"w", {3, 3}, {expected.data(), 9}}},
                    {{"w", {3, 3}, {gradient.data(), 9}}}, Real(0.05));
        exercise::adamw_step(state, {.weight_decay = Real(0.1)}, Real(0.05), actual, gradient);
        INFO("a matrix after step ", step, ", with weight decay");
        REQUIRE_CLOSE(actual, expected, 1e-5);
    }
}

TEST_CASE("13.11 write sample_bigrams") {
    const std::vector<Id> tokens = {5, 7, 2, 9};
    Generator generator(11);
    const auto [input_ids, targets] = exercise::sample_bigrams(tokens, 300, generator);
    REQUIRE(input_ids.size() == 300);
    REQUIRE(targets.size() == 300);
    Vector counts{0, 0, 0};
    for (std::size_t i = 0; i < 300; ++i)
        for (std::size_t t = 0; t < 3; ++t)
            if (input_ids(i) == tokens[t] && targets(i) == tokens[t + 1]) counts(t) += 1;
    INFO("each of the three bigrams about 100 times");
    CHECK_CLOSE(counts, (Vector{100, 100, 100}), 0.3);
}

TEST_CASE("13.12 write train_bigram_model") {
    std::vector<Id> tokens;  // after 0 comes 1 or 2, after 1 comes 0, after 2 comes 0
    for (int i = 0; i < 400; ++i) tokens.insert(tokens.end(), {0, i % 4 == 0 ? 2 : 1});
    Generator generator(12);
    const auto [table, losses] = exercise::train_bigram_model(tokens, 3, 300, generator);
    REQUIRE(losses.size() == 300);
    {
        INFO("the loss of the first step, with a table of zeros: ln 3");
        CHECK_CLOSE(Vector{Real(losses.front())}, Vector{std::log(Real(3))}, 1e-3);
    }
    INFO("the probabilities of the tokens 0, 1 and 2 after token 0");
    const Matrix probabilities = softmax(table);
    const Vector after_0 = xt::view(probabilities, 0);
    CHECK_CLOSE(after_0, (Vector{0, Real(0.75), Real(0.25)}), 0.05);
}

TEST_CASE("13.13 write orthogonalize") {
    const Matrix diagonal{{3, 0, 0}, {0, 4, 0}};  // divided by its norm: 0.6 and 0.8
    INFO("one step with the singular values 3 and 4");
    REQUIRE_CLOSE(orthogonalize(diagonal, 1),
                  (Matrix{{Real(0.792), 0, 0}, {0, Real(0.944), 0}}), 1e-5);
    Generator generator(13);
    const std::vector<Matrix> matrices = {randn({3, 7}, generator), randn({6, 4}, generator),
                                          randn({5, 5}, generator)};
    for (const Matrix& matrix : matrices)
        for (const Real scale : {Real(1), Real(1e-6), Real(1e6)}) {
            const auto svd = xt::linalg::svd(matrix, false);
            const Matrix expected = xt::linalg::dot(std::get<0>(svd), std::get<2>(svd));
            INFO("60 steps with a matrix of ", matrix.shape(0), " rows and ", matrix.shape(1),
                 " columns, times ", scale);
            REQUIRE_CLOSE(orthogonalize(matrix * scale, 60), expected, 1e-3);
        }
}

TEST_CASE("13.14 predict the size of a checkpoint") {
    constexpr Real hidden = Real(0.8), others = Real(0.2);  // millions of parameters
    const Vector prediction = predicted_megabytes();
    INFO("MB of the model in bfloat16, of a checkpoint with AdamW and of one with Muon");
    CHECK_CLOSE(prediction,
                (Vector{2 * (hidden + others), 3 * 4 * (hidden + others),
                        2 * 4 * hidden + 3 * 4 * others}),
                1e-5);
}
