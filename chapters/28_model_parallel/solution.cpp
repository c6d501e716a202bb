#include <cmath>
#include <set>

#include "chapters/28_model_parallel/exercise.hpp"

namespace exercise {

// Exercise 28.1 — predict: of 12 + 3 times of a micro-batch, 3 are lost: 20 %. GPipe keeps all
// 12 micro-batches. With 1F1B, stage 0 of 4 keeps 4.
IdVector predicted_pipeline() { return {20, 12, 4}; }

// Exercise 28.2 — predict: 2 of 8 query heads of 8 rows, and 40 of 160 features. A rank cannot
// have half a key head, so two ranks have the same one: 8 rows. An all-reduce sends 2 * 3/4 of
// 20 * 64 numbers, and a layer has two. With sequence parallelism, each is an all-gather and a
// reduce-scatter, of 3/4 each: the same numbers.
IdVector predicted_slices() { return {16, 8, 40, 3840, 3840}; }

// Exercise 28.3 — find the bug. A target of another rank has no column here. Column 0 stands in
// for it, which is harmless where 0 is added to a sum, but not where the gradient changes: each
// rank learned its first token as the target of all others. (Megatron-LM subtracts 1 minus the
// mask.) A check that needs no second process: over all ranks, each row of the gradient sums to
// 0.
LossOfPart cross_entropy_of_part(Communicator& ranks, const Matrix& logits,
                                 const Vector& log_sum_exp, const IdVector& targets,
                                 Part vocabulary) {
    const auto [num_rows, width] = dims(logits);
    const Real share = 1 / static_cast<Real>(num_rows);
    Matrix gradient(logits.shape());
    std::vector<double> target_logits(num_rows);
    for (std::size_t row = 0; row < num_rows; ++row) {
        const auto target = static_cast<std::size_t>(targets(row));
        const bool is_own =
            target >= vocabulary.begin && target < vocabulary.begin + vocabulary.size;
        for (std::size_t v = 0; v < width; ++v)
            gradient(row, v) = share * std::exp(logits(row, v) - log_sum_exp(row));
        if (is_own) {
            target_logits[row] = double(logits(row, target - vocabulary.begin));
            gradient(row, target - vocabulary.begin) -= share;
        }
    }
    ranks.all_reduce(std::span(target_logits));
    double loss = 0;
    for (std::size_t row = 0; row < num_rows; ++row)
        loss += double(log_sum_exp(row)) - target_logits[row];
    return {loss / double(num_rows), gradient};
}

// Exercise 28.4 — the first gradient comes back when the micro-batch has passed the stages
// after this one. Until then this stage starts one micro-batch for each of them, if there are
// so many.
std::size_t num_warmup_micro_batches(std::size_t num_micro_batches, std::size_t num_stages,
                                     std::size_t stage) {
    return std::min(num_micro_batches, num_stages - 1 - stage);
}

std::string schedule_of_stage(std::size_t num_micro_batches, std::size_t num_stages,
                              std::size_t stage) {
    const std::size_t warmup = num_warmup_micro_batches(num_micro_batches, num_stages, stage);
    std::string text;
    const auto add = [&](char pass, std::size_t micro_batch) {
        text += (text.empty() ? "" : " ") + (pass + std::to_string(micro_batch));
    };
    for (std::size_t i = 0; i < warmup; ++i) add('F', i);
    for (std::size_t i = warmup; i < num_micro_batches; ++i) {
        add('F', i);
        add('B', i - warmup);
    }
    for (std::size_t i = num_micro_batches - warmup; i < num_micro_batches; ++i) add('B', i);
    return text;
}

// In each tick, a stage runs its next action if the input of it was there before the tick.
std::vector<std::string> pipeline_timeline(std::size_t num_micro_batches,
                                           std::size_t num_stages) {
    const std::size_t num_actions = 2 * num_micro_batches;  // of a stage, "F0 " to "B9"
    std::vector<std::size_t> num_run(num_stages);
    std::vector<std::string> timeline(num_stages);
    std::set<std::pair<std::size_t, std::string>> done;  // stage and action
    while (done.size() < num_stages * num_actions) {
        const auto done_before = done;
        for (std::size_t stage = 0; stage < num_stages; ++stage) {
            timeline[stage] += '.';
            if (num_run[stage] == num_actions) continue;
            const std::string action = schedule_of_stage(num_micro_batches, num_stages, stage)
                                           .substr(3 * num_run[stage], 2);
            const bool is_forward = action[0] == 'F';
            const bool needs_none = stage == (is_forward ? 0 : num_stages - 1);
            const std::size_t source = is_forward ? stage - 1 : stage + 1;
            if (!needs_none && !done_before.contains({source, action})) continue;
            timeline[stage].back() =
                is_forward ? action[1] : static_cast<char>('a' + (action[1] - '0'));
            done.insert({stage, action});
            ++num_run[stage];
        }
    }
    return timeline;
}

// Exercise 28.5 — e^(score - max) is 0 for a hidden key; only where all keys are hidden, it is
// e^(-inf + inf), which is NaN. So the sums begin with 0 and leave such keys out.
AttentionState attend_to_keys(const Matrix& queries, const IdVector& positions,
                              const KeyBlock& block) {
    const auto [seq_len, head_dim] = dims(queries);
    const Matrix scores = attention_scores(queries, block.keys);  // (T, S)
    AttentionState state{Vector(std::array{seq_len}), xt::zeros<Real>({seq_len}),
                         xt::zeros<Real>({seq_len, head_dim})};
    state.max.fill(-infinity);
    for (std::size_t t = 0; t < seq_len; ++t) {
        const auto is_seen = [&](std::size_t s) { return block.positions(s) <= positions(t); };
        for (std::size_t s = 0; s < block.keys.shape(0); ++s)
            if (is_seen(s)) state.max(t) = std::max(state.max(t), scores(t, s));
        for (std::size_t s = 0; s < block.keys.shape(0); ++s) {
            if (!is_seen(s)) continue;
            const Real weight = std::exp(scores(t, s) - state.max(t));
            state.sum(t) += weight;
            for (std::size_t d = 0; d < head_dim; ++d)
                state.output(t, d) += weight * block.values(s, d);
        }
    }
    return state;
}

// The log of the sum of e^score is max + log(sum of e^(score - max)). A query that has seen no
// key has -inf + log(0), which is right, and 0/0, which is not.
BlockAttention finish(const AttentionState& state) {
    const auto [seq_len, head_dim] = dims(state.output);
    BlockAttention result{xt::zeros<Real>({seq_len, head_dim}), Vector(std::array{seq_len})};
    for (std::size_t t = 0; t < seq_len; ++t) {
        result.log_sum_exp(t) = state.max(t) + std::log(state.sum(t));
        if (state.sum(t) == 0) continue;
        for (std::size_t d = 0; d < head_dim; ++d)
            result.context(t, d) = state.output(t, d) / state.sum(t);
    }
    return result;
}

// Sum and output of both, made relative to the larger maximum.
AttentionState merge_states(const AttentionState& a, const AttentionState& b) {
    const auto [seq_len, head_dim] = dims(a.output);
    AttentionState merged = a;
    for (std::size_t t = 0; t < seq_len; ++t) {
        const Real max = std::max(a.max(t), b.max(t));
        if (max == -infinity) continue;
        const Real of_a = std::exp(a.max(t) - max), of_b = std::exp(b.max(t) - max);
        merged.max(t) = max;
        merged.sum(t) = of_a * a.sum(t) + of_b * b.sum(t);
        for (std::size_t d = 0; d < head_dim; ++d)
            merged.output(t, d) = of_a * a.output(t, d) + of_b * b.output(t, d);
    }
    return merged;
}

BlockAttention attend_to_blocks(const Matrix& queries, const IdVector& positions,
                                const std::vector<KeyBlock>& blocks) {
    AttentionState state = attend_to_keys(queries, positions, blocks.at(0));
    for (std::size_t i = 1; i < blocks.size(); ++i)
        state = merge_states(state, attend_to_keys(queries, positions, blocks[i]));
    return finish(state);
}

}  // namespace exercise
