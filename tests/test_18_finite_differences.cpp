// The gradients of chapter 18 against central differences of a loss, in double.
#include "chapters/18_experts/mixture_of_experts.hpp"
#include "tests/finite_differences.hpp"

using namespace llm;
using namespace llm::finite_differences;

namespace {

constexpr std::size_t E = 4;

MixtureOfExperts random_mixture(const Routing& routing) {
    MixtureOfExperts mixture{{random_matrix(E, C, 1), std::nullopt}, {}, {}, 2, routing};
    for (std::uint32_t e = 0; e < E; ++e)
        mixture.experts.push_back({{random_matrix(F, C, 10 + e), std::nullopt},
                                   {random_matrix(F, C, 20 + e), std::nullopt},
                                   {random_matrix(C, F, 30 + e), std::nullopt},
                                   SiLU});
    mixture.shared = mixture.experts[0];
    return mixture;
}

void add_parameters(ParameterList& list, MixtureOfExperts& mixture) {
    llm::add_parameters(list, "router", mixture.router);
    for (GatedMlp& expert : mixture.experts) llm::add_parameters(list, "expert", expert);
    llm::add_parameters(list, "shared", *mixture.shared);
}

}  // namespace

TEST_CASE("mixture_backward against central differences: input, router, experts") {
    for (const Routing& routing :
         {Routing{SoftmaxRouting{}}, Routing{SoftmaxRouting{false, 2}},
          Routing{TopKSoftmaxRouting{}}, Routing{SigmoidRouting{random_vector(E, 7)}},
          Routing{InputSigmoidRouting{}}}) {
        CAPTURE(routing.index());
        MixtureOfExperts mixture = random_mixture(routing);
        Tensor3 input = random_states(C, 3);
        const Loss<3> loss(input.shape());
        MixtureActivations saved;
        mixture_forward(mixture, input, saved);
        MixtureOfExperts gradient = mixture;
        ParameterList gradients, parameters;
        add_parameters(gradients, gradient);
        add_parameters(parameters, mixture);
        for (const Parameter& parameter : gradients)
            std::fill(parameter.values.begin(), parameter.values.end(), Real(0));
        const Tensor3 input_gradient = mixture_backward(mixture, saved, loss.weights, gradient);
        const auto value = [&] { return loss(mixture(input)); };
        check_gradient("input", span_of(input), span_of(input_gradient), value);
        for (std::size_t p = 0; p < parameters.size(); ++p) {
            double largest = 0;
            for (const Real g : gradients[p].values) largest = std::max(largest, std::abs(g));
            if (largest > 0)  // an expert may have no token
                check_gradient(parameters[p].name, parameters[p].values, gradients[p].values,
                               value);
        }
    }
}

TEST_CASE("mixture_backward adds the gradient of another loss of the router's logits") {
    MixtureOfExperts mixture = random_mixture(SoftmaxRouting{});
    Tensor3 input = random_states(C, 3);
    MixtureActivations saved;
    mixture_forward(mixture, input, saved);
    const Loss<2> loss(saved.router_logits.shape());
    MixtureOfExperts gradient = mixture;
    gradient.router.weight.fill(0);
    const Tensor3 none = xt::zeros<Real>(input.shape());
    const Tensor3 input_gradient =
        mixture_backward(mixture, saved, none, gradient, loss.weights);
    const auto value = [&] {
        mixture_forward(mixture, input, saved);
        return loss(saved.router_logits);
    };
    check_gradient("input", span_of(input), span_of(input_gradient), value);
    check_gradient("router", span_of(mixture.router.weight), span_of(gradient.router.weight),
                   value);
}
