#include "chapters/28_model_parallel/vocabulary_parallel.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "common/tensors/elementwise.hpp"

namespace llm {
namespace {

// The row of a token in this rank's part of the vocabulary; none if another rank has it.
std::optional<std::size_t> own_row(Id token, Part vocabulary) {
    const auto id = static_cast<std::size_t>(token);
    if (id < vocabulary.begin || id >= vocabulary.begin + vocabulary.size) return std::nullopt;
    return id - vocabulary.begin;
}

// The log-sum-exp of each position's logits over the whole vocabulary: that of the log-sum-exps
// of all ranks' parts.
std::vector<double> log_sum_exp_over_ranks(Communicator& ranks,
                                           const Matrix& logits) {  // (N, V/n) -> (N)
    const std::size_t num_rows = logits.shape(0), n = ranks.size();
    std::vector<Real> of_ranks(n * num_rows);  // (n, N)
    for (std::size_t row = 0; row < num_rows; ++row)
        of_ranks[ranks.rank() * num_rows + row] =
            static_cast<Real>(log_sum_exp(view_of(logits)[row]));
    ranks.all_gather(std::span(of_ranks));

    std::vector<double> result(num_rows);
    for (std::size_t row = 0; row < num_rows; ++row) {
        std::vector<Real> of_row(n);
        for (std::size_t r = 0; r < n; ++r) of_row[r] = of_ranks[r * num_rows + row];
        result[row] = log_sum_exp(of_row);
    }
    return result;
}

}  // namespace

void check_ids(const TensorParallelConfig& config, const IdMatrix& input_ids) {
    Config whole = config;
    whole.vocab_size = config.whole_vocab_size;
    check_input(whole, input_ids);
}

VocabularyParallelLoss vocabulary_parallel_cross_entropy(Communicator& ranks,
                                                         const Tensor3& logits,
                                                         const IdMatrix& targets,
                                                         Part vocabulary) {
    const auto [batch_size, seq_len, width] = dims(logits);
    const std::size_t num_rows = batch_size * seq_len;  // N
    const Matrix rows = reshape(logits, {num_rows, width});
    const std::vector<double> log_sum_exps = log_sum_exp_over_ranks(ranks, rows);

    // The gradient is the softmax, minus 1 at the target, which one rank has.
    Matrix gradient(rows.shape());  // (N, V/n)
    double loss = 0;
    for (std::size_t row = 0; row < num_rows; ++row) {
        for (std::size_t v = 0; v < width; ++v)
            gradient(row, v) =
                static_cast<Real>(std::exp(double(rows(row, v)) - log_sum_exps[row]));
        if (const auto target = own_row(targets.data()[row], vocabulary)) {
            loss += log_sum_exps[row] - double(rows(row, *target));
            gradient(row, *target) -= 1;
        }
    }
    ranks.all_reduce(std::span(&loss, 1));
    return {loss / double(num_rows),
            reshape(gradient / static_cast<Real>(num_rows), {batch_size, seq_len, width})};
}

Tensor3 vocabulary_parallel_embedding(const Matrix& weight, Part vocabulary,
                                      const IdMatrix& input_ids) {
    const auto [batch_size, seq_len] = dims(input_ids);
    Tensor3 embeddings = xt::zeros<Real>({batch_size, seq_len, weight.shape(1)});
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            if (const auto row = own_row(input_ids(b, t), vocabulary))
                xt::view(embeddings, b, t) = xt::view(weight, *row);
    return embeddings;
}

void vocabulary_parallel_embedding_backward(Part vocabulary, const IdMatrix& input_ids,
                                            const Tensor3& output_gradient, Matrix& gradient) {
    const auto [batch_size, seq_len] = dims(input_ids);
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            if (const auto row = own_row(input_ids(b, t), vocabulary))
                for (std::size_t c = 0; c < gradient.shape(1); ++c)
                    gradient(*row, c) += output_gradient(b, t, c);
}

double forward_backward(const TensorParallelModel& part, const IdMatrix& input_ids,
                        const IdMatrix& targets, const AttentionInputs& inputs,
                        TensorParallelModel& gradient) {
    const auto [last_hidden_state, saved] =
        layers_forward(part.layers, embed_tokens(part, input_ids), inputs);
    const auto [loss, hidden_gradient] =
        head_forward_backward(part, last_hidden_state, targets, 1, gradient);
    const Tensor3 embeddings_gradient =
        layers_backward(part.layers, inputs, saved, hidden_gradient, gradient.layers);
    embed_tokens_backward(part, input_ids, embeddings_gradient, gradient);
    return loss;
}

}  // namespace llm
