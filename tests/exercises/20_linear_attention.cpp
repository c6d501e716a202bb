#include "chapters/20_linear_attention/exercise.hpp"

#include "chapters/20_linear_attention/linear_cost.hpp"
#include "chapters/20_linear_attention/short_convolution.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

constexpr std::size_t T = 11, Dk = 3, Dv = 4;

HeadInputs random_head(std::size_t seq_len) {
    Generator generator(1);
    return {randn({seq_len, Dk}, generator), randn({seq_len, Dk}, generator) * Real(0.6),
            randn({seq_len, Dv}, generator), xt::zeros<Real>({seq_len}),
            uniform({seq_len}, 0, 1, generator)};
}

Matrix zero_state() { return xt::zeros<Real>({Dk, Dv}); }

// What the query (1, 0) reads after these tokens.
Real read_after(Vector beta, UpdateRule rule) {
    const Matrix keys = {{1, 0}, {0, 1}, {1, 0}, {1, 0}};
    const HeadInputs inputs{keys, keys, {{5}, {3}, {7}, {2}}, {0, 0, 0, 0}, std::move(beta)};
    return recurrent_form(inputs, rule, xt::zeros<Real>({2, 1})).output(3, 0);
}

}  // namespace

TEST_CASE("20.1 predict: what a state returns") {
    const Vector ones = {1, 1, 1, 1}, halves = {0.5, 0.5, 0.5, 0.5};
    INFO("the sum of what was written there; the last value; half of the way to each value");
    CHECK_CLOSE(
        predicted_reads(),
        (Vector{read_after(ones, UpdateRule::additive), read_after(ones, UpdateRule::delta),
                read_after(halves, UpdateRule::delta)}),
        1e-6);
}

TEST_CASE("20.2 predict: when a state is smaller than a KV cache") {
    const std::size_t state = state_numbers({1, 4, 8, 32, 32, 4});
    INFO("keys and values of each token; 8 states, and 3 inputs of all channels");
    CHECK(predicted_length() == state / (2 * 2 * 64) + 1);
}

TEST_CASE("20.3 find the bug: a convolution, token by token") {
    Generator generator(2);
    const std::size_t width = 3, kernel_size = 4;
    const Tensor3 input = randn({1, 8, width}, generator);
    const Matrix weight = randn({width, kernel_size}, generator);
    const Tensor3 expected = causal_conv1d(input, weight, no_inputs(1, weight));
    Matrix earlier = xt::zeros<Real>({kernel_size - 1, width});
    INFO("after each token, the window holds the last J - 1 inputs, oldest first");
    for (std::size_t t = 0; t < 8; ++t) {
        const Vector token = xt::view(input, 0, t, xt::all()),
                     output = xt::view(expected, 0, t, xt::all());
        const ConvolutionStep step = convolution_step(earlier, token, weight);
        REQUIRE_CLOSE(step.output, output, 1e-5);
        earlier = step.earlier;
    }
}

TEST_CASE("20.4 write retention") {
    HeadInputs inputs = random_head(T);
    inputs.beta.fill(1);
    for (const Real decay : {Real(1), Real(0.7)}) {
        inputs.log_decay.fill(std::log(decay));
        INFO("the sum over this and all earlier tokens, each with a power of the decay");
        CHECK_CLOSE(retention(inputs.queries, inputs.keys, inputs.values, decay),
                    recurrent_form(inputs, UpdateRule::additive, zero_state()).output, 1e-5);
    }
}

TEST_CASE("20.5 write the delta rule in chunks") {
    const HeadInputs inputs = random_head(T);
    const auto& [queries, keys, values, log_decay, beta] = inputs;
    {
        INFO("first step: the overlaps of the keys, below the diagonal");
        REQUIRE_CLOSE(overlaps_of_keys(keys, beta), key_overlaps(make_chunk(inputs, 0, T)),
                      1e-6);
    }
    Generator generator(3);
    const Matrix state = randn({Dk, Dv}, generator);
    {
        INFO("second step: what the tokens of a chunk write, after a state");
        REQUIRE_CLOSE(values_to_write(keys, values, beta, state),
                      written_values(make_chunk(inputs, 0, T), UpdateRule::delta, state), 1e-5);
    }
    const HeadOutput expected = recurrent_form(inputs, UpdateRule::delta, zero_state());
    for (const std::size_t chunk_size : {1, 4, 11, 20}) {
        CAPTURE(chunk_size);
        INFO("third step: the output and the last state, whatever the size of a chunk");
        const HeadOutput result = delta_rule_in_chunks(queries, keys, values, beta, chunk_size);
        REQUIRE_CLOSE(result.output, expected.output, 1e-5);
        REQUIRE_CLOSE(result.state, expected.state, 1e-5);
    }
}

TEST_CASE("20.6 predict: a state that is reflected") {
    Matrix state = {{1}, {3}};
    const Matrix keys = {{1, 0}, {1, 0}, {1, 0}};
    const HeadInputs inputs{keys, keys, {{0}, {0}, {0}}, {0, 0, 0}, {2, 2, 2}};
    const Matrix output = recurrent_form(inputs, UpdateRule::delta, state).output;
    INFO("the error is what the state returns, and twice that is subtracted");
    CHECK_CLOSE(predicted_reflections(), Vector(xt::view(output, xt::all(), 0)), 1e-6);
}
