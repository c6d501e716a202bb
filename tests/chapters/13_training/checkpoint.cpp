#include "chapters/13_training/run_checkpoint.hpp"
#include "common/files/safetensors.hpp"
#include "tests/support/training.hpp"

using namespace llm;

namespace {

// Trains 12 steps without a break, and 7 + 5 with a checkpoint in between: both runs must be
// equal bit for bit. Returns the uninterrupted one.
TrainerState check_resume(const Model& model, const TrainingArguments& args,
                          const std::vector<Id>& tokens) {
    const Scratch scratch;
    const std::string file = (scratch.folder / "run.safetensors").string();
    std::vector<Model> gradients(args.gradient_accumulation_steps, zeros_like(model));
    TrainerState whole = make_trainer_state(model, args), first = whole, second = whole;
    for (int step = 0; step < 12; ++step) train_step(whole, args, tokens, gradients);
    for (int step = 0; step < 7; ++step) train_step(first, args, tokens, gradients);
    save_checkpoint(first, args, tokens, file);
    load_checkpoint(second, args, tokens, file);
    CHECK(second.global_step == 7);
    for (int step = 7; step < 12; ++step) train_step(second, args, tokens, gradients);
    CHECK(second.losses == whole.losses);
    CHECK_CLOSE(all_values(second.model), all_values(whole.model), 0);
    CHECK(whole.losses.back() < whole.losses.front());
    return whole;
}

Model small_model(const Config& config) {
    Generator generator(4);
    return make_model_for_training(config, generator);
}

// The values of the parameters whose names end like this.
Vector values_of(Model& model, const std::string& name_end) {
    std::vector<Parameter> parameters;
    for (const Parameter& parameter : named_parameters(model))
        if (parameter.name.ends_with(name_end)) parameters.push_back(parameter);
    REQUIRE(!parameters.empty());
    return all_values(parameters);
}

}  // namespace

TEST_CASE("a run that is resumed from a checkpoint equals an uninterrupted one bit for bit") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "run.safetensors").string();
    const Model model = fixture_model();
    const std::vector<Id> tokens = square_tokens(200);
    const TrainingArguments args = small_arguments(12);
    const TrainerState whole = check_resume(model, args, tokens);
    CHECK(whole.losses.back() < whole.losses.front() / 2);

    TrainerState state = make_trainer_state(model, args);
    save_checkpoint(state, args, tokens, file);
    TrainerState other =
        make_trainer_state(models::load_model(fixture_path("09_full_model/qwen3")), args);
    CHECK_THROWS_AS(load_checkpoint(other, args, tokens, file), FileError);
    overwrite(file, content(file).substr(0, 5000));
    CHECK_THROWS_AS(load_checkpoint(state, args, tokens, file), FileError);
}

TEST_CASE(
    "extra steps have the last learning rate, and a run resumes with any number of them") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "run.safetensors").string();
    const Model model = fixture_model();
    const std::vector<Id> tokens = square_tokens(200);
    TrainingArguments args = small_arguments(4);
    args.extra_steps = 70000;
    TrainerState state = make_trainer_state(model, args);
    std::vector<Real> rates;
    train(state, args, tokens, [&](const StepMetrics& metrics, TrainerControl& control) {
        rates.push_back(metrics.learning_rate);
        control.should_training_stop = rates.size() == 7;
    });
    CHECK(state.global_step == 7);
    CHECK(rates[3] > args.lr_schedule.min_learning_rate);
    CHECK(std::vector<Real>(rates.begin() + 4, rates.end()) ==
          std::vector<Real>(3, args.lr_schedule.min_learning_rate));

    // The planned run stopped after four steps; extended, it gives the same three steps.
    TrainingArguments planned = small_arguments(4), extended = planned;
    TrainerState first = make_trainer_state(model, planned), second = first;
    train(first, planned, tokens);
    CHECK(first.global_step == 4);
    save_checkpoint(first, planned, tokens, file);
    CHECK(checkpoint_extra_steps(file) == 0);
    extended.extra_steps = 3;
    load_checkpoint(second, extended, tokens, file);
    train(second, extended, tokens);
    CHECK(second.losses == state.losses);
    CHECK_CLOSE(all_values(second.model), all_values(state.model), 0);

    save_checkpoint(state, args, tokens, file);
    CHECK(checkpoint_extra_steps(file) == 70000);
    CHECK(checkpoint_max_steps(file) == 4);
}

TEST_CASE("a model with QK norm is trained, with its weights, and resumes bit for bit") {
    Config config = tiny_config(2);
    config.qk_norm = QKNormType::with_weights;
    const Model model = small_model(config);
    TrainerState state = check_resume(model, small_arguments(12), square_tokens(200));
    CHECK(state.losses.back() < Real(0.95) * state.losses.front());
    Model before = model;
    for (const std::string name : {"q_norm.weight", "k_norm.weight"})
        CHECK(difference(values_of(state.model, name), values_of(before, name), 1e-4) != "");

    // Qwen3's own checkpoint, and Llama 4's norm without weights.
    const Model qwen3 = models::load_model(fixture_path("09_full_model/qwen3"));
    check_resume(qwen3, small_arguments(12), square_tokens(200));
    config.qk_norm = QKNormType::without_weights;
    check_resume(small_model(config), small_arguments(12), square_tokens(200));
}

TEST_CASE("a run with Muon resumes bit for bit, but not one with another optimizer") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "run.safetensors").string();
    const Model model = small_model(tiny_config(2));
    const std::vector<Id> tokens = square_tokens(200);
    TrainingArguments args = small_arguments(12);
    args.optimizer = OptimizerType::muon;
    TrainerState state = check_resume(model, args, tokens);
    save_checkpoint(state, args, tokens, file);
    TrainingArguments other_args = args;
    other_args.optimizer = OptimizerType::adamw;
    TrainerState other = make_trainer_state(model, other_args);
    CHECK_THROWS_WITH_AS(load_checkpoint(other, other_args, tokens, file),
                         doctest::Contains("--optimizer adamw (saved run: muon)"), FileError);
}

TEST_CASE("a model with biases is trained, with the biases, and resumes bit for bit") {
    Config config = tiny_config(2);
    for (const AttentionBias bias : {AttentionBias::qkv, AttentionBias::qkvo}) {
        config.attention_bias = bias;
        Model model = small_model(config);
        model.norm.bias = xt::zeros<Real>({config.hidden_size});
        model.layers[0].ffn_norm.bias = model.norm.bias;
        TrainerState state = check_resume(model, small_arguments(12), square_tokens(200));
        CHECK(state.losses.back() < Real(0.95) * state.losses.front());
        std::vector<std::string> names = {"q_proj.bias", "v_proj.bias", "model.norm.bias",
                                          "layers.0.post_attention_layernorm.bias"};
        if (bias == AttentionBias::qkvo) names.push_back("o_proj.bias");
        for (const std::string& name : names) {
            INFO(name);
            CHECK(difference(values_of(state.model, name), values_of(model, name), 1e-4) != "");
        }
    }
}

TEST_CASE("a model with attention dropout is trained and resumes bit for bit") {
    Config config = tiny_config(2);
    config.attention_dropout = Real(0.3);
    const std::vector<Id> tokens = square_tokens(200);
    TrainingArguments args = small_arguments(12);
    args.gradient_accumulation_steps = 2;
    const Model model = small_model(config);
    const TrainerState state = check_resume(model, args, tokens);
    CHECK(state.losses.back() < Real(0.95) * state.losses.front());

    // The masks change the losses, differ between batches and steps, and depend on the seed.
    config.attention_dropout = 0;
    CHECK(check_resume(small_model(config), args, tokens).losses != state.losses);
    std::vector<Model> gradients(2, zeros_like(model));
    args.lr_schedule.learning_rate = args.lr_schedule.min_learning_rate = 0;
    const std::vector<Id> six_tokens = square_tokens(6);  // so all batches are equal
    const auto losses = [&](std::uint32_t seed) {
        args.seed = seed;
        TrainerState run = make_trainer_state(fixture_model(), args);
        for (PreNormBlock& layer : run.model.layers)
            layer.self_attn.attention_dropout = Real(0.3);
        gradients.assign(2, zeros_like(run.model));
        train_step(run, args, six_tokens, gradients);
        CHECK(difference(all_values(gradients[1]), all_values(gradients[0]), 1e-6) != "");
        train_step(run, args, six_tokens, gradients);
        CHECK(run.losses[0] != run.losses[1]);
        return run.losses;
    };
    CHECK(losses(77) == losses(77));
    CHECK(losses(77) != losses(78));
}

namespace {

// A checkpoint after three steps, and whether it can be loaded with other arguments, tokens or
// models.
struct SavedRun {
    const Scratch scratch;
    const std::string file = (scratch.folder / "run.safetensors").string();
    const Model model = fixture_model();
    const std::vector<Id> tokens = square_tokens(200);
    const TrainingArguments args = small_arguments(12);

    SavedRun() {
        TrainerState state = make_trainer_state(model, args);
        std::vector<Model> gradients = {zeros_like(model)};
        for (int step = 0; step < 3; ++step) train_step(state, args, tokens, gradients);
        save_checkpoint(state, args, tokens, file);
    }
    bool loads(const TrainingArguments& other_args, const std::vector<Id>& other_tokens,
               const Model& other_model) const {
        TrainerState state = make_trainer_state(other_model, other_args);
        try {
            load_checkpoint(state, other_args, other_tokens, file);
        } catch (const FileError& error) {
            CHECK(mentions(error.what(), file + ": "));
            return false;
        }
        CHECK(state.global_step == 3);
        return true;
    }
};

}  // namespace

TEST_CASE("a checkpoint is rejected with other training arguments") {
    const SavedRun run;
    CHECK(run.loads(run.args, run.tokens, run.model));
    const std::vector<std::function<void(TrainingArguments&)>> changes = {
        [](TrainingArguments& args) { args.seed = 78; },
        [](TrainingArguments& args) { args.seed += 1u << 16; },
        [](TrainingArguments& args) { args.batch_size = 4; },
        [](TrainingArguments& args) { args.seq_len = 6; },
        [](TrainingArguments& args) { args.gradient_accumulation_steps = 2; },
        [](TrainingArguments& args) { args.lr_schedule.max_steps = 13; },
        [](TrainingArguments& args) { args.lr_schedule.max_steps += 1u << 16; },
        [](TrainingArguments& args) { args.lr_schedule.warmup_steps = 3; },
        [](TrainingArguments& args) { args.lr_schedule.learning_rate = Real(0.011); },
        [](TrainingArguments& args) { args.lr_schedule.min_learning_rate = Real(0.0011); },
        [](TrainingArguments& args) { args.weight_decay = 0; },
        [](TrainingArguments& args) { args.max_grad_norm = 2; }};
    for (std::size_t i = 0; i < changes.size(); ++i) {
        TrainingArguments other = run.args;
        changes[i](other);
        CHECK_MESSAGE(!run.loads(other, run.tokens, run.model), "change ", i);
    }
}

TEST_CASE("a rejected checkpoint names every option that differs, with both values") {
    const SavedRun run;
    const auto message = [&](const std::function<void(TrainingArguments&, Model&)>& change,
                             const std::vector<Id>& tokens) -> std::string {
        TrainingArguments args = run.args;
        Model model = run.model;
        change(args, model);
        TrainerState state = make_trainer_state(model, args);
        try {
            load_checkpoint(state, args, tokens, run.file);
        } catch (const FileError& error) {
            return std::string(error.what()).substr(run.file.size());
        }
        return "loaded";
    };
    const std::string start = ": this run has other options or another text: ";
    const auto unchanged = [](TrainingArguments&, Model&) {};
    CHECK(message(unchanged, run.tokens) == "loaded");
    CHECK(message(unchanged, square_tokens(199)) == start + "the training text");
    const auto two_options = [](TrainingArguments& args, Model&) {
        args.lr_schedule.max_steps = 70000;
        args.lr_schedule.warmup_steps = 3;  // not listed: it follows from --steps
        args.weight_decay = Real(0.25);
    };
    CHECK(message(two_options, run.tokens) ==
          start + "--steps 70000 (saved run: 12), --weight-decay 0.25 (saved run: 0.1)");
    const auto no_option = [](TrainingArguments& args, Model& model) {
        args.lr_schedule.warmup_steps = 3;
        model.config.rope_theta = 5;
    };
    CHECK(message(no_option, run.tokens) ==
          start + "warmup_steps 3 (saved run: 2), rope_theta 5 (saved run: 500)");
    write_safetensors(run.file, {named("losses", Vector{1})}, DType::float32,
                      {{"--steps", "12"}});
    CHECK(message(unchanged, run.tokens) == ": saved by another version of this program");
}

TEST_CASE("a checkpoint with a flipped bit is rejected by its checksum") {
    const SavedRun run;
    std::string bytes = content(run.file);
    TrainerState state = make_trainer_state(run.model, run.args);
    const auto load = [&] {
        overwrite(run.file, bytes);
        load_checkpoint(state, run.args, run.tokens, run.file);
    };
    for (const std::size_t from_end : {1u, 300u, 5000u}) {
        char& byte = bytes[bytes.size() - from_end];
        byte ^= 4;
        CHECK_THROWS_WITH_AS(
            load(), doctest::Contains(" is damaged: the checksum of its tensors"), FileError);
        byte ^= 4;
    }
    CHECK_NOTHROW(load());
    // A file of an earlier version has none.
    const std::size_t key = bytes.find("\"checksum\"");
    REQUIRE(key != bytes.npos);
    bytes.replace(key, 10, "\"checksam\"");
    CHECK_NOTHROW(load());
}

TEST_CASE("a checkpoint contains the schedule and the progress of its run") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "run.safetensors").string();
    const Model model = fixture_model();
    for (const std::size_t max_steps : {12u, 65536u, (1u << 24) + 1}) {
        const TrainingArguments args = small_arguments(max_steps);
        TrainerState state = make_trainer_state(model, args);
        save_checkpoint(state, args, square_tokens(200), file);
        CHECK(checkpoint_max_steps(file) == max_steps);
        CHECK(checkpoint_warmup_steps(file) == 2);
        CHECK(checkpoint_global_step(file) == 0);
    }
    CHECK(checkpoint_global_step(SavedRun().file) == 3);
    CHECK_THROWS_AS(checkpoint_max_steps(fixture_path("09_full_model/mistral")), FileError);
    const auto write_steps = [&](const std::string& text) {
        write_safetensors(file, {named("losses", Vector{1})}, DType::float32,
                          {{"--steps", text}});
    };
    write_steps("5");
    CHECK(checkpoint_max_steps(file) == 5);
    for (const std::string text : {"", "-1", "5.5", "1e3", "9999999999999999"}) {
        write_steps(text);
        CHECK_THROWS_WITH_AS(checkpoint_max_steps(file),
                             (file + ": not a checkpoint of this program").c_str(), FileError);
    }
    CHECK_THROWS_WITH_AS(checkpoint_warmup_steps(file),
                         (file + ": not a checkpoint of this program").c_str(), FileError);
}

TEST_CASE("a checkpoint is rejected with another text") {
    const SavedRun run;
    std::vector<Id> other = run.tokens;
    other.back() = 12;
    CHECK(!run.loads(run.args, other, run.model));
    other = run.tokens;
    std::swap(other[0], other[1]);
    CHECK(!run.loads(run.args, other, run.model));
    other = run.tokens;
    other.push_back(0);
    CHECK(!run.loads(run.args, other, run.model));
}

TEST_CASE("a checkpoint is rejected with another model, even if all tensors are there") {
    const SavedRun run;
    const std::vector<std::function<void(Model&)>> changes = {
        [](Model& model) { model.config.num_attention_heads = 2, model.config.head_dim = 8; },
        [](Model& model) { model.config.num_attention_heads = 2; },
        [](Model& model) { model.config.head_dim = 8; },
        [](Model& model) { model.config.rope_theta = 10000; },
        [](Model& model) { model.config.rms_norm_eps = Real(1e-5); },
        [](Model& model) { model.config.attention_dropout = Real(0.1); },
        [](Model& model) { model.config.qk_norm = QKNormType::without_weights; },
        [](Model& model) { model.config.attention_bias = AttentionBias::qkv; },
        [](Model& model) { model.layers.pop_back(); },
        [](Model& model) { model.layers.push_back(model.layers[0]); },
        [](Model& model) { model.lm_head.reset(); }};
    for (std::size_t i = 0; i < changes.size(); ++i) {
        Model other = run.model;
        changes[i](other);
        CHECK_MESSAGE(!run.loads(run.args, run.tokens, other), "change ", i);
    }
}
