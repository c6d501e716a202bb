// Chapter 13, exercises. Write your answers into exercise.cpp; ./learn exercise 13 checks them.
#pragma once

#include "chapters/13_training/trainer.hpp"
#include "common/tensors/matmul.hpp"

namespace exercise {

using namespace llm;

Vector predicted_first_updates();  // (3)

// Returns the sequences of T tokens that start at the given positions, and their targets.
Batch batch_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& starts,  // B
               std::size_t seq_len);                                                   // T

// Returns whether weight decay applies to the parameter with this name and number of axes.
bool has_weight_decay(const std::string& name, std::size_t num_axes);

// Loss and gradient of a batch, both averaged over its tokens.
struct BatchGradient {
    double loss;
    Vector gradient;  // (n): all parameters of a model in one vector
    std::size_t num_tokens;
};
BatchGradient accumulate_gradients(const std::vector<BatchGradient>& batches);

// A learning-rate schedule with three phases: warm-up, stable, decay. Steps count from 0.
struct WSDSchedule {
    Real learning_rate;
    std::size_t warmup_steps, decay_steps, max_steps;
};
Real wsd_learning_rate(const WSDSchedule& schedule, std::size_t step);

Vector predicted_learning_rates();  // (4)
Vector predicted_initial_loss();    // (2)
Vector predicted_clipping();        // (3)

// Exercises 13.9 to 13.12 train a bigram model: row i of the table holds the logits of the
// token after token i. Its gradient has the same shape.
struct BigramGradient {
    double loss;      // the mean cross-entropy of the targets
    Matrix gradient;  // (V, V)
};
BigramGradient bigram_gradient(const Matrix& table,        // (V, V)
                               const IdVector& input_ids,  // (N)
                               const IdVector& targets);   // (N)

// Both moving averages have the shape of the parameter and start at 0.
struct AdamWState {
    Matrix exp_avg, exp_avg_sq;  // (V, V)
    std::size_t step_count = 0;
};
struct AdamWConfig {
    Real beta1 = Real(0.9), beta2 = Real(0.95), eps = Real(1e-8), weight_decay = 0;
};
void adamw_step(AdamWState& state, const AdamWConfig& config, Real learning_rate,
                Matrix& parameter, const Matrix& gradient);  // (V, V) each

// N positions of the text, each with the token there and the one after it.
struct Bigrams {
    IdVector input_ids, targets;  // (N) each
};
Bigrams sample_bigrams(const std::vector<Id>& tokens, std::size_t count, Generator& generator);

struct BigramRun {
    Matrix table;                // (V, V), after training
    std::vector<double> losses;  // of each step's batch
};
BigramRun train_bigram_model(const std::vector<Id>& tokens, std::size_t vocab_size,
                             std::size_t num_steps, Generator& generator);

// Returns a matrix close to U Vᵀ, where U S Vᵀ is the singular value decomposition of the given
// matrix. num_steps are those of the cubic Newton–Schulz iteration.
Matrix orthogonalize(const Matrix& matrix, std::size_t num_steps);  // (out, in) -> (out, in)

Vector predicted_megabytes();  // (3)

}  // namespace exercise
