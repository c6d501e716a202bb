// The gradients of chapter 20 against central differences of a loss, in double, and the forms
// against each other.
#include "tests/support/finite_differences.hpp"
#include "chapters/20_linear_attention/linear_attention_backward.hpp"
#include "chapters/20_linear_attention/recurrence_backward.hpp"
#include "chapters/experiments/hybrid_decoder.hpp"

using namespace llm;
using namespace llm::finite_differences;

namespace {

constexpr std::size_t Dk = 3, Dv = 5;
const std::array rules = {UpdateRule::additive, UpdateRule::delta};

HeadInputs random_head(std::size_t seq_len, std::uint32_t seed) {
    Generator generator(seed);
    return {randn({seq_len, Dk}, generator) * 0.6, randn({seq_len, Dk}, generator) * 0.6,
            randn({seq_len, Dv}, generator), uniform({seq_len}, -0.5, 0, generator),
            uniform({seq_len}, 0, 1, generator)};
}

double largest_difference(std::span<const Real> a, std::span<const Real> b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        largest = std::max(largest, std::abs(a[i] - b[i]));
    return largest;
}

}  // namespace

TEST_CASE("Both backward passes of a head against central differences") {
    const std::size_t seq_len = 11;
    for (const UpdateRule rule : rules)
        for (const bool chunked : {false, true}) {
            HeadInputs inputs = random_head(seq_len, 1);
            Matrix state = random_matrix(Dk, Dv, 2);
            const Loss<2> of_output({seq_len, Dv});
            const Matrix of_state = random_matrix(Dk, Dv, 3);
            const auto loss = [&] {
                const HeadOutput result = recurrent_form(inputs, rule, state);
                double sum = of_output(result.output);
                for (std::size_t i = 0; i < of_state.size(); ++i)
                    sum += of_state.data()[i] * result.state.data()[i];
                return sum;
            };
            const HeadGradient gradient =
                chunked
                    ? chunked_form_backward(inputs, rule, state, of_output.weights, of_state, 4)
                    : recurrent_form_backward(inputs, rule, state, of_output.weights, of_state);
            check_gradient("queries", span_of(inputs.queries), span_of(gradient.inputs.queries),
                           loss);
            check_gradient("keys", span_of(inputs.keys), span_of(gradient.inputs.keys), loss);
            check_gradient("values", span_of(inputs.values), span_of(gradient.inputs.values),
                           loss);
            check_gradient("log_decay", span_of(inputs.log_decay),
                           span_of(gradient.inputs.log_decay), loss);
            check_gradient("beta", span_of(inputs.beta), span_of(gradient.inputs.beta), loss);
            check_gradient("state", span_of(state), span_of(gradient.initial_state), loss);
        }
}

TEST_CASE("The forms and their gradients are equal to 1e-11, over several chunks") {
    const std::size_t seq_len = 150;
    for (const UpdateRule rule : rules) {
        const HeadInputs inputs = random_head(seq_len, 4);
        const Matrix state = random_matrix(Dk, Dv, 5), upstream = random_matrix(seq_len, Dv, 6),
                     of_state = random_matrix(Dk, Dv, 7);
        const HeadOutput expected = recurrent_form(inputs, rule, state),
                         chunked = chunked_form(inputs, rule, state, 64);
        CHECK(largest_difference(span_of(chunked.output), span_of(expected.output)) < 1e-11);
        CHECK(largest_difference(span_of(chunked.state), span_of(expected.state)) < 1e-11);
        const HeadGradient one =
            recurrent_form_backward(inputs, rule, state, upstream, of_state);
        const HeadGradient other =
            chunked_form_backward(inputs, rule, state, upstream, of_state, 64);
        CHECK(largest_difference(span_of(one.inputs.queries), span_of(other.inputs.queries)) <
              1e-11);
        CHECK(largest_difference(span_of(one.inputs.keys), span_of(other.inputs.keys)) < 1e-11);
        CHECK(largest_difference(span_of(one.inputs.values), span_of(other.inputs.values)) <
              1e-11);
        CHECK(largest_difference(span_of(one.inputs.log_decay),
                                 span_of(other.inputs.log_decay)) < 1e-11);
        CHECK(largest_difference(span_of(one.inputs.beta), span_of(other.inputs.beta)) < 1e-11);
        CHECK(largest_difference(span_of(one.initial_state), span_of(other.initial_state)) <
              1e-11);
    }
}

TEST_CASE("Backward passes name shapes that do not match, and chunks of 0 tokens") {
    const HeadInputs inputs = random_head(4, 12);
    const Matrix state = random_matrix(Dk, Dv, 13), upstream = random_matrix(4, Dv, 14);
    CHECK_THROWS_AS(chunked_form_backward(inputs, UpdateRule::delta, state, upstream, state, 0),
                    ValueError);
    const Matrix transposed = random_matrix(Dv, Dk, 15);
    CHECK_THROWS_AS(
        chunked_form_backward(inputs, UpdateRule::delta, transposed, upstream, state, 2),
        ValueError);
    CHECK_THROWS_AS(
        recurrent_form_backward(inputs, UpdateRule::delta, transposed, upstream, state),
        ValueError);
}

TEST_CASE("attention_backward of a layer of each variant against central differences") {
    for (const LinearVariant& variant :
         {LinearVariant{}, LinearVariant{UpdateRule::additive, true, true},
          LinearVariant{UpdateRule::delta, false, false},
          LinearVariant{UpdateRule::additive, false, true}}) {
        Generator generator(8);
        LinearAttention layer =
            make_linear_attention({C, 2, 4, Dk, Dv, 3}, variant, 1e-5, generator);
        randomize(layer, 9);
        Tensor3 input = random_states(C, 10);
        const PatternAttentionInputs inputs = pattern_attention_inputs({}, T);
        const Loss<3> loss(input.shape());
        const auto [output, saved] = attention_forward(layer, input, inputs);
        LinearAttention gradient = zeros_of(layer);
        const Tensor3 input_gradient =
            attention_backward(layer, inputs, saved, loss.weights, gradient);
        const auto value = [&] { return loss(layer(input, inputs).hidden_states); };
        check_gradient("input", span_of(input), span_of(input_gradient), value);
        check_parameters(layer, gradient, value);
    }
}

TEST_CASE("forward_backward of a hybrid model against central differences") {
    Generator generator(11);
    HybridDecoder decoder =
        make_hybrid_decoder(small_config(), {LinearVariant{}, {}}, generator);
    const IdMatrix input_ids = {{0, 3, 6}, {2, 2, 5}}, targets = {{3, 6, 1}, {2, 5, 4}};
    HybridDecoder gradient = zeros_like(decoder);
    forward_backward(decoder, input_ids, targets, gradient);
    const auto parameters = named_parameters(decoder), gradients = named_parameters(gradient);
    for (std::size_t p = 0; p < parameters.size(); ++p)
        check_gradient(parameters[p].name, parameters[p].values, gradients[p].values,
                       [&] { return evaluate_loss(decoder, input_ids, targets); });
}
