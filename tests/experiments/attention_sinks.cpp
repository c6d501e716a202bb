// How much attention the first token and learned sinks get, and training with them.
#include <cmath>

#include "chapters/experiments/attention_sinks.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

namespace {

PatternDecoder test_decoder(bool learned_sinks) {
    Generator generator(5);
    Config config = small_config();
    config.tie_word_embeddings = true;
    return make_pattern_decoder(make_model_for_training(config, generator), learned_sinks);
}

TrainingArguments test_arguments(std::size_t num_steps) {
    TrainingArguments args;
    args.batch_size = 4;
    args.seq_len = 6;
    args.lr_schedule = {Real(0.01), Real(0.001), 1, num_steps};
    return args;
}

// 0 1 2 ... 9 0 1 2 ...: the next token follows from the last one.
std::vector<Id> repeating_tokens() {
    std::vector<Id> tokens(200);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Id>(i % 10);
    return tokens;
}

}  // namespace

TEST_CASE("with_first_token replaces the first input of each sequence, and no target") {
    const Batch batch = with_first_token({{{3, 4, 5}, {6, 7, 8}}, {{4, 5, 6}, {7, 8, 9}}}, 16);
    CHECK(batch.input_ids == IdMatrix{{16, 4, 5}, {16, 7, 8}});
    CHECK(batch.targets == IdMatrix{{4, 5, 6}, {7, 8, 9}});
    CHECK_THROWS_WITH_AS(with_first_token({xt::zeros<Id>({2, 0}), xt::zeros<Id>({2, 0})}, 16),
                         "with_first_token: sequences of (2, 0) have no tokens", ValueError);
}

TEST_CASE("mean_sink_weights by hand: two layers, two heads, queries from 1 on") {
    const Tensor4 first = {{{{1, 0, 0}, {0.5f, 0.5f, 0}, {0.2f, 0.3f, 0.5f}},
                            {{1, 0, 0}, {0.1f, 0.9f, 0}, {0.3f, 0.3f, 0.4f}}}};
    const Tensor4 second = {{{{0.5f, 0, 0}, {0.25f, 0.25f, 0}, {0.1f, 0.1f, 0.1f}},
                             {{0, 0, 0}, {0, 0, 0}, {0, 0, 1}}}};
    const SinkWeights mean = mean_sink_weights({first, second}, 1);
    CHECK_CLOSE(mean.first_key, (Matrix{{0.35f, 0.2f}, {0.175f, 0}}), 1e-6);
    CHECK_CLOSE(mean.sink, (Matrix{{0, 0}, {0.6f, 0.5f}}), 1e-6);
    CHECK_THROWS_WITH_AS(mean_sink_weights({first}, 3),
                         "mean_sink_weights: there is no query from 3 on", ValueError);
}

TEST_CASE("mean_loss_from skips the first positions") {
    CHECK(mean_loss_from({9, 1, 2}, 1) == doctest::Approx(1.5));
    CHECK(mean_loss_from({9, 1, 2}, 0) == doctest::Approx(4));
    CHECK_THROWS_WITH_AS(mean_loss_from({9, 1, 2}, 3),
                         "mean_loss_from: there is no position 3 of 3", ValueError);
}

TEST_CASE("train_decoder learns a rule, and updates the sinks") {
    PatternDecoder decoder = test_decoder(true);
    Generator generator(1);
    const std::vector<Real> losses =
        train_decoder(decoder, test_arguments(80), repeating_tokens(), std::nullopt, generator);
    REQUIRE(losses.size() == 80);
    CHECK(losses.front() == doctest::Approx(std::log(17)).epsilon(0.02));
    CHECK(losses.back() < 0.5);
    for (const Real sink : *decoder.layers[0].self_attn.score_mod.sinks) CHECK(sink != 0);
}

TEST_CASE("train_decoder with a first token: the first step by hand") {
    TrainingArguments args = test_arguments(2);
    args.lr_schedule.warmup_steps = 0;
    args.lr_schedule.min_learning_rate = 0;
    args.weight_decay = Real(0.5);
    PatternDecoder decoder = test_decoder(true), expected = decoder;
    Generator generator(1), same_generator(1);
    train_decoder(decoder, args, repeating_tokens(), Id{16}, generator);

    AdamW optimizer;
    optimizer.weight_decay = Real(0.5);
    for (std::size_t step = 0; step < 2; ++step) {
        Batch batch = random_batch(repeating_tokens(), 4, 6, same_generator);
        for (std::size_t b = 0; b < 4; ++b) batch.input_ids(b, 0) = 16;
        PatternDecoder gradient = zeros_like(expected);
        forward_backward(expected, batch.input_ids, batch.targets, gradient);
        clip_grad_norm(named_parameters(gradient), args.max_grad_norm);
        optimizer.step(named_parameters(expected), named_parameters(gradient),
                       learning_rate_at(args.lr_schedule, step));
    }
    CHECK_CLOSE(decoder.embed_tokens, expected.embed_tokens, 0);
    CHECK_CLOSE(*decoder.layers[1].self_attn.score_mod.sinks,
                *expected.layers[1].self_attn.score_mod.sinks, 0);
}
