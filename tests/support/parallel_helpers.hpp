// For tests of training on several ranks: one step on them against one step of one process.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <mutex>

#include "chapters/24_parallel/sharded_model.hpp"
#include "common/parallel/thread_ranks.hpp"
#include "tests/support/tiny_run.hpp"

namespace llm::parallel_tests {

// A model of 2 layers with H 4, Hkv 2, and what it is trained on: tokens i² mod 11, of which a
// 9 begins a document, so that documents have unequal lengths.
struct Task {
    Model model;
    TrainingArguments args;
    std::vector<Id> tokens;
};
inline Task make_task(bool tied, std::size_t batch_size, std::size_t num_batches) {
    Config config = tiny_config(2);
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.attention_bias = AttentionBias::qkv;
    config.tie_word_embeddings = tied;
    Generator generator(5);
    Task task{make_model(config, generator), {}, square_tokens(200)};
    init_normal(task.model, Real(0.3), generator);
    task.args.batch_size = batch_size;
    task.args.gradient_accumulation_steps = num_batches;
    task.args.seq_len = 7;
    task.args.max_grad_norm = 1e9;
    task.args.end_of_text_id = 9;
    task.args.lr_schedule = {Real(0.01), Real(0.001), 2, 20};
    return task;
}

// What a step leaves.
struct Result {
    StepMetrics metrics;
    Model gradient, model;
    std::vector<std::vector<Real>> exp_avg;  // of the whole model only in stage none
};

inline Result one_process(const Task& task, std::size_t num_steps = 1) {
    TrainerState state = make_trainer_state(task.model, task.args);
    std::vector<Model> gradients(task.args.gradient_accumulation_steps, zeros_like(task.model));
    StepMetrics metrics{};
    for (std::size_t step = 0; step < num_steps; ++step)
        metrics = train_step(state, task.args, task.tokens, gradients);
    return {metrics, gradients[0], state.model, state.optimizer.exp_avg};
}

// The result of one rank, whose gradient is collected from all.
inline Result on_ranks(Communicator& ranks, const Task& task, ZeroStage stage,
                       std::size_t num_steps = 1) {
    const auto& [model, args, tokens] = task;
    StepMetrics metrics{};
    if (stage == ZeroStage::none || stage == ZeroStage::optimizer_states) {
        const bool is_sharded = stage == ZeroStage::optimizer_states;
        TrainerState state = is_sharded ? make_sharded_optimizer(ranks, model, args)
                                        : make_trainer_state(model, args);
        std::vector<Model> gradients(num_batches_of_rank(args, ranks.size()),
                                     zeros_like(model));
        for (std::size_t step = 0; step < num_steps; ++step)
            metrics = is_sharded ? sharded_optimizer_step(ranks, state, args, tokens, gradients)
                                 : data_parallel_step(ranks, state, args, tokens, gradients);
        Model gradient = gradients[0];
        if (is_sharded)
            gather_shards(ranks, flatten(shard_of_rank(ranks, gradients[0])), gradient);
        return {metrics, gradient, state.model, state.optimizer.exp_avg};
    }
    TrainerState state = make_sharded_optimizer(ranks, model, args);
    ShardedModel sharded(ranks, model, stage);
    for (std::size_t step = 0; step < num_steps; ++step)
        metrics = sharded_model_step(ranks, sharded, state, args, tokens);
    Model gradient = model;
    gather_shards(ranks, flatten(sharded.gradient_shard()), gradient);
    return {metrics, gradient, sharded.gather(), state.optimizer.exp_avg};
}

// Compares each parameter: the largest difference, as a share of the largest entry. (An entry
// of the gradient that is rounding alone, k_proj's bias, is compared with that share of the
// largest of all.)
inline void check_equal_parameters(const std::vector<Parameter>& a,
                                   const std::vector<Parameter>& e, double tolerance,
                                   double share_of_largest = 1e-4) {
    REQUIRE(a.size() == e.size());
    double largest_of_all = 0;
    for (const Parameter& parameter : e)
        for (const Real x : parameter.values)
            largest_of_all = std::max(largest_of_all, std::abs(double(x)));
    for (std::size_t p = 0; p < e.size(); ++p) {
        double largest = share_of_largest * largest_of_all, difference = 0;
        for (std::size_t i = 0; i < e[p].values.size(); ++i) {
            largest = std::max(largest, std::abs(double(e[p].values[i])));
            difference =
                std::max(difference, std::abs(double(a[p].values[i]) - double(e[p].values[i])));
        }
        CHECK_MESSAGE(difference <= tolerance * largest, e[p].name, ": ", difference, " of ",
                      largest);
    }
}

inline void check_equal(Model actual, Model expected, double tolerance,
                        double share_of_largest = 1e-4) {
    check_equal_parameters(named_parameters(actual), named_parameters(expected), tolerance,
                           share_of_largest);
}

inline constexpr std::array all_stages = {ZeroStage::none, ZeroStage::optimizer_states,
                                          ZeroStage::gradients, ZeroStage::parameters};

// Loss, norm and each parameter's gradient of a step on 1 to 4 ranks, in each stage, with tied
// and untied heads, and with sequences that 2, 3 or 4 do not divide.
inline void check_gradients(double tolerance) {
    struct Case {
        bool tied;
        std::size_t batch_size, num_batches;
    };
    for (const auto& [tied, batch_size, num_batches] :
         {Case{true, 5, 1}, Case{false, 2, 4}, Case{true, 1, 5}}) {
        const Task task = make_task(tied, batch_size, num_batches);
        const Result expected = one_process(task);
        for (const ZeroStage stage : all_stages)
            for (const std::size_t num_ranks : {1, 2, 3, 4}) {
                CAPTURE(int(stage));
                CAPTURE(num_ranks);
                run_ranks(num_ranks, [&](Communicator& ranks) {
                    const Result result = on_ranks(ranks, task, stage);
                    CHECK(std::abs(result.metrics.loss - expected.metrics.loss) <=
                          tolerance * expected.metrics.loss);
                    CHECK(std::abs(result.metrics.grad_norm - expected.metrics.grad_norm) <=
                          tolerance * expected.metrics.grad_norm);
                    check_equal(result.gradient, expected.gradient, tolerance);
                });
            }
    }
}

}  // namespace llm::parallel_tests
