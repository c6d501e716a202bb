// A training run on a mesh of ranks: chapter 28's step in the run of ranks_strategy.hpp.
#pragma once

#include "chapters/28_model_parallel/mesh_step.hpp"
#include "chapters/apps/train/ranks_strategy.hpp"

namespace llm::runs {

// The sizes of the axes that divide the computation of a sequence.
struct ModelAxes {
    std::size_t tensor = 1, pipeline = 1, context = 1;

    bool is_one_rank() const { return tensor * pipeline * context == 1; }
};
// The mesh with these axes; sequences are divided among what they leave of the ranks. Throws
// ValueError if that is not a whole number of ranks.
MeshSizes mesh_sizes(std::size_t num_ranks, const ModelAxes& axes);

// Throws ValueError as validate_mesh_plan of chapter 28 does if this run cannot be divided so,
// and one that names the option if its steps would not be those of one process.
void check_mesh(const TrainingTask& task, const MeshSizes& sizes);

// Each rank keeps its part of the model and of the moving averages. The state has no layers
// between gather_model and a step.
class MeshStrategy final : public RanksStrategy {
 public:
    MeshStrategy(Communicator& ranks, const MeshSizes& sizes)
        : RanksStrategy(ranks, ZeroStage::none), mesh_(make_mesh(ranks, sizes)) {}

    std::string description() const override;
    // Of rank 0, which has the largest part.
    std::uint64_t num_bytes(const Config& config, const TrainingArguments& args) const override;
    void gather_model(TrainerState& state) override;

 private:
    void divide(TrainerState& state, const TrainingArguments& args) override;
    StepMetrics divided_step(TrainerState& state, const TrainingArguments& args,
                             const std::vector<Id>& tokens) override;
    std::optional<AdamW> gather_optimizer(const TrainerState& state) override;

    Mesh mesh_;
    std::optional<MeshPart> part_;
    std::optional<MeshModel> gradient_;
};

}  // namespace llm::runs
