#include "chapters/20_linear_attention/recurrence.hpp"

#include <cmath>

#include "common/tensors/matmul.hpp"

namespace llm {

void check_shapes(const HeadInputs& inputs, const Matrix& initial_state) {
    const auto [seq_len, key_dim] = dims(inputs.keys);
    require(inputs.queries.shape() == inputs.keys.shape() &&
                inputs.values.shape(0) == seq_len && inputs.log_decay.size() == seq_len &&
                inputs.beta.size() == seq_len,
            "linear attention: queries of {}, keys of {}, values of {}, {} decays and {} betas "
            "do not match",
            inputs.queries.shape(), inputs.keys.shape(), inputs.values.shape(),
            inputs.log_decay.size(), inputs.beta.size());
    require(initial_state.shape() == std::array{key_dim, inputs.values.shape(1)},
            "linear attention: a state of {} does not match keys of {} and values of {}",
            initial_state.shape(), inputs.keys.shape(), inputs.values.shape());
}

Vector read_state(const Matrix& state, std::span<const Real> key) {
    Vector value = xt::zeros<Real>({state.shape(1)});
    for (std::size_t i = 0; i < key.size(); ++i)
        for (std::size_t j = 0; j < value.size(); ++j) value(j) += key[i] * state(i, j);
    return value;
}

void write_state(Matrix& state, std::span<const Real> key, const Vector& written) {
    for (std::size_t i = 0; i < key.size(); ++i)
        for (std::size_t j = 0; j < written.size(); ++j) state(i, j) += key[i] * written(j);
}

void update_state(Matrix& state, const HeadInputs& inputs, std::size_t t, UpdateRule rule) {
    // Forget a part of everything.
    state = state * std::exp(inputs.log_decay(t));

    // Write the value at the key; with the delta rule, only what the state lacks of it.
    const std::span<const Real> key = view_of(inputs.keys)[t];
    Vector written = xt::view(inputs.values, t, xt::all());
    if (rule == UpdateRule::delta) written = written - read_state(state, key);
    write_state(state, key, written * inputs.beta(t));
}

HeadOutput recurrent_form(const HeadInputs& inputs, UpdateRule rule,
                          const Matrix& initial_state) {
    check_shapes(inputs, initial_state);
    Matrix output(inputs.values.shape());
    Matrix state = initial_state;
    for (std::size_t t = 0; t < inputs.keys.shape(0); ++t) {
        update_state(state, inputs, t, rule);
        xt::view(output, t, xt::all()) = read_state(state, view_of(inputs.queries)[t]);
    }
    return {std::move(output), std::move(state)};
}

}  // namespace llm
