#include "chapters/13_training/trainer.hpp"

#include <numeric>

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/training_loop.hpp"
#include "common/system/interrupt.hpp"
#include "common/system/parallel.hpp"

namespace llm {

Model make_model_for_training(const Config& config, Generator& generator) {
    Model model = make_model(config, generator);
    init_normal(model, Real(0.02), generator);
    for (PreNormBlock& layer : model.layers) {
        auto& [q_proj, k_proj, v_proj, o_proj] = layer.self_attn.projections;
        for (Linear* linear : {&q_proj, &k_proj, &v_proj, &o_proj})
            if (linear->bias) linear->bias->fill(0);
        o_proj = scale_for_depth(o_proj, config.num_hidden_layers);
        layer.mlp.down_proj = scale_for_depth(layer.mlp.down_proj, config.num_hidden_layers);
    }
    return model;
}

TrainerState make_trainer_state(const Model& model, const TrainingArguments& args) {
    TrainerState state{model, {}, {}, 0, {}};
    state.optimizer.weight_decay = state.muon.weight_decay = args.weight_decay;
    const auto [adamw, muon] = parameter_groups(named_parameters(state.model), args.optimizer);
    state.optimizer.reset(adamw);
    state.muon.reset(muon);
    return state;
}

ParameterGroups parameter_groups(const std::vector<Parameter>& parameters,
                                 OptimizerType hidden_matrices) {
    ParameterGroups groups;
    for (const Parameter& parameter : parameters) {
        const bool is_of_muon =
            hidden_matrices == OptimizerType::muon && is_hidden_matrix(parameter);
        (is_of_muon ? groups.muon : groups.adamw).push_back(parameter);
    }
    return groups;
}

AttentionInputs attention_inputs(const Config& config, const TrainingArguments& args,
                                 const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    const RotaryTable table = rotary_tables(config, seq_len).front();
    if (args.end_of_text_id)
        return document_attention_inputs(table, input_ids, *args.end_of_text_id);
    return causal_attention_inputs(table, batch_size, seq_len);
}

namespace {

// The generator of a step. The multiplier (Knuth's 2^32 / golden ratio) makes the seeds of
// consecutive steps differ in many bits.
Generator step_generator(std::uint32_t seed, std::size_t step) {
    Generator mixer(seed);
    const auto number = static_cast<std::uint32_t>(step);
    return Generator(mixer.next_32_bits() ^ (number * 2654435761u));
}

}  // namespace

std::vector<StepBatch> sample_batches(const TrainingArguments& args, std::size_t step,
                                      const std::vector<Id>& tokens) {
    Generator generator = step_generator(args.seed, step);
    std::vector<StepBatch> batches(args.gradient_accumulation_steps);
    for (StepBatch& micro_batch : batches)
        micro_batch.batch = random_batch(tokens, args.batch_size, args.seq_len, generator);
    for (StepBatch& micro_batch : batches) micro_batch.dropout_seed = generator.next_32_bits();
    return batches;
}

StepMetrics update_parameters(TrainerState& state, const TrainingArguments& args, double loss,
                              const std::vector<Parameter>& parameters,
                              const std::vector<Parameter>& gradients, double norm) {
    clip_grads_with_norm(gradients, args.max_grad_norm, norm);
    const Real learning_rate = learning_rate_at(args.lr_schedule, state.global_step);
    const ParameterGroups groups = parameter_groups(parameters, args.optimizer);
    const ParameterGroups gradient_groups = parameter_groups(gradients, args.optimizer);
    state.optimizer.step(groups.adamw, gradient_groups.adamw, learning_rate);
    state.muon.step(groups.muon, gradient_groups.muon, learning_rate);
    state.losses.push_back(static_cast<Real>(loss));
    ++state.global_step;
    return {loss, norm, learning_rate};
}

StepMetrics train_step(TrainerState& state, const TrainingArguments& args,
                       const std::vector<Id>& tokens, std::vector<Model>& gradients) {
    const std::size_t num_batches = args.gradient_accumulation_steps;
    require(num_batches > 0 && gradients.size() == num_batches,
            "training: {} gradients for {} batches", gradients.size(), num_batches);

    // Compute the mean loss and the mean gradient of the micro-batches.
    const std::vector<StepBatch> batches = sample_batches(args, state.global_step, tokens);
    const auto loss_and_gradient = [&](std::size_t i, Model& gradient) {
        const auto& [batch, dropout_seed] = batches[i];
        Generator dropout_generator(dropout_seed);
        const AttentionInputs inputs =
            attention_inputs(state.model.config, args, batch.input_ids);
        return forward_backward(state.model, batch.input_ids, batch.targets, inputs, gradient,
                                &dropout_generator);
    };
    const double loss = mean_loss_and_gradient<Model>(gradients, loss_and_gradient);

    const std::vector<Parameter> gradient = named_parameters(gradients[0]);
    return update_parameters(state, args, loss, named_parameters(state.model), gradient,
                             grad_norm(gradient));
}

void train(TrainerState& state, const TrainingArguments& args, const std::vector<Id>& tokens,
           const OnStepEnd& on_step_end) {
    std::vector<Model> gradients(args.gradient_accumulation_steps, zeros_like(state.model));
    run_steps(
        state, args, [&] { return train_step(state, args, tokens, gradients); }, on_step_end);
}

void run_steps(TrainerState& state, const TrainingArguments& args,
               const std::function<StepMetrics()>& take_step, const OnStepEnd& on_step_end) {
    TrainerControl control;
    while (state.global_step < args.num_steps() && !control.should_training_stop) {
        const StepMetrics metrics = take_step();
        if (on_step_end) on_step_end(metrics, control);
    }
}

double evaluate_loss(const Model& model, const std::vector<Id>& tokens,
                     const TrainingArguments& args, std::size_t max_batches) {
    return mean_loss(evaluation_batches(tokens, args.batch_size, args.seq_len, max_batches),
                     [&](const Batch& batch) {
                         return evaluate_loss(
                             model, batch.input_ids, batch.targets,
                             attention_inputs(model.config, args, batch.input_ids));
                     });
}

double mean_loss(const std::vector<Batch>& batches,
                 const std::function<double(const Batch&)>& loss) {
    std::vector<double> losses(batches.size());
    parallel_for(batches.size(), [&](std::size_t i) {
        InterruptHandler::throw_if_interrupted();
        losses[i] = loss(batches[i]);
    });
    return std::accumulate(losses.begin(), losses.end(), 0.0) / double(losses.size());
}

}  // namespace llm
