// The gradients of chapter 14 against central differences of the losses, in double.
#include "tests/support/finite_differences.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/14_fine_tuning/dpo.hpp"
#include "chapters/14_fine_tuning/grpo.hpp"
#include "chapters/14_fine_tuning/lora.hpp"

using namespace llm;
using namespace llm::finite_differences;

TEST_CASE("token_log_probs_backward and sft_loss against central differences") {
    Tensor3 logits = random_states(V, 1);
    const IdMatrix targets{{0, 6, 3}, {2, 2, 5}};
    const Matrix mask{{0, 1, 1}, {1, 0, 0}};
    const TokenLoss sft = sft_loss(token_log_probs(logits, targets), mask);
    const Tensor3 gradient = token_log_probs_backward(logits, targets, sft.gradient);
    check_gradient("logits", span_of(logits), span_of(gradient),
                   [&] { return sft_loss(token_log_probs(logits, targets), mask).loss; });
}

TEST_CASE("The gradient of DPO against central differences") {
    Matrix log_probs = random_matrix(4, 3, 2);
    const Matrix mask{{0, 1, 1}, {1, 0, 0}, {1, 1, 1}, {0, 0, 1}};
    const Vector reference = random_vector(4, 3);
    for (const Real rpo_alpha : {0.0, 0.4}) {
        const auto dpo = [&] {
            return dpo_token_loss(log_probs, mask, reference, 0.7, rpo_alpha);
        };
        const Matrix gradient = dpo().gradient;
        check_gradient("log_probs", span_of(log_probs), span_of(gradient),
                       [&] { return dpo().loss; });
    }
}

TEST_CASE("The gradient of GRPO against central differences, with both aggregations") {
    Matrix log_probs = random_matrix(4, 3, 2);
    const Matrix old = log_probs + random_matrix(4, 3, 3) * 0.3;
    const Matrix reference = random_matrix(4, 3, 4);
    const Matrix mask{{0, 1, 1}, {1, 0, 0}, {1, 1, 1}, {0, 0, 1}};
    const Vector advantages = group_advantages({1, 0, 0.5, 2}, 2);
    for (const LossAggregation aggregation :
         {LossAggregation::sequence_mean, LossAggregation::token_mean}) {
        const GrpoConfig config{0.2, 0.3, aggregation};
        const auto loss = [&] {
            return grpo_loss(log_probs, old, reference, mask, advantages, config);
        };
        const Matrix gradient = loss().gradient;
        check_gradient("log_probs", span_of(log_probs), span_of(gradient),
                       [&] { return loss().loss; });
    }
}

TEST_CASE("The gradients of LoRA on all seven modules against central differences") {
    Generator generator(1);
    const Model model = make_model(small_config(), generator);
    LoraAdapter adapter = make_lora(
        model,
        {2,
         3,
         false,
         {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}},
        generator);
    for (LoraLayer& layer : adapter.layers)
        for (Real& value : layer.lora_B) value = 0.2 * generator.next_normal();
    const IdMatrix inputs{{1, 2, 3, 0}}, targets{{2, 3, 6, 5}};
    Model model_gradient = zeros_like(model);
    forward_backward(merge_lora(model, adapter), inputs, targets, model_gradient);
    LoraAdapter gradient = zeros_like(adapter);
    lora_backward(adapter, model_gradient, gradient);
    const auto loss = [&] {
        return evaluate_loss(merge_lora(model, adapter), inputs, targets);
    };
    const std::vector<Parameter> parameters = named_parameters(adapter);
    const std::vector<Parameter> gradients = named_parameters(gradient);
    REQUIRE(parameters.size() == 28);
    for (std::size_t p = 0; p < parameters.size(); ++p)
        check_gradient(parameters[p].name, parameters[p].values, gradients[p].values, loss);
}
