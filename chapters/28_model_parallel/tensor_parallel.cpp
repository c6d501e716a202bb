#include "chapters/28_model_parallel/tensor_parallel.hpp"

#include <map>

#include "chapters/24_parallel/ring.hpp"

namespace llm {
namespace {

// (B, T, C) -> (T, B, C), and back: the tokens of a rank lie one after another.
Tensor3 swap_batch_and_tokens(const Tensor3& states) {
    return xt::transpose(states, {1, 0, 2});
}

Tensor3 tokens_of(const Tensor3& by_token, Part part) {  // (T, B, C)
    return xt::view(by_token, xt::range(part.begin, part.begin + part.size));
}

// A (rows, columns) matrix or a vector as one row for each index of the first axis.
struct Rows {
    std::span<Real> values;
    std::size_t width;
    std::span<Real> operator[](std::size_t row) const {
        return values.subspan(row * width, width);
    }
    std::size_t size() const { return values.size() / width; }
};
Rows rows_of_parameter(const Parameter& parameter) {
    return {parameter.values, parameter.shape.size() == 2 ? parameter.shape[1] : 1};
}

// Copies this rank's slice from the whole parameter, or into it.
void copy_slice(const Rows& whole, const Rows& part, const Slice& slice,
                CopyDirection direction) {
    const auto [begin, size] = slice.part;
    for (std::size_t row = 0; row < part.size(); ++row) {
        const std::span<Real> of_whole = slice.sharding == Sharding::rows ? whole[begin + row]
                                         : slice.sharding == Sharding::columns
                                             ? whole[row].subspan(begin, size)
                                             : whole[row];
        if (direction == CopyDirection::to_part)
            std::copy(of_whole.begin(), of_whole.end(), part[row].begin());
        else
            std::copy(part[row].begin(), part[row].end(), of_whole.begin());
    }
}

}  // namespace

void copy_slices(const Config& config, const TensorParallelGroup& group, Model& whole,
                 const std::vector<Parameter>& part, CopyDirection direction) {
    std::map<std::string, Parameter> by_name;
    for (const Parameter& parameter : named_parameters(whole))
        by_name.emplace(parameter.name, parameter);
    for (const Parameter& parameter : part) {
        const Slice slice = slice_of(config, parameter.name, group);
        if (direction == CopyDirection::to_part || slice.is_first)
            copy_slice(rows_of_parameter(by_name.at(parameter.name)),
                       rows_of_parameter(parameter), slice, direction);
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
    const auto [batch_size, all_len, width] = dims(partial_sums);
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

Slice slice_of(const Config& config, const std::string& name,
               const TensorParallelGroup& group) {
    const std::size_t n = group.ranks->size(), rank = group.ranks->rank();
    const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    require(H % n == 0 && (Hkv % n == 0 || n % Hkv == 0),
            "tensor parallelism: {} ranks cannot share {} query heads and {} key/value heads",
            n, H, Hkv);
    const auto has = [&](const std::string& part) { return name.find(part) != name.npos; };
    const auto heads = [&](std::size_t first, std::size_t count) {
        return Part{first * config.head_dim, count * config.head_dim};
    };
    const Part queries = heads(rank * H / n, H / n);
    const Part features = part_of(config.intermediate_size, n, rank);
    const std::size_t copies = n > Hkv ? n / Hkv : 1;  // of a key and value head

    if (has("embed_tokens") || has("lm_head"))
        return {Sharding::rows, part_of(config.vocab_size, n, rank)};
    if (has("q_proj")) return {Sharding::rows, queries};
    if (has("k_proj") || has("v_proj"))
        return {Sharding::rows, heads(rank * Hkv / n, copies > 1 ? 1 : Hkv / n), copies,
                rank % copies == 0, true};
    if (has("gate_proj") || has("up_proj")) return {Sharding::rows, features};
    if (has("o_proj.weight")) return {Sharding::columns, queries};
    if (has("down_proj.weight")) return {Sharding::columns, features};
    if (has("o_proj.bias")) return {Sharding::replicated, {}};  // on the first rank alone
    const bool is_qk_norm = has("q_norm") || has("k_norm");
    return {Sharding::replicated, {}, n, rank == 0, is_qk_norm || group.sequence_parallel};
}

TensorParallelModel tensor_parallel_part(const Model& whole, const TensorParallelGroup& group) {
    Config config = whole.config;
    require(config.qk_norm != QKNormType::over_all_heads,
            "tensor parallelism: a QK norm over all heads needs a mean over ranks");
    const auto num_rows = [&](const std::string& name) {
        return slice_of(whole.config, name, group).part.size;
    };
    config.num_attention_heads = num_rows("q_proj") / config.head_dim;
    config.num_key_value_heads = num_rows("k_proj") / config.head_dim;
    config.intermediate_size = num_rows("up_proj");
    config.vocab_size = num_rows("embed_tokens");

    // A model of these sizes, whose numbers are replaced. A bias that is added to a sum over
    // ranks must be added once.
    Generator generator(0);
    Model part = make_model(config, generator), copy = whole;
    if (group.ranks->rank() > 0)
        for (PreNormBlock& block : part.layers) block.self_attn.projections.o_proj.bias.reset();
    copy_slices(whole.config, group, copy, named_parameters(part), CopyDirection::to_part);
    TensorParallelModel result{
        {config, group, slice_of(whole.config, "embed_tokens", group).part,
         whole.config.vocab_size},
        std::move(part.embed_tokens),
        {},
        std::move(part.norm),
        std::move(part.lm_head)};
    for (const auto& [self_attn, mlp, attention_norm, ffn_norm, multiplier] : part.layers)
        result.layers.push_back(
            {{{self_attn, group}}, {{mlp, group}}, attention_norm, ffn_norm});
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
    const std::size_t n = group.ranks->size(), rank = group.ranks->rank();
    const std::size_t copies = slice_of(config, "k_proj", group).num_copies;
    const std::unique_ptr<Communicator> same_heads = group.ranks->split(rank / copies);
    for (const Parameter& parameter : gradient) {
        const Slice slice = slice_of(config, parameter.name, group);
        if (!slice.partial_gradients || slice.num_copies == 1) continue;
        (slice.num_copies == n ? *group.ranks : *same_heads).all_reduce(parameter.values);
    }
}

}  // namespace llm
