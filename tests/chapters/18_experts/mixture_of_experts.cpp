// Tokens sorted by expert against a loop over tokens.
#include "chapters/18_experts/mixture_of_experts.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

constexpr std::size_t B = 2, T = 5, C = 6, F = 4, E = 5, K = 2;

// Expert 3 is chosen by no token: all hidden states are positive, and its router weights are
// very negative.
MixtureOfExperts test_moe(const Routing& routing, bool shared) {
    Generator generator(4);
    MixtureOfExperts moe{make_linear(C, E, false, generator), {}, std::nullopt, K, routing};
    xt::view(moe.router.weight, 3, xt::all()) = Real(-50);
    for (std::size_t e = 0; e < E; ++e)
        moe.experts.push_back(make_gated_mlp(C, F, false, SiLU, generator));
    if (shared) moe.shared = make_gated_mlp(C, 2 * F, false, SiLU, generator);
    return moe;
}

Tensor3 positive_states() {
    Generator generator(5);
    return uniform({B, T, C}, Real(0.1), Real(2), generator);
}

// Each token by itself, with the routing weights of its router.
Tensor3 one_by_one(const MixtureOfExperts& moe, const Tensor3& states) {
    Tensor3 result = xt::zeros<Real>({B, T, C});
    for (std::size_t b = 0; b < B; ++b)
        for (std::size_t t = 0; t < T; ++t) {
            Matrix token = xt::view(states, b, xt::range(t, t + 1), xt::all());  // (1, C)
            const RoutedTokens routed = route(moe.router(token), K, moe.routing);
            Matrix sum = xt::zeros<Real>({std::size_t{1}, C});
            for (std::size_t k = 0; k < K; ++k) {
                const GatedMlp& expert = std::get<GatedMlp>(
                    moe.experts[static_cast<std::size_t>(routed.experts(0, k))]);
                const Real routing_weight = routed.weights(0, k);
                const bool on_input = std::holds_alternative<InputSigmoidRouting>(moe.routing);
                const Tensor3 input =
                    reshape(Matrix(token * (on_input ? routing_weight : Real(1))), {1, 1, C});
                const Tensor3 output = expert(input);
                for (std::size_t c = 0; c < C; ++c)
                    sum(0, c) += output(0, 0, c) * (on_input ? Real(1) : routing_weight);
            }
            if (moe.shared) {
                const Tensor3 output = (*moe.shared)(reshape(token, {1, 1, C}));
                for (std::size_t c = 0; c < C; ++c) sum(0, c) += output(0, 0, c);
            }
            for (std::size_t c = 0; c < C; ++c) result(b, t, c) = sum(0, c);
        }
    return result;
}

}  // namespace

TEST_CASE("dispatch_tokens by hand: sorted by expert, in the order of the tokens") {
    const Dispatch dispatch = dispatch_tokens({{2, 0}, {0, 3}, {2, 3}}, 5);
    CHECK(dispatch.tokens == std::vector<std::size_t>{0, 1, 0, 2, 1, 2});
    CHECK(dispatch.slots == std::vector<std::size_t>{1, 0, 0, 0, 1, 1});
    CHECK(dispatch.first_row == std::vector<std::size_t>{0, 2, 2, 4, 6, 6});
    CHECK_THROWS_WITH_AS(dispatch_tokens({{0, 5}}, 5), "dispatch: there is no expert 5 of 5",
                         ValueError);
}

TEST_CASE("combine_experts by hand: rows times routing weights, added by token") {
    const Dispatch dispatch = dispatch_tokens({{2, 0}, {0, 3}}, 4);
    const Matrix outputs = {{1, 2}, {10, 20}, {100, 200}, {1000, 2000}};
    CHECK_CLOSE(combine_experts(outputs, {{0.5f, 2}, {3, 0.25f}}, dispatch),
                (Matrix{{2 + 50, 4 + 100}, {30 + 250, 60 + 500}}), 1e-6);
    CHECK_CLOSE(gather_tokens({{1, 2}, {3, 4}}, dispatch),
                (Matrix{{1, 2}, {3, 4}, {1, 2}, {3, 4}}), 0);
}

TEST_CASE(
    "a mixture of experts equals a loop over tokens, also with an expert without tokens") {
    const Tensor3 states = positive_states();
    for (const bool shared : {false, true})
        for (const Routing& routing :
             {Routing{SoftmaxRouting{}}, Routing{SoftmaxRouting{false, 3}},
              Routing{TopKSoftmaxRouting{}}, Routing{SigmoidRouting{xt::zeros<Real>({E})}},
              Routing{InputSigmoidRouting{}}}) {
            CAPTURE(routing.index());
            CAPTURE(shared);
            const MixtureOfExperts moe = test_moe(routing, shared);
            CHECK_CLOSE(moe(states), one_by_one(moe, states), 1e-5);
            const Dispatch dispatch = moe_forward(moe, states).activations.dispatch;
            CHECK(dispatch.first_row[3] == dispatch.first_row[4]);
        }
}

TEST_CASE("one expert and K = 1 is the MLP of chapter 06") {
    Generator generator(6);
    const GatedMlp mlp = make_gated_mlp(C, F, false, SiLU, generator);
    const MixtureOfExperts moe{
        make_linear(C, 1, false, generator), {mlp}, std::nullopt, 1, SoftmaxRouting{}};
    CHECK_CLOSE(moe(positive_states()), mlp(positive_states()), 1e-6);
}

TEST_CASE("a router for more experts than there are is an error") {
    MixtureOfExperts moe = test_moe(SoftmaxRouting{}, false);
    moe.experts.pop_back();
    CHECK_THROWS_WITH_AS(moe(positive_states()),
                         "apply_experts: rows of 5 experts, but there are 4", ValueError);
}
