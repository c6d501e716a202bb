// Routers against PyTorch (tests/make/make_fixtures.py), by hand, and against each other.
#include <cmath>

#include "chapters/18_experts/router.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

struct PublishedRouting {
    std::string name;
    Routing routing;
};

// 12 experts, 4 groups of which 2 are chosen.
std::vector<PublishedRouting> published() {
    const ExpertGroups groups{4, 2};
    return {{"mixtral", SoftmaxRouting{}},
            {"qwen3_without_norm", SoftmaxRouting{.norm_topk_prob = false}},
            {"gpt_oss", TopKSoftmaxRouting{}},
            {"deepseek_v2", SoftmaxRouting{false, 16, groups}},
            {"deepseek_v3",
             SigmoidRouting{fixture<1>("18_experts/correction_bias"), true, Real(2.5), groups}},
            {"llama4", InputSigmoidRouting{}}};
}

}  // namespace

TEST_CASE("route: experts and routing weights of six published routers equal PyTorch's") {
    const Matrix logits = fixture<2>("18_experts/router_logits");
    for (const PublishedRouting& router : published()) {
        const std::string& name = router.name;
        const Routing& routing = router.routing;
        CAPTURE(name);
        const IdMatrix experts = load_ids<2>(fixture_file("18_experts/" + name + "_experts"));
        const RoutedTokens routed = route(logits, experts.shape(1), routing);
        CHECK(routed.experts == experts);
        CHECK_CLOSE(routed.weights, fixture<2>("18_experts/" + name + "_gates"), 1e-5);
    }
}

TEST_CASE("route_backward equals PyTorch's autograd") {
    const Matrix logits = fixture<2>("18_experts/router_logits");
    for (const PublishedRouting& router : published()) {
        const std::string& name = router.name;
        const Routing& routing = router.routing;
        CAPTURE(name);
        const Matrix gradient = fixture<2>("18_experts/" + name + "_gate_gradient");
        const RoutedTokens routed = route(logits, gradient.shape(1), routing);
        CHECK_CLOSE(route_backward(logits, routed, routing, gradient),
                    fixture<2>("18_experts/" + name + "_logits_gradient"), 1e-5);
    }
}

TEST_CASE(
    "softmax then renormalize, and softmax over the chosen, are the same routing weights") {
    Generator generator(3);
    const Matrix logits = randn({50, 9}, generator) * Real(3);
    const RoutedTokens mixtral = route(logits, 3, SoftmaxRouting{});
    const RoutedTokens gpt_oss = route(logits, 3, TopKSoftmaxRouting{});
    CHECK(mixtral.experts == gpt_oss.experts);
    CHECK_CLOSE(mixtral.weights, gpt_oss.weights, 1e-6);
    const Matrix gradient = randn({50, 3}, generator);
    CHECK_CLOSE(route_backward(logits, mixtral, SoftmaxRouting{}, gradient),
                route_backward(logits, gpt_oss, TopKSoftmaxRouting{}, gradient), 1e-5);
}

TEST_CASE("the correction bias decides the choice and is in no routing weight") {
    const Matrix logits = {{0, 2, 1, -1}};
    const SigmoidRouting plain{xt::zeros<Real>({4})}, biased{{0, -10, 0, 10}};
    CHECK(route(logits, 2, plain).experts == IdMatrix{{1, 2}});
    const RoutedTokens routed = route(logits, 2, biased);
    CHECK(routed.experts == IdMatrix{{3, 2}});
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    const double sum = sigmoid(-1) + sigmoid(1);
    CHECK(routed.weights(0, 0) == doctest::Approx(sigmoid(-1) / sum));
    CHECK(routed.weights(0, 1) == doctest::Approx(sigmoid(1) / sum));
}

TEST_CASE("experts with equal scores: the lower index comes first") {
    const Matrix logits = {{1, 3, 3, 3, 0}};
    CHECK(route(logits, 2, TopKSoftmaxRouting{}).experts == IdMatrix{{1, 2}});
    CHECK(route(logits, 2, TopKSoftmaxRouting{}).weights == Matrix{{0.5f, 0.5f}});
    CHECK(route(xt::zeros<Real>({1, 100}), 5, SoftmaxRouting{}).experts ==
          IdMatrix{{0, 1, 2, 3, 4}});
}

TEST_CASE("experts of groups that are not chosen lose, also against negative scores") {
    // Sigmoids minus 2 are below 0. Group 0 has the two largest scores.
    const SigmoidRouting routing{{-2, -2, -2, -2}, true, 1, {2, 1}};
    CHECK(route({{3, 2, 1, 0.9f}}, 2, routing).experts == IdMatrix{{0, 1}});
    CHECK(route({{1, 0.9f, 3, 2}}, 2, routing).experts == IdMatrix{{2, 3}});
}

TEST_CASE("routing weights whose sigmoids underflow are 0, and so is their gradient") {
    const SigmoidRouting routing{xt::zeros<Real>({4}), true, 1};  // norm_topk_prob
    // sigmoid(-50) is 1.9e-22; DeepSeek-V3 adds 1e-20 to the sum.
    const std::vector<std::pair<Real, double>> routing_weights = {
        {-20, 0.5}, {-50, 0.0185711}, {-100, 0}, {-200, 0}};
    for (const auto& [logit, routing_weight] : routing_weights) {
        const Matrix logits = xt::ones<Real>({1, 4}) * logit;
        const RoutedTokens routed = route(logits, 2, routing);
        CHECK(routed.weights(0, 0) == doctest::Approx(routing_weight));
        const Matrix upstream = {{1, -1}};
        for (const Real gradient : route_backward(logits, routed, routing, upstream))
            CHECK(std::isfinite(gradient));
    }
}

TEST_CASE("route names numbers that do not fit") {
    const Matrix logits = xt::zeros<Real>({2, 6});
    CHECK_THROWS_WITH_AS(route(logits, 7, SoftmaxRouting{}), "route: 7 experts per token of 6",
                         ValueError);
    CHECK_THROWS_WITH_AS(route(logits, 0, SoftmaxRouting{}), "route: 0 experts per token of 6",
                         ValueError);
    CHECK_THROWS_WITH_AS(route(logits, 2, SoftmaxRouting{true, 1, {4, 1}}),
                         "route: 1 of 4 groups do not fit 6 experts", ValueError);
    CHECK_THROWS_WITH_AS(route(logits, 3, SoftmaxRouting{true, 1, {3, 1}}),
                         "route: 3 experts per token cannot come from 1 of 3 groups of 2 "
                         "experts",
                         ValueError);
    CHECK_THROWS_WITH_AS(route(logits, 2, SigmoidRouting{xt::zeros<Real>({5})}),
                         "route: a correction bias of 5 does not fit 6 experts", ValueError);
    const RoutedTokens routed = route(logits, 2, SoftmaxRouting{});
    CHECK_THROWS_WITH_AS(
        route_backward(logits, routed, SoftmaxRouting{}, xt::zeros<Real>({2, 3})),
        "route_backward: a gradient of (2, 3) does not match routing weights of (2, 2)",
        ValueError);
}
