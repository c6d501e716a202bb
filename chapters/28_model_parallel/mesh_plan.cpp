#include "chapters/28_model_parallel/mesh_plan.hpp"

#include <algorithm>

namespace llm {
namespace {

// As slice_of and named_parameters have them.
void add_layer_parameters(const MeshPlan& plan, const Config& part, bool is_first_tensor_rank,
                          std::vector<PlannedParameter>& list) {
    const std::uint64_t n = plan.sizes.tensor, Hkv = plan.config.num_key_value_heads;
    const std::uint64_t C = part.hidden_size, D = part.head_dim;
    const std::uint64_t queries = part.num_attention_heads * D;
    const std::uint64_t keys = part.num_key_value_heads * D;
    const std::uint64_t key_copies = n > Hkv ? n / Hkv : 1;
    const PlannedParameter norm{C, plan.sequence_parallel ? n : 1};
    const bool has_bias = part.attention_bias != AttentionBias::none;

    list.push_back(norm);
    for (const PlannedParameter& bias :
         {PlannedParameter{queries}, {keys, key_copies}, {keys, key_copies}}) {
        list.push_back({bias.size * C, bias.num_copies});  // q, k and v
        if (has_bias) list.push_back(bias);
    }
    list.push_back({queries * C});  // o; its bias is on the first rank alone
    if (part.attention_bias == AttentionBias::qkvo && is_first_tensor_rank) list.push_back({C});
    if (part.qk_norm == QKNormType::with_weights) list.insert(list.end(), 2, {D, n});
    if (part.qk_norm == QKNormType::over_all_heads)
        list.insert(list.end(), {{queries}, {keys}});
    list.push_back(norm);
    list.insert(list.end(), 3, {part.intermediate_size * C});  // gate, up and down
}

}  // namespace

std::uint64_t part_size(std::uint64_t count, std::uint64_t num_parts, std::uint64_t index) {
    return count / num_parts + (index % num_parts < count % num_parts ? 1 : 0);
}

MeshPlan validate_mesh_plan(MeshPlan plan) {
    plan.config = validate_model(plan.config);
    const auto& [data, pipeline, context, tensor] = plan.sizes;
    const Config& config = plan.config;
    const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    require(plan.sizes.num_ranks() > 0, "mesh: {} x {} x {} x {} is 0 ranks", data, pipeline,
            context, tensor);
    require(H % tensor == 0 && (Hkv % tensor == 0 || tensor % Hkv == 0),
            "mesh: tensor={}, but so many ranks cannot share {} query heads and {} key/value "
            "heads",
            tensor, H, Hkv);
    require(tensor <= config.intermediate_size && tensor <= config.vocab_size,
            "mesh: tensor={}, but the model has {} features and {} tokens", tensor,
            config.intermediate_size, config.vocab_size);
    require(tensor == 1 || config.qk_norm != QKNormType::over_all_heads,
            "mesh: tensor={}, but a QK norm over all heads needs a mean over ranks", tensor);
    require(pipeline <= config.num_hidden_layers,
            "mesh: pipeline={}, but the model has {} layers", pipeline,
            config.num_hidden_layers);
    require(plan.micro_batch_size > 0, "mesh: micro-batches of 0 sequences");
    require(data <= plan.global_batch_size,
            "mesh: data={} (of {} ranks), but a step has {} sequences", data,
            plan.sizes.num_ranks(), plan.global_batch_size);
    require(plan.seq_len > 0 && plan.seq_len <= config.max_position_embeddings,
            "mesh: sequences of {} tokens, but the model has 1 to {}", plan.seq_len,
            config.max_position_embeddings);
    require(context == 1 || 2 * context <= plan.seq_len,
            "mesh: context={}, which is {} chunks, but a sequence has {} tokens", context,
            2 * context, plan.seq_len);
    return plan;
}

std::vector<std::uint64_t> micro_batch_sizes(const MeshPlan& plan, std::size_t data_rank) {
    const std::uint64_t own = part_size(plan.global_batch_size, plan.sizes.data, data_rank);
    const std::uint64_t most = part_size(plan.global_batch_size, plan.sizes.data, 0);
    const std::uint64_t size = plan.micro_batch_size;
    std::vector<std::uint64_t> counts;
    for (std::uint64_t row = 0; row < most; row += size)
        counts.push_back(row < own ? std::min(size, own - row) : 1);
    return counts;
}

std::vector<std::size_t> ranks_of_axis(const MeshSizes& sizes, std::size_t rank,
                                       MeshAxis axis) {
    const auto [size, coordinate] =
        std::array<std::pair<std::size_t, std::size_t MeshCoordinates::*>, 4>{
            {{sizes.data, &MeshCoordinates::data},
             {sizes.pipeline, &MeshCoordinates::pipeline},
             {sizes.context, &MeshCoordinates::context},
             {sizes.tensor, &MeshCoordinates::tensor}}}[std::size_t(axis)];
    MeshCoordinates at = coordinates(sizes, rank);
    std::vector<std::size_t> ranks;
    for (at.*coordinate = 0; at.*coordinate < size; ++(at.*coordinate))
        ranks.push_back(rank_at(sizes, at));
    return ranks;
}

Config config_of_part(const MeshPlan& plan, std::size_t rank) {
    const MeshCoordinates at = coordinates(plan.sizes, rank);
    const std::size_t n = plan.sizes.tensor;
    Config part = plan.config;
    part.num_attention_heads /= n;
    part.num_key_value_heads = std::max<std::size_t>(1, part.num_key_value_heads / n);
    part.intermediate_size = part_of(part.intermediate_size, n, at.tensor).size;
    part.vocab_size = part_of(part.vocab_size, n, at.tensor).size;
    part.num_hidden_layers =
        part_of(part.num_hidden_layers, plan.sizes.pipeline, at.pipeline).size;
    return part;
}

std::vector<PlannedParameter> parameters_of_part(const MeshPlan& plan, std::size_t rank) {
    const MeshCoordinates at = coordinates(plan.sizes, rank);
    const bool is_first_stage = at.pipeline == 0;
    const bool is_last_stage = at.pipeline + 1 == plan.sizes.pipeline;
    const Config part = config_of_part(plan, rank);
    const std::uint64_t C = part.hidden_size, rows = part.vocab_size;
    std::vector<PlannedParameter> list;
    if (is_first_stage || (is_last_stage && part.tie_word_embeddings))
        list.push_back({rows * C});
    for (std::size_t n = 0; n < part.num_hidden_layers; ++n)
        add_layer_parameters(plan, part, at.tensor == 0, list);
    if (!is_last_stage) return list;
    list.push_back({C, plan.sequence_parallel ? plan.sizes.tensor : 1});
    if (!part.tie_word_embeddings) list.push_back({rows * C});
    return list;
}

TrainingMemory memory_of_part(const MeshPlan& plan, std::size_t rank,
                              const BytesPerParameter& bytes) {
    std::uint64_t all = 0;
    for (const PlannedParameter& parameter : parameters_of_part(plan, rank))
        all += parameter.size;
    return {bytes.parameters * all, bytes.gradients * all, bytes.optimizer_states * all};
}

double training_flops(const MeshPlan& plan, std::size_t rank) {
    const MeshCoordinates at = coordinates(plan.sizes, rank);
    const Config part = config_of_part(plan, rank);
    std::uint64_t sequences = 0;
    for (const std::uint64_t count : micro_batch_sizes(plan, at.data)) sequences += count;

    // The mean over positions, which context ranks share equally.
    double per_token = double(flops_per_token(part, 0)) / 2 +
                       double(flops_per_token(part, plan.seq_len - 1)) / 2;
    if (at.pipeline + 1 < plan.sizes.pipeline)
        per_token -= 2.0 * double(part.vocab_size) * double(part.hidden_size);  // no head
    const double tokens = double(sequences) * double(plan.seq_len) / double(plan.sizes.context);
    return 3 * tokens * per_token;
}

}  // namespace llm
