// The gradients of chapter 18 against central differences of a loss, in double.
#include "tests/support/finite_differences.hpp"
#include "chapters/18_experts/moe_decoder.hpp"

using namespace llm;
using namespace llm::finite_differences;

namespace {

constexpr std::size_t E = 4;

MixtureOfExperts random_moe(const Routing& routing) {
    MixtureOfExperts moe{{random_matrix(E, C, 1), std::nullopt}, {}, {}, 2, routing};
    for (std::uint32_t e = 0; e < E; ++e)
        moe.experts.push_back(GatedMlp{{random_matrix(F, C, 10 + e), std::nullopt},
                                       {random_matrix(F, C, 20 + e), std::nullopt},
                                       {random_matrix(C, F, 30 + e), std::nullopt},
                                       SiLU});
    moe.shared = std::get<GatedMlp>(moe.experts[0]);
    if (std::holds_alternative<SoftmaxRouting>(routing))
        moe.shared_gate = Linear{random_matrix(1, C, 40) * 0.3, std::nullopt};
    return moe;
}

void add_parameters(ParameterList& list, MixtureOfExperts& moe) {
    llm::add_parameters(list, "router", moe.router);
    for (Expert& expert : moe.experts)
        llm::add_parameters(list, "expert", std::get<GatedMlp>(expert));
    llm::add_parameters(list, "shared", *moe.shared);
    if (moe.shared_gate) llm::add_parameters(list, "shared_gate", *moe.shared_gate);
}

}  // namespace

TEST_CASE("moe_backward against central differences: input, router, experts") {
    for (const Routing& routing :
         {Routing{SoftmaxRouting{}}, Routing{SoftmaxRouting{false, 2}},
          Routing{TopKSoftmaxRouting{}}, Routing{SigmoidRouting{random_vector(E, 7)}},
          Routing{InputSigmoidRouting{}}}) {
        CAPTURE(routing.index());
        MixtureOfExperts moe = random_moe(routing);
        Tensor3 input = random_states(C, 3);
        const Loss<3> loss(input.shape());
        const MoeActivations saved = moe_forward(moe, input).activations;
        MixtureOfExperts gradient = moe;
        ParameterList gradients, parameters;
        add_parameters(gradients, gradient);
        add_parameters(parameters, moe);
        for (const Parameter& parameter : gradients)
            std::fill(parameter.values.begin(), parameter.values.end(), Real(0));
        const Tensor3 input_gradient = moe_backward(moe, saved, loss.weights, gradient);
        const auto value = [&] { return loss(moe(input)); };
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

TEST_CASE("moe_backward adds the gradient of another loss of the router's logits") {
    MixtureOfExperts moe = random_moe(SoftmaxRouting{});
    Tensor3 input = random_states(C, 3);
    MoeActivations saved = moe_forward(moe, input).activations;
    const Loss<2> loss(saved.router_logits.shape());
    saved.router_logits_gradient = loss.weights;
    MixtureOfExperts gradient = moe;
    gradient.router.weight.fill(0);
    const Tensor3 none = xt::zeros<Real>(input.shape());
    const Tensor3 input_gradient = moe_backward(moe, saved, none, gradient);
    const auto value = [&] { return loss(moe_forward(moe, input).activations.router_logits); };
    check_gradient("input", span_of(input), span_of(input_gradient), value);
    check_gradient("router", span_of(moe.router.weight), span_of(gradient.router.weight),
                   value);
}

namespace {

// Two layers: a mixture of experts with these settings and a dense MLP. Both have attention
// sinks.
MoeDecoder random_decoder(const MixtureOfExperts& moe) {
    Config config = small_config();
    config.qk_norm = QKNormType::without_weights;
    Generator generator(8);
    const Model model = make_model(config, generator);
    MoeDecoder decoder = with_layers(model, [](const PreNormBlock& layer) {
        return MoeBlock{make_pattern_attention(layer.self_attn, D, FullAttention{}), layer.mlp,
                        layer.attention_norm, layer.ffn_norm};
    });
    decoder.layers[0].mlp = moe;
    for (MoeBlock& layer : decoder.layers)
        layer.self_attn.score_mod.sinks = xt::zeros<Real>({H});
    for (const Parameter& parameter : named_parameters(decoder))
        for (Real& value : parameter.values) value = Real(0.5) * generator.next_normal();
    return decoder;
}

}  // namespace

TEST_CASE(
    "forward_backward against central differences: with router losses, and dropped tokens") {
    const IdMatrix input_ids = {{0, 3, 6}, {2, 2, 5}}, targets = {{3, 6, 1}, {2, 5, 4}};
    for (const bool drops : {false, true}) {
        CAPTURE(drops);
        const BalanceArguments balance{.coefficients = {0.7, 0.3}};
        MoeDecoder decoder = random_decoder(random_moe(SoftmaxRouting{}));
        if (drops) set_capacity_factor(decoder, 0.7);
        MoeDecoder gradient = zeros_like(decoder), scratch = gradient;
        const MoeLoss at_first =
            forward_backward(decoder, input_ids, targets, balance, gradient);
        CHECK((at_first.num_dropped > 0) == drops);
        const auto value = [&] {
            const MoeLoss loss =
                forward_backward(decoder, input_ids, targets, balance, scratch);
            return loss.cross_entropy + balance.coefficients.aux_loss * loss.aux_loss +
                   balance.coefficients.z_loss * loss.z_loss;
        };
        const auto parameters = named_parameters(decoder),
                   gradients = named_parameters(gradient);
        std::size_t num_sinks = 0;
        for (std::size_t p = 0; p < parameters.size(); ++p) {
            num_sinks += parameters[p].name.ends_with("sinks");
            double largest = 0;
            for (const Real g : gradients[p].values) largest = std::max(largest, std::abs(g));
            if (largest > 0)  // an expert may have no token
                check_gradient(parameters[p].name, parameters[p].values, gradients[p].values,
                               value);
        }
        CHECK(num_sinks == 2);
    }
}

TEST_CASE("mlp_backward of gpt-oss's expert against central differences") {
    ClampedGatedMlp mlp{{random_matrix(F, C, 1), random_vector(F, 2)},
                        {random_matrix(F, C, 3), random_vector(F, 4)},
                        {random_matrix(C, F, 5), random_vector(C, 6)}};
    mlp.limit = 1.5;  // so that some values are clamped
    Tensor3 input = random_states(C, 7);
    const Loss<3> loss(input.shape());
    const MlpActivations saved = mlp_forward(mlp, input).activations;
    ClampedGatedMlp gradient = mlp;
    for (Linear* linear : {&gradient.gate_proj, &gradient.up_proj, &gradient.down_proj}) {
        linear->weight.fill(0);
        linear->bias->fill(0);
    }
    const Tensor3 input_gradient = mlp_backward(mlp, saved, loss.weights, gradient);
    const auto value = [&] { return loss(mlp_forward(mlp, input).output); };
    check_gradient("input", span_of(input), span_of(input_gradient), value);
    check_gradient("gate", span_of(mlp.gate_proj.weight), span_of(gradient.gate_proj.weight),
                   value);
    check_gradient("up", span_of(mlp.up_proj.weight), span_of(gradient.up_proj.weight), value);
    check_gradient("down bias", span_of(*mlp.down_proj.bias), span_of(*gradient.down_proj.bias),
                   value);
}
