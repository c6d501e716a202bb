// The extensions of RoPE against the functions of chapter 04 and of yarn.hpp.
#include <cmath>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/17_long_context/rope_extension.hpp"
#include "tests/small_model.hpp"

using namespace llm;

namespace {

Config test_config() {
    Config config = small_config();
    config.head_dim = 12;
    config.rope_theta = 100;
    config.max_position_embeddings = 10;
    return config;
}

}  // namespace

TEST_CASE("extended_frequencies: each extension is the function of its name") {
    const Config config = test_config();
    const Vector original = inverse_frequencies(12, 100);
    const auto extended = [&](RopeExtension extension) {
        return extended_frequencies(config, extension, 4);
    };
    CHECK_CLOSE(extended(RopeExtension::none), original, 0);
    CHECK_CLOSE(extended(RopeExtension::position_interpolation), Vector(original / 4), 1e-7);
    CHECK_CLOSE(extended(RopeExtension::ntk_aware),
                inverse_frequencies(12, Real(100 * std::pow(4, 12.0 / 10))), 1e-6);
    CHECK_CLOSE(extended(RopeExtension::llama3), scale_like_llama3(original, {4, 1, 4, 10}), 0);
    CHECK_CLOSE(extended(RopeExtension::yarn), yarn_frequencies(12, 100, {4, 10}), 0);
}

TEST_CASE("extended_rotary_table has factor times as many positions, YaRN's is scaled") {
    const Config config = test_config();
    for (const auto extension : {RopeExtension::none, RopeExtension::llama3}) {
        const RotaryTable table = extended_rotary_table(config, extension, 4);
        CHECK(table.cos.shape(0) == 40);
        CHECK_CLOSE(table.sin,
                    make_rotary_table(extended_frequencies(config, extension, 4), 40).sin, 0);
    }
    const RotaryTable yarn = extended_rotary_table(config, RopeExtension::yarn, 4);
    CHECK(yarn.cos(0, 0) == doctest::Approx(0.1 * std::log(4.0) + 1));
    CHECK_THROWS_WITH_AS(extended_rotary_table(config, RopeExtension::llama3, 0),
                         "extended_frequencies: the factor must be at least 1", ShapeError);
}

TEST_CASE("fine_tune trains on sequences that are longer than the context") {
    Generator generator(5);
    Config config = test_config();
    config.head_dim = 4;
    Model model = init_model(config, generator);
    std::vector<Id> tokens(300);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Id>(i % 9);
    const RotaryTable table = extended_rotary_table(config, RopeExtension::yarn, 3);
    TrainingArguments args;
    args.batch_size = 2;
    args.seq_len = 30;
    args.weight_decay = 0;
    args.lr_schedule = {Real(0.01), Real(0.001), 1, 60};
    const Batch batch = batch_at(tokens, {7}, 30);
    const auto loss = [&] {
        return evaluate_loss(model, batch.input_ids, batch.targets,
                             causal_attention_inputs(table, 1, 30));
    };
    model.config.max_position_embeddings = 30;
    const double before = loss();
    model.config.max_position_embeddings = 10;
    fine_tune(model, table, args, tokens);
    CHECK(model.config.max_position_embeddings == 30);
    CHECK(before > 2.5);
    CHECK(loss() < 0.5);
}

TEST_CASE("fine_tune: two steps by hand") {
    Generator generator(5);
    Config config = test_config();
    config.head_dim = 4;
    Model model = init_model(config, generator), expected = model;
    std::vector<Id> tokens(300);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Id>(i % 9);
    const RotaryTable table =
        extended_rotary_table(config, RopeExtension::position_interpolation, 2);
    TrainingArguments args;
    args.batch_size = 2;
    args.seq_len = 20;
    args.weight_decay = Real(0.5);
    args.lr_schedule = {Real(0.01), Real(0.001), 0, 2};
    fine_tune(model, table, args, tokens);

    expected.config.max_position_embeddings = 20;
    AdamW optimizer;
    optimizer.weight_decay = Real(0.5);
    Generator batches(args.seed);
    for (std::size_t step = 0; step < 2; ++step) {
        const Batch batch = random_batch(tokens, 2, 20, batches);
        Model gradient = zeros_like(expected);
        forward_backward(expected, batch.input_ids, batch.targets,
                         causal_attention_inputs(table, 2, 20), gradient);
        clip_grad_norm(named_parameters(gradient), 1);
        optimizer.step(named_parameters(expected), named_parameters(gradient),
                       learning_rate_at(args.lr_schedule, step));
    }
    CHECK_CLOSE(model.embed_tokens, expected.embed_tokens, 0);
    CHECK_CLOSE(model.layers[1].mlp.up_proj.weight, expected.layers[1].mlp.up_proj.weight, 0);
}
