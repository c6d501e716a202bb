// The decoder of chapter 17 against the model of chapters 09 and 12.
#include "chapters/17_long_context/pattern_attention_backward.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

namespace {

// Weights that give sensible probabilities.
Model test_model() {
    Generator generator(5);
    Config config = small_config();
    config.tie_word_embeddings = true;
    Model model = make_model(config, generator);
    init_normal(model, Real(0.3), generator);
    return model;
}

const IdMatrix small_targets{{16, 0, 5, 5, 2}, {1, 2, 3, 4, 9}};  // (B, T)

}  // namespace

TEST_CASE("with full attention, the decoder's logits are those of chapter 09's model") {
    const Model model = test_model();
    const ModelOutput output =
        make_pattern_decoder(model, false).forward(small_ids, {.output_attentions = true});
    const ModelOutput expected = model.forward(small_ids, {.output_attentions = true});
    CHECK_CLOSE(output.logits, expected.logits, 1e-5);
    REQUIRE(output.attentions.size() == 2);
    CHECK_CLOSE(output.attentions[1], expected.attentions[1], 1e-5);
}

TEST_CASE("with full attention, its gradients are those of chapter 12's model") {
    const Model model = test_model();
    Model expected = zeros_like(model);
    const double loss = forward_backward(model, small_ids, small_targets, expected);
    const PatternDecoder decoder = make_pattern_decoder(model, false);
    PatternDecoder gradient = zeros_like(decoder);
    CHECK(forward_backward(decoder, small_ids, small_targets, gradient) ==
          doctest::Approx(loss).epsilon(1e-6));
    check_parameters(named_parameters(gradient), named_parameters(expected));
}

TEST_CASE("gradients are accumulated, those of the sinks, too") {
    const PatternDecoder decoder = make_pattern_decoder(test_model(), true);
    PatternDecoder once = zeros_like(decoder), twice = zeros_like(decoder);
    forward_backward(decoder, small_ids, small_targets, once);
    for (int i = 0; i < 2; ++i) forward_backward(decoder, small_ids, small_targets, twice);
    const Vector sinks = *once.layers[1].self_attn.score_mod.sinks;
    CHECK_CLOSE(*twice.layers[1].self_attn.score_mod.sinks, Vector(sinks * Real(2)), 1e-6);
    CHECK_CLOSE(twice.embed_tokens, Matrix(once.embed_tokens * Real(2)), 1e-5);
}

TEST_CASE("with_pattern changes the pattern of every layer and nothing else") {
    const PatternDecoder decoder = make_pattern_decoder(test_model(), true);
    const PatternDecoder windowed = with_pattern(decoder, SlidingWindow{2});
    for (const PatternBlock& layer : windowed.layers) {
        REQUIRE(std::holds_alternative<SlidingWindow>(layer.self_attn.pattern));
        CHECK(std::get<SlidingWindow>(layer.self_attn.pattern).window == 2);
    }
    const Tensor3 logits = decoder(small_ids);
    CHECK(difference(windowed(small_ids), logits, 1e-3) != "");
    CHECK_CLOSE(with_pattern(decoder, SlidingWindow{5})(small_ids), logits, 0);
}

TEST_CASE("forward_backward computes the loss of the same logits as evaluate, with a window") {
    PatternDecoder decoder =
        with_pattern(make_pattern_decoder(test_model(), true), SlidingWindow{2});
    decoder.layers[1].self_attn.pattern = ChunkedAttention{3};
    decoder.layers[0].self_attn.score_mod.sinks = Vector{0.5f, -1, 2, 0};
    PatternDecoder gradient = zeros_like(decoder);
    CHECK(forward_backward(decoder, small_ids, small_targets, gradient) ==
          doctest::Approx(cross_entropy(decoder(small_ids), small_targets)).epsilon(1e-6));
}

TEST_CASE("the decoder names a token id that is not in its vocabulary") {
    const PatternDecoder decoder = make_pattern_decoder(test_model(), false);
    CHECK_THROWS_WITH_AS(decoder(IdMatrix{{3, 17}}),
                         "model: there is no token 17 in a vocabulary of 17", ValueError);
}
