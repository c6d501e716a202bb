// The gradients of a module for multi-token prediction against central differences of the loss,
// in double.
#include "tests/support/finite_differences.hpp"
#include "chapters/22_speculation/mtp_module.hpp"

using namespace llm;
using namespace llm::finite_differences;

namespace {

// A target of one layer with an untied head, and a module whose parameters are random.
struct Case {
    Model target;
    MtpModule module;

    Case() {
        Generator generator(1);
        Config config = small_config();
        config.num_hidden_layers = 1;
        config.rms_norm_eps = 1e-3;
        config.tie_word_embeddings = false;
        target = make_model(config, generator);
        module = make_mtp_module(config, generator);
        for (const Parameter& parameter : named_parameters(module))
            for (Real& value : parameter.values) value = Real(0.5) * generator.next_normal();
    }
};

void check_all(MtpModule& module, MtpModule& gradient, const std::function<double()>& loss) {
    const std::vector<Parameter> parameters = named_parameters(module);
    const std::vector<Parameter> gradients = named_parameters(gradient);
    for (std::size_t p = 0; p < parameters.size(); ++p)
        check_gradient(parameters[p].name, parameters[p].values, gradients[p].values, loss);
}

}  // namespace

TEST_CASE("mtp_backward: all parameters of the module") {
    Case tested;
    MtpModule& module = tested.module;
    MtpModule gradient = zeros_like(module);
    const Tensor3 embeddings = random_states(C, 3), hidden_states = random_states(C, 4);
    const AttentionInputs inputs = causal_attention_inputs(small_config(), B, T);
    const Loss<3> loss_of({B, T, C});
    mtp_backward(module, mtp_forward(module, embeddings, hidden_states, inputs).activations,
                 loss_of.weights, gradient);
    check_all(module, gradient, [&] {
        return loss_of(mtp_forward(module, embeddings, hidden_states, inputs).output);
    });
}

TEST_CASE("forward_backward of an MTP module: through the frozen head of the target") {
    Case tested;
    const Model& target = tested.target;
    MtpModule& module = tested.module;
    MtpModule gradient = zeros_like(module);
    const MtpBatch batch = make_mtp_batch(target, {{3, 6, 0, 5, 5}, {1, 1, 2, 3, 4}},
                                          {{6, 0, 5, 5, 2}, {1, 2, 3, 4, 0}});
    const double loss = forward_backward(module, target, batch, gradient);
    const auto loss_again = [&] {
        return cross_entropy(mtp_logits(module, target, batch), batch.targets);
    };
    CHECK(loss == doctest::Approx(loss_again()).epsilon(1e-12));
    check_all(module, gradient, loss_again);
}
