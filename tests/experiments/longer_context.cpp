// Training on sequences that are longer than the context of a model.
#include "chapters/experiments/longer_context.hpp"
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/17_long_context/rope_extension.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

TEST_CASE("train_on_longer_sequences trains on sequences that are longer than the context") {
    Generator generator(5);
    Config config = short_context_config(4);
    Model model = make_model_for_training(config, generator);
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
    train_on_longer_sequences(model, table, args, tokens);
    CHECK(model.config.max_position_embeddings == 30);
    CHECK(before > 2.5);
    CHECK(loss() < 0.5);
}

TEST_CASE("train_on_longer_sequences: two steps by hand") {
    Generator generator(5);
    Config config = short_context_config(4);
    Model model = make_model_for_training(config, generator), expected = model;
    std::vector<Id> tokens(300);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Id>(i % 9);
    const RotaryTable table =
        extended_rotary_table(config, RopeExtension::position_interpolation, 2);
    TrainingArguments args;
    args.batch_size = 2;
    args.seq_len = 20;
    args.weight_decay = Real(0.5);
    args.lr_schedule = {Real(0.01), Real(0.001), 0, 2};
    train_on_longer_sequences(model, table, args, tokens);

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
