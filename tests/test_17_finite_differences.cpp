// The gradients of chapter 17 against central differences of a loss, in double.
#include "chapters/01_masking/masking.hpp"
#include "chapters/17_long_context/attention_pattern.hpp"
#include "chapters/17_long_context/score_function.hpp"
#include "tests/finite_differences.hpp"

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
        softmax_with_sink_backward(softmax_with_sink(scores, sink(0)), loss.weights);
    const Vector sink_gradient = {gradient.sink};
    const auto value = [&] { return loss(softmax_with_sink(scores, sink(0)).weights); };
    check_gradient("scores", span_of(scores), span_of(gradient.scores), value);
    check_gradient("sink", span_of(sink), span_of(sink_gradient), value);
}

TEST_CASE("scored_attention_backward against central differences: window, cap and sinks") {
    QueriesKeysValues heads{random_heads(H, 3), random_heads(Hkv, 4), random_heads(Hkv, 5)};
    ScoreFunction score_function{0.7, 2.5, random_vector(H, 6)};
    const Tensor4 mask = expand_mask(pattern_mask(SlidingWindow{2}, T, T), B);
    const Loss<4> loss(heads.queries.shape());
    ScoredAttentionActivations saved;
    scored_attention(heads, mask, score_function, &saved);
    const auto [gradient, sinks] =
        scored_attention_backward(heads, score_function, saved, loss.weights);
    const auto value = [&] {
        return loss(scored_attention(heads, mask, score_function).context);
    };
    check_gradient("queries", span_of(heads.queries), span_of(gradient.queries), value);
    check_gradient("keys", span_of(heads.keys), span_of(gradient.keys), value);
    check_gradient("values", span_of(heads.values), span_of(gradient.values), value);
    check_gradient("sinks", span_of(*score_function.sinks), span_of(sinks), value);
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
