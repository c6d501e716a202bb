#include <cmath>
#include <csignal>
#include <set>

#include "chapters/11_generation/generation.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/numbers/statistics.hpp"
#include "common/system/interrupt.hpp"
#include "tests/support/training.hpp"

using namespace llm;

TEST_CASE("four small batches with gradient accumulation equal one large batch") {
    const Model model = fixture_model();
    const std::vector<Id> tokens = square_tokens(200);
    TrainingArguments large = small_arguments(5), small = large;
    large.batch_size = 8;
    small.batch_size = 2;
    small.gradient_accumulation_steps = 4;
    std::vector<Model> gradient(1, zeros_like(model)), gradients(4, zeros_like(model));
    TrainerState one = make_trainer_state(model, large),
                 four = make_trainer_state(model, small);
    const StepMetrics metrics = train_step(one, large, tokens, gradient);
    const StepMetrics accumulated = train_step(four, small, tokens, gradients);
    CHECK(metrics.loss == doctest::Approx(accumulated.loss).epsilon(1e-6));
    CHECK(metrics.grad_norm == doctest::Approx(accumulated.grad_norm).epsilon(1e-5));
    CHECK_CLOSE(all_values(gradient[0]), all_values(gradients[0]), 1e-5);
}

TEST_CASE("train runs the remaining steps, and stops when the callback asks for it") {
    const Model model = fixture_model();
    const std::vector<Id> tokens = square_tokens(200);
    const TrainingArguments args = small_arguments(5);
    TrainerState state = make_trainer_state(model, args);
    int num_calls = 0;
    train(state, args, tokens, [&](const StepMetrics&, TrainerControl& control) {
        control.should_training_stop = ++num_calls == 2;
    });
    CHECK(state.global_step == 2);
    train(state, args, tokens);
    CHECK(state.global_step == 5);
    train(state, args, tokens);
    CHECK(state.global_step == 5);
}

TEST_CASE("Ctrl-C ends the step and the evaluation that run, and keeps the last state") {
    const Model model = fixture_model();
    const std::vector<Id> tokens = square_tokens(200);
    const TrainingArguments args = small_arguments(5);
    TrainerState state = make_trainer_state(model, args), two_steps = state;
    std::vector<Model> gradients(1, zeros_like(model));
    for (int step = 0; step < 2; ++step) train_step(two_steps, args, tokens, gradients);
    {
        const InterruptHandler handler;
        CHECK(!InterruptHandler::interrupted());
        const auto interrupt = [&](const StepMetrics&, TrainerControl&) {
            if (state.global_step == 2) std::raise(SIGINT);
        };
        CHECK_THROWS_AS(train(state, args, tokens, interrupt), Interrupted);
        CHECK(InterruptHandler::interrupted());
        CHECK_THROWS_AS(evaluate_loss(model, tokens, args, 5), Interrupted);
    }
    CHECK(state.global_step == 2);
    CHECK(state.losses == two_steps.losses);
    CHECK_CLOSE(all_values(state.model), all_values(two_steps.model), 0);

    // After the handler is gone, training continues as if it had not been interrupted.
    train(state, args, tokens);
    train(two_steps, args, tokens);
    CHECK(state.losses == two_steps.losses);
    CHECK(!InterruptHandler::interrupted());
}

TEST_CASE("the model of assets: greedy continuation and logits equal PyTorch") {
    const Model model = models::load_model(asset("king_james"));
    CHECK(count_parameters(model).total() <= 1'900'000);
    const Tokenizer tokenizer =
        models::load_tokenizer(asset("king_james/tokenizer.json"), 1024);
    const IdMatrix ids = id_fixture<2>("13_training/king_james_ids");
    CHECK(tokenizer.encode("And God said") == std::vector<Id>(ids.begin(), ids.begin() + 3));
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.max_new_tokens = 24;
    Generator generator(0);
    CHECK(generate(model, {ids.begin(), ids.begin() + 3}, config, generator).ids ==
          std::vector<Id>(ids.begin() + 3, ids.end()));
    const IdMatrix all_but_last = xt::view(ids, xt::all(), xt::range(0, 26));
    KVCache cache = make_cache(model, 26);
    const Tensor3 logits =
        model.forward(all_but_last, {.cache = &cache, .logits_to_keep = LogitsToKeep::last})
            .logits;
    CHECK_CLOSE(reshape(logits, {1, 1024}), fixture<2>("13_training/king_james_logits"), 1e-5);
}

TEST_CASE(
    "make_model_for_training: standard deviation 0.02, less for o_proj and down_proj, norms "
    "1") {
    Config config = mini_llm_config();
    config.hidden_size = 96;
    config.intermediate_size = 160;
    config.num_hidden_layers = 8;
    config.num_key_value_heads = 3;
    config.vocab_size = 100;
    Generator generator(5);
    Model model = make_model_for_training(config, generator);
    for (const Parameter& parameter : named_parameters(model)) {
        double sum = 0, sum_of_squares = 0;
        for (const Real value : parameter.values) {
            sum += double(value);
            sum_of_squares += double(value) * double(value);
        }
        const auto count = double(parameter.values.size());
        const std::string& name = parameter.name;
        const bool is_matrix = parameter.shape.size() == 2;
        const bool writes_to_stream =
            name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
        const double expected = !is_matrix         ? 1
                                : writes_to_stream ? 0.02 / 4  // √(2 * 8) = 4
                                                   : 0.02;
        INFO(name);
        CHECK(std::sqrt(sum_of_squares / count) ==
              doctest::Approx(expected).scale(0).epsilon(is_matrix ? 0.04 : 1e-6));
        if (is_matrix) CHECK(std::abs(sum / count) < 5 * expected / std::sqrt(count));
    }
    Generator same(5), other(6);
    CHECK_CLOSE(make_model_for_training(config, same).embed_tokens, model.embed_tokens, 0);
    CHECK(largest_difference(make_model_for_training(config, other).embed_tokens,
                             model.embed_tokens) > 0);

    config.attention_bias = AttentionBias::qkvo;
    for (const PreNormBlock& layer : make_model_for_training(config, generator).layers) {
        const auto& [q_proj, k_proj, v_proj, o_proj] = layer.self_attn.projections;
        for (const Linear* linear : {&q_proj, &k_proj, &v_proj, &o_proj})
            for (const Real value : linear->bias.value()) CHECK(value == 0);
    }
}

TEST_CASE("train_step needs one gradient for each of its batches") {
    const Model model = fixture_model();
    const std::vector<Id> tokens = square_tokens(50);
    TrainingArguments args = small_arguments(5);
    TrainerState state = make_trainer_state(model, args);
    std::vector<Model> none, two(2, zeros_like(model));
    CHECK_THROWS_WITH_AS(train_step(state, args, tokens, none),
                         "training: 0 gradients for 1 batches", ValueError);
    CHECK_THROWS_AS(train_step(state, args, tokens, two), ValueError);
    args.gradient_accumulation_steps = 0;
    CHECK_THROWS_AS(train_step(state, args, tokens, none), ValueError);
    CHECK(state.global_step == 0);
    CHECK(state.losses.empty());
}

TEST_CASE("train_step rejects ids outside the vocabulary, and too long sequences") {
    const Model model = fixture_model();  // V = 17, 64 positions
    TrainingArguments args = small_arguments(5);
    TrainerState state = make_trainer_state(model, args);
    std::vector<Model> gradients(1, zeros_like(model));
    CHECK_THROWS_AS(train_step(state, args, {1, 2, 3, 17, 4, 5}, gradients), ValueError);
    args.seq_len = 65;
    CHECK_THROWS_AS(train_step(state, args, square_tokens(100), gradients), ValueError);
    CHECK(state.global_step == 0);
}

TEST_CASE("train_step: gradients of the batches, clipped, and AdamW at the scheduled rate") {
    const Model model = fixture_model();
    const std::vector<Id> tokens = square_tokens(6);  // so all batches are equal
    TrainingArguments args = small_arguments(6);
    args.gradient_accumulation_steps = 2;
    args.weight_decay = Real(0.5);
    args.max_grad_norm = 1e-7;  // so small that AdamW's eps matters
    TrainerState state = make_trainer_state(model, args);
    Model by_hand = model, gradient = zeros_like(model);
    Generator generator(1);
    const Batch batch = random_batch(tokens, 3, 5, generator);
    AdamW optimizer;
    optimizer.weight_decay = Real(0.5);
    std::vector<Model> gradients(2, gradient);
    for (std::size_t step = 0; step < 6; ++step) {
        const StepMetrics metrics = train_step(state, args, tokens, gradients);
        const Real learning_rate = learning_rate_at(args.lr_schedule, step);
        zero_grad(gradient);
        const double loss = forward_backward(by_hand, batch.input_ids, batch.targets, gradient);
        const double norm = clip_grad_norm(named_parameters(gradient), 1e-7);
        optimizer.step(named_parameters(by_hand), named_parameters(gradient), learning_rate);
        CHECK(metrics.loss == doctest::Approx(loss));
        CHECK(metrics.grad_norm == doctest::Approx(norm));
        CHECK(metrics.learning_rate == learning_rate);
        CHECK(state.losses[step] == static_cast<Real>(metrics.loss));
        CHECK_CLOSE(all_values(state.model), all_values(by_hand), 1e-6);
    }
}

TEST_CASE("each step samples other batches, from the seed and the number of the step") {
    const Model model = fixture_model();
    const std::vector<Id> tokens = square_tokens(200);
    TrainingArguments args = small_arguments(30);
    args.lr_schedule.learning_rate = args.lr_schedule.min_learning_rate = 0;
    const auto losses_with = [&](std::uint32_t seed) {
        args.seed = seed;
        TrainerState state = make_trainer_state(model, args);
        train(state, args, tokens);
        return state.losses;
    };
    const std::vector<Real> losses = losses_with(77);
    CHECK(std::set<Real>(losses.begin(), losses.end()).size() > 25);
    CHECK(losses_with(77) == losses);
    CHECK(losses_with(78) != losses);
}

TEST_CASE("batches computed on several cores give the same bits every time") {
    const Model model = fixture_model();
    const std::vector<Id> tokens = square_tokens(200);
    TrainingArguments args = small_arguments(8);
    args.gradient_accumulation_steps = 4;
    const auto trained = [&] {
        TrainerState state = make_trainer_state(model, args);
        train(state, args, tokens);
        return state;
    };
    TrainerState first = trained();
    for (int i = 0; i < 3; ++i) {
        TrainerState again = trained();
        CHECK(again.losses == first.losses);
        CHECK_CLOSE(all_values(again.model), all_values(first.model), 0);
    }
    args.seed = 78;
    CHECK(trained().losses != first.losses);
}
