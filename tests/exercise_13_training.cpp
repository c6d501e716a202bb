#include "chapters/13_training/exercise.hpp"

#include <cmath>

#include "chapters/12_gradients/loss.hpp"
#include "tests/check.hpp"

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

TEST_CASE("13.1 find the bug: first steps of the wrong size") {
    const Vector zeros{0, 0, 0};
    Adam adam{zeros, zeros};
    Vector parameter{1, -2, 3};
    adam_step(adam, parameter, Vector{0.5f, -8, 0.01f}, 0.125f);
    {
        INFO("the first step changes every element by the learning rate, 0.125");
        REQUIRE_CLOSE(parameter, (Vector{0.875f, -1.875f, 2.875f}), 1e-5);
    }
    for (const auto& pair : {std::pair{0.95f, 1e-8f}, {0.999f, 1e-8f}, {0.7f, 0.5f}}) {
        const Real beta2 = pair.first, eps = pair.second;
        Adam tried{zeros, zeros, 0.8f, beta2, eps};
        AdamW lesson{0.8f, beta2, eps, 0, 0, {}, {}};
        Vector expected = parameter, gradient = zeros;
        for (int step = 1; step <= 20; ++step) {
            gradient(0) = 1;
            gradient(1) = 1 / static_cast<Real>(step);
            gradient(2) = static_cast<Real>(step % 3 - 1);
            lesson.step({{"w", {3}, {expected.data(), 3}}}, {{"w", {3}, {gradient.data(), 3}}},
                        0.1f);
            adam_step(tried, parameter, gradient, 0.1f);
            INFO("step ", step, " with beta2 = ", beta2, ", eps = ", eps, " as in the lesson");
            REQUIRE_CLOSE(parameter, expected, 1e-5);
        }
    }
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
