#include "chapters/apps/train/training_strategy.hpp"

#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/13_training/run_checkpoint.hpp"

namespace llm::runs {

std::uint64_t TrainingStrategy::num_bytes(const Config& config,
                                          const TrainingArguments& args) const {
    const std::size_t copies = 3 + args.gradient_accumulation_steps;
    return 4 * count_parameters(config).total() * copies;
}

void TrainingStrategy::start(TrainerState& state, const TrainingArguments& args) {
    gradients_.assign(args.gradient_accumulation_steps, zeros_like(state.model));
}

StepMetrics TrainingStrategy::step(TrainerState& state, const TrainingArguments& args,
                                   const std::vector<Id>& tokens) {
    return train_step(state, args, tokens, gradients_);
}

double TrainingStrategy::evaluate(const Model& model, const std::vector<Id>& tokens,
                                  const TrainingArguments& args, std::size_t max_batches) {
    return evaluate_loss(model, tokens, args, max_batches);
}

void TrainingStrategy::save(TrainerState& state, const TrainingArguments& args,
                            const std::vector<Id>& tokens, const std::string& file) {
    save_checkpoint(state, args, tokens, file);
}

}  // namespace llm::runs
