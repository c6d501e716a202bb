#include <cmath>

#include "chapters/20_linear_attention/exercise.hpp"
#include "common/tensors/matmul.hpp"

namespace exercise {

// Exercise 20.1 — 5 + 7 + 2; the last value; half of the way to each value:
// 0 -> 2.5 -> 4.75 -> 3.375.
Vector predicted_reads() { return {14, 2, Real(3.375)}; }

// Exercise 20.2 — 256 numbers a token. The states have 8 · 32 · 32 numbers, and the convolution
// keeps 3 inputs of 2 · 4 · 32 + 8 · 32 channels: 9728 = 38 · 256.
std::size_t predicted_length() { return 39; }

// Exercise 20.3 — the window moves the other way: the oldest input leaves, the others move
// towards the beginning, and the new one is last. The first step reads the window of the
// prompt, which is right.
ConvolutionStep convolution_step(const Matrix& earlier, const Vector& input,
                                 const Matrix& weight) {
    const auto [width, kernel_size] = dims(weight);
    ConvolutionStep step{xt::zeros<Real>({width}), earlier};
    for (std::size_t w = 0; w < width; ++w) {
        for (std::size_t j = 0; j + 1 < kernel_size; ++j)
            step.output(w) += weight(w, j) * earlier(j, w);
        step.output(w) += weight(w, kernel_size - 1) * input(w);
    }
    for (std::size_t j = 0; j + 2 < kernel_size; ++j)
        for (std::size_t w = 0; w < width; ++w) step.earlier(j, w) = earlier(j + 1, w);
    for (std::size_t w = 0; w < width; ++w) step.earlier(kernel_size - 2, w) = input(w);
    return step;
}

// Exercise 20.4 — the products of all queries and keys, times a power of γ in the lower
// triangle, and 0 above it.
Matrix retention(const Matrix& queries, const Matrix& keys, const Matrix& values, Real decay) {
    Matrix weights = matmul_transposed(queries, keys);  // (T, T)
    for (std::size_t t = 0; t < weights.shape(0); ++t)
        for (std::size_t s = 0; s < weights.shape(1); ++s)
            weights(t, s) *= s <= t ? std::pow(decay, static_cast<Real>(t - s)) : 0;
    return matmul(weights, values);
}

// Exercise 20.5 — 0 on the diagonal: a token does not read what it writes itself.
Matrix overlaps_of_keys(const Matrix& keys, const Vector& beta) {
    Matrix overlaps = matmul_transposed(keys, keys);  // (c, c)
    for (std::size_t i = 0; i < overlaps.shape(0); ++i)
        for (std::size_t j = 0; j < overlaps.shape(1); ++j)
            overlaps(i, j) *= j < i ? beta(i) : 0;
    return overlaps;
}

Matrix values_to_write(const Matrix& keys, const Matrix& values, const Vector& beta,
                       const Matrix& state) {
    const Matrix overlaps = overlaps_of_keys(keys, beta);
    Matrix written = values - matmul(keys, state);  // what the state lacks
    for (std::size_t i = 0; i < written.shape(0); ++i)
        for (std::size_t n = 0; n < written.shape(1); ++n) {
            written(i, n) *= beta(i);
            for (std::size_t j = 0; j < i; ++j) written(i, n) -= overlaps(i, j) * written(j, n);
        }
    return written;
}

HeadOutput delta_rule_in_chunks(const Matrix& queries, const Matrix& keys, const Matrix& values,
                                const Vector& beta, std::size_t chunk_size) {
    const std::size_t seq_len = keys.shape(0);
    HeadOutput result{Matrix(values.shape()),
                      xt::zeros<Real>({keys.shape(1), values.shape(1)})};
    for (std::size_t first = 0; first < seq_len; first += chunk_size) {
        const std::size_t end = std::min(first + chunk_size, seq_len);
        const Matrix q = xt::view(queries, xt::range(first, end), xt::all()),
                     k = xt::view(keys, xt::range(first, end), xt::all()),
                     v = xt::view(values, xt::range(first, end), xt::all());
        const Vector b = xt::view(beta, xt::range(first, end));
        const Matrix written = values_to_write(k, v, b, result.state);

        // A token reads the state before the chunk, and what it and earlier tokens wrote.
        const Matrix inside = retention(q, k, written, 1);
        xt::view(result.output, xt::range(first, end), xt::all()) =
            inside + matmul(q, result.state);
        transposed_matmul(view_of(k), view_of(written), view_of(result.state),
                          Update::accumulate);
    }
    return result;
}

// Exercise 20.6 — S - 2 k (Sᵀk)ᵀ: the part along the key changes its sign each time. With β
// between 0 and 1, it could only become smaller: such a state cannot count modulo 2.
Vector predicted_reflections() { return {-1, 1, -1}; }

}  // namespace exercise
