// The gradients of chapter 17 against central differences of a loss, in double.
#include "tests/support/finite_differences.hpp"
#include "chapters/01_masking/masking.hpp"
#include "chapters/17_long_context/attention_pattern.hpp"
#include "chapters/17_long_context/pattern_attention_backward.hpp"
#include "chapters/17_long_context/score_mod.hpp"

using namespace llm;
using namespace llm::finite_differences;

TEST_CASE("logit_softcap_backward against central differences") {
    Matrix logits = random_matrix(3, 5, 1) * 2;
    const Loss<2> loss(logits.shape());
    const Matrix gradient =
        logit_softcap_backward(logit_softcap(logits, 1.7), 1.7, loss.weights);
    check_gradient("logits", span_of(logits), span_of(gradient),
                   [&] { return loss(logit_softcap(logits, 1.7)); });
}

TEST_CASE("softmax_with_sink_backward against central differences, of scores and sink") {
    Matrix scores = random_matrix(4, 3, 2);
    Vector sink = {0.6};
    const Loss<2> loss(scores.shape());
    const SinkSoftmaxGradient gradient =
        softmax_with_sink_backward(softmax_with_sink(scores, sink(0)), view_of(loss.weights));
    const Vector sink_gradient = {gradient.sink};
    const auto value = [&] { return loss(softmax_with_sink(scores, sink(0)).weights); };
    check_gradient("scores", span_of(scores), span_of(gradient.scores), value);
    check_gradient("sink", span_of(sink), span_of(sink_gradient), value);
}

TEST_CASE("attention with a score modification: window, cap, sinks and dropout") {
    QueriesKeysValues heads{random_heads(H, 3), random_heads(Hkv, 4), random_heads(Hkv, 5)};
    ScoreMod score_mod{0.7, 2.5, random_vector(H, 6)};
    const Tensor4 mask = expand_mask(pattern_mask(SlidingWindow{2}, T, T), B);
    const Loss<4> loss(heads.queries.shape());
    AttentionActivations saved;
    const auto value = [&] {
        Generator generator(7);  // the same dropout mask in each call
        saved.rotated = heads;
        save_attention(grouped_query_attention(heads, mask, score_mod), 0.3, &generator, saved);
        return loss(saved.context);
    };
    value();
    CHECK(xt::amin(saved.dropout_mask)() == 0);
    ScoreMod sum = score_mod;
    *sum.sinks *= 0;
    const QueriesKeysValues gradient = grouped_query_attention_backward(
        heads, mask, saved.attentions, saved.dropout_mask, loss.weights, score_mod, sum);
    check_gradient("queries", span_of(heads.queries), span_of(gradient.queries), value);
    check_gradient("keys", span_of(heads.keys), span_of(gradient.keys), value);
    check_gradient("values", span_of(heads.values), span_of(gradient.values), value);
    check_gradient("sinks", span_of(*score_mod.sinks), span_of(*sum.sinks), value);
}

TEST_CASE("tune_temperature is its own backward pass: against central differences") {
    Tensor4 queries = random_heads(H, 7);
    const IdMatrix positions = {{0, 4, 9}, {3, 5, 12}};
    const Loss<4> loss(queries.shape());
    const Tensor4 gradient = tune_temperature(loss.weights, positions, {4, 0.5});
    check_gradient("queries", span_of(queries), span_of(gradient), [&] {
        return loss(tune_temperature(queries, positions, {4, 0.5}));
    });
}

TEST_CASE("forward_backward against central differences: a decoder with every kind of layer") {
    Config config = small_config();
    config.num_hidden_layers = 3;
    Generator generator(8);
    PatternDecoder decoder = make_pattern_decoder(make_model(config, generator), true);
    // QK norm and a window; a cap and a chunk; no RoPE, a temperature and a learned sink.
    PatternAttention* const layers[] = {&decoder.layers[0].self_attn,
                                        &decoder.layers[1].self_attn,
                                        &decoder.layers[2].self_attn};
    layers[0]->pattern = SlidingWindow{2};
    layers[0]->layer.qk_norm = QKNormWithWeights{random_vector(D, 4), random_vector(D, 5)};
    layers[1]->pattern = ChunkedAttention{2};
    layers[1]->score_mod.attn_logit_softcapping = 1.5;
    layers[1]->score_mod.sinks = std::nullopt;
    layers[2]->position_encoding = NoPE{};
    // With RoPE and a QK norm, and without.
    layers[0]->temperature_tuning = layers[2]->temperature_tuning = TemperatureTuning{2, 0.5};
    layers[2]->output_gate = layers[2]->layer.projections.q_proj;  // other weights below
    for (const Parameter& parameter : named_parameters(decoder))
        for (Real& value : parameter.values) value = Real(0.5) * generator.next_normal();

    const IdMatrix input_ids = {{0, 3, 6}, {2, 2, 5}}, targets = {{3, 6, 1}, {2, 5, 4}};
    PatternDecoder gradient = zeros_like(decoder);
    forward_backward(decoder, input_ids, targets, gradient);
    PatternDecoder scratch = zeros_like(decoder);
    const auto parameters = named_parameters(decoder), gradients = named_parameters(gradient);
    REQUIRE(parameters.size() == gradients.size());
    for (std::size_t p = 0; p < parameters.size(); ++p)
        check_gradient(parameters[p].name, parameters[p].values, gradients[p].values,
                       [&] { return forward_backward(decoder, input_ids, targets, scratch); });
}
