// The gradients of chapter 19 against central differences of a loss, and the two orders of
// computation, in double.
#include "tests/support/finite_differences.hpp"
#include "chapters/19_latent_attention/absorbed_attention.hpp"
#include "chapters/19_latent_attention/latent_attention_backward.hpp"

using namespace llm;
using namespace llm::finite_differences;

namespace {

constexpr std::size_t Dn = 4, Dr = 2, Dv = 3, R = 5;

// With an ε that is not small beside the mean squares, so that a backward pass without it
// fails.
LatentAttention random_latent(std::optional<std::size_t> q_lora_rank) {
    Generator generator(1);
    LatentAttention attention =
        make_latent_attention({C, H, q_lora_rank, R, Dn, Dr, Dv}, Real(0.3), generator);
    randomize(attention, 2);
    return attention;
}

PatternAttentionInputs inputs_of(std::size_t seq_len) {
    return pattern_attention_inputs({make_rotary_table(inverse_frequencies(Dr, 100), seq_len)},
                                    seq_len);
}

}  // namespace

TEST_CASE("attention_backward against central differences: without and with low-rank queries") {
    for (const std::optional<std::size_t> q_lora_rank : {std::optional<std::size_t>{}, {4}}) {
        CAPTURE(q_lora_rank.has_value());
        LatentAttention attention = random_latent(q_lora_rank);
        Tensor3 input = random_states(C, 3);
        const Loss<3> loss(input.shape());
        const auto [output, saved] = attention_forward(attention, input, inputs_of(T));
        LatentAttention gradient = zeros_of(attention);
        const Tensor3 input_gradient =
            attention_backward(attention, inputs_of(T), saved, loss.weights, gradient);
        const auto value = [&] { return loss(attention(input, inputs_of(T)).hidden_states); };
        check_gradient("input", span_of(input), span_of(input_gradient), value);
        check_parameters(attention, gradient, value);
    }
}

TEST_CASE("forward_backward of a whole model against central differences") {
    Generator generator(4);
    LatentDecoder decoder =
        make_latent_decoder(small_config(), {C, H, std::size_t{4}, R, Dn, Dr, Dv}, generator);
    const IdMatrix input_ids = {{0, 3, 6}, {2, 2, 5}}, targets = {{3, 6, 1}, {2, 5, 4}};
    LatentDecoder gradient = zeros_like(decoder);
    forward_backward(decoder, input_ids, targets, gradient);
    const auto parameters = named_parameters(decoder), gradients = named_parameters(gradient);
    for (std::size_t p = 0; p < parameters.size(); ++p)
        check_gradient(parameters[p].name, parameters[p].values, gradients[p].values,
                       [&] { return evaluate_loss(decoder, input_ids, targets); });
}

TEST_CASE("The two orders of computation are equal to 1e-12") {
    const std::size_t seq_len = 70;
    const LatentAttention attention = random_latent(4);
    Generator generator(5);
    const Tensor3 input = randn({B, seq_len, C}, generator);
    const PatternAttentionInputs inputs = inputs_of(seq_len);
    const Tensor4 entries =
        latent_entries(attention, attention.kv_a_proj_with_mqa(input), inputs);
    const Tensor4 queries =
        latent_queries(attention, project_queries(attention.q_proj, input), inputs);
    const Tensor4 mask = latent_mask(inputs, seq_len, B);
    const Tensor4 expanded = expanded_attention(attention, queries, entries, mask).context;
    const Tensor4 absorbed = absorbed_attention(attention, queries, entries, mask).context;
    double largest = 0;
    for (std::size_t i = 0; i < expanded.size(); ++i)
        largest = std::max(largest, std::abs(expanded.data()[i] - absorbed.data()[i]));
    CHECK(largest < 1e-12);
    CHECK(expanded.shape() == std::array{B, H, seq_len, Dv});
}
