#include "chapters/18_experts/exercise.hpp"

#include <cmath>

#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

constexpr std::size_t N = 24, E = 6, K = 2, C = 8;

Matrix random_logits(std::uint32_t seed) {
    Generator generator(seed);
    return randn({N, E}, generator) * Real(1.5);
}

void check_routing(const RoutedTokens& routed, const RoutedTokens& expected) {
    REQUIRE(routed.experts.shape() == expected.experts.shape());
    for (std::size_t n = 0; n < expected.experts.shape(0); ++n)
        for (std::size_t k = 0; k < expected.experts.shape(1); ++k) {
            INFO("token ", n, ", choice ", k, ": expert ", expected.experts(n, k),
                 " with a routing weight of ", expected.weights(n, k),
                 " is expected, not expert ", routed.experts(n, k), " with ",
                 routed.weights(n, k));
            REQUIRE(routed.experts(n, k) == expected.experts(n, k));
            REQUIRE(routed.weights(n, k) ==
                    doctest::Approx(expected.weights(n, k)).epsilon(1e-4));
        }
}

}  // namespace

TEST_CASE("18.1 find the bug: the routing weights of Mixtral") {
    const Matrix logits = random_logits(1);
    check_routing(route_like_mixtral(logits, K), route(logits, K, SoftmaxRouting{}));
    const Matrix one_sided = {{6, 1, 0}};
    INFO("logits of 6 and 1: the first routing weight must be near 1");
    CHECK(route_like_mixtral(one_sided, 2).weights(0, 0) ==
          doctest::Approx(0.9933).epsilon(1e-3));
}

TEST_CASE("18.2 find the bug: the loss that is computed must have an effect") {
    Generator generator(2);
    const Linear router = make_linear(C, E, false, generator);
    const Matrix hidden_states = randn({N, C}, generator);
    const RoutedTokens routed = route(router(hidden_states), K, SoftmaxRouting{});
    const Matrix routing_weight_gradient = randn({N, K}, generator);
    const Matrix none = xt::zeros<Real>({N, K});
    const Matrix without =
        router_weight_gradient(router, hidden_states, routed, routing_weight_gradient, 0);
    const Matrix with =
        router_weight_gradient(router, hidden_states, routed, routing_weight_gradient, 3);
    CHECK(xt::amax(xt::abs(without))() > 0);

    // Against differences of 3 times the loss, for one weight of each expert.
    const Matrix balancing = with - without;
    for (std::size_t e = 0; e < E; ++e) {
        Linear above = router, below = router;
        above.weight(e, 1) += Real(0.01);
        below.weight(e, 1) -= Real(0.01);
        const double difference =
            3 *
            (load_balancing_loss(above(hidden_states), routed.experts).loss -
             load_balancing_loss(below(hidden_states), routed.experts).loss) /
            0.02;
        INFO("expert ", e, ": the gradient of 3 times the load-balancing loss is ", difference,
             ", not ", balancing(e, 1));
        REQUIRE(double(balancing(e, 1)) == doctest::Approx(difference).epsilon(0.02));
    }
    CHECK_CLOSE(router_weight_gradient(router, hidden_states, routed, none, 3), balancing,
                1e-4);
}

TEST_CASE("18.3 find the bug: a bias that was trained") {
    const Matrix logits = random_logits(3);
    const Vector bias = {0.3f, -0.2f, 0, 0.5f, -0.4f, 0.1f};
    check_routing(route_like_deepseek(logits, bias, 3), route(logits, 3, SigmoidRouting{bias}));
}

TEST_CASE("18.4 write split_into_experts: the experts add up to the MLP") {
    Generator generator(4);
    const GatedMlp mlp = make_gated_mlp(C, 12, false, SiLU, generator);
    const Tensor3 states = randn({2, 3, C}, generator);
    for (const std::size_t count : {1, 3, 12}) {
        const std::vector<GatedMlp> experts = split_into_experts(mlp, count);
        REQUIRE(experts.size() == count);
        CHECK(experts[0].gate_proj.weight.shape(0) == 12 / count);
        Tensor3 sum = xt::zeros<Real>(states.shape());
        for (const GatedMlp& expert : experts) sum += expert(states);
        CHECK_CLOSE(sum, mlp(states), 1e-5);
    }
    CHECK_THROWS_AS(split_into_experts(mlp, 5), ValueError);
}

TEST_CASE("18.5 write expert_choice: each expert processes its most probable tokens") {
    Generator generator(5);
    const Linear router = make_linear(C, 3, false, generator);
    std::vector<GatedMlp> experts;
    for (int e = 0; e < 3; ++e) experts.push_back(make_gated_mlp(C, 5, false, SiLU, generator));
    const Tensor3 states = randn({2, 5, C}, generator) * Real(2);

    // By hand: expert e processes token n if fewer than `capacity` tokens have a larger
    // probability for it.
    const auto expected = [&](std::size_t capacity) {
        Tensor3 result = xt::zeros<Real>(states.shape());
        for (std::size_t e = 0; e < 3; ++e) {
            const Tensor3 output = experts[e](states);
            std::vector<double> probability;
            for (std::size_t n = 0; n < 10; ++n) {
                const Tensor3 token =
                    xt::view(states, xt::range(n / 5, n / 5 + 1), xt::range(n % 5, n % 5 + 1));
                const Tensor3 logits = router(token);
                double sum = 0;
                for (const Real logit : logits) sum += std::exp(double(logit));
                probability.push_back(std::exp(double(logits(0, 0, e))) / sum);
            }
            for (std::size_t n = 0; n < 10; ++n) {
                std::size_t rank = 0;
                for (const double other : probability) rank += other > probability[n];
                for (std::size_t c = 0; rank < capacity && c < C; ++c)
                    result(n / 5, n % 5, c) +=
                        static_cast<Real>(probability[n]) * output(n / 5, n % 5, c);
            }
        }
        return result;
    };
    for (const std::size_t capacity : {1, 4, 10, 20}) {
        CAPTURE(capacity);
        REQUIRE_CLOSE(expert_choice(router, experts, states, capacity), expected(capacity),
                      1e-5);
    }
}

TEST_CASE("18.6 predict: parameters in total, and active ones") {
    const Vector predicted = predicted_parameters();
    const Real expert = 12.0f / 4;  // millions
    INFO("in total: 16 experts and a shared one; active: 4 and the shared one");
    CHECK_CLOSE(predicted, (Vector{17 * expert, 5 * expert}), 1e-3);
}

TEST_CASE("18.7 predict: routing weights of three routers") {
    const Matrix logits = {{std::log(Real(4)), std::log(Real(2)), 0, 0}};
    const Vector predicted = predicted_routing_weights();
    const Vector routing_weights = {route(logits, 2, SoftmaxRouting{}).weights(0, 0),
                                    route(logits, 2, SoftmaxRouting{false}).weights(0, 0),
                                    route(logits, 1, InputSigmoidRouting{}).weights(0, 0)};
    CHECK_CLOSE(predicted, routing_weights, 0.005);
}

TEST_CASE("18.8 predict: dropped choices") {
    IdMatrix balanced(std::array{std::size_t{64}, std::size_t{2}}), same = balanced;
    for (std::size_t n = 0; n < 64; ++n)
        for (std::size_t k = 0; k < 2; ++k) {
            balanced(n, k) = static_cast<Id>((2 * n + k) % 8);
            same(n, k) = static_cast<Id>(k);
        }
    const std::size_t capacity = expert_capacity(128, 8, 1.25);
    const auto dropped = [&](const IdMatrix& experts) {
        const Dispatch kept = drop_over_capacity(dispatch_tokens(experts, 8), capacity);
        return static_cast<Real>(128 - kept.tokens.size());
    };
    const Vector predicted = predicted_dropped();
    CHECK_CLOSE(predicted, (Vector{dropped(balanced), dropped(same)}), 0);
}

TEST_CASE("18.9 write sequence_balance_loss") {
    // Two tokens, two experts, K = 1: both choose expert 0, with p = 2/3 and 3/4.
    const Real ln2 = std::log(Real(2)), high = std::log(Real(9));
    const Matrix by_hand{{ln2, -ln2}, {high, -std::log(Real(7) / 3)}};  // s: 2/3 1/3, 9/10 3/10
    INFO("scores 2/3, 1/3 and 9/10, 3/10: the loss is 2 (2/3 + 3/4) / 2");
    REQUIRE(sequence_balance_loss(by_hand, 1).loss == doctest::Approx(17.0 / 12));
    const Matrix logits = random_logits(9);
    for (const std::size_t num_chosen : {1u, 2u, 5u}) {
        const RouterLoss result = sequence_balance_loss(logits, num_chosen);
        for (const std::size_t n : {0u, 7u, 23u})
            for (std::size_t e = 0; e < E; ++e) {
                Matrix above = logits, below = logits;
                above(n, e) += Real(0.002);
                below(n, e) -= Real(0.002);
                const double difference = (sequence_balance_loss(above, num_chosen).loss -
                                           sequence_balance_loss(below, num_chosen).loss) /
                                          0.004;
                INFO("K = ", num_chosen, ", token ", n, ", expert ", e, ": the derivative is ",
                     difference, ", not ", result.logits_gradient(n, e));
                REQUIRE(double(result.logits_gradient(n, e)) ==
                        doctest::Approx(difference).epsilon(0.03).scale(0.003));
            }
    }
}
