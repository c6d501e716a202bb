// A training run on a group of ranks: chapter 24's steps in chapter 13's run.
#pragma once

#include "chapters/24_parallel/sharded_model.hpp"
#include "chapters/apps/train/training_strategy.hpp"

namespace llm::runs {

// What a message says after the failure of a rank.
constexpr const char* resume_advice =
    ". With --resume, the same command continues the run from its checkpoint.";

// Throws ValueError if this run cannot be divided among so many ranks, or not at this stage.
void check_ranks(const TrainingArguments& args, std::size_t num_ranks, ZeroStage stage);

// Data parallel: each rank has the whole model, or a shard of it with ZeRO. (mesh_strategy.hpp
// divides the computation, too.) Rank 0 is the main one. A rank that fails throws
// std::runtime_error, which names it; so do all ranks if the loss of one is not finite, rank 0
// a second before the others.
class RanksStrategy : public TrainingStrategy {
 public:
    RanksStrategy(Communicator& ranks, ZeroStage stage) : ranks_(ranks), stage_(stage) {}

    bool is_main() const override { return ranks_.rank() == 0; }
    std::size_t num_ranks() const override { return ranks_.size(); }
    std::string description() const override;
    std::uint64_t num_bytes(const Config& config, const TrainingArguments& args) const override;
    void share(TrainingTask& task) override;
    double from_main(double value) override;

    // From stage optimizer_states on, the optimizer has the moving averages of this rank's
    // shard; from stage gradients on, the model has no layers between gather_model and a step.
    void start(TrainerState& state, const TrainingArguments& args) override;
    StepMetrics step(TrainerState& state, const TrainingArguments& args,
                     const std::vector<Id>& tokens) override;
    void gather_model(TrainerState& state) override;
    double evaluate(const Model& model, const std::vector<Id>& tokens,
                    const TrainingArguments& args, std::size_t max_batches) override;
    void save(TrainerState& state, const TrainingArguments& args, const std::vector<Id>& tokens,
              const std::string& file) override;
    bool interrupted() override;
    InterruptHandler::Mode interrupt_mode() const override {
        return InterruptHandler::Mode::set_flag;
    }

 protected:
    // "4 with 1 thread each", the beginning of the description.
    std::string ranks_and_threads() const;

    // What another division of the model changes. Keeps this rank's part of a state that is
    // equal on all ranks.
    virtual void divide(TrainerState& state, const TrainingArguments& args);
    virtual StepMetrics divided_step(TrainerState& state, const TrainingArguments& args,
                                     const std::vector<Id>& tokens);
    // The optimizer with the moving averages of the whole model; none if it has them.
    virtual std::optional<AdamW> gather_optimizer(const TrainerState& state);

    Communicator& ranks_;

 private:
    void name_failure(const std::function<void()>& function) const;
    void shard_optimizer(TrainerState& state, const TrainingArguments& args);

    ZeroStage stage_;
    std::optional<ShardedModel> model_;
};

// Moving averages, one for each parameter or its piece, as its values, and the inverse.
using Averages = std::vector<std::vector<Real>>;
Averages values_of(const std::vector<Parameter>& parameters);
void set_values(const std::vector<Parameter>& parameters, const Averages& averages);

}  // namespace llm::runs
