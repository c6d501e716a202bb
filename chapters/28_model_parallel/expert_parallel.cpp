#include "chapters/28_model_parallel/expert_parallel.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "chapters/24_parallel/sharded_optimizer.hpp"

namespace llm {
namespace {

// Of values that are sorted by rank, the range of each rank.
std::vector<Part> parts_of(const std::vector<std::size_t>& counts) {
    std::vector<Part> parts;
    std::size_t begin = 0;
    for (const std::size_t size : counts) {
        parts.push_back({begin, size});
        begin += size;
    }
    return parts;
}

std::size_t sum_of(const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

void check_counts(const Communicator& ranks, std::size_t num_values,
                  const std::vector<std::size_t>& sent,
                  const std::vector<std::size_t>& received) {
    const std::size_t n = ranks.size(), rank = ranks.rank();
    require(sent.size() == n && received.size() == n,
            "all_to_all: counts for {} ranks and from {}, but there are {}", sent.size(),
            received.size(), n);
    require(sum_of(sent) == num_values, "all_to_all: {} values to send, but there are {}",
            sum_of(sent), num_values);
    require(sent[rank] == received[rank], "all_to_all: rank {} keeps {} values, and expects {}",
            rank, sent[rank], received[rank]);
}

// An all-to-all of rows; the counts are of rows. The result has as many as are received.
Matrix exchange_rows(Communicator& ranks, const Matrix& rows,  // (rows, C)
                     std::vector<std::size_t> sent, std::vector<std::size_t> received) {
    const std::size_t num_received = sum_of(received), width = rows.shape(1);
    for (std::size_t& count : sent) count *= width;
    for (std::size_t& count : received) count *= width;
    const std::vector<Real> values =
        all_to_all<Real>(ranks, {rows.data(), rows.size()}, sent, received);
    Matrix result(std::array{num_received, width});
    std::copy(values.begin(), values.end(), result.data());
    return result;
}

// The expert of each received row, from how many rows each rank sent for each of them.
IdMatrix experts_of_rows(const std::vector<std::uint64_t>& counts,  // (n, own experts)
                         std::size_t num_experts) {                 // -> (M', 1)
    std::vector<Id> experts;
    for (std::size_t i = 0; i < counts.size(); ++i)
        experts.insert(experts.end(), static_cast<std::size_t>(counts[i]),
                       static_cast<Id>(i % num_experts));
    IdMatrix result(std::array{experts.size(), std::size_t{1}});
    std::copy(experts.begin(), experts.end(), result.data());
    return result;
}

}  // namespace

template <class Number>
std::vector<Number> all_to_all(Communicator& ranks, std::span<const Number> values,
                               const std::vector<std::size_t>& sent,
                               const std::vector<std::size_t>& received) {
    const std::size_t n = ranks.size(), rank = ranks.rank();
    check_counts(ranks, values.size(), sent, received);
    std::vector<Number> result(sum_of(received));
    const std::vector<Part> to = parts_of(sent), from = parts_of(received);
    const auto values_to = [&](std::size_t r) {
        return values.subspan(to[r].begin, to[r].size);
    };
    const auto values_from = [&](std::size_t r) {
        return std::span(result).subspan(from[r].begin, from[r].size);
    };

    // Keep the own values. Then exchange with the ranks s places away.
    const auto own = values_to(rank);
    std::copy(own.begin(), own.end(), values_from(rank).begin());
    for (std::size_t s = 1; s < n; ++s) {
        const std::size_t destination = (rank + s) % n, source = (rank + n - s) % n;
        ranks.send_receive<Number>(values_to(destination), destination, values_from(source),
                                   source);
    }
    return result;
}
template std::vector<Real> all_to_all(Communicator&, std::span<const Real>,
                                      const std::vector<std::size_t>&,
                                      const std::vector<std::size_t>&);
template std::vector<std::uint64_t> all_to_all(Communicator&, std::span<const std::uint64_t>,
                                               const std::vector<std::size_t>&,
                                               const std::vector<std::size_t>&);

ExpertExchange plan_exchange(Communicator& ranks, const Dispatch& dispatch) {
    const std::vector<std::size_t>& first_row = dispatch.first_row;
    const std::size_t n = ranks.size(), num_experts = first_row.size() - 1;
    const std::size_t num_own = part_of(num_experts, n, ranks.rank()).size;

    // Count the rows for each expert, and for all experts of each rank.
    ExpertExchange exchange;
    std::vector<std::uint64_t> rows_of_expert(num_experts);
    std::vector<std::size_t> experts_of_rank;
    for (std::size_t e = 0; e < num_experts; ++e)
        rows_of_expert[e] = first_row[e + 1] - first_row[e];
    for (std::size_t r = 0; r < n; ++r) {
        const auto [begin, size] = part_of(num_experts, n, r);
        experts_of_rank.push_back(size);
        exchange.sent.push_back(first_row[begin + size] - first_row[begin]);
    }

    // Tell each rank the counts of its experts, and learn those of this rank's.
    const std::vector<std::uint64_t> counts = all_to_all<std::uint64_t>(  // (n, own experts)
        ranks, rows_of_expert, experts_of_rank, std::vector<std::size_t>(n, num_own));
    exchange.received.assign(n, 0);
    for (std::size_t i = 0; i < counts.size(); ++i)
        exchange.received[i / num_own] += static_cast<std::size_t>(counts[i]);
    exchange.dispatch = dispatch_tokens(experts_of_rows(counts, num_own), num_own);
    return exchange;
}

Matrix dispatch_rows(Communicator& ranks, const ExpertExchange& exchange, const Matrix& rows) {
    // Rows arrive sorted by the rank that sent them; sort them by expert.
    return gather_tokens(exchange_rows(ranks, rows, exchange.sent, exchange.received),
                         exchange.dispatch);
}

Matrix combine_rows(Communicator& ranks, const ExpertExchange& exchange, const Matrix& rows) {
    // Restore the order in which they came: combine_experts with weights of 1. Then send back.
    const Matrix ones = xt::ones<Real>({rows.shape(0), std::size_t{1}});
    return exchange_rows(ranks, combine_experts(rows, ones, exchange.dispatch),
                         exchange.received, exchange.sent);
}

namespace {

// moe_forward of chapter 18, whose experts are those of all ranks.
ForwardPass<ExpertParallelActivations> forward_on_ranks(
    const MixtureOfExperts& moe, Communicator& ranks, const Tensor3& input,
    std::optional<double> capacity_factor = std::nullopt) {
    ExpertExchange exchange;
    MoeActivations own;
    const auto apply = [&](const MixtureOfExperts&, const Matrix& rows, MoeActivations& saved) {
        exchange = plan_exchange(ranks, saved.dispatch);
        own.dispatch = exchange.dispatch;
        apply_experts(moe, dispatch_rows(ranks, exchange, rows), own);
        saved.expert_outputs = combine_rows(ranks, exchange, own.expert_outputs);
    };
    auto [output, saved] = moe_forward(moe, input, capacity_factor, apply);
    return {std::move(output), {std::move(saved), std::move(exchange), std::move(own)}};
}

}  // namespace

Tensor3 ExpertParallelMlp::operator()(const Tensor3& hidden_states) const {
    if (const auto* moe = std::get_if<MixtureOfExperts>(&part))
        return forward_on_ranks(*moe, *ranks, hidden_states).output;
    return part(hidden_states);
}

ForwardPass<ExpertParallelActivations> mlp_forward(const ExpertParallelMlp& mlp,
                                                   const Tensor3& input) {
    if (const auto* moe = std::get_if<MixtureOfExperts>(&mlp.part))
        return forward_on_ranks(*moe, *mlp.ranks, input, moe->capacity_factor);
    auto [output, dense] = mlp_forward(mlp.part, input);
    return {std::move(output), {std::move(dense), {}, {}}};
}

Tensor3 mlp_backward(const ExpertParallelMlp& mlp, const ExpertParallelActivations& saved,
                     const Tensor3& output_gradient, ExpertParallelMlp& gradient) {
    const auto* moe = std::get_if<MixtureOfExperts>(&mlp.part);
    if (!moe) return mlp_backward(mlp.part, saved.own_tokens, output_gradient, gradient.part);
    const auto backward = [&](const MixtureOfExperts&, const MoeActivations&,
                              const Matrix& rows_gradient, MixtureOfExperts& of_experts) {
        const Matrix own_gradient = dispatch_rows(*mlp.ranks, saved.exchange, rows_gradient);
        return combine_rows(
            *mlp.ranks, saved.exchange,
            experts_backward(*moe, saved.own_experts, own_gradient, of_experts));
    };
    return moe_backward(*moe, std::get<MoeActivations>(saved.own_tokens), output_gradient,
                        std::get<MixtureOfExperts>(gradient.part), backward);
}

void add_parameters(ParameterList& list, const std::string& name, ExpertParallelMlp& mlp) {
    add_parameters(list, name, mlp.part);
}

ExpertParallelDecoder expert_parallel_part(const MoeDecoder& whole, Communicator& ranks) {
    return with_layers(whole, [&](const MoeBlock& layer) {
        MlpOrMoe mlp = layer.mlp;
        if (auto* moe = std::get_if<MixtureOfExperts>(&mlp)) {
            const auto [begin, size] = part_of(moe->experts.size(), ranks.size(), ranks.rank());
            const auto first = moe->experts.begin() + std::ptrdiff_t(begin);
            moe->experts = std::vector<Expert>(first, first + std::ptrdiff_t(size));
        }
        return ExpertParallelBlock{layer.self_attn,
                                   {std::move(mlp), &ranks},
                                   layer.attention_norm,
                                   layer.ffn_norm,
                                   layer.residual_multiplier};
    });
}

Vector expert_load(Communicator& ranks, const MoeActivations& saved) {
    Vector load = xt::zeros<Real>({saved.router_logits.shape(1)});
    for (const Id expert : saved.routed.experts) load(static_cast<std::size_t>(expert)) += 1;
    ranks.all_reduce(std::span(load.data(), load.size()));
    return load / std::accumulate(load.begin(), load.end(), Real(0));
}

ExpertParallelLoss forward_backward(const ExpertParallelDecoder& decoder, const Batch& batch,
                                    Real share, Real aux_loss_coef,
                                    Communicator& balanced_ranks,
                                    ExpertParallelDecoder& gradient) {
    auto [logits, saved] = model_forward(decoder, batch.input_ids);
    ExpertParallelLoss result{double(share) * cross_entropy(logits, batch.targets)};
    for (auto& layer : saved.layers) {
        auto* moe = std::get_if<MoeActivations>(&layer.mlp.own_tokens);
        if (!moe) continue;
        const auto [loss, logits_gradient] =
            load_balancing_loss_of_load(moe->router_logits, expert_load(balanced_ranks, *moe));
        result.aux_loss += double(share) * loss;
        moe->router_logits_gradient = share * aux_loss_coef * logits_gradient;
    }
    model_backward(decoder, saved, share * cross_entropy_backward(logits, batch.targets),
                   gradient);
    return result;
}

ExpertsAndReplicated experts_and_replicated(ExpertParallelDecoder& model) {
    ExpertsAndReplicated result;
    for (const Parameter& parameter : named_parameters(model)) {
        const bool is_of_expert = parameter.name.find(".experts.") != parameter.name.npos;
        (is_of_expert ? result.experts : result.replicated).push_back(parameter);
    }
    return result;
}

void sum_replicated_gradients(Communicator& ranks, ExpertParallelDecoder& gradient) {
    for (const Parameter& parameter : experts_and_replicated(gradient).replicated)
        ranks.all_reduce(parameter.values);
}

double expert_parallel_grad_norm(Communicator& ranks, ExpertParallelDecoder& gradient) {
    const auto [experts, replicated] = experts_and_replicated(gradient);
    return std::hypot(sharded_grad_norm(ranks, experts), grad_norm(replicated));
}

}  // namespace llm
