#include "chapters/28_model_parallel/tensor_parallel.hpp"

#include <algorithm>
#include <map>

#include "chapters/24_parallel/ring.hpp"

namespace llm {
namespace {

// (B, T, C) -> (T, B, C), and back: the numbers of adjacent tokens are adjacent, so that a
// rank's tokens are one part of the tensor.
Tensor3 swap_batch_and_tokens(const Tensor3& states) {
    return xt::transpose(states, {1, 0, 2});
}

Tensor3 tokens_of(const Tensor3& by_token, Part part) {  // (T, B, C) -> (part.size, B, C)
    return xt::view(by_token, xt::range(part.begin, part.begin + part.size));
}

// A parameter, (rows, columns), or a vector, (rows), as a matrix of one column.
MatrixView view_of_parameter(const Parameter& parameter) {
    const std::size_t num_rows = parameter.shape[0];
    const std::size_t num_columns = parameter.shape.size() == 2 ? parameter.shape[1] : 1;
    return {parameter.values.data(), num_rows, num_columns, num_columns};
}

// Of a whole parameter, the slice.
MatrixView view_of_slice(MatrixView whole, const Slice& slice) {
    const auto [begin, size] = slice.part;
    if (slice.sharding == Sharding::rows) return whole.rows(begin, size);
    if (slice.sharding == Sharding::columns) return whole.columns(begin, size);
    return whole;
}

void copy_matrix(ConstMatrixView source,    // (N, M)
                 MatrixView destination) {  // (N, M)
    for (std::size_t row = 0; row < source.num_rows; ++row)
        std::copy(source[row].begin(), source[row].end(), destination[row].begin());
}

}  // namespace

void copy_slices(const Config& config, const TensorParallelGroup& group, Model& whole,
                 const std::vector<Parameter>& part, CopyDirection direction) {
    std::map<std::string, Parameter> by_name;
    for (const Parameter& parameter : named_parameters(whole))
        by_name.emplace(parameter.name, parameter);
    for (const Parameter& parameter : part) {
        const Slice slice = slice_of(config, parameter.name, group);
        const MatrixView own = view_of_parameter(parameter);
        const MatrixView in_whole =
            view_of_slice(view_of_parameter(by_name.at(parameter.name)), slice);
        if (direction == CopyDirection::to_part)
            copy_matrix(in_whole, own);
        else if (slice.is_first)
            copy_matrix(own, in_whole);
    }
}

Tensor3 TensorParallelGroup::gather(const Tensor3& hidden_states) const {
    if (!sequence_parallel) return hidden_states;
    const auto [batch_size, own_len, width] = dims(hidden_states);
    const auto [begin, size] = part_of(seq_len, ranks->size(), ranks->rank());
    Tensor3 by_token(std::array{seq_len, batch_size, width});
    xt::view(by_token, xt::range(begin, begin + size)) = swap_batch_and_tokens(hidden_states);
    ring_all_gather_rows(*ranks, {by_token.data(), by_token.size()}, batch_size * width);
    return swap_batch_and_tokens(by_token);
}

Tensor3 TensorParallelGroup::sum(const Tensor3& partial_sums) const {
    if (!sequence_parallel) {
        Tensor3 sums = partial_sums;
        ring_all_reduce(*ranks, {sums.data(), sums.size()});
        return sums;
    }
    const auto [batch_size, whole_len, width] = dims(partial_sums);
    Tensor3 by_token = swap_batch_and_tokens(partial_sums);
    ring_reduce_scatter_rows(*ranks, {by_token.data(), by_token.size()}, batch_size * width);
    return swap_batch_and_tokens(
        tokens_of(by_token, part_of(seq_len, ranks->size(), ranks->rank())));
}

ForwardPass<MlpActivations> mlp_forward(const TensorParallelMlp& mlp, const Tensor3& input) {
    auto [output, saved] = mlp_forward(mlp.part, mlp.group.gather(input));
    return {mlp.group.sum(output), std::move(saved)};
}

Tensor3 mlp_backward(const TensorParallelMlp& mlp, const MlpActivations& saved,
                     const Tensor3& output_gradient, TensorParallelMlp& gradient) {
    return mlp.group.sum(
        mlp_backward(mlp.part, saved, mlp.group.gather(output_gradient), gradient.part));
}

namespace {

Part rows_of_heads(const Config& config, std::size_t first_head, std::size_t num_heads) {
    return {first_head * config.head_dim, num_heads * config.head_dim};
}

// Of k_proj and v_proj, a rank has at least one head: if there are more ranks than heads,
// several adjacent ranks have the same one.
Slice slice_of_key_value_heads(const Config& config, std::size_t n, std::size_t rank) {
    const std::size_t Hkv = config.num_key_value_heads;
    const std::size_t num_heads = n > Hkv ? 1 : Hkv / n, num_copies = n > Hkv ? n / Hkv : 1;
    return {.sharding = Sharding::rows,
            .part = rows_of_heads(config, rank * Hkv / n, num_heads),
            .num_copies = num_copies,
            .is_first = rank % num_copies == 0,
            .partial_gradients = true};
}

}  // namespace

Slice slice_of(const Config& config, const std::string& name,
               const TensorParallelGroup& group) {
    const std::size_t n = group.ranks->size(), rank = group.ranks->rank();
    const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    require(H % n == 0 && (Hkv % n == 0 || n % Hkv == 0),
            "tensor parallelism: {} ranks cannot share {} query heads and {} key/value heads",
            n, H, Hkv);
    const auto has = [&](const std::string& part) { return name.find(part) != name.npos; };
    const Part queries = rows_of_heads(config, rank * H / n, H / n);
    const Part features = part_of(config.intermediate_size, n, rank);

    // The first matrix of a sublayer is cut into rows, the second one into columns.
    if (has("embed_tokens") || has("lm_head"))
        return {Sharding::rows, part_of(config.vocab_size, n, rank)};
    if (has("q_proj")) return {Sharding::rows, queries};
    if (has("k_proj") || has("v_proj")) return slice_of_key_value_heads(config, n, rank);
    if (has("gate_proj") || has("up_proj")) return {Sharding::rows, features};
    if (has("o_proj.weight")) return {Sharding::columns, queries};
    if (has("down_proj.weight")) return {Sharding::columns, features};
    if (has("o_proj.bias")) return {Sharding::replicated, {}};  // on the first rank alone

    // Norms. A rank sees its own heads and, with sequence parallelism, its own tokens.
    const bool is_qk_norm = has("q_norm") || has("k_norm");
    return {.sharding = Sharding::replicated,
            .part = {},
            .num_copies = n,
            .is_first = rank == 0,
            .partial_gradients = is_qk_norm || group.sequence_parallel};
}

namespace {

Config config_of_part(const Config& whole, const TensorParallelGroup& group) {
    const auto num_rows = [&](const std::string& name) {
        return slice_of(whole, name, group).part.size;
    };
    Config config = whole;
    config.num_attention_heads = num_rows("q_proj") / config.head_dim;
    config.num_key_value_heads = num_rows("k_proj") / config.head_dim;
    config.intermediate_size = num_rows("up_proj");
    config.vocab_size = num_rows("embed_tokens");
    return config;
}

// The slices of this rank, in a model of chapter 09.
Model slices_of_model(const Model& whole, const TensorParallelGroup& group) {
    // Make a model of these sizes, then replace its numbers.
    Generator generator(0);
    Model part = make_model(config_of_part(whole.config, group), generator), copy = whole;

    // A bias that is added to a sum over ranks must be added once.
    if (group.ranks->rank() > 0)
        for (PreNormBlock& block : part.layers) block.self_attn.projections.o_proj.bias.reset();
    copy_slices(whole.config, group, copy, named_parameters(part), CopyDirection::to_part);
    return part;
}

}  // namespace

TensorParallelModel tensor_parallel_part(const Model& whole, const TensorParallelGroup& group) {
    require(whole.config.qk_norm != QKNormType::over_all_heads,
            "tensor parallelism: a QK norm over all heads needs a mean over ranks");
    Model part = slices_of_model(whole, group);
    const Part vocabulary = slice_of(whole.config, "embed_tokens", group).part;
    TensorParallelModel result{{part.config, group, vocabulary, whole.config.vocab_size},
                               std::move(part.embed_tokens),
                               {},
                               std::move(part.norm),
                               std::move(part.lm_head)};
    for (const PreNormBlock& block : part.layers)
        result.layers.push_back({{{block.self_attn, group}},
                                 {{block.mlp, group}},
                                 block.attention_norm,
                                 block.ffn_norm});
    return result;
}

Model gather(const TensorParallelModel& part, const Model& like) {
    // Each rank writes its slices into a model of zeros. The sum over ranks is the whole model.
    const TensorParallelGroup& group = part.config.group;
    Model whole = zeros_like(like);
    TensorParallelModel copy = part;
    copy_slices(like.config, group, whole, named_parameters(copy), CopyDirection::to_whole);
    for (const Parameter& parameter : named_parameters(whole))
        group.ranks->all_reduce(parameter.values);
    return whole;
}

void sum_partial_gradients(const Config& config, const TensorParallelGroup& group,
                           const std::vector<Parameter>& gradient) {
    // Copies of a head are on adjacent ranks, those of a norm on all.
    const std::size_t n = group.ranks->size(), rank = group.ranks->rank();
    const std::size_t num_copies = slice_of(config, "k_proj", group).num_copies;
    const std::unique_ptr<Communicator> same_heads = group.ranks->split(rank / num_copies);
    for (const Parameter& parameter : gradient) {
        const Slice slice = slice_of(config, parameter.name, group);
        if (!slice.partial_gradients || slice.num_copies == 1) continue;
        (slice.num_copies == n ? *group.ranks : *same_heads).all_reduce(parameter.values);
    }
}

}  // namespace llm
