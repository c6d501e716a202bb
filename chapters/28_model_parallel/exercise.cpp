#include "chapters/28_model_parallel/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 28.1 — predict: a step has 12 micro-batches, and a pipeline has 4 stages. What share
// of the time, in percent, is lost? How many micro-batches does the first stage keep at most
// with GPipe's order, and how many with 1F1B?
IdVector predicted_pipeline() {
    TODO("predicted_pipeline");
    // return {?, ?, ?};
}

// Exercise 28.2 — predict: four ranks divide layers with C 64, H 8, Hkv 2, D 8 and F 160. How
// many rows of q_proj and of k_proj does a rank have, and how many columns of down_proj? How
// many numbers does a rank send in the forward pass of a layer for one sequence of 20 tokens:
// with all-reduces, and with sequence parallelism? (In rings.)
IdVector predicted_slices() {
    TODO("predicted_slices");
    // return {?, ?, ?, ?, ?};
}

// Exercise 28.3 — find the bug. On one rank, all is right. Four ranks divide 28 tokens, and the
// loss of the first step has the same digits. Then it falls for some steps, and rises; the
// model gives the tokens 0, 7, 14 and 21 nearly all the probability.
LossOfPart cross_entropy_of_part(Communicator& ranks, const Matrix& logits,
                                 const Vector& log_sum_exp, const IdVector& targets,
                                 Part vocabulary) {
    const auto [num_rows, width] = dims(logits);
    const Real share = 1 / static_cast<Real>(num_rows);
    Matrix gradient(logits.shape());
    std::vector<double> target_logits(num_rows);
    for (std::size_t row = 0; row < num_rows; ++row) {
        // One rank has the target's logit. The others add 0 to the sum over ranks.
        const auto target = static_cast<std::size_t>(targets(row));
        const bool is_own =
            target >= vocabulary.begin && target < vocabulary.begin + vocabulary.size;
        const std::size_t column = is_own ? target - vocabulary.begin : 0;
        target_logits[row] = is_own ? double(logits(row, column)) : 0;

        // The gradient is the softmax, minus 1 at the target.
        for (std::size_t v = 0; v < width; ++v)
            gradient(row, v) = share * std::exp(logits(row, v) - log_sum_exp(row));
        gradient(row, column) -= share;
    }
    ranks.all_reduce(std::span(target_logits));
    double loss = 0;
    for (std::size_t row = 0; row < num_rows; ++row)
        loss += double(log_sum_exp(row)) - target_logits[row];
    return {loss / double(num_rows), gradient};
}

// Exercise 28.4 — write the schedule "one forward, one backward" from an empty file. First: how
// many forward passes does a stage run in its warm-up, before those that are each followed by a
// backward pass?
std::size_t num_warmup_micro_batches([[maybe_unused]] std::size_t num_micro_batches,
                                     [[maybe_unused]] std::size_t num_stages,
                                     [[maybe_unused]] std::size_t stage) {
    TODO("num_warmup_micro_batches");
}

// Step 2: warm-up, steady state and cool-down as text.
std::string schedule_of_stage([[maybe_unused]] std::size_t num_micro_batches,
                              [[maybe_unused]] std::size_t num_stages,
                              [[maybe_unused]] std::size_t stage) {
    TODO("schedule_of_stage");
}

// Step 3: all stages, tick by tick. A forward and a backward pass take one tick each.
std::vector<std::string> pipeline_timeline([[maybe_unused]] std::size_t num_micro_batches,
                                           [[maybe_unused]] std::size_t num_stages) {
    TODO("pipeline_timeline");
}

// Exercise 28.5 — write the merge of ring attention from an empty file, without a division
// before the end. First, one block of keys; and the division.
AttentionState attend_to_keys([[maybe_unused]] const Matrix& queries,
                              [[maybe_unused]] const IdVector& positions,
                              [[maybe_unused]] const KeyBlock& block) {
    TODO("attend_to_keys");
}
BlockAttention finish([[maybe_unused]] const AttentionState& state) { TODO("finish"); }

// Step 2: two blocks. Step 3: it gives no NaN if a query sees no key of one, or of both.
AttentionState merge_states([[maybe_unused]] const AttentionState& a,
                            [[maybe_unused]] const AttentionState& b) {
    TODO("merge_states");
}

// Step 4: at least one block, in any order.
BlockAttention attend_to_blocks([[maybe_unused]] const Matrix& queries,
                                [[maybe_unused]] const IdVector& positions,
                                [[maybe_unused]] const std::vector<KeyBlock>& blocks) {
    TODO("attend_to_blocks");
}

}  // namespace exercise
