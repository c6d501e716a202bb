#include "chapters/apps/train/mesh_strategy.hpp"

#include "chapters/28_model_parallel/mesh_plan.hpp"

namespace llm::runs {
namespace {

constexpr const char* exclude_axes = "excludes --tensor, --pipeline and --context";

}  // namespace

MeshSizes mesh_sizes(std::size_t num_ranks, const ModelAxes& axes) {
    const std::size_t product = axes.tensor * axes.pipeline * axes.context;
    require(num_ranks % product == 0,
            "--ranks: {} ranks are not a multiple of {} = {} x {} x {} (--tensor, --pipeline, "
            "--context)",
            num_ranks, product, axes.tensor, axes.pipeline, axes.context);
    return {num_ranks / product, axes.pipeline, axes.context, axes.tensor};
}

void check_mesh(const TrainingTask& task, const MeshSizes& sizes) {
    const TrainingArguments& args = task.args;
    validate_mesh_plan({task.config, sizes, args.gradient_accumulation_steps * args.batch_size,
                        args.batch_size, args.seq_len});
    require(args.optimizer == OptimizerType::adamw,
            "--optimizer muon {}: it needs whole matrices", exclude_axes);
    require(task.config.attention_dropout == 0,
            "--attention-dropout {}: the masks would not be those of one process",
            exclude_axes);
}

std::string MeshStrategy::description() const {
    const auto [data, pipeline, context, tensor] = mesh_.sizes;
    return ranks_and_threads() + ": data " + to_text(data) + ", pipeline " + to_text(pipeline) +
           ", context " + to_text(context) + ", tensor " + to_text(tensor);
}

std::uint64_t MeshStrategy::num_bytes(const Config& config, const TrainingArguments&) const {
    return memory_of_part({config, mesh_.sizes}, 0).kept();
}

void MeshStrategy::divide(TrainerState& state, const TrainingArguments&) {
    part_.emplace(mesh_part(state.model, mesh_));
    gradient_ = zeros_like(part_->stage.part);
    // The averages as the values of a model, of which this rank has the same part.
    Model buffer = state.model;
    for (Averages* averages : {&state.optimizer.exp_avg, &state.optimizer.exp_avg_sq}) {
        set_values(named_parameters(buffer), *averages);
        MeshPart part = mesh_part(buffer, mesh_);
        *averages = values_of(parameters_of(part, part.stage.part));
    }
}

StepMetrics MeshStrategy::divided_step(TrainerState& state, const TrainingArguments& args,
                                       const std::vector<Id>& tokens) {
    state.model.layers.clear();
    return mesh_step(*part_, state, args, tokens, *gradient_);
}

void MeshStrategy::gather_model(TrainerState& state) {
    state.model = gather(*part_, parameters_of(*part_, part_->stage.part));
}

std::optional<AdamW> MeshStrategy::gather_optimizer(const TrainerState& state) {
    AdamW whole = state.optimizer;
    MeshModel buffer = part_->stage.part;
    for (Averages* averages : {&whole.exp_avg, &whole.exp_avg_sq}) {
        const std::vector<Parameter> parameters = parameters_of(*part_, buffer);
        set_values(parameters, *averages);
        Model gathered = gather(*part_, parameters);
        *averages = values_of(named_parameters(gathered));
    }
    return whole;
}

}  // namespace llm::runs
