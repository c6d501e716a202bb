#include "chapters/20_linear_attention/chunked.hpp"

#include <cmath>

#include "common/tensors/matmul.hpp"

namespace llm {

Matrix scale_rows(const Matrix& rows, const Vector& factors) {
    return rows * reshape(factors, {factors.size(), 1});
}

Chunk make_chunk(const HeadInputs& inputs, std::size_t first, std::size_t count) {
    const auto tokens = [&](const Matrix& states) -> Matrix {
        return xt::view(states, xt::range(first, first + count), xt::all());
    };
    Chunk chunk{tokens(inputs.queries),
                tokens(inputs.keys),
                tokens(inputs.values),
                xt::view(inputs.beta, xt::range(first, first + count)),
                xt::zeros<Real>({count}),
                xt::zeros<Real>({count, count}),
                {}};
    // Sum the logarithms from each token on; a quotient of products could be 0/0.
    Real from_first = 0;
    for (std::size_t i = 0; i < count; ++i) {
        from_first += inputs.log_decay(first + i);
        chunk.decay(i) = std::exp(from_first);
        Real between = 0;
        for (std::size_t j = i + 1; j-- > 0;) {
            chunk.decay_between(i, j) = std::exp(between);
            between += inputs.log_decay(first + j);
        }
    }
    chunk.decay_to_end = xt::view(chunk.decay_between, count - 1, xt::all());
    return chunk;
}

Matrix key_overlaps(const Chunk& chunk) {
    const Matrix products = matmul_transposed(chunk.keys, chunk.keys);  // (c, c)
    Matrix overlaps = scale_rows(products * chunk.decay_between, chunk.beta);
    for (std::size_t i = 0; i < overlaps.shape(0); ++i) overlaps(i, i) = 0;
    return overlaps;
}

Matrix solve_unit_lower(const Matrix& a, Matrix b) {
    const MatrixView rows = view_of(b);
    for (std::size_t i = 0; i < rows.num_rows; ++i)
        for (std::size_t j = 0; j < i; ++j)
            for (std::size_t n = 0; n < rows.num_columns; ++n)
                rows[i][n] -= a(i, j) * rows[j][n];
    return b;
}

WYRepresentation wy_representation(const Chunk& chunk) {
    const Matrix overlaps = key_overlaps(chunk);
    const Matrix decayed_keys = scale_rows(chunk.keys, chunk.decay * chunk.beta);
    return {solve_unit_lower(overlaps, decayed_keys),
            solve_unit_lower(overlaps, scale_rows(chunk.values, chunk.beta))};
}

Matrix written_values(const Chunk& chunk, UpdateRule rule, const Matrix& state) {
    if (rule == UpdateRule::additive) return scale_rows(chunk.values, chunk.beta);
    const auto [w, u] = wy_representation(chunk);
    return u - matmul(w, state);
}

HeadOutput chunk_forward(const Chunk& chunk, UpdateRule rule, const Matrix& state) {
    const Matrix written = written_values(chunk, rule, state);  // (c, Dv)

    // Read what the chunk writes, as attention without a softmax, and the state before it.
    const Matrix weights =  // (c, c)
        matmul_transposed(chunk.queries, chunk.keys) * chunk.decay_between;
    const Matrix decayed_queries = scale_rows(chunk.queries, chunk.decay);
    Matrix output = matmul(weights, written) + matmul(decayed_queries, state);

    // Carry the state to the end of the chunk, and add what the chunk wrote.
    const Matrix keys_to_end = scale_rows(chunk.keys, chunk.decay_to_end);
    Matrix state_after = state * chunk.decay(chunk.decay.size() - 1);
    transposed_matmul(view_of(keys_to_end), view_of(written), view_of(state_after),
                      Update::accumulate);
    return {std::move(output), std::move(state_after)};
}

HeadOutput chunked_form(const HeadInputs& inputs, UpdateRule rule, const Matrix& initial_state,
                        std::size_t chunk_size) {
    check_shapes(inputs, initial_state);
    require(chunk_size > 0, "linear attention: chunks of 0 tokens");
    const std::size_t seq_len = inputs.keys.shape(0);
    HeadOutput result{Matrix(inputs.values.shape()), initial_state};
    for (std::size_t first = 0; first < seq_len; first += chunk_size) {
        const std::size_t count = std::min(chunk_size, seq_len - first);
        auto [output, state] =
            chunk_forward(make_chunk(inputs, first, count), rule, result.state);
        xt::view(result.output, xt::range(first, first + count), xt::all()) = output;
        result.state = std::move(state);
    }
    return result;
}

HeadOutput parallel_form(const HeadInputs& inputs, UpdateRule rule,
                         const Matrix& initial_state) {
    return chunked_form(inputs, rule, initial_state,
                        std::max(inputs.keys.shape(0), std::size_t{1}));
}

}  // namespace llm
