// For tests of expert parallelism: the gradient of one step on several ranks against that of
// one process.
#pragma once

#include "chapters/18_experts/moe_training.hpp"
#include "chapters/28_model_parallel/expert_parallel.hpp"
#include "tests/support/model_axes.hpp"

namespace llm::parallel_tests {

// How tokens are routed: 5 experts, which 2 to 4 ranks do not divide.
struct ExpertCase {
    const char* name;
    std::size_t num_experts_per_tok, n_shared_experts;
    Routing routing;
    bool has_shared_gate = false, has_dense_layer = false;
};
inline std::vector<ExpertCase> expert_cases() {
    Vector bias = xt::zeros<Real>({5});
    bias(3) = 10;  // so that all tokens choose expert 3, and no token experts 0 to 2
    return {{"one expert a token", 1, 0, SoftmaxRouting{false, Real(1.5)}},
            {"two and a shared one", 2, 1, SoftmaxRouting{}, true},
            {"gpt-oss, a dense layer", 2, 0, TopKSoftmaxRouting{}, false, true},
            {"all tokens to one expert", 1, 1, SigmoidRouting{bias, false}},
            {"Llama 4", 1, 1, InputSigmoidRouting{}}};
}

inline MoeDecoder expert_model(const ExpertCase& expert_case) {
    Generator generator(5);
    const ExpertSizes sizes{5, expert_case.num_experts_per_tok, 7,
                            expert_case.n_shared_experts};
    MoeDecoder model =
        make_moe_decoder(uneven_config(true), sizes, expert_case.routing, generator);
    if (expert_case.has_dense_layer)
        model.layers[0].mlp = uneven_model(uneven_config(true)).layers[0].mlp;
    for (MoeBlock& layer : model.layers)
        if (auto* moe = std::get_if<MixtureOfExperts>(&layer.mlp);
            moe && expert_case.has_shared_gate)
            moe->shared_gate = make_linear(model.config.hidden_size, 1, false, generator);
    for (const Parameter& parameter : named_parameters(model)) {
        generator.fill_normal(parameter.values);
        for (Real& value : parameter.values) value *= Real(0.4);
    }
    return model;
}

// The sequences of a rank, and their share of all tokens.
struct OwnSequences {
    Batch batch;
    Real share;
};
inline OwnSequences sequences_of_rank(const Batch& batch, const Communicator& ranks) {
    const std::size_t batch_size = batch.input_ids.shape(0);
    const auto [begin, size] = part_of(batch_size, ranks.size(), ranks.rank());
    return {{xt::view(batch.input_ids, xt::range(begin, begin + size)),
             xt::view(batch.targets, xt::range(begin, begin + size))},
            Real(size) / Real(batch_size)};
}

inline void check_expert_parallel(double tolerance) {
    const Real aux_loss_coef = Real(0.3);
    for (const ExpertCase& expert_case : expert_cases()) {
        CAPTURE(expert_case.name);
        const MoeDecoder model = expert_model(expert_case);
        const Batch batch = square_batch(5, 7);
        MoeDecoder expected = zeros_like(model);
        const MoeLoss loss = forward_backward(model, batch.input_ids, batch.targets,
                                              {{aux_loss_coef}}, expected);
        const double norm = grad_norm(named_parameters(expected));
        for (const std::size_t n : {1, 2, 3, 4})
            run_ranks(n, [&](Communicator& ranks) {
                CAPTURE(n);
                const ExpertParallelDecoder part = expert_parallel_part(model, ranks);
                ExpertParallelDecoder gradient = zeros_like(part);
                const auto [own, share] = sequences_of_rank(batch, ranks);
                const ExpertParallelLoss losses =
                    forward_backward(part, own, share, aux_loss_coef, ranks, gradient);
                sum_replicated_gradients(ranks, gradient);
                check_loss(ranks, losses.cross_entropy, loss.cross_entropy, tolerance);
                check_loss(ranks, losses.aux_loss, loss.aux_loss, tolerance);
                ExpertParallelDecoder expected_part = expert_parallel_part(expected, ranks);
                check_equal_parameters(named_parameters(gradient),
                                       named_parameters(expected_part), tolerance);
                CHECK(std::abs(expert_parallel_grad_norm(ranks, gradient) - norm) <=
                      tolerance * norm);
            });
    }
}

}  // namespace llm::parallel_tests
