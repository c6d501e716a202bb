// T5: buckets of distances against PyTorch, attention by its definition, and generation with
// and without caches.
#include "chapters/26_encoder_decoder/encoder_decoder.hpp"

#include <cmath>

#include "chapters/01_masking/masking.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/26_encoder_decoder/demo/small_t5.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

const std::vector<Id> first_text = {3, 4, 5, 6, 7, 8, 9}, second_text = {11, 12, 13, 14};
const IdMatrix written = {{1, 15, 16, 17, 2}, {1, 18, 3, 9, 10}};  // (2, 5)

T5Model small_t5(bool is_gated = false) {
    Generator generator(5);
    return random_t5({.is_gated = is_gated}, generator);
}

Tensor3 tokens(const Tensor3& states, std::size_t begin, std::size_t end) {
    return xt::view(states, xt::all(), xt::range(begin, end), xt::all());
}
IdMatrix tokens(const IdMatrix& ids, std::size_t begin, std::size_t end) {
    return xt::view(ids, xt::all(), xt::range(begin, end));
}

// softmax(q · k + bias + mask) v with loops over single numbers, of text 0.
Tensor3 attention_by_definition(const AttentionLayer& layer, const Tensor3& queries_of,
                                const Tensor3& keys_of, const Tensor4& mask,
                                const Tensor4& bias) {
    const auto& [q_proj, k_proj, v_proj, o_proj] = layer.projections;
    const Tensor3 q = q_proj(queries_of), k = k_proj(keys_of), v = v_proj(keys_of);
    const std::size_t H = layer.num_attention_heads, D = q.shape(2) / H;
    Tensor3 context = xt::zeros<Real>(q.shape());
    for (auto [b, h, t] : every_index(q.shape(0), H, q.shape(1))) {
        std::vector<double> weights(k.shape(1));
        double sum = 0;
        for (std::size_t s = 0; s < weights.size(); ++s) {
            double score = double(mask(b, 0, t, s)) + double(bias(0, h, t, s));
            for (std::size_t d = 0; d < D; ++d)
                score += double(q(b, t, h * D + d)) * double(k(b, s, h * D + d));
            sum += weights[s] = std::exp(score);
        }
        for (auto [s, d] : every_index(weights.size(), D))
            context(b, t, h * D + d) += Real(weights[s] / sum * double(v(b, s, h * D + d)));
    }
    return o_proj(context);
}

GeneratedTokens generate_with(const T5Model& model, const GenerationConfig& config) {
    CachedSequence cached{
        std::make_unique<T5Sequence>(model, model.encode(pad({first_text}, 0))), 20};
    Generator generator(4);
    return generate(cached, {1}, config, generator);
}

}  // namespace

TEST_CASE("relative_position_bucket equals PyTorch, from 300 keys before to 300 after") {
    const std::vector<std::pair<std::size_t, std::size_t>> settings = {
        {32, 128}, {8, 11}, {64, 300}, {6, 25}};
    for (const bool bidirectional : {true, false}) {
        const IdMatrix expected = id_fixture<2>(std::string("26_encoder_decoder/buckets_") +
                                                (bidirectional ? "bidirectional" : "causal"));
        for (auto [i, column] : every_index(settings.size(), 601)) {
            const auto distance = std::int64_t(column) - 300;
            CAPTURE(distance);
            const auto& [num_buckets, max_distance] = settings[i];
            CHECK(Id(relative_position_bucket(distance, bidirectional, num_buckets,
                                              max_distance)) == expected(i, column));
        }
    }
}

TEST_CASE("relative_position_bucket: near keys have their own, far keys share the last one") {
    for (std::int64_t d = 0; d < 8; ++d) {
        CHECK(relative_position_bucket(-d, true) == std::size_t(d));
        CHECK(relative_position_bucket(-d, false) == std::size_t(d));
        if (d > 0) CHECK(relative_position_bucket(d, true) == 16 + std::size_t(d));
        CHECK(relative_position_bucket(d, false) == 0);
    }
    for (const std::int64_t d : {128, 129, 1'000'000}) {
        CHECK(relative_position_bucket(-d, true) == 15);
        CHECK(relative_position_bucket(d, true) == 31);
        CHECK(relative_position_bucket(-d, false) == 31);
    }
    CHECK(relative_position_bucket(-15, false) == 15);
    CHECK(relative_position_bucket(-16, false) == 16);
    CHECK(relative_position_bucket(-18, false) == 16);
}

TEST_CASE("relative_position_bucket names numbers of buckets that do not fit") {
    CHECK_THROWS_WITH_AS(relative_position_bucket(0, true, 2, 128),
                         "relative positions: 2 buckets do not fit distances up to 128",
                         ValueError);
    CHECK_THROWS_WITH_AS(relative_position_bucket(0, true, 7, 128),
                         "relative positions: 7 buckets do not fit distances up to 128",
                         ValueError);
    CHECK_THROWS_WITH_AS(relative_position_bucket(0, false, 32, 16),
                         "relative positions: 32 buckets do not fit distances up to 16",
                         ValueError);
    CHECK(relative_position_bucket(-16, false, 32, 17) == 16);
    CHECK(relative_position_bucket(-1, true, 4, 2) == 1);
}

TEST_CASE("RelativePositionBias: one number for each head and bucket, for the last positions") {
    Generator generator(1);
    for (const bool bidirectional : {true, false}) {
        const RelativePositionBias bias{randn({8, 3}, generator), bidirectional, 11};
        const Tensor4 all = bias(14, 14), last = bias(5, 14);
        REQUIRE(last.shape() == std::array<std::size_t, 4>{1, 3, 5, 14});
        for (auto [h, t, s] : every_index(3, 14, 14)) {
            const std::size_t bucket = relative_position_bucket(
                std::int64_t(s) - std::int64_t(t), bidirectional, 8, 11);
            CHECK(all(0, h, t, s) == bias.weight(bucket, h));
            if (t >= 9) CHECK(last(0, h, t - 9, s) == all(0, h, t, s));
        }
    }
}

TEST_CASE("T5Attention: scores are not scaled, the bias is added, the width is not C") {
    const T5Model model = small_t5();
    const AttentionLayer& layer = model.encoder_layers[0].self_attn.layer;
    Generator generator(2);
    const Tensor3 states = randn({2, 6, 10}, generator);
    const IdMatrix padding_mask = {{1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 0, 0}};
    const Tensor4 mask = bidirectional_mask(padding_mask), bias = model.encoder_bias(6, 6);
    const auto [output, weights] = T5Attention{layer}(states, {mask, bias});
    CHECK(weights.shape() == std::array<std::size_t, 4>{2, 3, 6, 6});
    CHECK_CLOSE(output, attention_by_definition(layer, states, states, mask, bias), 1e-5);
}

TEST_CASE("Cross-attention: keys and values of the text, no bias, and no padding") {
    const T5Attention cross = small_t5().decoder_layers[0].cross_attn;
    Generator generator(3);
    const Tensor3 states = randn({2, 4, 10}, generator), text = randn({2, 6, 10}, generator);
    const IdMatrix padding_mask = {{1, 1, 1, 1, 1, 1}, {1, 1, 1, 0, 0, 0}};
    const Tensor4 mask = xt::view(bidirectional_mask(padding_mask), xt::all(), xt::all(),
                                  xt::range(0, 4), xt::all());
    const auto [output, weights] = cross(states, {mask, std::nullopt, text});
    const Tensor4 no_bias = xt::zeros<Real>({1, 3, 4, 6});
    CHECK_CLOSE(output, attention_by_definition(cross.layer, states, text, mask, no_bias),
                1e-5);
    for (auto [h, t, s] : every_index(3, 4, 6))
        CHECK((weights(1, h, t, s) > 0) == (padding_mask(1, s) != 0));
}

TEST_CASE("Tokens one at a time, or in two parts, equal one pass over all of them") {
    for (const bool is_gated : {false, true}) {
        const T5Model model = small_t5(is_gated);
        const EncodedTexts encoded = model.encode(pad({first_text, second_text}, 0));
        const Tensor3 all = model.decode(written, encoded);
        for (const std::size_t cut : {1, 2, 4}) {
            std::vector<T5DecoderCache> caches(3);
            CHECK_CLOSE(model.decode(tokens(written, 0, cut), encoded, &caches),
                        tokens(all, 0, cut), 1e-5);
            for (std::size_t t = cut; t < 5; ++t)
                CHECK_CLOSE(model.decode(tokens(written, t, t + 1), encoded, &caches),
                            tokens(all, t, t + 1), 1e-5);
            for (const auto& [self, cross] : caches) {
                CHECK(self.keys.shape(2) == 5);
                CHECK(cross.keys.shape(2) == 7);
            }
        }
    }
}

TEST_CASE("The keys and values of the text are computed for the first token alone") {
    T5Model model = small_t5();
    const EncodedTexts encoded = model.encode(pad({first_text, second_text}, 0));
    const Tensor3 all = model.decode(written, encoded);
    std::vector<T5DecoderCache> caches(3);
    model.decode(tokens(written, 0, 1), encoded, &caches);
    for (T5DecoderBlock& block : model.decoder_layers) {
        block.cross_attn.layer.projections.k_proj.weight.fill(0);
        block.cross_attn.layer.projections.v_proj.weight.fill(0);
    }
    CHECK_CLOSE(model.decode(tokens(written, 1, 5), encoded, &caches), tokens(all, 1, 5), 1e-5);
    CHECK(difference(model.decode(written, encoded), all, 1e-2) != "");
}

TEST_CASE("A token of the decoder depends on the tokens before it and on the whole text") {
    const T5Model model = small_t5();
    const auto decode = [&](const std::vector<Id>& text, const IdMatrix& ids) {
        return model.decode(ids, model.encode(pad({text}, 0)));
    };
    const IdMatrix ids = {{1, 15, 16, 17}}, other = {{1, 15, 16, 18}};
    const Tensor3 before = decode(first_text, ids);
    const Tensor3 after = decode(first_text, other);
    CHECK_CLOSE(tokens(after, 0, 3), tokens(before, 0, 3), 0);
    CHECK(difference(tokens(after, 3, 4), tokens(before, 3, 4), 1e-3) != "");
    for (std::size_t s = 0; s < first_text.size(); ++s) {
        std::vector<Id> text = first_text;
        text[s] = 18;
        for (std::size_t t = 0; t < 4; ++t)
            CHECK(difference(tokens(decode(text, ids), t, t + 1), tokens(before, t, t + 1),
                             1e-4) != "");
    }
}

TEST_CASE("A text has the same vectors alone and in a padded batch, in both stacks") {
    const T5Model model = small_t5();
    const EncodedTexts both = model.encode(pad({first_text, second_text}, 0));
    const EncodedTexts alone = model.encode(pad({second_text}, 0));
    const Tensor3 second = xt::view(both.last_hidden_state, xt::range(1, 2), xt::range(0, 4));
    CHECK_CLOSE(second, alone.last_hidden_state, 1e-5);
    const IdMatrix row = xt::view(written, xt::range(1, 2));
    const Tensor3 decoded = xt::view(model.decode(written, both), xt::range(1, 2));
    CHECK_CLOSE(decoded, model.decode(row, alone), 1e-5);
}

TEST_CASE("A block of the decoder adds three sublayers, each with a norm of its own") {
    Generator generator(6);
    T5DecoderBlock block = small_t5().decoder_layers[0];
    for (RMSNorm* norm : {&block.attention_norm, &block.cross_attention_norm, &block.ffn_norm})
        norm->weight = randn({10}, generator);
    const Tensor3 x = randn({1, 4, 10}, generator), text = randn({1, 6, 10}, generator);
    const T5AttentionInputs self{expand_mask(causal_mask(4, 4), 1),
                                 randn({1, 3, 4, 4}, generator)};
    const T5AttentionInputs cross{xt::zeros<Real>({1, 1, 4, 6}), std::nullopt, text};
    const Tensor3 first = x + block.self_attn(block.attention_norm(x), self).hidden_states;
    const Tensor3 second =
        first + block.cross_attn(block.cross_attention_norm(first), cross).hidden_states;
    CHECK_CLOSE(block(x, {self, cross}).hidden_states,
                second + block.mlp(block.ffn_norm(second)), 1e-5);
}

TEST_CASE("Both stacks end with a norm, whose weights are 1 here") {
    const T5Model model = small_t5();
    const EncodedTexts encoded = model.encode(pad({first_text, second_text}, 0));
    for (const Tensor3& states : {encoded.last_hidden_state, model.decode(written, encoded)})
        for (auto [b, t] : every_index(states.shape(0), states.shape(1))) {
            double squares = 0;
            for (std::size_t c = 0; c < 10; ++c)
                squares += double(states(b, t, c)) * double(states(b, t, c));
            CHECK(squares / 10 == doctest::Approx(1).epsilon(1e-4));
        }
}

TEST_CASE("generate writes the same tokens with and without the caches, greedy and sampled") {
    for (const bool is_gated : {false, true}) {
        const T5Model model = small_t5(is_gated);
        for (const Real temperature : {0, 2}) {
            GenerationConfig config{.sampling = {.temperature = temperature},
                                    .max_new_tokens = 12};
            const std::vector<Id> cached = generate_with(model, config).ids;
            REQUIRE(cached.size() == 12);
            config.use_cache = false;
            CHECK(generate_with(model, config).ids == cached);
        }
    }
}

TEST_CASE("generate: a shorter prompt goes on from the tokens that it shares with the cache") {
    const T5Model model = small_t5();
    const auto sequence = [&] {
        return CachedSequence{
            std::make_unique<T5Sequence>(model, model.encode(pad({first_text}, 0))), 20};
    };
    CachedSequence used = sequence(), fresh = sequence();
    next_token_logits({1, 15, 16, 17}, used);
    CHECK_CLOSE(next_token_logits({1, 15, 9}, used), next_token_logits({1, 15, 9}, fresh),
                1e-5);
}

TEST_CASE("The logits are scaled by one over the root of C only where the model says so") {
    T5Model model = small_t5();
    const Tensor3 decoded =
        model.decode(written, model.encode(pad({first_text, second_text}, 0)));
    const Tensor3 scaled = model.logits(decoded);
    REQUIRE(scaled.shape() == std::array<std::size_t, 3>{2, 5, 19});
    model.scale_decoder_outputs = false;
    CHECK_CLOSE(model.logits(decoded), scaled * std::sqrt(Real(10)), 1e-5);
    model.lm_head = xt::ones<Real>({7, 10});
    CHECK(model.logits(decoded).shape() == std::array<std::size_t, 3>{2, 5, 7});
}

TEST_CASE("Both stacks name an id that is not in the vocabulary") {
    const T5Model model = small_t5();
    CHECK_THROWS_WITH_AS(model.encode(pad({{3, 19}}, 0)),
                         "model: there is no token 19 in a vocabulary of 19", ValueError);
    const EncodedTexts encoded = model.encode(pad({first_text}, 0));
    CHECK_THROWS_WITH_AS(model.decode({{1, 20}}, encoded),
                         "model: there is no token 20 in a vocabulary of 19", ValueError);
}
