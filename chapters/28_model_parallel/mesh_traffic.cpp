#include "chapters/28_model_parallel/mesh_traffic.hpp"

#include <algorithm>

#include "chapters/28_model_parallel/context_parallel.hpp"

namespace llm {
namespace {

// Numbers sent, and the messages that follow one another.
struct Sent {
    std::uint64_t numbers = 0, messages = 0;

    Sent& operator+=(const Sent& other) {
        numbers += other.numbers;
        messages += other.messages;
        return *this;
    }
};
Sent times(std::uint64_t count, const Sent& sent) {
    return {count * sent.numbers, count * sent.messages};
}

// What rank r of n sends in the functions of chapter 24's ring.hpp, for rows of one width.
struct RingRank {
    std::uint64_t n, r;

    Sent reduce_scatter(std::uint64_t rows, std::uint64_t width = 1) const {
        return {(rows - part_size(rows, n, r)) * width, n - 1};
    }
    Sent all_gather(std::uint64_t rows, std::uint64_t width = 1) const {
        return {(rows - part_size(rows, n, r + 1)) * width, n - 1};
    }
    Sent all_reduce(std::uint64_t count) const {
        Sent sent = reduce_scatter(count);
        return sent += all_gather(count);
    }
};

// One rank's view of a plan.
struct PlannedRank {
    const MeshPlan& plan;
    std::size_t number;
    MeshCoordinates at = coordinates(plan.sizes, number);
    Config part = config_of_part(plan, number);  // its sizes

    bool is_first_stage() const { return at.pipeline == 0; }
    bool is_last_stage() const { return at.pipeline + 1 == plan.sizes.pipeline; }
    RingRank data() const { return {plan.sizes.data, at.data}; }
    RingRank context() const { return {plan.sizes.context, at.context}; }
    RingRank tensor() const { return {plan.sizes.tensor, at.tensor}; }

    // The tokens of a context rank.
    std::uint64_t tokens(std::size_t context_rank) const {
        const ZigzagChunks chunks{plan.seq_len, plan.sizes.context};
        const auto [front, back] = chunks.of_rank(context_rank % plan.sizes.context);
        return chunks.chunk(front).size + chunks.chunk(back).size;
    }
    // The sum over micro-batches of what function(B) sends.
    template <class Function>
    Sent in_micro_batches(const Function& function) const {
        Sent sent;
        for (const std::uint64_t B : micro_batch_sizes(plan, at.data)) sent += function(B);
        return sent;
    }
};

// The gradients of all parameters, flattened and added over the ranks of a ring.
Sent all_gradients(const PlannedRank& rank, const RingRank& ring) {
    std::uint64_t count = 0;
    for (const PlannedParameter& parameter : parameters_of_part(rank.plan, rank.number))
        count += parameter.size;
    return ring.all_reduce(count);
}

// The sum of a layer's output, or the hidden states of which each rank has a part: the two
// functions of TensorParallelGroup, for B sequences.
Sent group_sum(const PlannedRank& rank, std::uint64_t B) {
    const std::uint64_t T = rank.tokens(rank.at.context), C = rank.part.hidden_size;
    return rank.plan.sequence_parallel ? rank.tensor().reduce_scatter(T, B * C)
                                       : rank.tensor().all_reduce(B * T * C);
}
Sent group_gather(const PlannedRank& rank, std::uint64_t B) {
    const std::uint64_t T = rank.tokens(rank.at.context), C = rank.part.hidden_size;
    return rank.plan.sequence_parallel ? rank.tensor().all_gather(T, B * C) : Sent{};
}

// Collects what a rank sends.
struct TrafficList {
    const MeshPlan& plan;
    std::size_t rank;
    std::vector<Traffic> rows{};

    // The rank that is so many places further in the ring of an axis.
    std::size_t neighbor(MeshAxis axis, std::size_t distance = 1) const {
        const std::vector<std::size_t> ring = ranks_of_axis(plan.sizes, rank, axis);
        const auto own = std::size_t(std::find(ring.begin(), ring.end(), rank) - ring.begin());
        return ring[(own + distance) % ring.size()];
    }
    // Messages of each micro-batch, to the next rank of the ring.
    void add_messages(MeshAxis axis, const std::string& what, const Sent& sent,
                      std::size_t distance = 1) {
        add({axis, neighbor(axis, distance), what, Traffic::Kind::messages,
             Traffic::When::each_micro_batch, sent.numbers * plan.bytes_per_number,
             sent.messages});
    }
    // Collective functions that are called once a step.
    void add_collective(MeshAxis axis, const std::string& what, const Sent& sent) {
        add({axis, neighbor(axis), what, Traffic::Kind::collective, Traffic::When::once,
             sent.numbers * plan.bytes_per_number, sent.messages});
    }
    void add(const Traffic& traffic) {
        if (traffic.num_bytes > 0) rows.push_back(traffic);
    }
};

void add_data_traffic(const PlannedRank& rank, TrafficList& list) {
    list.add_collective(MeshAxis::data, "gradients of weights",
                        all_gradients(rank, rank.data()));
}

void add_pipeline_traffic(const PlannedRank& rank, TrafficList& list) {
    const std::uint64_t T = rank.tokens(rank.at.context), C = rank.part.hidden_size;
    const std::uint64_t own_tokens =
        rank.plan.sequence_parallel ? part_size(T, rank.plan.sizes.tensor, rank.at.tensor) : T;
    const Sent states = rank.in_micro_batches([&](std::uint64_t B) {
        return Sent{B * own_tokens * C, 1};
    });
    if (!rank.is_last_stage()) list.add_messages(MeshAxis::pipeline, "hidden states", states);
    if (!rank.is_first_stage())
        list.add_messages(MeshAxis::pipeline, "their gradients", states,
                          rank.plan.sizes.pipeline - 1);
    if (rank.part.tie_word_embeddings && rank.is_first_stage() != rank.is_last_stage())
        list.add_collective(MeshAxis::pipeline, "gradient of tied matrix",
                            RingRank{2, rank.is_first_stage() ? 0u : 1u}.all_reduce(
                                std::uint64_t{rank.part.vocab_size} * C));
}

void add_context_traffic(const PlannedRank& rank, TrafficList& list) {
    const std::uint64_t n = rank.plan.sizes.context;
    if (n == 1) return;
    // Keys and values of B sequences: B Hkv D numbers of each token, of two tensors.
    const std::uint64_t width = 2 * rank.part.num_key_value_heads * rank.part.head_dim;
    const std::uint64_t T = rank.plan.seq_len, of_next = rank.tokens(rank.at.context + 1);
    const std::uint64_t L = rank.part.num_hidden_layers;
    // Forward, all parts but the next rank's are passed on; backward, all parts.
    const auto keys_values = [&](std::uint64_t B) {
        return times(L, {B * width * (T - of_next + T), 2 * (n - 1) + 2 * n});
    };
    const auto gradients = [&](std::uint64_t B) { return times(L, {B * width * T, 2 * n}); };
    list.add_messages(MeshAxis::context, "keys and values", rank.in_micro_batches(keys_values));
    list.add_messages(MeshAxis::context, "their gradients", rank.in_micro_batches(gradients));
    list.add_collective(MeshAxis::context, "gradients of weights",
                        all_gradients(rank, rank.context()));
}

void add_tensor_traffic(const PlannedRank& rank, TrafficList& list) {
    const std::size_t n = rank.plan.sizes.tensor;
    const std::uint64_t L = rank.part.num_hidden_layers;
    const std::uint64_t T = rank.tokens(rank.at.context);
    const auto pairs = [&](std::uint64_t count) {  // of a sum and a gather
        return rank.in_micro_batches([&](std::uint64_t B) {
            Sent sent = group_sum(rank, B);
            return times(count, sent += group_gather(rank, B));
        });
    };
    list.add_messages(MeshAxis::tensor, "hidden states of layers",
                      pairs(4 * L));  // attention and MLP, forward and backward
    if (rank.is_first_stage()) list.add_messages(MeshAxis::tensor, "embedding", pairs(1));
    if (rank.is_last_stage()) {
        list.add_messages(MeshAxis::tensor, "head", pairs(1));
        const Sent losses =
            rank.in_micro_batches([&](std::uint64_t) { return rank.tensor().all_reduce(1); });
        const Sent log_sums = rank.in_micro_batches(
            [&](std::uint64_t B) { return rank.tensor().all_gather(n * B * T); });
        list.add(
            {MeshAxis::tensor, list.neighbor(MeshAxis::tensor), "log-sum-exp, loss",
             Traffic::Kind::collective, Traffic::When::each_micro_batch,
             log_sums.numbers * rank.plan.bytes_per_number + losses.numbers * sizeof(double),
             log_sums.messages + losses.messages});
    }
    Sent copies;
    for (const auto& [size, num_copies] : parameters_of_part(rank.plan, rank.number))
        copies += RingRank{num_copies, rank.at.tensor % num_copies}.all_reduce(size);
    list.add_collective(MeshAxis::tensor, "gradients of copies", copies);
}

}  // namespace

std::vector<Traffic> traffic_of_rank(const MeshPlan& plan, std::size_t rank) {
    const PlannedRank planned{plan, rank};
    TrafficList list{plan, rank};
    add_data_traffic(planned, list);
    add_pipeline_traffic(planned, list);
    add_context_traffic(planned, list);
    add_tensor_traffic(planned, list);
    return list.rows;
}

}  // namespace llm
