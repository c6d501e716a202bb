#include "chapters/20_linear_attention/recurrence_backward.hpp"

#include <cmath>

#include "chapters/12_gradients/linear_backward.hpp"
#include "common/numbers/ceil_div.hpp"
#include "common/tensors/elementwise.hpp"

namespace llm {
namespace {

HeadGradient zero_gradient(const HeadInputs& inputs, const Matrix& state_gradient) {
    return {{xt::zeros<Real>(inputs.queries.shape()), xt::zeros<Real>(inputs.keys.shape()),
             xt::zeros<Real>(inputs.values.shape()), xt::zeros<Real>(inputs.beta.shape()),
             xt::zeros<Real>(inputs.beta.shape())},
            state_gradient};
}

Real sum_of_products(const Matrix& a, const Matrix& b) {
    return dot_product({a.data(), a.size()}, {b.data(), b.size()});
}

// The dot product of each pair of rows.
Vector row_products(const Matrix& a, const Matrix& b) {  // (N, M) twice -> (N)
    return reshape(row_sum(a * b), {a.shape(0)});
}

// M v, where read_state is Mᵀ v.
Vector times(const Matrix& matrix, const Vector& vector) {  // (N, M), (M) -> (N)
    return reshape(matmul_transposed(matrix, reshape(vector, {1, vector.size()})),
                   {matrix.shape(0)});
}

// The sum of each column less that of each row.
Vector columns_less_rows(const Matrix& square) {  // (c, c) -> (c)
    Vector result = xt::zeros<Real>({square.shape(0)});
    accumulate_rows(result, square);
    return result - reshape(row_sum(square), {square.shape(0)});
}

// The gradients of one chunk. That of the decays is with respect to G_i = g_1 + ... + g_i, from
// the beginning of the chunk: γ_i = e^(G_i) and Γ_ij = e^(G_i - G_j).
struct ChunkGradient {
    Matrix queries, keys, values;  // (c, Dk) twice, (c, Dv)
    Vector decay_sums, beta;       // (c)
};

// weights_ij = Γ_ij (a_i · k_j), where a are queries or keys, whose gradient is returned.
Matrix weights_backward(const Chunk& chunk, const Matrix& a, const Matrix& weights,
                        const Matrix& weights_gradient, ChunkGradient& gradient) {
    const Matrix products_gradient = weights_gradient * chunk.decay_between;  // (c, c)
    accumulate_product(gradient.keys, products_gradient, a);
    gradient.decay_sums = gradient.decay_sums - columns_less_rows(weights_gradient * weights);
    return matmul(products_gradient, chunk.keys);
}

// (I + A)ᵀ X = B, by backward substitution.
Matrix solve_unit_lower_backward(const Matrix& a, Matrix b) {
    const MatrixView rows = view_of(b);
    for (std::size_t i = rows.num_rows; i-- > 0;)
        for (std::size_t j = 0; j < i; ++j)
            for (std::size_t n = 0; n < rows.num_columns; ++n)
                rows[j][n] -= a(i, j) * rows[i][n];
    return b;
}

// The overlaps A of the keys, whose gradient is -(gradient of the right side) writtenᵀ.
void key_overlaps_backward(const Chunk& chunk, const Matrix& written,
                           const Matrix& right_gradient, ChunkGradient& gradient) {
    Matrix overlaps_gradient = matmul_transposed(right_gradient, written) * Real(-1);
    for (std::size_t i = 0; i < written.shape(0); ++i) overlaps_gradient(i, i) = 0;
    const Matrix weights =  // A without β; decay_between is 0 above its diagonal
        matmul_transposed(chunk.keys, chunk.keys) * chunk.decay_between;
    gradient.beta = gradient.beta + row_products(overlaps_gradient, weights);
    const Matrix keys_gradient = weights_backward(
        chunk, chunk.keys, weights, scale_rows(overlaps_gradient, chunk.beta), gradient);
    gradient.keys = gradient.keys + keys_gradient;
}

// (I + A) written = diag(β) (V - diag(γ) K S); without the delta rule, written = diag(β) V.
// The gradient with respect to S is accumulated.
void written_values_backward(const Chunk& chunk, UpdateRule rule, const Matrix& state,
                             const Matrix& written, const Matrix& written_gradient,
                             ChunkGradient& gradient, Matrix& state_gradient) {
    Matrix missing = chunk.values, right_gradient = written_gradient;
    if (rule == UpdateRule::delta) {
        right_gradient = solve_unit_lower_backward(key_overlaps(chunk), written_gradient);
        key_overlaps_backward(chunk, written, right_gradient, gradient);
        const Matrix decayed_keys = scale_rows(chunk.keys, chunk.decay);
        missing = missing - matmul(decayed_keys, state);
        const Matrix missing_gradient = scale_rows(right_gradient, chunk.beta);
        accumulate_product(state_gradient, decayed_keys, missing_gradient * Real(-1));
        const Matrix keys_gradient = matmul_transposed(missing_gradient, state);  // (c, Dk)
        gradient.keys = gradient.keys - scale_rows(keys_gradient, chunk.decay);
        gradient.decay_sums = gradient.decay_sums - row_products(decayed_keys, keys_gradient);
    }
    gradient.values = scale_rows(right_gradient, chunk.beta);
    gradient.beta = gradient.beta + row_products(right_gradient, missing);
}

// The gradient of the state after the chunk becomes that of the state before it.
ChunkGradient chunk_backward(const Chunk& chunk, UpdateRule rule, const Matrix& state,
                             const Matrix& output_gradient,  // (c, Dv)
                             Matrix& state_gradient) {
    const std::size_t last = chunk.beta.size() - 1;
    ChunkGradient gradient{{},
                           xt::zeros<Real>(chunk.keys.shape()),
                           {},
                           xt::zeros<Real>({last + 1}),
                           xt::zeros<Real>({last + 1})};
    const Matrix written = written_values(chunk, rule, state);
    const Matrix weights = matmul_transposed(chunk.queries, chunk.keys) * chunk.decay_between;
    Matrix written_gradient = xt::zeros<Real>(written.shape());

    // The state after the chunk: γ_c S + (diag(row c of Γ) K)ᵀ written.
    const Matrix keys_to_end = scale_rows(chunk.keys, chunk.decay_to_end);
    const Matrix keys_to_end_gradient = matmul_transposed(written, state_gradient);
    const Vector of_decay_to_end = row_products(keys_to_end, keys_to_end_gradient);
    written_gradient = matmul(keys_to_end, state_gradient);
    gradient.keys = scale_rows(keys_to_end_gradient, chunk.decay_to_end);
    gradient.decay_sums = of_decay_to_end * Real(-1);
    for (const Real value : of_decay_to_end) gradient.decay_sums(last) += value;
    gradient.decay_sums(last) += chunk.decay(last) * sum_of_products(state, state_gradient);
    state_gradient = state_gradient * chunk.decay(last);

    // The output: weights · written + diag(γ) Q S.
    accumulate_product(written_gradient, weights, output_gradient);
    gradient.queries = weights_backward(chunk, chunk.queries, weights,
                                        matmul_transposed(output_gradient, written), gradient);
    const Matrix decayed_queries = scale_rows(chunk.queries, chunk.decay);
    const Matrix from_state = matmul_transposed(output_gradient, state);  // (c, Dk)
    gradient.queries = gradient.queries + scale_rows(from_state, chunk.decay);
    gradient.decay_sums = gradient.decay_sums + row_products(decayed_queries, from_state);
    accumulate_product(state_gradient, decayed_queries, output_gradient);

    written_values_backward(chunk, rule, state, written, written_gradient, gradient,
                            state_gradient);
    return gradient;
}

}  // namespace

HeadGradient recurrent_form_backward(const HeadInputs& inputs, UpdateRule rule,
                                     const Matrix& initial_state, const Matrix& output_gradient,
                                     const Matrix& state_gradient) {
    check_shapes(inputs, initial_state);
    const std::size_t seq_len = inputs.keys.shape(0);
    std::vector<Matrix> states = {initial_state};  // before each token, and after the last one
    for (std::size_t t = 0; t < seq_len; ++t) {
        states.push_back(states.back());
        update_state(states.back(), inputs, t, rule);
    }
    HeadGradient gradient = zero_gradient(inputs, state_gradient);
    auto& [of_inputs, of_state] = gradient;
    for (std::size_t t = seq_len; t-- > 0;) {
        const auto query = view_of(inputs.queries)[t], key = view_of(inputs.keys)[t];
        const Vector upstream = xt::view(output_gradient, t, xt::all());  // (Dv)
        const Real decay = std::exp(inputs.log_decay(t));

        // output = Sᵀ q
        xt::view(of_inputs.queries, t, xt::all()) = times(states[t + 1], upstream);
        write_state(of_state, query, upstream);

        // S = decayed + β k missingᵀ, where missing = v, or v - decayedᵀ k.
        const Matrix decayed = states[t] * decay;
        Vector missing = xt::view(inputs.values, t, xt::all());
        if (rule == UpdateRule::delta) missing = missing - read_state(decayed, key);
        const Vector written_gradient = read_state(of_state, key);
        const Vector missing_gradient = written_gradient * inputs.beta(t);
        of_inputs.beta(t) = dot_product({written_gradient.data(), written_gradient.size()},
                                        {missing.data(), missing.size()});
        xt::view(of_inputs.values, t, xt::all()) = missing_gradient;
        Vector key_gradient = times(of_state, missing * inputs.beta(t));  // (Dk)
        if (rule == UpdateRule::delta) {
            key_gradient = key_gradient - times(decayed, missing_gradient);
            write_state(of_state, key, missing_gradient * Real(-1));
        }
        xt::view(of_inputs.keys, t, xt::all()) = key_gradient;

        // decayed = e^g S
        of_inputs.log_decay(t) = sum_of_products(of_state, decayed);
        of_state = of_state * decay;
    }
    return gradient;
}

HeadGradient chunked_form_backward(const HeadInputs& inputs, UpdateRule rule,
                                   const Matrix& initial_state, const Matrix& output_gradient,
                                   const Matrix& state_gradient, std::size_t chunk_size) {
    check_shapes(inputs, initial_state);
    require(chunk_size > 0, "linear attention: chunks of 0 tokens");
    const std::size_t seq_len = inputs.keys.shape(0);
    const std::size_t num_chunks = ceil_div(seq_len, chunk_size);
    std::vector<Chunk> chunks;
    std::vector<Matrix> states = {initial_state};  // before each chunk
    for (std::size_t n = 0; n < num_chunks; ++n) {
        const std::size_t first = n * chunk_size;
        chunks.push_back(make_chunk(inputs, first, std::min(chunk_size, seq_len - first)));
        states.push_back(chunk_forward(chunks[n], rule, states[n]).state);
    }
    HeadGradient gradient = zero_gradient(inputs, state_gradient);
    auto& of_inputs = gradient.inputs;
    for (std::size_t n = num_chunks; n-- > 0;) {
        const std::size_t first = n * chunk_size, end = first + chunks[n].beta.size();
        const auto tokens = [&](auto& of_all) {
            return xt::view(of_all, xt::range(first, end), xt::all());
        };
        const Matrix upstream = tokens(output_gradient);
        const ChunkGradient of_chunk =
            chunk_backward(chunks[n], rule, states[n], upstream, gradient.initial_state);
        tokens(of_inputs.queries) = of_chunk.queries;
        tokens(of_inputs.keys) = of_chunk.keys;
        tokens(of_inputs.values) = of_chunk.values;
        xt::view(of_inputs.beta, xt::range(first, end)) = of_chunk.beta;

        // g of a token is in the sum of this token and of all later ones.
        Real sum = 0;
        for (std::size_t t = end; t-- > first;)
            of_inputs.log_decay(t) = sum += of_chunk.decay_sums(t - first);
    }
    return gradient;
}

}  // namespace llm
