#include "chapters/12_gradients/loss.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "common/tensors/elementwise.hpp"

namespace llm {
namespace {

void check_targets(const Matrix& logits, const IdVector& targets) {
    const auto [num_rows, vocab_size] = dims(logits);
    require(targets.size() == num_rows, "cross_entropy: {} targets do not fit logits of {}",
            targets.size(), logits.shape());
    for (const Id target : targets)
        require(target >= 0 && static_cast<std::size_t>(target) < vocab_size,
                "cross_entropy: there is no token {} in a vocabulary of {}", target,
                vocab_size);
}

// (B, T, V) -> (B*T, V), and (B, T) -> (B*T)
Matrix rows_of(const Tensor3& logits, const IdMatrix& targets) {
    const auto [batch_size, seq_len, vocab_size] = dims(logits);
    require(targets.shape() == std::array{batch_size, seq_len},
            "cross_entropy: targets of {} do not fit logits of {}", targets.shape(),
            logits.shape());
    return reshape(logits, {batch_size * seq_len, vocab_size});
}
IdVector flatten(const IdMatrix& targets) { return reshape(targets, {targets.size()}); }

}  // namespace

double cross_entropy(const Matrix& logits, const IdVector& targets) {
    check_targets(logits, targets);
    const std::size_t num_rows = logits.shape(0);

    // -ln softmax = ln(sum of e^logit) - logit of the target. The logits are used, not the
    // probability, which can underflow to 0; subtracting the maximum avoids overflow.
    const Matrix maxima = row_max(logits);                          // (N, 1)
    const Matrix sums = row_sum(elementwise_exp(logits - maxima));  // (N, 1)
    double loss = 0;
    for (std::size_t n = 0; n < num_rows; ++n) {
        const Real target_logit = logits(n, static_cast<std::size_t>(targets(n)));
        loss += std::log(double(sums(n, 0))) + double(maxima(n, 0) - target_logit);
    }
    return loss / static_cast<double>(num_rows);
}

Matrix cross_entropy_backward(const Matrix& logits, const IdVector& targets) {
    check_targets(logits, targets);
    Matrix gradient = softmax(logits);  // (N, V)
    for (std::size_t n = 0; n < targets.size(); ++n)
        gradient(n, static_cast<std::size_t>(targets(n))) -= 1;
    return gradient / static_cast<Real>(targets.size());
}

double cross_entropy(const Tensor3& logits, const IdMatrix& targets) {
    return cross_entropy(rows_of(logits, targets), flatten(targets));
}

Tensor3 cross_entropy_backward(const Tensor3& logits, const IdMatrix& targets) {
    const auto [batch_size, seq_len, vocab_size] = dims(logits);
    return reshape(cross_entropy_backward(rows_of(logits, targets), flatten(targets)),
                   {batch_size, seq_len, vocab_size});
}

}  // namespace llm
