#include "chapters/28_model_parallel/demo/step_on_mesh.hpp"

#include "chapters/28_model_parallel/context_parallel.hpp"
#include "chapters/28_model_parallel/pipeline.hpp"

namespace llm {
namespace {

template <class AnyModel>
void all_reduce_each(Communicator& ranks, AnyModel& gradient) {
    if (ranks.size() == 1) return;
    for (const Parameter& parameter : named_parameters(gradient))
        ranks.all_reduce(parameter.values);
}

// Data ranks, stages and tensor ranks.
struct StageOnMesh {
    const Mesh& mesh;
    PipelineStage<TensorParallelModel> stage;
    std::vector<MicroBatch> micro_batches;
    TensorParallelModel gradient;

    void operator()(const Config& whole) {
        zero_grad(gradient);
        const StageSchedule schedule = one_forward_one_backward_schedule(
            micro_batches.size(), mesh.sizes.pipeline, mesh.at.pipeline);
        run_schedule(stage, schedule, micro_batches, gradient);
        sum_tied_gradients(stage, gradient);
        sum_partial_gradients(whole, gradient);
        all_reduce_each(*mesh.data, gradient);
    }
};

// Context ranks.
struct RingOnMesh {
    struct OwnTokens {
        IdMatrix input_ids, targets;
        RingAttention::Inputs inputs;
        Real share;
    };
    Communicator& ranks;
    ContextParallelModel model;
    std::vector<OwnTokens> micro_batches;
    ContextParallelModel gradient;

    void operator()() {
        zero_grad(gradient);
        for (const auto& [input_ids, targets, inputs, share] : micro_batches) {
            const auto [logits, saved] = model_forward(model, input_ids, inputs);
            model_backward(model, saved, share * cross_entropy_backward(logits, targets),
                           gradient);
        }
        all_reduce_each(ranks, gradient);
    }
};

std::function<void()> on_ring(Communicator& ranks, const Model& model,
                              const std::vector<RankBatch>& batches) {
    const ContextParallelModel on_ranks = context_parallel(model, ranks);
    RingOnMesh ring{ranks, on_ranks, {}, zeros_like(on_ranks)};
    for (const auto& [step_batch, share] : batches) {
        const auto& [input_ids, targets] = step_batch.batch;
        const auto [batch_size, seq_len] = dims(input_ids);
        const RingAttention::Inputs inputs =
            ring_inputs(model.config, ranks, batch_size, seq_len);
        const std::vector<std::size_t> own = inputs.chunks.positions(ranks.rank());
        ring.micro_batches.push_back({slice_positions(input_ids, own),
                                      slice_positions(targets, own), inputs,
                                      share * Real(own.size()) / Real(seq_len)});
    }
    return ring;
}

}  // namespace

std::function<void()> gradient_on_mesh(const MeshStep& plan, const Mesh& mesh,
                                       const Model& model,
                                       const std::vector<StepBatch>& batches) {
    const std::vector<RankBatch> own = batches_of_rank(batches, plan.sizes.data, mesh.at.data);
    if (plan.sizes.context > 1) {
        require(plan.sizes.context == plan.sizes.num_ranks(),
                "a mesh with context ranks alone");
        return on_ring(*mesh.context, model, own);
    }
    const TensorParallelGroup group{mesh.tensor.get(), plan.sequence_parallel, plan.seq_len};
    const auto stage = pipeline_stage(tensor_parallel_part(model, group), *mesh.pipeline);
    StageOnMesh on_stage{mesh, stage, {}, zeros_like(stage.part)};
    for (const auto& [step_batch, share] : own) {
        const auto& [input_ids, targets] = step_batch.batch;
        on_stage.micro_batches.push_back(
            {input_ids, targets,
             causal_attention_inputs(model.config, input_ids.shape(0), plan.seq_len), share});
    }
    return [on_stage, whole = model.config]() mutable { on_stage(whole); };
}

}  // namespace llm
