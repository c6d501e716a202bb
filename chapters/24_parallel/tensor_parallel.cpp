#include "chapters/24_parallel/tensor_parallel.hpp"

#include <cmath>
#include <map>

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/24_parallel/ring.hpp"
#include "common/tensors/elementwise.hpp"

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
enum class CopyDirection { to_part, to_whole };
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

// Calls visit(whole, part, slice) for each parameter of the part.
template <class Visit>
void visit_slices(const Config& config, const TensorParallelGroup& group,
                  const std::vector<Parameter>& whole, const std::vector<Parameter>& part,
                  const Visit& visit) {
    std::map<std::string, Parameter> by_name;
    for (const Parameter& parameter : whole) by_name.emplace(parameter.name, parameter);
    for (const Parameter& parameter : part)
        visit(by_name.at(parameter.name), parameter,
              slice_of(config, parameter.name, group.ranks->size(), group.ranks->rank()));
}

// Whether this rank has a token of the vocabulary, and in which row.
std::optional<std::size_t> row_of(Id token, Part vocabulary) {
    const auto id = static_cast<std::size_t>(token);
    if (id < vocabulary.begin || id >= vocabulary.begin + vocabulary.size) return std::nullopt;
    return id - vocabulary.begin;
}

Part vocabulary_of(const Communicator& ranks, std::size_t vocab_size) {
    return part_of(vocab_size, ranks.size(), ranks.rank());
}

// The log-sum-exp of each position's logits over the whole vocabulary.
std::vector<double> log_sum_exp_over_ranks(Communicator& ranks, const Matrix& logits) {
    // The log-sum-exp of this rank's logits: one number for each position.
    const std::size_t num_rows = logits.shape(0);
    std::vector<double> all(ranks.size() * num_rows);
    for (std::size_t row = 0; row < num_rows; ++row) {
        double maximum = double(-infinity), sum = 0;
        for (std::size_t v = 0; v < logits.shape(1); ++v)
            maximum = std::max(maximum, double(logits(row, v)));
        for (std::size_t v = 0; v < logits.shape(1); ++v)
            sum += std::exp(double(logits(row, v)) - maximum);
        all[ranks.rank() * num_rows + row] = maximum + std::log(sum);
    }
    ranks.all_gather(std::span(all));

    // That of the ranks' log-sum-exps is that of all logits.
    std::vector<double> result(num_rows);
    for (std::size_t row = 0; row < num_rows; ++row) {
        double maximum = double(-infinity), sum = 0;
        for (std::size_t r = 0; r < ranks.size(); ++r)
            maximum = std::max(maximum, all[r * num_rows + row]);
        for (std::size_t r = 0; r < ranks.size(); ++r)
            sum += std::exp(all[r * num_rows + row] - maximum);
        result[row] = maximum + std::log(sum);
    }
    return result;
}

}  // namespace

Tensor3 TensorParallelGroup::gather(const Tensor3& hidden_states) const {
    if (!sequence_parallel) return hidden_states;
    const auto [batch_size, own_len, width] = dims(hidden_states);
    const auto [begin, size] = part_of(seq_len, ranks->size(), ranks->rank());
    Tensor3 by_token(std::array{seq_len, batch_size, width});
    xt::view(by_token, xt::range(begin, begin + size)) = swap_batch_and_tokens(hidden_states);
    ring_all_gather(*ranks, {by_token.data(), by_token.size()}, batch_size * width);
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
    ring_reduce_scatter(*ranks, {by_token.data(), by_token.size()}, batch_size * width);
    return swap_batch_and_tokens(
        tokens_of(by_token, part_of(seq_len, ranks->size(), ranks->rank())));
}

AttentionLayer::Output TensorParallelAttention::operator()(const Tensor3& hidden_states,
                                                           const AttentionInputs& inputs,
                                                           LayerCache* cache) const {
    auto [output, attentions] = part(group.gather(hidden_states), inputs, cache);
    return {group.sum(output), std::move(attentions)};
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

ForwardPass<AttentionActivations> attention_forward(const TensorParallelAttention& attention,
                                                    const Tensor3& input,
                                                    const AttentionInputs& inputs,
                                                    Generator* dropout_generator) {
    auto [output, saved] = attention_forward(attention.part, attention.group.gather(input),
                                             inputs, dropout_generator);
    return {attention.group.sum(output), std::move(saved)};
}

Tensor3 attention_backward(const TensorParallelAttention& attention,
                           const AttentionInputs& inputs, const AttentionActivations& saved,
                           const Tensor3& output_gradient, TensorParallelAttention& gradient) {
    return attention.group.sum(attention_backward(
        attention.part, inputs, saved, attention.group.gather(output_gradient), gradient.part));
}

Slice slice_of(const Config& config, const std::string& name, std::size_t num_ranks,
               std::size_t rank) {
    const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    require(H % num_ranks == 0 && (Hkv % num_ranks == 0 || num_ranks % Hkv == 0),
            "tensor parallelism: {} ranks cannot share {} query heads and {} key/value heads",
            num_ranks, H, Hkv);
    const auto has = [&](const std::string& part) { return name.find(part) != name.npos; };
    const auto heads = [&](std::size_t first, std::size_t count) {
        return Part{first * config.head_dim, count * config.head_dim};
    };
    const Part queries = heads(rank * H / num_ranks, H / num_ranks);
    const Part features = part_of(config.intermediate_size, num_ranks, rank);
    const std::size_t copies = num_ranks > Hkv ? num_ranks / Hkv : 1;

    if (has("embed_tokens") || has("lm_head"))
        return {Sharding::rows, part_of(config.vocab_size, num_ranks, rank), 1, true};
    if (has("q_proj")) return {Sharding::rows, queries, 1, true};
    if (has("k_proj") || has("v_proj"))
        return {Sharding::rows, heads(rank * Hkv / num_ranks, copies > 1 ? 1 : Hkv / num_ranks),
                copies, rank % copies == 0};
    if (has("gate_proj") || has("up_proj")) return {Sharding::rows, features, 1, true};
    if (has("o_proj.weight")) return {Sharding::columns, queries, 1, true};
    if (has("down_proj.weight")) return {Sharding::columns, features, 1, true};
    // A bias that is added to a sum over ranks is on the first rank alone.
    if (has("o_proj.bias")) return {Sharding::replicated, {}, 1, true};
    return {Sharding::replicated, {}, num_ranks, rank == 0};  // norms
}

TensorParallelModel tensor_parallel_part(const Model& whole, const TensorParallelGroup& group) {
    const std::size_t n = group.ranks->size(), rank = group.ranks->rank();
    Config config = whole.config;
    require(config.qk_norm != QKNormType::over_all_heads,
            "tensor parallelism: a QK norm over all heads needs a mean over ranks");
    const Slice kv_heads = slice_of(config, "k_proj", n, rank);
    config.num_attention_heads /= n;
    config.num_key_value_heads = kv_heads.part.size / config.head_dim;
    config.intermediate_size = slice_of(whole.config, "up_proj", n, rank).part.size;
    config.vocab_size = vocabulary_of(*group.ranks, config.vocab_size).size;

    // A model of these sizes, whose numbers are then replaced.
    Generator generator(0);
    Model part = make_model(config, generator);
    for (PreNormBlock& block : part.layers)
        if (rank > 0) block.self_attn.projections.o_proj.bias.reset();
    Model copy = whole;
    visit_slices(whole.config, group, named_parameters(copy), named_parameters(part),
                 [](const Parameter& of_whole, const Parameter& of_part, const Slice& slice) {
                     copy_slice(rows_of_parameter(of_whole), rows_of_parameter(of_part), slice,
                                CopyDirection::to_part);
                 });
    return with_layers(part, [&](const PreNormBlock& block) {
        return TensorParallelBlock{{{block.self_attn, group}},
                                   {{block.mlp, group}},
                                   block.attention_norm,
                                   block.ffn_norm};
    });
}

Model gather(const TensorParallelModel& model, const Model& like) {
    // Each rank writes its slices into a model of zeros. The sum over ranks is the whole model.
    const TensorParallelGroup& group = model.layers.at(0).mlp.group;
    Model whole = zeros_like(like);
    TensorParallelModel part = model;
    visit_slices(like.config, group, named_parameters(whole), named_parameters(part),
                 [](const Parameter& of_whole, const Parameter& of_part, const Slice& slice) {
                     if (slice.is_first)
                         copy_slice(rows_of_parameter(of_whole), rows_of_parameter(of_part),
                                    slice, CopyDirection::to_whole);
                 });
    for (const Parameter& parameter : named_parameters(whole))
        group.ranks->all_reduce(parameter.values);
    return whole;
}

ShardedCrossEntropy sharded_cross_entropy(Communicator& ranks, const Tensor3& logits,
                                          const IdMatrix& targets, std::size_t vocab_size) {
    const auto [batch_size, seq_len, width] = dims(logits);
    const std::size_t num_rows = batch_size * seq_len;
    const Part vocabulary = vocabulary_of(ranks, vocab_size);
    Matrix gradient = reshape(logits, {num_rows, width});
    const std::vector<double> log_sum_exp = log_sum_exp_over_ranks(ranks, gradient);

    // The logit of each target is on one rank; the softmax needs nothing of the others.
    double loss = 0;
    for (std::size_t row = 0; row < num_rows; ++row) {
        const std::optional<std::size_t> own = row_of(targets.data()[row], vocabulary);
        if (own) loss += log_sum_exp[row] - double(gradient(row, *own));
        for (std::size_t v = 0; v < width; ++v)
            gradient(row, v) =
                static_cast<Real>(std::exp(double(gradient(row, v)) - log_sum_exp[row]));
        if (own) gradient(row, *own) -= 1;
    }
    ranks.all_reduce(std::span(&loss, 1));
    return {loss / double(num_rows),
            reshape(gradient / static_cast<Real>(num_rows), {batch_size, seq_len, width})};
}

Tensor3 sharded_embedding(const Matrix& weight, Part vocabulary, const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    Tensor3 embeddings = xt::zeros<Real>({batch_size, seq_len, weight.shape(1)});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            if (const auto row = row_of(input_ids(b, t), vocabulary))
                xt::view(embeddings, b, t) = xt::view(weight, *row);
    return embeddings;
}

void sharded_embedding_backward(Part vocabulary, const IdMatrix& input_ids,
                                const Tensor3& output_gradient, Matrix& gradient) {
    const auto [batch_size, seq_len] = dims(input_ids);
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            if (const auto row = row_of(input_ids(b, t), vocabulary))
                for (std::size_t c = 0; c < gradient.shape(1); ++c)
                    gradient(*row, c) += output_gradient(b, t, c);
}

double forward_backward(const TensorParallelModel& model, std::size_t vocab_size,
                        const IdMatrix& input_ids, const IdMatrix& targets,
                        const AttentionInputs& inputs, TensorParallelModel& gradient) {
    const TensorParallelGroup& group = model.layers.at(0).mlp.group;
    const Part vocabulary = vocabulary_of(*group.ranks, vocab_size);

    // The forward pass: the embedding is a sum over ranks, too.
    const Tensor3 embeddings =
        group.sum(sharded_embedding(model.embed_tokens, vocabulary, input_ids));
    const auto [last_hidden_state, saved] = layers_forward(model.layers, embeddings, inputs);
    const Tensor3 normalized = group.gather(model.norm(last_hidden_state));  // (B, T, C)
    const auto [loss, logits_gradient] = sharded_cross_entropy(
        *group.ranks, lm_head(model.head(), normalized), targets, vocab_size);

    // The backward pass.
    Matrix& head_gradient = model.lm_head ? *gradient.lm_head : gradient.embed_tokens;
    const Tensor3 normalized_gradient =
        group.sum(lm_head_backward(model.head(), normalized, logits_gradient, head_gradient));
    const Tensor3 embedding_gradient = layers_backward(
        model.layers, inputs, saved,
        norm_backward(model.norm, last_hidden_state, normalized_gradient, gradient.norm),
        gradient.layers);
    sharded_embedding_backward(vocabulary, input_ids, group.gather(embedding_gradient),
                               gradient.embed_tokens);
    return loss;
}

void sum_partial_gradients(const Config& config, TensorParallelModel& gradient) {
    const TensorParallelGroup& group = gradient.layers.at(0).mlp.group;
    Communicator& ranks = *group.ranks;
    const std::size_t copies = slice_of(config, "k_proj", ranks.size(), 0).num_copies;
    const std::unique_ptr<Communicator> sharing = ranks.split(ranks.rank() / copies);
    for (const Parameter& parameter : named_parameters(gradient)) {
        const bool is_kv = parameter.name.find("k_proj") != std::string::npos ||
                           parameter.name.find("v_proj") != std::string::npos;
        const bool is_qk_norm = parameter.name.find("q_norm") != std::string::npos ||
                                parameter.name.find("k_norm") != std::string::npos;
        const bool is_norm = parameter.name.find("norm") != std::string::npos;
        if (is_kv && copies > 1) sharing->all_reduce(parameter.values);
        if (is_qk_norm || (is_norm && group.sequence_parallel))
            ranks.all_reduce(parameter.values);
    }
}

}  // namespace llm
