#include "chapters/28_model_parallel/mesh_step.hpp"

#include <cmath>

namespace llm {
namespace {

// "model.layers.1.mlp" of a stage whose first layer is the fourth one: "model.layers.4.mlp".
std::string name_in_whole_model(const std::string& name, std::size_t first_layer) {
    const std::string prefix = "model.layers.";
    if (!name.starts_with(prefix)) return name;
    const std::size_t end = name.find('.', prefix.size());
    const std::size_t layer = std::stoul(name.substr(prefix.size(), end - prefix.size()));
    return prefix + std::to_string(first_layer + layer) + name.substr(end);
}

void all_reduce_together(Communicator& ranks, const std::vector<Parameter>& parameters) {
    if (ranks.size() == 1) return;
    transform_flattened(parameters, [&](std::span<Real> flat) { ranks.all_reduce(flat); });
}

}  // namespace

MeshPart mesh_part(const Model& whole, const Mesh& mesh,
                   std::optional<std::size_t> sequence_parallel_len) {
    TensorParallelGroup group{mesh.tensor.get()};
    if (sequence_parallel_len) {
        const ZigzagChunks chunks{*sequence_parallel_len, mesh.sizes.context};
        group.sequence_parallel = true;
        group.seq_len = chunks.positions(mesh.at.context).size();
    }
    const TensorParallelModel of_tensor_rank = tensor_parallel_part(whole, group);
    const MeshModel with_ring =
        with_layers(of_tensor_rank, [&](const TensorParallelBlock& block) {
            const auto& [self_attn, mlp, attention_norm, ffn_norm, multiplier] = block;
            return TensorParallelBlockWith<RingAttention>{
                {{{self_attn.part, mesh.context.get()}, self_attn.group}},
                mlp,
                attention_norm,
                ffn_norm};
        });
    return {whole.config, &mesh, pipeline_stage(with_ring, *mesh.pipeline)};
}

std::vector<Parameter> parameters_of(const MeshPart& part, MeshModel& model_or_gradient) {
    const std::size_t first_layer = part_of(part.config.num_hidden_layers,
                                            part.mesh->sizes.pipeline, part.mesh->at.pipeline)
                                        .begin;
    std::vector<Parameter> parameters;
    for (const auto& [name, shape, values] : named_parameters(model_or_gradient))
        if (!values.empty())  // of this stage
            parameters.push_back({name_in_whole_model(name, first_layer), shape, values});
    return parameters;
}

bool is_owner(const MeshPart& part, const std::string& name) {
    const Mesh& mesh = *part.mesh;
    const bool is_tied_copy = name.find("embed_tokens") != name.npos && mesh.at.pipeline > 0;
    return mesh.at.data == 0 && mesh.at.context == 0 && !is_tied_copy &&
           slice_of(part.config, name, part.stage.part.config.group).is_first;
}

MicroBatchesOf<MeshModel> micro_batches_of(const MeshPart& part,
                                           const std::vector<RankBatch>& batches) {
    MicroBatchesOf<MeshModel> result;
    for (const auto& [step_batch, share] : batches) {
        const auto& [input_ids, targets] = step_batch.batch;
        const auto [batch_size, seq_len] = dims(input_ids);
        const RingAttention::Inputs inputs =
            ring_inputs(part.config, *part.mesh->context, batch_size, seq_len);
        const std::vector<std::size_t> own = inputs.chunks.positions(part.mesh->at.context);
        result.push_back({slice_positions(input_ids, own), slice_positions(targets, own),
                          inputs, share * Real(own.size()) / Real(seq_len)});
    }
    return result;
}

double loss_and_gradient(const MeshPart& part, const std::vector<RankBatch>& batches,
                         MeshModel& gradient) {
    const Mesh& mesh = *part.mesh;
    const double loss = run_schedule(part.stage,
                                     one_forward_one_backward_schedule(
                                         batches.size(), mesh.sizes.pipeline, mesh.at.pipeline),
                                     micro_batches_of(part, batches), gradient);

    // Add up what ranks with the same parameters have computed: stages with a tied matrix,
    // tensor ranks with copies, and all ranks with other tokens or other sequences.
    const std::vector<Parameter> parameters = parameters_of(part, gradient);
    sum_tied_gradients(part.stage, gradient);
    sum_partial_gradients(part.config, part.stage.part.config.group, parameters);
    all_reduce_together(*mesh.context, parameters);
    all_reduce_together(*mesh.data, parameters);
    return mesh.at.tensor == 0 ? loss : 0;  // all tensor ranks have the same loss
}

double mesh_grad_norm(const MeshPart& part, MeshModel& gradient) {
    std::vector<Parameter> owned;
    for (const Parameter& parameter : parameters_of(part, gradient))
        if (is_owner(part, parameter.name)) owned.push_back(parameter);
    const double norm = grad_norm(owned);
    return std::sqrt(sum_over_ranks(*part.mesh->all, norm * norm));
}

Model gather(const MeshPart& part, const std::vector<Parameter>& parameters) {
    // Each owner writes into a model of zeros. The sum over all ranks is the whole.
    Generator generator(0);
    Model whole = make_model(part.config, generator);
    zero_grad(whole);
    std::vector<Parameter> owned;
    for (const Parameter& parameter : parameters)
        if (is_owner(part, parameter.name)) owned.push_back(parameter);
    copy_slices(part.config, part.stage.part.config.group, whole, owned,
                CopyDirection::to_whole);
    all_reduce_gradient(*part.mesh->all, whole);
    return whole;
}

StepMetrics mesh_step(MeshPart& part, TrainerState& state, const TrainingArguments& args,
                      const std::vector<Id>& tokens, MeshModel& gradient) {
    require(args.optimizer == OptimizerType::adamw && !args.end_of_text_id &&
                part.config.attention_dropout == 0,
            "a mesh: its steps have no Muon, no dropout and no masks of documents");
    const Mesh& mesh = *part.mesh;
    zero_grad(gradient);
    const double share =
        loss_and_gradient(part,
                          batches_of_rank(sample_batches(args, state.global_step, tokens),
                                          mesh.sizes.data, mesh.at.data),
                          gradient);
    const double loss = sum_of_shares(*mesh.all, share);
    const double norm = mesh_grad_norm(part, gradient);
    return update_parameters(state, args, loss, parameters_of(part, part.stage.part),
                             parameters_of(part, gradient), norm);
}

}  // namespace llm
