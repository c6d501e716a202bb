#include "chapters/13_training/muon.hpp"

#include <algorithm>
#include <cmath>

#include "common/system/parallel.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {

Matrix newton_schulz(const Matrix& matrix) {
    // Work on the orientation with fewer rows: the products below are smaller.
    const bool is_tall = matrix.shape(0) > matrix.shape(1);
    Matrix x = is_tall ? Matrix(xt::transpose(matrix)) : matrix;  // (m, n), m <= n
    const std::size_t m = x.shape(0);

    // Divide by the Frobenius norm, so that no singular value exceeds 1.
    const Real norm = std::sqrt(xt::sum<Real>(x * x)());
    x /= std::max(norm, Real(1e-7));

    // Apply the polynomial a s + b s^3 + c s^5 to each singular value s, five times.
    const Real a = Real(3.4445), b = Real(-4.7750), c = Real(2.0315);
    Matrix gram = xt::zeros<Real>({m, m}), gram_squared = gram;
    for (int i = 0; i < 5; ++i) {
        matmul_transposed(view_of(x), view_of(x), view_of(gram));     // X Xᵀ
        matmul(view_of(gram), view_of(gram), view_of(gram_squared));  // (X Xᵀ)²
        gram = b * gram + c * gram_squared;
        const Matrix last = x;
        x *= a;
        matmul(view_of(gram), view_of(last), view_of(x), Update::accumulate);
    }
    return is_tall ? Matrix(xt::transpose(x)) : x;
}

bool is_hidden_matrix(const Parameter& parameter) {
    return parameter.shape.size() == 2 && parameter.name.starts_with("model.layers.");
}

void Muon::reset(const std::vector<Parameter>& parameters) {
    momentum_buffer.clear();
    for (const Parameter& parameter : parameters)
        momentum_buffer.push_back(xt::zeros<Real>({parameter.shape[0], parameter.shape[1]}));
}

namespace {

void check_matrices(const Muon& optimizer, const std::vector<Parameter>& parameters,
                    const std::vector<Parameter>& gradients) {
    require(parameters.size() == gradients.size(), "Muon: {} parameters, but {} gradients",
            parameters.size(), gradients.size());
    const std::vector<Matrix>& buffers = optimizer.momentum_buffer;
    require(buffers.empty() || buffers.size() == parameters.size(),
            "Muon: {} parameters, but {} in the steps before", parameters.size(),
            buffers.size());
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        const auto& [name, shape, values] = parameters[p];
        require(shape.size() == 2, "Muon: {} of {} is not a matrix", name, shape);
        require(gradients[p].name == name && gradients[p].shape == shape,
                "Muon: parameter {} of {}, but gradient {} of {}", name, shape,
                gradients[p].name, gradients[p].shape);
        require(buffers.empty() ||
                    (buffers[p].shape(0) == shape[0] && buffers[p].shape(1) == shape[1]),
                "Muon: {} has another shape than in the steps before", name);
    }
}

// One update of one matrix.
void update_matrix(const Parameter& parameter, const Parameter& gradient, Matrix& buffer,
                   const Muon& optimizer, Real learning_rate) {
    // The moving average of the gradients and, with Nesterov, one more step toward it.
    const Real momentum = optimizer.momentum;
    Matrix update = buffer;
    for (std::size_t i = 0; i < buffer.size(); ++i) {
        Real& average = buffer.data()[i];
        const Real g = gradient.values[i];
        average = momentum * average + (1 - momentum) * g;
        update.data()[i] = momentum * average + (1 - momentum) * g;
    }
    update = newton_schulz(update);

    // The rows or columns of U Vᵀ have norm 1, so its RMS is 1 / sqrt(max(out, in)).
    const auto larger = static_cast<Real>(std::max(buffer.shape(0), buffer.shape(1)));
    const Real rate = learning_rate * Real(0.2) * std::sqrt(larger);
    const Real decay = 1 - learning_rate * optimizer.weight_decay;
    for (std::size_t i = 0; i < buffer.size(); ++i)
        parameter.values[i] = decay * parameter.values[i] - rate * update.data()[i];
}

}  // namespace

void Muon::step(const std::vector<Parameter>& parameters,
                const std::vector<Parameter>& gradients, Real learning_rate) {
    check_matrices(*this, parameters, gradients);
    if (momentum_buffer.empty()) reset(parameters);
    parallel_for(parameters.size(), [&](std::size_t p) {
        update_matrix(parameters[p], gradients[p], momentum_buffer[p], *this, learning_rate);
    });
}

}  // namespace llm
