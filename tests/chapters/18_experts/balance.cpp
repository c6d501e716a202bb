// Load, balancing losses against PyTorch, the correction bias, and dropped tokens.
#include "chapters/18_experts/balance.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace llm;

TEST_CASE("expert_load and max_violation by hand") {
    const Vector load = expert_load({{2, 0}, {0, 3}, {2, 0}, {0, 3}}, 5);
    CHECK_CLOSE(load, (Vector{0.5f, 0, 0.25f, 0.25f, 0}), 1e-6);
    CHECK(max_violation(load) == doctest::Approx(1.5));  // 0.5 / 0.2 - 1
    CHECK(max_violation({0.25f, 0.25f, 0.25f, 0.25f}) == doctest::Approx(0));
    CHECK(max_violation({6, 3, 3}) == doctest::Approx(0.5));  // counts: 6 / 4 - 1
    CHECK_THROWS_WITH_AS(expert_load({{0, 5}}, 5), "expert_load: there is no expert 5 of 5",
                         ValueError);
    CHECK_THROWS_WITH_AS(expert_load(xt::zeros<Id>({0, 2}), 5),
                         "expert_load: there are no choices in (0, 2)", ValueError);
    CHECK_THROWS_AS(max_violation(Vector(std::array<std::size_t, 1>{0})), ValueError);
}

TEST_CASE(
    "load_balancing_loss and its gradient equal PyTorch's, and Hugging Face's is K times as "
    "large") {
    const Matrix logits = fixture<2>("18_experts/router_logits");
    const RouterLoss result =
        load_balancing_loss(logits, route(logits, 3, SoftmaxRouting{}).experts);
    CHECK(3 * result.loss == doctest::Approx(double(fixture<1>("18_experts/aux_loss")(0))));
    CHECK_CLOSE(Matrix(result.logits_gradient * Real(3)),
                fixture<2>("18_experts/aux_loss_logits_gradient"), 1e-6);
}

TEST_CASE("router_z_loss and its gradient equal PyTorch's") {
    const Matrix logits = fixture<2>("18_experts/router_logits");
    const RouterLoss result = router_z_loss(logits);
    CHECK(result.loss == doctest::Approx(double(fixture<1>("18_experts/z_loss")(0))));
    CHECK_CLOSE(result.logits_gradient, fixture<2>("18_experts/z_loss_logits_gradient"), 1e-5);
}

TEST_CASE("router_z_loss of large logits is finite") {
    const RouterLoss result = router_z_loss({{-1000, 0, 1000}});
    CHECK(result.loss == doctest::Approx(1e6));
    CHECK_CLOSE(result.logits_gradient, (Matrix{{0, 0, 2000}}), 1e-3);
}

TEST_CASE("the load-balancing loss is 1 if balanced, and E if one expert gets everything") {
    const Matrix uniform = xt::zeros<Real>({4, 4});
    CHECK(load_balancing_loss(uniform, {{0}, {1}, {2}, {3}}).loss == doctest::Approx(1));
    CHECK(load_balancing_loss(uniform, {{0}, {0}, {0}, {0}}).loss == doctest::Approx(1));
    Matrix one_sided = xt::zeros<Real>({4, 4});
    xt::view(one_sided, xt::all(), 2) = Real(50);
    CHECK(load_balancing_loss(one_sided, {{2}, {2}, {2}, {2}}).loss == doctest::Approx(4));
    CHECK_THROWS_WITH_AS(load_balancing_loss(uniform, {{0}, {1}}),
                         "load_balancing_loss: experts of (2, 1) do not match logits of (4, 4)",
                         ValueError);
}

TEST_CASE("the gradient of the load-balancing loss lowers the logit of the crowded expert") {
    const Matrix logits = {{2, 1, 0}, {2, 0, 1}, {2, 1, 1}};
    const Matrix gradient = load_balancing_loss(logits, {{0}, {0}, {0}}).logits_gradient;
    for (std::size_t n = 0; n < 3; ++n) {
        CHECK(gradient(n, 0) > 0);  // gradient descent subtracts it
        CHECK(gradient(n, 1) < 0);
        CHECK(gradient(n, 2) < 0);
    }
}

TEST_CASE("update_correction_bias: up below the mean load, down above it, unchanged at it") {
    Vector bias = {1, 1, 1, 1};
    update_correction_bias(bias, {0.125f, 0.5f, 0.25f, 0.125f}, Real(0.01));
    CHECK_CLOSE(bias, (Vector{1.01f, 0.99f, 1, 1.01f}), 1e-6);
    CHECK_THROWS_WITH_AS(update_correction_bias(bias, {0.5f, 0.5f}, 1),
                         "update_correction_bias: a bias of (4,) does not match a load of (2,)",
                         ValueError);
}

TEST_CASE("update_correction_bias balances a router that prefers one expert") {
    Generator generator(3);
    Matrix logits = randn({400, 6}, generator);
    xt::view(logits, xt::all(), 4) += Real(2);
    SigmoidRouting routing{xt::zeros<Real>({6})};
    CHECK(max_violation(expert_load(route(logits, 2, routing).experts, 6)) > 1);
    for (int step = 0; step < 500; ++step)
        update_correction_bias(routing.e_score_correction_bias,
                               expert_load(route(logits, 2, routing).experts, 6), Real(0.002));
    CHECK(max_violation(expert_load(route(logits, 2, routing).experts, 6)) < 0.1);
}

TEST_CASE("expert_capacity is rounded up") {
    CHECK(expert_capacity(10, 4, 1.0) == 3);
    CHECK(expert_capacity(12, 4, 1.0) == 3);
    CHECK(expert_capacity(12, 4, 1.25) == 4);
    CHECK(expert_capacity(12, 4, 0.1) == 1);
    for (const double factor : {0.0, -1.0, double(NAN)})
        CHECK_THROWS_WITH_AS(expert_capacity(12, 4, factor),
                             "expert_capacity: the capacity factor must be above 0",
                             ValueError);
}

TEST_CASE("drop_over_capacity keeps the first tokens of each expert") {
    const Dispatch dispatch = dispatch_tokens({{2, 0}, {2, 3}, {2, 0}, {1, 2}}, 5);
    const Dispatch kept = drop_over_capacity(dispatch, 2);
    CHECK(kept.tokens == std::vector<std::size_t>{0, 2, 3, 0, 1, 1});
    CHECK(kept.slots == std::vector<std::size_t>{1, 1, 0, 0, 0, 1});
    CHECK(kept.first_row == std::vector<std::size_t>{0, 2, 3, 5, 6, 6});
}

TEST_CASE("a token whose experts are full gets 0, and no other token changes") {
    Generator generator(4);
    MixtureOfExperts moe{
        make_linear(6, 3, false, generator), {}, std::nullopt, 1, TopKSoftmaxRouting{}};
    moe.router.weight.fill(0);  // equal logits: every token chooses expert 0
    for (int e = 0; e < 3; ++e)
        moe.experts.push_back(make_gated_mlp(6, 4, false, SiLU, generator));
    const Tensor3 states = randn({1, 6, 6}, generator);
    const Tensor3 full = moe(states);
    const Tensor3 dropped = moe_forward(moe, states, 1).output;  // 6 tokens, 3 experts: 2 each
    for (std::size_t t = 0; t < 6; ++t)
        for (std::size_t c = 0; c < 6; ++c)
            if (t < 2)  // a product of fewer rows rounds differently
                CHECK(dropped(0, t, c) == doctest::Approx(full(0, t, c)).epsilon(1e-6));
            else
                CHECK(dropped(0, t, c) == 0);
    CHECK(full(0, 5, 0) != 0);
}
