#include "chapters/13_training/exercise.hpp"

#include <cmath>

namespace exercise {

// Exercise 13.1 — with bias correction, the first step divides the gradient by its own
// magnitude: each parameter changes by the learning rate, against the sign of its gradient.
Vector predicted_first_updates() { return {Real(0.9), Real(1.1), 1}; }

// Exercise 13.2 — the target of a token is the token after it. If the targets equal the inputs,
// the model learns to copy its input.
Batch batch_at(const std::vector<Id>& tokens, const std::vector<std::size_t>& starts,
               std::size_t seq_len) {
    Batch batch{xt::zeros<Id>({starts.size(), seq_len}),
                xt::zeros<Id>({starts.size(), seq_len})};
    for (std::size_t b = 0; b < starts.size(); ++b) {
        const Id* sequence = tokens.data() + starts[b];
        std::copy_n(sequence, seq_len, batch.input_ids.data() + b * seq_len);
        std::copy_n(sequence + 1, seq_len, batch.targets.data() + b * seq_len);
    }
    return batch;
}

// Exercise 13.3 — the names of norm weights end with ".weight", too. Matrices, including the
// embedding, have two axes; norm weights and biases have one.
bool has_weight_decay([[maybe_unused]] const std::string& name, std::size_t num_axes) {
    return num_axes > 1;
}

// Exercise 13.4 — the mean of the batches' means is the mean over all tokens only if all
// batches have the same number of tokens. Each mean is weighted by its batch's number of
// tokens.
BatchGradient accumulate_gradients(const std::vector<BatchGradient>& batches) {
    BatchGradient sum{0, xt::zeros<Real>(batches.at(0).gradient.shape()), 0};
    for (const BatchGradient& batch : batches) sum.num_tokens += batch.num_tokens;
    for (const BatchGradient& batch : batches) {
        const double weight = double(batch.num_tokens) / double(sum.num_tokens);
        sum.loss += weight * batch.loss;
        sum.gradient = sum.gradient + batch.gradient * static_cast<Real>(weight);
    }
    return sum;
}

// Exercise 13.5 — in the decay phase, the learning rate is proportional to the number of steps
// that are left.
Real wsd_learning_rate(const WSDSchedule& schedule, std::size_t step) {
    const auto& [learning_rate, warmup_steps, decay_steps, max_steps] = schedule;
    if (step < warmup_steps)
        return learning_rate * static_cast<Real>(step + 1) / static_cast<Real>(warmup_steps);
    const std::size_t steps_left = step < max_steps ? max_steps - step : 0;
    if (steps_left >= decay_steps) return learning_rate;
    return learning_rate * static_cast<Real>(steps_left) / static_cast<Real>(decay_steps);
}

// Exercise 13.6 — the warm-up is (step + 1) / 4 of the maximum. Step 8 is half way through the
// cosine decay, step 12 is its end.
Vector predicted_learning_rates() { return {Real(0.25), 1, Real(0.55), Real(0.1)}; }

// Exercise 13.7 — every token has a probability of 1/512: the loss is ln 512, and the
// perplexity is e to the loss.
Vector predicted_initial_loss() { return {Real(6.238), 512}; }

// Exercise 13.8 — the norm is √(4 + 9 + 36) = 7, so all elements are divided by 7.
Vector predicted_clipping() { return {Real(2) / 7, Real(-3) / 7, Real(6) / 7}; }

// Exercise 13.9 — the loss of one bigram is log Σ exp(logits) - logit of the target. Subtract
// the largest logit before the exponentials.
BigramGradient bigram_gradient(const Matrix& table, const IdVector& input_ids,
                               const IdVector& targets) {
    const std::size_t vocab_size = table.shape(1);
    const Real n = static_cast<Real>(input_ids.size());
    BigramGradient result{0, xt::zeros<Real>(table.shape())};
    std::vector<Real> exponentials(vocab_size);
    for (std::size_t i = 0; i < input_ids.size(); ++i) {
        const auto row = static_cast<std::size_t>(input_ids(i));
        const auto target = static_cast<std::size_t>(targets(i));
        Real maximum = table(row, 0);
        for (std::size_t v = 1; v < vocab_size; ++v) maximum = std::max(maximum, table(row, v));
        Real sum = 0;
        for (std::size_t v = 0; v < vocab_size; ++v) {
            exponentials[v] = std::exp(table(row, v) - maximum);
            sum += exponentials[v];
        }

        // The gradient of the loss is p - 1 at the target and p elsewhere.
        for (std::size_t v = 0; v < vocab_size; ++v)
            result.gradient(row, v) += exponentials[v] / sum / n;
        result.gradient(row, target) -= 1 / n;
        result.loss += double(maximum + std::log(sum) - table(row, target)) / double(n);
    }
    return result;
}

// Exercise 13.10 — as in the lesson, for one matrix.
void adamw_step(AdamWState& state, const AdamWConfig& config, Real learning_rate,
                Matrix& parameter, const Matrix& gradient) {
    const Real n = static_cast<Real>(++state.step_count);
    const Real bias_correction1 = 1 - std::pow(config.beta1, n);
    const Real bias_correction2 = 1 - std::pow(config.beta2, n);
    for (std::size_t i = 0; i < parameter.size(); ++i) {
        const Real g = gradient.data()[i];
        Real& m = state.exp_avg.data()[i];
        Real& v = state.exp_avg_sq.data()[i];
        m = config.beta1 * m + (1 - config.beta1) * g;
        v = config.beta2 * v + (1 - config.beta2) * g * g;

        // Decay the weight, then step against the gradient.
        Real& weight = parameter.data()[i];
        weight *= 1 - learning_rate * config.weight_decay;
        weight -= learning_rate * (m / bias_correction1) /
                  (std::sqrt(v / bias_correction2) + config.eps);
    }
}

// Exercise 13.11 — the last token has no successor, so there are tokens.size() - 1 positions.
Bigrams sample_bigrams(const std::vector<Id>& tokens, std::size_t count, Generator& generator) {
    Bigrams bigrams{xt::zeros<Id>({count}), xt::zeros<Id>({count})};
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t position = generator.next_32_bits() % (tokens.size() - 1);
        bigrams.input_ids(i) = tokens[position];
        bigrams.targets(i) = tokens[position + 1];
    }
    return bigrams;
}

// Exercise 13.12 — sample, compute the gradient, update: the loop of every training run.
BigramRun train_bigram_model(const std::vector<Id>& tokens, std::size_t vocab_size,
                             std::size_t num_steps, Generator& generator) {
    const Matrix zeros = xt::zeros<Real>({vocab_size, vocab_size});
    BigramRun run{zeros, {}};
    AdamWState state{zeros, zeros};
    for (std::size_t step = 0; step < num_steps; ++step) {
        const auto [input_ids, targets] = sample_bigrams(tokens, 256, generator);
        const auto [loss, gradient] = bigram_gradient(run.table, input_ids, targets);
        const Real left = 1 - static_cast<Real>(step) / static_cast<Real>(num_steps);
        adamw_step(state, {}, Real(0.2) * left, run.table, gradient);
        run.losses.push_back(loss);
    }
    return run;
}

// Exercise 13.13 — X Xᵀ X = U S Vᵀ V S Uᵀ U S Vᵀ = U S³ Vᵀ. The sum of the squares of all
// elements is that of the singular values, so that divided by its root none exceeds 1.
Matrix orthogonalize(const Matrix& matrix, std::size_t num_steps) {
    const Real norm = std::sqrt(xt::sum<Real>(matrix * matrix)());
    Matrix x = matrix / norm;
    for (std::size_t n = 0; n < num_steps; ++n) {
        const Matrix cubed = matmul(matmul_transposed(x, x), x);
        x = Real(1.5) * x - Real(0.5) * cubed;
    }
    return x;
}

// Exercise 13.14 — AdamW has two moving averages for each parameter, Muon one for each element
// of a hidden matrix; the other 200,000 parameters are AdamW's, also with Muon.
Vector predicted_megabytes() { return {2, 12, Real(8.8)}; }

}  // namespace exercise
