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

// Observes the sums of a group of ranks, as a part of it: of a step, the lesson's functions
// return the sum of the losses alone.
class ObservedRanks final : public Communicator {
 public:
    explicit ObservedRanks(Communicator& ranks)
        : Communicator(ranks.rank(), ranks.size()), ranks_(ranks) {}

    // The first number that this rank has added to a sum since the last call, which is double.
    std::optional<double> take_first() { return std::exchange(first_, {}); }

    void barrier() override { ranks_.barrier(); }
    void all_reduce(Numbers values) override;
    void reduce_scatter(Numbers values) override { ranks_.reduce_scatter(values); }
    void all_gather(Numbers values) override { ranks_.all_gather(values); }
    std::unique_ptr<Communicator> split(std::size_t color) override {
        return ranks_.split(color);
    }

 private:
    void send_bytes(ConstBytes message, std::size_t destination) override {
        ranks_.send(message, destination);
    }
    void receive_bytes(Bytes message, std::size_t source) override {
        ranks_.receive(message, source);
    }
    void send_receive_bytes(ConstBytes sent, std::size_t destination, Bytes received,
                            std::size_t source) override {
        ranks_.send_receive(sent, destination, received, source);
    }
    void broadcast_bytes(Bytes values, std::size_t root) override {
        ranks_.broadcast(values, root);
    }

    Communicator& ranks_;
    std::optional<double> first_;
};

// Rank 0 is the main one. A rank that fails throws std::runtime_error, which names it; so do
// all ranks if the loss of one is not finite, rank 0 a second before the others.
class RanksStrategy final : public TrainingStrategy {
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

 private:
    void name_failure(const std::function<void()>& function) const;
    StepMetrics step_of_stage(TrainerState& state, const TrainingArguments& args,
                              const std::vector<Id>& tokens);
    void check_loss(const StepMetrics& metrics, std::size_t step);
    void shard_optimizer(TrainerState& state, const TrainingArguments& args);
    AdamW gather_optimizer(const TrainerState& state);

    ObservedRanks ranks_;
    ZeroStage stage_;
    std::optional<ShardedModel> model_;
};

}  // namespace llm::runs
