// Which processes compute the steps of a training run.
#pragma once

#include "chapters/apps/train/training_task.hpp"
#include "common/system/interrupt.hpp"

namespace llm::runs {

// This class: one process. With a group of ranks (ranks_strategy.hpp), each rank has an object,
// and all make the same calls in the same order.
class TrainingStrategy {
 public:
    virtual ~TrainingStrategy() = default;

    virtual bool is_main() const { return true; }  // the rank that prints, reads and writes
    virtual std::size_t num_ranks() const { return 1; }
    virtual std::string description() const { return ""; }
    // The memory for parameters, moving averages and gradients, of each rank.
    virtual std::uint64_t num_bytes(const Config& config, const TrainingArguments& args) const;

    // What the main rank has prepared, and its value, on all ranks.
    virtual void share(TrainingTask&) {}
    virtual double from_main(double value) { return value; }

    // Begins a run with the state of the main rank.
    virtual void start(TrainerState& state, const TrainingArguments& args);
    virtual StepMetrics step(TrainerState& state, const TrainingArguments& args,
                             const std::vector<Id>& tokens);
    // Makes state.model whole, until the next step.
    virtual void gather_model(TrainerState&) {}
    virtual double evaluate(const Model& model, const std::vector<Id>& tokens,
                            const TrainingArguments& args, std::size_t max_batches);
    // Writes the checkpoint, which does not depend on the strategy.
    virtual void save(TrainerState& state, const TrainingArguments& args,
                      const std::vector<Id>& tokens, const std::string& file);

    // Whether a signal has arrived, on any rank.
    virtual bool interrupted() { return InterruptHandler::interrupted(); }
    virtual InterruptHandler::Mode interrupt_mode() const {
        return InterruptHandler::Mode::throw_exception;
    }

 protected:
    std::vector<Model> gradients_;  // of each batch
};

}  // namespace llm::runs
