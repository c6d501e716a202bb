#include "chapters/13_training/exercise.hpp"

#include <cmath>

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 13.1 — predict: AdamW's first step, with a learning rate of 0.1 and without weight
// decay. The parameters are 1, 1 and 1, their gradients 0.5, -8 and 0. What are the parameters
// after the step?
Vector predicted_first_updates() {
    TODO("predicted_first_updates");
    // return {?, ?, ?};
}

// Exercise 13.2 — find the bug. The loss decreases to almost 0 within minutes, and the model
// repeats the last letter of the prompt.
Batch batch_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& starts,
               std::size_t seq_len) {
    Batch batch{xt::zeros<Id>({starts.size(), seq_len}),
                xt::zeros<Id>({starts.size(), seq_len})};
    for (std::size_t b = 0; b < starts.size(); ++b) {
        const Id* sequence = tokens.data() + starts[b];
        std::copy_n(sequence, seq_len, batch.input_ids.data() + b * seq_len);
        std::copy_n(sequence, seq_len, batch.targets.data() + b * seq_len);
    }
    return batch;
}

// Exercise 13.3 — find the bug. Norm weights decay toward 0, although their gradient is 0.
bool has_weight_decay(const std::string& name, [[maybe_unused]] std::size_t num_axes) {
    return name.ends_with(".weight");
}

// Exercise 13.4 — write accumulate_gradients: it returns the mean loss over the tokens of all
// batches, the gradient of that loss, and the total number of tokens. The batches have
// different numbers of tokens.
BatchGradient accumulate_gradients([[maybe_unused]] const std::vector<BatchGradient>& batches) {
    TODO("accumulate_gradients");
}

// Exercise 13.5 — write wsd_learning_rate: a linear warm-up as in the lesson, a constant
// learning rate, and in the last decay_steps steps a linear decay, which reaches 0 at
// max_steps. Source: MiniCPM (Hu et al., 2024), the WSD (warmup-stable-decay) schedule.
Real wsd_learning_rate([[maybe_unused]] const WSDSchedule& schedule,
                       [[maybe_unused]] std::size_t step) {
    TODO("wsd_learning_rate");
}

// Exercise 13.6 — predict: the cosine schedule with a maximum of 1, a minimum of 0.1, 4 steps
// of warm-up and 12 steps in all. What is the learning rate of steps 0, 3, 8 and 12?
Vector predicted_learning_rates() {
    TODO("predicted_learning_rates");
    // return {?, ?, ?, ?};
}

// Exercise 13.7 — predict: a model with 512 tokens has just been initialized, and all its
// logits are close to 0. What are its loss, in nats, and its perplexity?
Vector predicted_initial_loss() {
    TODO("predicted_initial_loss");
    // return {?, ?};
}

// Exercise 13.8 — predict: the gradient is {2, -3, 6}. What is it after clipping with
// max_grad_norm = 1?
Vector predicted_clipping() {
    TODO("predicted_clipping");
    // return {?, ?, ?};
}

// Exercise 13.9 — write bigram_gradient: the loss of the table, and its gradient. The gradient
// of a row's logits is (softmax - one-hot target) / N, added up over all uses of the row.
BigramGradient bigram_gradient([[maybe_unused]] const Matrix& table,
                               [[maybe_unused]] const IdVector& input_ids,
                               [[maybe_unused]] const IdVector& targets) {
    TODO("bigram_gradient");
}

// Exercise 13.10 — write adamw_step: both moving averages, bias correction, decoupled weight
// decay.
void adamw_step([[maybe_unused]] AdamWState& state, [[maybe_unused]] const AdamWConfig& config,
                [[maybe_unused]] Real learning_rate, [[maybe_unused]] Matrix& parameter,
                [[maybe_unused]] const Matrix& gradient) {
    TODO("adamw_step");
}

// Exercise 13.11 — write sample_bigrams: each position is uniformly distributed among those
// that have a next token. Use generator.next_32_bits() % n for each.
Bigrams sample_bigrams([[maybe_unused]] const std::vector<Id>& tokens,
                       [[maybe_unused]] std::size_t count,
                       [[maybe_unused]] Generator& generator) {
    TODO("sample_bigrams");
}

// Exercise 13.12 — write train_bigram_model: start with a table of zeros. In each step, sample
// 256 bigrams, compute the gradient, and update the table with AdamW. The learning rate starts
// at 0.2 and decreases linearly to 0.
BigramRun train_bigram_model([[maybe_unused]] const std::vector<Id>& tokens,
                             [[maybe_unused]] std::size_t vocab_size,
                             [[maybe_unused]] std::size_t num_steps,
                             [[maybe_unused]] Generator& generator) {
    TODO("train_bigram_model");
}

// Exercise 13.13 — write orthogonalize. Divide the matrix by its Frobenius norm, so that no
// singular value s exceeds 1, and then apply s -> 1.5 s - 0.5 s³ to each of them, num_steps
// times, without computing them: U S³ Vᵀ is a product of U S Vᵀ with its transpose and itself.
Matrix orthogonalize([[maybe_unused]] const Matrix& matrix,
                     [[maybe_unused]] std::size_t num_steps) {
    TODO("orthogonalize");
}

// Exercise 13.14 — predict: a model has a million parameters, 800,000 of them in hidden
// matrices. How many MB (10^6 bytes) do these take: the model in bfloat16, a checkpoint of a
// run with AdamW, and one of a run with Muon? Checkpoints are in float32.
Vector predicted_megabytes() {
    TODO("predicted_megabytes");
    // return {?, ?, ?};
}

}  // namespace exercise
