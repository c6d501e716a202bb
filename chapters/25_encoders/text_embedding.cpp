#include "chapters/25_encoders/text_embedding.hpp"

#include <cmath>

#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

// The weight of each token in the vector of its text; each row sums to 1.
Matrix pooling_weights(Pooling pooling, const IdMatrix& padding_mask) {
    const auto [batch_size, seq_len] = dims(padding_mask);
    Matrix weights = xt::zeros<Real>({batch_size, seq_len});  // (B, T)
    for (std::size_t b = 0; b < batch_size; ++b) {
        Real count = 0;
        for (std::size_t t = 0; t < seq_len; ++t) count += padding_mask(b, t) != 0 ? 1 : 0;
        require(count > 0, "pool: text {} has no token", b);
        if (pooling == Pooling::cls) {
            weights(b, 0) = 1;
            continue;
        }
        for (std::size_t t = 0; t < seq_len; ++t)
            if (padding_mask(b, t) != 0) weights(b, t) = 1 / count;
    }
    return weights;
}

Real row_norm(const Matrix& rows, std::size_t n) {
    double sum = 0;
    for (std::size_t c = 0; c < rows.shape(1); ++c)
        sum += static_cast<double>(rows(n, c)) * static_cast<double>(rows(n, c));
    return static_cast<Real>(std::sqrt(sum));
}

}  // namespace

Matrix pool(Pooling pooling, const Tensor3& hidden_states, const IdMatrix& padding_mask) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    require(padding_mask.shape() == std::array{batch_size, seq_len},
            "pool: hidden states of {} do not match a padding mask of {}",
            hidden_states.shape(), padding_mask.shape());
    const Matrix weights = pooling_weights(pooling, padding_mask);
    Matrix pooled = xt::zeros<Real>({batch_size, width});  // (B, C)
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t) {
            // A token of weight 0 is left out, even if its vector is not a number.
            if (weights(b, t) == 0) continue;
            for (std::size_t c = 0; c < width; ++c)
                pooled(b, c) += weights(b, t) * hidden_states(b, t, c);
        }
    return pooled;
}

Tensor3 pool_backward(Pooling pooling, const IdMatrix& padding_mask,
                      const Matrix& output_gradient) {
    const auto [batch_size, seq_len] = dims(padding_mask);
    const std::size_t width = output_gradient.shape(1);
    const Matrix weights = pooling_weights(pooling, padding_mask);
    Tensor3 gradient = xt::zeros<Real>({batch_size, seq_len, width});  // (B, T, C)
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            for (std::size_t c = 0; c < width; ++c)
                gradient(b, t, c) = weights(b, t) * output_gradient(b, c);
    return gradient;
}

Matrix l2_normalize(const Matrix& rows) {
    Matrix normalized = rows;
    for (std::size_t n = 0; n < rows.shape(0); ++n) {
        const Real norm = row_norm(rows, n);
        for (std::size_t c = 0; c < rows.shape(1) && norm > 0; ++c) normalized(n, c) /= norm;
    }
    return normalized;
}

Matrix l2_normalize_backward(const Matrix& rows, const Matrix& output_gradient) {
    // The component along the row changes its length alone, which the division removes.
    Matrix gradient = output_gradient;
    for (std::size_t n = 0; n < rows.shape(0); ++n) {
        const Real norm = row_norm(rows, n);
        if (norm == 0) continue;
        Real along = 0;
        for (std::size_t c = 0; c < rows.shape(1); ++c)
            along += output_gradient(n, c) * rows(n, c) / norm;
        for (std::size_t c = 0; c < rows.shape(1); ++c)
            gradient(n, c) = (output_gradient(n, c) - along * rows(n, c) / norm) / norm;
    }
    return gradient;
}

ContrastiveLoss contrastive_loss(const Matrix& queries, const Matrix& passages,
                                 Real temperature) {
    require(queries.shape() == passages.shape() && queries.size() > 0,
            "contrastive_loss: queries of {} do not match passages of {}", queries.shape(),
            passages.shape());
    require(temperature > 0, "contrastive_loss: the temperature must be positive");

    // Compare each query with each passage of the batch. The right ones are on the diagonal.
    const Matrix query_units = l2_normalize(queries), passage_units = l2_normalize(passages);
    const Matrix cosines = matmul_transposed(query_units, passage_units);  // (N, N)
    const Matrix logits = cosines / temperature;
    const IdVector targets = xt::arange<Id>(static_cast<Id>(queries.shape(0)));  // (N)

    // Backward: cross-entropy, temperature, the two factors of the product, their lengths.
    const Matrix logits_gradient = cross_entropy_backward(logits, targets);  // (N, N)
    const Matrix cosines_gradient = logits_gradient / temperature;
    Matrix passage_units_gradient = xt::zeros<Real>(passages.shape());
    accumulate_product(passage_units_gradient, cosines_gradient, query_units);
    return {cross_entropy(logits, targets),
            l2_normalize_backward(queries, matmul(cosines_gradient, passage_units)),
            l2_normalize_backward(passages, passage_units_gradient)};
}

template double forward_backward(const Encoder<BertBlock>&, Pooling, Real, const BatchEncoding&,
                                 const BatchEncoding&, Encoder<BertBlock>&);
template Matrix embed(const Encoder<ModernBertBlock>&, Pooling, const BatchEncoding&);
template double forward_backward(const Encoder<ModernBertBlock>&, Pooling, Real,
                                 const BatchEncoding&, const BatchEncoding&,
                                 Encoder<ModernBertBlock>&);

}  // namespace llm
