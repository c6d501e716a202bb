#include <cmath>

#include "tests/support/training.hpp"

using namespace llm;

namespace {

Vector pinned(const std::string& name) { return fixture<1>("13_training/" + name); }

// A list of one parameter, "w".
std::vector<Parameter> one_parameter(Vector& values) {
    return {{"w", {values.size()}, {values.data(), values.size()}}};
}
std::vector<Parameter> one_parameter(Matrix& values) {
    return {{"w", {values.shape(0), values.shape(1)}, {values.data(), values.size()}}};
}

}  // namespace

TEST_CASE("ten steps of training equal PyTorch: losses, gradients, norms, rates, weights") {
    Model model = fixture_model(), gradient = zeros_like(model);
    const xt::xtensor<Id, 3> batches = id_fixture<3>("13_training/batches");
    const LRSchedule schedule{Real(0.02), Real(0.002), 3, 10};
    AdamW optimizer;
    Vector losses = xt::zeros<Real>({10}), norms = losses, rates = losses;
    for (std::size_t step = 0; step < 10; ++step) {
        const IdMatrix input_ids = xt::view(batches, step, xt::all(), xt::range(0, 7));
        const IdMatrix targets = xt::view(batches, step, xt::all(), xt::range(1, 8));
        zero_grad(gradient);
        losses(step) = Real(forward_backward(model, input_ids, targets, gradient));
        if (step == 0) CHECK_CLOSE(all_values(gradient), pinned("first_gradients"), 1e-5);
        norms(step) = Real(clip_grad_norm(named_parameters(gradient), 1));
        rates(step) = learning_rate_at(schedule, step);
        optimizer.step(named_parameters(model), named_parameters(gradient), rates(step));
    }
    CHECK_CLOSE(losses, pinned("losses"), 1e-5);
    CHECK_CLOSE(norms, pinned("norms"), 1e-4);
    CHECK_CLOSE(rates, pinned("rates"), 1e-6);
    CHECK_CLOSE(all_values(model), pinned("last_weights"), 1e-4);
}

TEST_CASE("AdamW applies weight decay to matrices, not to norms and biases") {
    Config config = tiny_config(1);
    config.attention_bias = AttentionBias::qkv;
    config.tie_word_embeddings = false;
    Generator generator(1);
    Model model = make_model(config, generator), gradient = zeros_like(model), before = model;
    const std::vector<Parameter> parameters = named_parameters(model);
    const std::vector<Parameter> old_parameters = named_parameters(before);
    CHECK(parameters.size() == 15);  // embedding, 2 norms, 7 matrices, 3 biases, norm, head
    AdamW optimizer;
    optimizer.step(parameters, named_parameters(gradient), Real(0.5));  // all gradients are 0
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        const std::string& name = parameters[p].name;
        const bool is_norm = name.find("norm") != std::string::npos;
        const bool decays = !is_norm && !name.ends_with(".bias");
        INFO(name);
        CHECK(has_weight_decay(parameters[p]) == decays);
        for (std::size_t i = 0; i < parameters[p].values.size(); ++i)
            CHECK(parameters[p].values[i] ==
                  doctest::Approx(old_parameters[p].values[i] * (decays ? 0.95f : 1)));
    }
}

TEST_CASE("clip_grad_norm scales gradients above the maximum and keeps the others") {
    Vector gradient{3, 4};
    CHECK(clip_grad_norm(one_parameter(gradient), 10) == doctest::Approx(5));
    CHECK((gradient(0) == 3 && gradient(1) == 4));
    CHECK(clip_grad_norm(one_parameter(gradient), 1) == doctest::Approx(5));
    CHECK(double(gradient(0)) == doctest::Approx(0.6));
    CHECK(double(gradient(1)) == doctest::Approx(0.8));
}

TEST_CASE("AdamW after reset: step_count and both means are those of a new optimizer") {
    Matrix values{{1, -2}}, gradient{{Real(0.5), 3}}, new_values = values;
    AdamW used, fresh;
    for (int i = 0; i < 3; ++i)
        used.step(one_parameter(values), one_parameter(gradient), Real(0.1));
    CHECK(used.step_count == 3);
    used.reset(one_parameter(values));
    CHECK(used.step_count == 0);
    CHECK(used.exp_avg == std::vector<std::vector<Real>>{{0, 0}});
    CHECK(used.exp_avg_sq == std::vector<std::vector<Real>>{{0, 0}});
    values = new_values;
    used.step(one_parameter(values), one_parameter(gradient), Real(0.1));
    fresh.step(one_parameter(new_values), one_parameter(gradient), Real(0.1));
    CHECK_CLOSE(values, new_values, 0);
    CHECK(used.step_count == 1);
}

TEST_CASE("AdamW rejects gradients of other parameters") {
    Vector two{1, 2}, three{1, 2, 3};
    Matrix row{{1, 2}};
    AdamW optimizer;
    CHECK_THROWS_WITH_AS(optimizer.step(one_parameter(two), one_parameter(three), 1),
                         "AdamW: parameter w of (2,), but gradient w of (3,)", ValueError);
    CHECK_THROWS_AS(optimizer.step(one_parameter(two), one_parameter(row), 1), ValueError);
    CHECK_THROWS_WITH_AS(optimizer.step(one_parameter(two), {}, 1),
                         "AdamW: 1 parameters, but 0 gradients", ValueError);
    std::vector<Parameter> other_name = one_parameter(two);
    other_name[0].name = "v";
    CHECK_THROWS_AS(optimizer.step(one_parameter(two), other_name, 1), ValueError);
    CHECK((two(0) == 1 && two(1) == 2));

    optimizer.step(one_parameter(two), one_parameter(two), Real(0.1));
    CHECK_THROWS_WITH_AS(optimizer.step(one_parameter(three), one_parameter(three), 1),
                         "AdamW: w has another size than in the steps before", ValueError);
    CHECK_THROWS_AS(optimizer.step({}, {}, 1), ValueError);
    CHECK(optimizer.step_count == 1);
}

TEST_CASE("learning_rate_at: warm-up must be shorter than the run") {
    const LRSchedule just_fits{Real(0.1), Real(0.01), 9, 10};
    CHECK(double(learning_rate_at(just_fits, 9)) == doctest::Approx(0.1));
    CHECK(double(learning_rate_at(just_fits, 10)) == doctest::Approx(0.01));
    CHECK(double(learning_rate_at(just_fits, 15)) == doctest::Approx(0.01));  // stays there
    const LRSchedule too_short{Real(0.1), Real(0.01), 10, 10};
    CHECK_THROWS_WITH_AS(learning_rate_at(too_short, 0),
                         "lr_schedule: 10 warm-up steps do not fit into 10 steps", ValueError);
}
