#include <cmath>
#include <set>

#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/13_training/ablations/ngram.hpp"
#include "chapters/13_training/ablations/experiments.hpp"
#include "chapters/13_training/trainer.hpp"
#include "chapters/10_tokenizer/bpe_training.hpp"
#include "common/numbers/statistics.hpp"
#include "common/files/unicode.hpp"
#include "tests/files.hpp"

using namespace llm;

namespace {

Vector pinned(const std::string& name) { return fixture<1>("13_training/" + name); }

Vector all_of(const std::vector<Parameter>& parameters, bool gradients) {
    std::vector<Real> numbers;
    for (const Parameter& parameter : parameters) {
        const auto part = gradients ? parameter.gradients : parameter.numbers;
        numbers.insert(numbers.end(), part.begin(), part.end());
    }
    Vector all(std::array{numbers.size()});
    std::copy(numbers.begin(), numbers.end(), all.begin());
    return all;
}

}  // namespace

TEST_CASE("ten steps of training are PyTorch's: losses, gradients, norms, rates, weights") {
    Model model = load_model(fixture_path("09_full_model/mistral"));
    Model gradient = zeros_like(model);
    const std::vector<Parameter> parameters = parameters_of(model, gradient);
    const xt::xtensor<Id, 3> batches = id_fixture<3>("13_training/batches");
    const Schedule schedule{Real(0.02), Real(0.002), 3, 10};
    AdamW optimizer;
    Vector losses = xt::zeros<Real>({10}), norms = losses, rates = losses;
    for (std::size_t step = 0; step < 10; ++step) {
        const IdMatrix inputs = xt::view(batches, step, xt::all(), xt::range(0, 7));
        const IdMatrix targets = xt::view(batches, step, xt::all(), xt::range(1, 8));
        clear_gradients(parameters);
        losses(step) = Real(loss_and_gradients(model, inputs, targets, gradient));
        if (step == 0) CHECK_CLOSE(all_of(parameters, true), pinned("first_gradients"), 1e-5);
        norms(step) = Real(clip_gradients(parameters, 1));
        rates(step) = schedule.at(step);
        optimizer.step(parameters, rates(step));
    }
    CHECK_CLOSE(losses, pinned("losses"), 1e-5);
    CHECK_CLOSE(norms, pinned("norms"), 1e-4);
    CHECK_CLOSE(rates, pinned("rates"), 1e-6);
    CHECK_CLOSE(all_of(parameters, false), pinned("last_weights"), 1e-4);
}

namespace {

// Tokens in which each one follows from the one before.
std::vector<Id> counting_tokens(std::size_t count) {
    std::vector<Id> tokens(count);
    for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<Id>(i * i % 11);
    return tokens;
}

Plan small_plan(std::size_t steps) {
    Plan plan;
    plan.batch_size = 3;
    plan.seq_len = 5;
    plan.schedule = {Real(0.01), Real(0.001), 2, steps};
    return plan;
}

}  // namespace

TEST_CASE("a run that was saved and read goes on bit for bit as if it had not stopped") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "run.safetensors").string();
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    const std::vector<Id> tokens = counting_tokens(200);
    const Plan plan = small_plan(12);
    std::vector<Model> gradient = {zeros_like(model)};
    Training whole = begin_training(model, plan), first = whole, second = whole;
    for (int step = 0; step < 12; ++step) take_step(whole, plan, tokens, gradient);
    for (int step = 0; step < 7; ++step) take_step(first, plan, tokens, gradient);
    save_training(first, plan, tokens, file);
    load_training(second, plan, tokens, file);
    CHECK(second.step == 7);
    for (int step = 7; step < 12; ++step) take_step(second, plan, tokens, gradient);
    CHECK(second.losses == whole.losses);
    CHECK_CLOSE(all_of(parameters_of(second.model, gradient[0]), false),
                all_of(parameters_of(whole.model, gradient[0]), false), 0);
    CHECK(whole.losses.back() < whole.losses.front() / 2);

    Training other = begin_training(load_model(fixture_path("09_full_model/qwen3")), plan);
    CHECK_THROWS_AS(load_training(other, plan, tokens, file), FileError);
    overwrite(file, content(file).substr(0, 5000));
    CHECK_THROWS_AS(load_training(second, plan, tokens, file), FileError);
}

TEST_CASE("four small batches add up to one large one") {
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    const std::vector<Id> tokens = counting_tokens(200);
    Plan large = small_plan(5), small = large;
    large.batch_size = 8;
    small.batch_size = 2;
    small.accumulate = 4;
    std::vector<Model> gradient(1, zeros_like(model)), other(4, zeros_like(model));
    Training one = begin_training(model, large), four = begin_training(model, small);
    const StepReport report = take_step(one, large, tokens, gradient);
    const StepReport parts = take_step(four, small, tokens, other);
    CHECK(report.loss == doctest::Approx(parts.loss).epsilon(1e-6));
    CHECK(report.gradient_norm == doctest::Approx(parts.gradient_norm).epsilon(1e-5));
    CHECK_CLOSE(all_of(parameters_of(one.model, gradient[0]), true),
                all_of(parameters_of(four.model, other[0]), true), 1e-5);
}

TEST_CASE("random_batch: targets are the inputs one token later, from anywhere") {
    const std::vector<Id> tokens = {0, 1, 2, 3, 4, 5, 6};
    Generator generator(1);
    std::set<Id> beginnings;
    for (int i = 0; i < 200; ++i) {
        const Batch batch = random_batch(tokens, 2, 4, generator);
        for (const auto& [b, t] : every_index(2, 4)) {
            CHECK(batch.targets(b, t) == batch.inputs(b, t) + 1);
            CHECK(batch.inputs(b, t) == batch.inputs(b, 0) + static_cast<Id>(t));
        }
        beginnings.insert(batch.inputs(0, 0));
    }
    CHECK(beginnings == std::set<Id>{0, 1, 2});
    CHECK_THROWS_AS(random_batch(tokens, 2, 7, generator), ShapeError);
}

TEST_CASE("learn_tokenizer: Sennrich's example, and the file it becomes") {
    std::string text;
    for (const auto& [word, count] : std::vector<std::pair<std::string, int>>{
             {"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}})
        for (int i = 0; i < count; ++i) text += word + "\n";
    const Tokenizer tokenizer = learn_tokenizer(text, 18);
    const auto has = [&](const std::string& piece) { return tokenizer.ids.contains(piece); };
    CHECK(tokenizer.pieces.size() == 18);
    CHECK(tokenizer.pieces[0] == "<unk>");
    CHECK((has("es") && has("est") && has("lo") && has("low")));
    CHECK(tokenizer.pieces[12] == "es");
    CHECK(tokenizer.pieces[13] == "est");
    CHECK(tokenizer.encode("lowest").size() == 2);
    CHECK(tokenizer.encode("x") == std::vector<Id>{0});
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);

    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    save_tokenizer(tokenizer, file);
    const Tokenizer loaded = load_tokenizer(file, 18);
    for (const std::string& written : {text, std::string("lowest newer wides x!")})
        CHECK(loaded.encode(written) == tokenizer.encode(written));
    CHECK(loaded.decode(loaded.encode(text)) == text);

    CHECK(learn_tokenizer(text, 0).merges.empty());
    CHECK(learn_tokenizer("ab ab", 100).pieces.size() == 5);
    CHECK_THROWS_AS(learn_tokenizer("", 0), TextError);
    CHECK_THROWS_AS(learn_tokenizer("abc", 3), TextError);
    CHECK_THROWS_AS(learn_tokenizer("ab\xff", 0), TextError);
}

TEST_CASE("split_corpus: every tenth of a hundred pieces is held out") {
    std::vector<Id> tokens(1000);
    for (std::size_t i = 0; i < 1000; ++i) tokens[i] = static_cast<Id>(i);
    const Corpus corpus = split_corpus(tokens, 99);
    CHECK(corpus.training.size() == 900);
    CHECK(corpus.validation.size() == 100);
    for (const Id id : corpus.validation) CHECK(id % 100 >= 90);
    for (const Id id : corpus.training) CHECK(id % 100 < 90);
    CHECK_THROWS_AS(split_corpus(tokens, 100), ShapeError);
}

TEST_CASE("run_training takes the steps that are left, or stops when told to") {
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    const std::vector<Id> tokens = counting_tokens(200);
    const Plan plan = small_plan(5);
    Training training = begin_training(model, plan);
    int heard = 0;
    run_training(training, plan, tokens,
                 [&](const StepReport&) { return ++heard == 2 ? GoOn::stop : GoOn::yes; });
    CHECK(training.step == 2);
    run_training(training, plan, tokens, [](const StepReport&) { return GoOn::yes; });
    CHECK(training.step == 5);
    run_training(training, plan, tokens, [](const StepReport&) { return GoOn::yes; });
    CHECK(training.step == 5);
}

TEST_CASE("the model of assets/ reads, and goes on, as PyTorch does with it") {
    const Model model = load_model(asset("king_james"));
    CHECK(count_parameters(model).total() <= 1'900'000);
    const Tokenizer tokenizer = load_tokenizer(asset("king_james/tokenizer.json"), 1024);
    const IdMatrix ids = id_fixture<2>("13_training/king_james_ids");
    CHECK(tokenizer.encode("And God said") == std::vector<Id>(ids.begin(), ids.begin() + 3));
    Writing writing;
    writing.sampling.temperature = 0;
    writing.max_new_tokens = 24;
    Generator generator(0);
    CHECK(generate(model, {ids.begin(), ids.begin() + 3}, writing, generator) ==
          std::vector<Id>(ids.begin() + 3, ids.end()));
    KvCache cache = make_cache(model, 26);
    const IdMatrix all_but_last = xt::view(ids, xt::all(), xt::range(0, 26));
    CHECK_CLOSE(next_logits(model, all_but_last, cache),
                fixture<2>("13_training/king_james_logits"), 1e-5);
}

TEST_CASE("cross_entropy refuses targets that are no tokens, and another number of them") {
    const Matrix logits = xt::zeros<Real>({2, 3});
    CHECK(cross_entropy(logits, {0, 2}).value == doctest::Approx(std::log(3.0)));
    CHECK_THROWS_WITH_AS(cross_entropy(logits, {0, 3}),
                         "cross_entropy: there is no token 3 in a vocabulary of 3", ShapeError);
    CHECK_THROWS_AS(cross_entropy(logits, {-1, 0}), ShapeError);
    CHECK_THROWS_WITH_AS(cross_entropy(logits, {0, 1, 2}),
                         "cross_entropy: 3 targets do not fit logits of (2, 3)", ShapeError);
}

TEST_CASE("matrices decay, norms and biases do not") {
    ModelConfig config;
    config.hidden_size = 8;
    config.num_attention_heads = config.num_key_value_heads = 2;
    config.num_hidden_layers = 1;
    config.vocab_size = 5;
    config.attention_bias = true;
    config.tie_word_embeddings = config.use_qk_norm = false;
    Generator generator(1);
    Model model = make_model(config, generator), gradient = zeros_like(model);
    const std::vector<Parameter> parameters = parameters_of(model, gradient);
    CHECK(parameters.size() == 15);  // embedding, 2 norms, 7 matrices, 3 biases, norm, head
    for (const Parameter& parameter : parameters) {
        const bool is_norm = parameter.name.find("norm") != std::string::npos;
        CHECK_MESSAGE(parameter.decays == (!is_norm && !parameter.name.ends_with(".bias")),
                      parameter.name);
    }
}

namespace {

ModelConfig one_layer() {
    ModelConfig config;
    config.hidden_size = 8;
    config.intermediate_size = 12;
    config.num_attention_heads = 2;
    config.num_key_value_heads = 1;
    config.num_hidden_layers = 1;
    config.vocab_size = 6;
    config.use_qk_norm = false;
    return complete(config);
}

}  // namespace

TEST_CASE("a plain MLP has as many numbers as a gated one") {
    const auto count = [](bool plain) {
        Generator generator(1);
        Choices choices;
        choices.plain_mlp = plain;
        Variant variant = make_variant(one_layer(), choices, 1, generator);
        std::size_t numbers = 0;
        for (const Parameter& parameter : parameters_of(variant, variant))
            numbers += parameter.numbers.size();
        return numbers;
    };
    CHECK(count(true) == count(false));
}

TEST_CASE("without RoPE all tokens stand at position 0, with it one behind the other") {
    for (const bool no_rope : {true, false}) {
        Generator generator(2);
        Choices choices;
        choices.no_rope = no_rope;
        const Variant variant = make_variant(one_layer(), choices, 1, generator);
        const Variant::Layer& layer = variant.layers[0];
        const RMSNorm norm = std::get<RMSNorm>(variant.norm);
        const PreNormBlock block{{layer.self_attn, std::get<GatedMlp>(layer.mlp)}, norm, norm};
        const IdMatrix inputs{{1, 5, 2, 3}}, targets{{5, 2, 3, 0}};
        Placement placement = causal_placement(variant.config, 1, 4);
        if (no_rope) placement.positions.fill(0);
        const Model embedding{variant.config, variant.embed_tokens, {}, norm, std::nullopt};
        const Matrix logits =
            reshape(embedding.logits(block(embedding.embed(inputs), placement)),
                    {std::size_t(4), std::size_t(6)});
        CHECK(loss_of(variant, inputs, targets) ==
              doctest::Approx(cross_entropy(logits, {5, 2, 3, 0}).value).epsilon(1e-5));
    }
}

TEST_CASE("layers with a QK norm are refused, not trained without it") {
    const Model model = load_model(fixture_path("09_full_model/qwen3"));
    Model gradient = model;
    CHECK_THROWS_WITH_AS(loss_and_gradients(model, {{1, 2}}, {{2, 3}}, gradient),
                         "training: layers with a QK norm are not supported", ShapeError);
}

TEST_CASE("inputs and targets of another shape are refused, even with as many tokens") {
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    Model gradient = zeros_like(model);
    CHECK_THROWS_WITH_AS(
        loss_and_gradients(model, {{1, 2, 3}, {4, 5, 6}}, {{1, 2}, {3, 4}, {5, 6}}, gradient),
        "training: inputs of (2, 3) do not fit targets of (3, 2)", ShapeError);
}

TEST_CASE(
    "training refuses ids that are no tokens, and texts longer than the model's positions") {
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    Model gradient = zeros_like(model);
    CHECK_THROWS_AS(loss_and_gradients(model, {{1, 17}}, {{2, 3}}, gradient), ShapeError);
    const IdMatrix long_text = xt::ones<Id>({std::size_t(1), std::size_t(65)});
    CHECK_THROWS_AS(loss_and_gradients(model, long_text, long_text, gradient), ShapeError);
}

TEST_CASE("clipping shortens what is too long, and leaves the rest as it is") {
    Vector numbers{0, 0}, gradients{3, 4};
    const std::vector<Parameter> parameters = {{"w", numbers, gradients, true}};
    CHECK(clip_gradients(parameters, 10) == doctest::Approx(5));
    CHECK((gradients(0) == 3 && gradients(1) == 4));
    CHECK(clip_gradients(parameters, 1) == doctest::Approx(5));
    CHECK(double(gradients(0)) == doctest::Approx(0.6));
    CHECK(double(gradients(1)) == doctest::Approx(0.8));
}

TEST_CASE("a trial is a plain loop: draw, gradients from zero, clip, step") {
    const Corpus corpus{counting_tokens(200), counting_tokens(100)};
    Trial trial{one_layer(), {}, small_plan(4)};
    trial.config.vocab_size = 11;
    const Outcome outcome = run_trial(trial, corpus);
    Generator generator(trial.plan.seed);
    Variant variant = make_variant(trial.config, {}, Real(0.02), generator);
    AdamW optimizer;
    optimizer.weight_decay = trial.plan.weight_decay;
    for (std::size_t step = 0; step < 4; ++step) {
        const Batch batch = random_batch(corpus.training, 3, 5, generator);
        Variant gradient = zeros_like(variant);
        const double loss = loss_and_gradients(variant, batch.inputs, batch.targets, gradient);
        CHECK(double(outcome.losses[step]) == doctest::Approx(loss).epsilon(1e-6));
        const std::vector<Parameter> parameters = parameters_of(variant, gradient);
        clip_gradients(parameters, trial.plan.longest_gradient);
        optimizer.step(parameters, trial.plan.schedule.at(step));
    }
}

TEST_CASE("a warm-up needs steps behind it") {
    const Schedule just_long_enough{Real(0.1), Real(0.01), 9, 10};
    CHECK(double(just_long_enough.at(9)) == doctest::Approx(0.1));
    CHECK(double(just_long_enough.at(10)) == doctest::Approx(0.01));
    CHECK(double(just_long_enough.at(15)) == doctest::Approx(0.01));  // and so it stays
    const Schedule too_short{Real(0.1), Real(0.01), 10, 10};
    CHECK_THROWS_WITH_AS(too_short.at(0),
                         "schedule: a warm-up of 10 steps does not fit into 10", ShapeError);
}

TEST_CASE("ngram_losses by hand: no counting, single tokens, pairs, triples") {
    // 0 comes 3 times of 5, and is followed once each by 0, 1 and 2; 1 once, followed by 0.
    const std::vector<Id> seen = {0, 0, 1, 0, 2};
    const double p0 = (3 + 1 / 3.0) / 6, p1 = (1 + 1 / 3.0) / 6, p2 = p1;
    const double p01 = (1 + p1) / 4, p10 = (1 + p0) / 2, p010 = (1 + p10) / 2;
    const auto mean = [](double a, double b, double c) {
        return doctest::Approx(-(std::log(a) + std::log(b) + std::log(c)) / 3);
    };
    const std::vector<double> losses = ngram_losses({seen, {0, 1, 0}}, 3, 3, {1});
    REQUIRE(losses.size() == 4);
    CHECK(losses[0] == doctest::Approx(std::log(3.0)));
    CHECK(losses[1] == mean(p0, p1, p0));
    CHECK(losses[2] == mean(p0, p01, p10));
    CHECK(losses[3] == mean(p0, p01, p010));  // 0 1 was followed by 0

    // 2 stands at the end and was followed by nothing: then single tokens decide.
    CHECK(ngram_losses({seen, {2, 1, 1}}, 3, 2, {1})[2] == mean(p2, p1, p1 / 2));
    const std::vector<double> uncounted = ngram_losses({seen, {0, 1}}, 3, 0, {1});
    REQUIRE(uncounted.size() == 1);
    CHECK(uncounted[0] == doctest::Approx(losses[0]));
}

TEST_CASE("ngram_losses: whatever came before, the probabilities of all tokens add up to 1") {
    const std::vector<Id> seen = {0, 2, 1, 0, 2, 3, 3, 1, 0, 2};
    for (const std::vector<Id>& before :
         std::vector<std::vector<Id>>{{}, {0}, {2}, {0, 2}, {1, 1}, {2, 3, 3}})
        for (std::size_t order = 0; order <= 3; ++order) {
            const auto length = double(before.size());
            const double known =
                before.empty() ? 0
                               : length * ngram_losses({seen, before}, 4, order, {1})[order];
            double sum = 0;
            for (Id next = 0; next < 4; ++next) {
                std::vector<Id> tokens = before;
                tokens.push_back(next);
                const double all = ngram_losses({seen, tokens}, 4, order, {1})[order];
                sum += std::exp(known - (length + 1) * all);
            }
            CHECK(sum == doctest::Approx(1));
        }
}

TEST_CASE("ngram_losses: where each token follows from the one before, pairs know nearly all") {
    std::vector<Id> tokens;
    for (Id i = 0; i < 300; ++i) tokens.push_back(i % 3);
    const std::vector<double> losses = ngram_losses({tokens, tokens}, 3, 3, {1});
    CHECK(losses[1] == doctest::Approx(std::log(3.0)));
    CHECK(losses[2] < 0.012);
    CHECK(losses[3] < losses[2]);
}

TEST_CASE("ngram_losses: a weight counts as so many occurrences, and the best one is taken") {
    // Behind 0 stood 1 twice and 2 once; without counting each of 3 tokens has 1/3.
    const std::vector<Id> seen = {0, 1, 0, 1, 0, 2};
    const double p1 = (2 + 5 / 3.0) / 11, p01 = (2 + 5 * p1) / 8;
    const auto losses = [&](const std::vector<double>& weights) {
        return ngram_losses({seen, {0, 1}}, 3, 2, weights)[2];
    };
    const double p0 = (3 + 5 / 3.0) / 11;
    CHECK(losses({5}) == doctest::Approx(-(std::log(p0) + std::log(p01)) / 2));
    CHECK(losses({5, 1, 100}) ==
          doctest::Approx(std::min({losses({5}), losses({1}), losses({100})})));
    CHECK(losses({100, 1, 5}) == losses({5, 1, 100}));
}

TEST_CASE("ngram_losses refuses contexts that do not fit into 64 bits") {
    CHECK_NOTHROW(ngram_losses({{1, 0}, {1}}, 2, 62, {1}));
    CHECK_THROWS_WITH_AS(ngram_losses({{1, 0}, {1}}, 2, 63, {1}),
                         "ngram_losses: 63 tokens of 2 do not fit into 64 bits", ShapeError);
    CHECK_NOTHROW(ngram_losses({{1, 0}, {1}}, 65536, 3, {1}));
    CHECK_THROWS_AS(ngram_losses({{1, 0}, {1}}, 65536, 4, {1}), ShapeError);
}

TEST_CASE("fresh_model draws with 0.02, what writes into the stream smaller, norms are 1") {
    ModelConfig config;
    config.hidden_size = 96;
    config.intermediate_size = 160;
    config.num_hidden_layers = 8;
    config.num_key_value_heads = 3;
    config.vocab_size = 100;
    Generator generator(5);
    Model model = fresh_model(config, generator);
    for (const Parameter& parameter : parameters_of(model, model)) {
        double sum = 0, squares = 0;
        for (const Real number : parameter.numbers) {
            sum += double(number);
            squares += double(number) * double(number);
        }
        const auto count = double(parameter.numbers.size());
        const std::string& name = parameter.name;
        const bool writes =
            name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
        const double expected = !parameter.decays ? 1 : writes ? 0.02 / 4 : 0.02;  // √16 = 4
        INFO(name);
        CHECK(std::sqrt(squares / count) ==
              doctest::Approx(expected).scale(0).epsilon(parameter.decays ? 0.04 : 1e-6));
        if (parameter.decays) CHECK(std::abs(sum / count) < 5 * expected / std::sqrt(count));
    }
    Generator again(5), other(6);
    CHECK_CLOSE(fresh_model(config, again).embed_tokens, model.embed_tokens, 0);
    CHECK(largest_difference(fresh_model(config, other).embed_tokens, model.embed_tokens) > 0);
}

namespace {

// A run of three steps, saved, and what load_training says to another plan, text or model.
struct SavedRun {
    const Scratch scratch;
    const std::string file = (scratch.folder / "run.safetensors").string();
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    const std::vector<Id> tokens = counting_tokens(200);
    const Plan plan = small_plan(12);

    SavedRun() {
        Training training = begin_training(model, plan);
        std::vector<Model> gradients = {zeros_like(model)};
        for (int step = 0; step < 3; ++step) take_step(training, plan, tokens, gradients);
        save_training(training, plan, tokens, file);
    }
    bool loads(const Plan& its_plan, const std::vector<Id>& its_tokens,
               const Model& its_model) const {
        Training training = begin_training(its_model, its_plan);
        try {
            load_training(training, its_plan, its_tokens, file);
        } catch (const FileError& error) {
            CHECK(mentions(error.what(), file + ": "));
            return false;
        }
        CHECK(training.step == 3);
        return true;
    }
};

}  // namespace

TEST_CASE("a saved run does not go on with another plan") {
    const SavedRun run;
    CHECK(run.loads(run.plan, run.tokens, run.model));
    const std::vector<std::function<void(Plan&)>> changes = {
        [](Plan& plan) { plan.seed = 78; },
        [](Plan& plan) { plan.seed += 1u << 16; },
        [](Plan& plan) { plan.batch_size = 4; },
        [](Plan& plan) { plan.seq_len = 6; },
        [](Plan& plan) { plan.accumulate = 2; },
        [](Plan& plan) { plan.schedule.steps = 13; },
        [](Plan& plan) { plan.schedule.steps += 1u << 16; },
        [](Plan& plan) { plan.schedule.warmup_steps = 3; },
        [](Plan& plan) { plan.schedule.highest = Real(0.011); },
        [](Plan& plan) { plan.schedule.lowest = Real(0.0011); },
        [](Plan& plan) { plan.weight_decay = 0; },
        [](Plan& plan) { plan.longest_gradient = 2; }};
    for (std::size_t i = 0; i < changes.size(); ++i) {
        Plan other = run.plan;
        changes[i](other);
        CHECK_MESSAGE(!run.loads(other, run.tokens, run.model), "change ", i);
    }
}

TEST_CASE("a saved run tells how many steps it was planned for") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "run.safetensors").string();
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    for (const std::size_t steps : {12u, 65535u, 65536u, 1u << 24}) {
        const Plan plan = small_plan(steps);
        Training training = begin_training(model, plan);
        save_training(training, plan, counting_tokens(200), file);
        CHECK(planned_steps(file) == steps);
    }
    CHECK_THROWS_AS(planned_steps(fixture_path("09_full_model/mistral")), FileError);
    for (const Vector& identity : {Vector{1}, Vector{-1, 0}, Vector{0, 65536}}) {
        write_safetensors(file, {named("identity", identity)});
        CHECK_THROWS_WITH_AS(planned_steps(file), (file + ": no run of this program").c_str(),
                             FileError);
    }
}

TEST_CASE("a saved run does not go on with another text") {
    const SavedRun run;
    std::vector<Id> other = run.tokens;
    other.back() = 12;
    CHECK(!run.loads(run.plan, other, run.model));
    other = run.tokens;
    std::swap(other[0], other[1]);
    CHECK(!run.loads(run.plan, other, run.model));
    other = run.tokens;
    other.push_back(0);
    CHECK(!run.loads(run.plan, other, run.model));
}

TEST_CASE("a saved run does not go on with another model, even if all tensors are there") {
    const SavedRun run;
    const std::vector<std::function<void(Model&)>> changes = {
        [](Model& model) { model.config.num_attention_heads = 2, model.config.head_dim = 8; },
        [](Model& model) { model.config.num_attention_heads = 2; },
        [](Model& model) { model.config.head_dim = 8; },
        [](Model& model) { model.config.rope_theta = 10000; },
        [](Model& model) { model.config.rms_norm_eps = Real(1e-5); },
        [](Model& model) { model.layers.pop_back(); },
        [](Model& model) { model.layers.push_back(model.layers[0]); },
        [](Model& model) { model.lm_head.reset(); }};
    for (std::size_t i = 0; i < changes.size(); ++i) {
        Model other = run.model;
        changes[i](other);
        CHECK_MESSAGE(!run.loads(run.plan, run.tokens, other), "change ", i);
    }
}

TEST_CASE("take_step wants a gradient for each of its batches") {
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    const std::vector<Id> tokens = counting_tokens(50);
    Plan plan = small_plan(5);
    Training training = begin_training(model, plan);
    std::vector<Model> none, two(2, zeros_like(model));
    CHECK_THROWS_WITH_AS(take_step(training, plan, tokens, none),
                         "training: 0 gradients for 1 batches", ShapeError);
    CHECK_THROWS_AS(take_step(training, plan, tokens, two), ShapeError);
    plan.accumulate = 0;
    CHECK_THROWS_AS(take_step(training, plan, tokens, none), ShapeError);
    CHECK(training.step == 0);
    CHECK(training.losses.empty());
}

TEST_CASE("a step: the gradient of its batches, clipped, and AdamW at the schedule's rate") {
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    const std::vector<Id> tokens = counting_tokens(6);  // all pieces are the same
    Plan plan = small_plan(6);
    plan.accumulate = 2;
    plan.weight_decay = Real(0.5);
    plan.longest_gradient = 1e-7;  // so short that AdamW's eps counts
    Training training = begin_training(model, plan);
    Model by_hand = model, gradient = zeros_like(model);
    const std::vector<Parameter> parameters = parameters_of(by_hand, gradient);
    Generator generator(1);
    const Batch batch = random_batch(tokens, 3, 5, generator);
    AdamW optimizer;
    optimizer.weight_decay = Real(0.5);
    std::vector<Model> gradients(2, gradient);
    for (std::size_t step = 0; step < 6; ++step) {
        const StepReport report = take_step(training, plan, tokens, gradients);
        clear_gradients(parameters);
        const double loss = loss_and_gradients(by_hand, batch.inputs, batch.targets, gradient);
        const double norm = clip_gradients(parameters, 1e-7);
        optimizer.step(parameters, plan.schedule.at(step));
        CHECK(report.loss == doctest::Approx(loss));
        CHECK(report.gradient_norm == doctest::Approx(norm));
        CHECK(report.learning_rate == plan.schedule.at(step));
        CHECK(training.losses[step] == static_cast<Real>(report.loss));
        CHECK_CLOSE(all_of(parameters_of(training.model, gradient), false),
                    all_of(parameters, false), 1e-6);
    }
}

TEST_CASE("each step draws other pieces, from the seed and its number") {
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    const std::vector<Id> tokens = counting_tokens(200);
    Plan plan = small_plan(30);
    plan.schedule.highest = plan.schedule.lowest = 0;  // so only the pieces differ
    const auto losses_of = [&](std::uint32_t seed) {
        plan.seed = seed;
        Training training = begin_training(model, plan);
        run_training(training, plan, tokens, [](const StepReport&) { return GoOn::yes; });
        return training.losses;
    };
    const std::vector<Real> losses = losses_of(77);
    CHECK(std::set<Real>(losses.begin(), losses.end()).size() > 25);
    CHECK(losses_of(77) == losses);
    CHECK(losses_of(78) != losses);
}

TEST_CASE("batches on several cores give the same bits every time") {
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    const std::vector<Id> tokens = counting_tokens(200);
    Plan plan = small_plan(8);
    plan.accumulate = 4;
    const auto trained = [&] {
        Training training = begin_training(model, plan);
        run_training(training, plan, tokens, [](const StepReport&) { return GoOn::yes; });
        return training;
    };
    Training first = trained();
    for (int i = 0; i < 3; ++i) {
        Training again = trained();
        CHECK(again.losses == first.losses);
        CHECK_CLOSE(all_of(parameters_of(again.model, again.model), false),
                    all_of(parameters_of(first.model, first.model), false), 0);
    }
    plan.seed = 78;
    CHECK(trained().losses != first.losses);
}

namespace {

// The mean of -ln p over these pieces, one token after the other.
double loss_by_hand(const Model& model, const std::vector<Id>& tokens, std::size_t seq_len,
                    const std::vector<std::size_t>& pieces) {
    double sum = 0;
    for (const std::size_t number : pieces) {
        const std::size_t begin = number * seq_len;
        IdMatrix piece = xt::zeros<Id>({std::size_t(1), seq_len});
        std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(begin), seq_len,
                    piece.begin());
        const Tensor3 logits = model(piece);
        for (std::size_t t = 0; t < seq_len; ++t) {
            double all = 0;
            for (std::size_t v = 0; v < logits.shape(2); ++v)
                all += std::exp(double(logits(0, t, v)));
            const auto next = static_cast<std::size_t>(tokens[begin + t + 1]);
            sum += std::log(all) - double(logits(0, t, next));
        }
    }
    return sum / double(pieces.size() * seq_len);
}

}  // namespace

TEST_CASE("validation_loss is the mean of -ln p over pieces from all over the text") {
    const Model model = load_model(fixture_path("09_full_model/mistral"));
    const Plan plan = small_plan(5);  // B = 3, T = 5
    const auto equal = [&](std::size_t num_tokens, std::size_t max_batches,
                           const std::vector<std::size_t>& pieces) {
        const std::vector<Id> tokens = counting_tokens(num_tokens);
        CHECK(validation_loss(model, tokens, plan, max_batches) ==
              doctest::Approx(loss_by_hand(model, tokens, 5, pieces)).epsilon(1e-6));
    };
    equal(70, 20, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});  // too short for a fifth batch
    equal(70, 2, {0, 1, 2, 6, 7, 8});                       // batches 0 and 2 of these 4
    equal(31, 20, {0, 1, 2, 3, 4, 5});  // 2 batches, and the token that follows the last
    equal(30, 20, {0, 1, 2});           // and without it
    equal(12, 20, {0, 1});              // a short text: a batch of 2 pieces
    equal(10, 20, {0});                 // for a second piece one token is missing
    equal(6, 20, {0});
    CHECK_THROWS_WITH_AS(validation_loss(model, counting_tokens(5), plan, 20),
                         "training: 5 tokens are too few to validate with 5", ShapeError);
}

TEST_CASE("AdamW begins again: steps and both means are those of a new one") {
    Vector numbers{1, -2}, gradients{Real(0.5), 3}, fresh_numbers = numbers;
    const std::vector<Parameter> parameters = {{"w", numbers, gradients, true}};
    const std::vector<Parameter> fresh_parameters = {{"w", fresh_numbers, gradients, true}};
    AdamW used, fresh;
    for (int i = 0; i < 3; ++i) used.step(parameters, Real(0.1));
    CHECK(used.steps == 3);
    used.begin(parameters);
    CHECK(used.steps == 0);
    CHECK(used.mean == std::vector<std::vector<Real>>{{0, 0}});
    CHECK(used.mean_square == std::vector<std::vector<Real>>{{0, 0}});
    numbers = fresh_numbers;
    used.step(parameters, Real(0.1));
    fresh.step(fresh_parameters, Real(0.1));
    CHECK_CLOSE(numbers, fresh_numbers, 0);
    CHECK(used.steps == 1);
}

namespace {

// Each token follows from the one before: +3, around 11.
std::vector<Id> periodic_tokens(std::size_t count) {
    std::vector<Id> tokens(count);
    for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<Id>(3 * i % 11);
    return tokens;
}

ModelConfig tiny_config(std::size_t num_layers) {
    ModelConfig config;
    config.hidden_size = 16;
    config.intermediate_size = 24;
    config.num_hidden_layers = num_layers;
    config.num_attention_heads = 2;
    config.num_key_value_heads = 1;
    config.vocab_size = 11;
    return config;
}

Trial tiny_trial(std::size_t steps) {
    Trial trial{tiny_config(1), {}, small_plan(steps)};
    trial.plan.schedule = {Real(0.02), Real(0.002), 2, steps};
    return trial;
}

double mean_of_last(const std::vector<Real>& losses, std::size_t count) {
    double sum = 0;
    for (std::size_t i = losses.size() - count; i < losses.size(); ++i)
        sum += double(losses[i]);
    return sum / double(count);
}

}  // namespace

TEST_CASE(
    "gradients_at_start: of each layer the length of down_proj's gradient, of seeds 1 2 3") {
    Generator generator(3);
    const Batch batch = random_batch(periodic_tokens(100), 2, 6, generator);
    for (const Arrangement arrangement : {Arrangement::pre_norm, Arrangement::post_norm,
                                          Arrangement::res_post_norm, Arrangement::parallel}) {
        const auto at_start = [&](std::size_t seeds) {
            return gradients_at_start(tiny_config(3), arrangement, batch, seeds);
        };
        std::vector<double> expected(3);
        for (const std::uint32_t seed : {1u, 2u, 3u}) {
            Generator same(seed);
            const Variant variant = make_variant(tiny_config(3), {arrangement}, 0, same);
            Variant gradient = zeros_like(variant);
            loss_and_gradients(variant, batch.inputs, batch.targets, gradient);
            for (std::size_t n = 0; n < 3; ++n) {
                double squares = 0;
                for (const Real g : std::get<GatedMlp>(gradient.layers[n].mlp).down_proj.weight)
                    squares += double(g) * double(g);
                expected[n] += std::sqrt(squares) / 3;
            }
        }
        const std::vector<double> lengths = at_start(3);
        REQUIRE(lengths.size() == 3);
        for (std::size_t n = 0; n < 3; ++n)
            CHECK(lengths[n] == doctest::Approx(expected[n]).scale(0));
        CHECK(at_start(3) == lengths);
        CHECK(at_start(1) != lengths);
        for (const double length : at_start(1)) CHECK(length > 0);
    }
}

TEST_CASE("run_trial learns what follows what, and the same again with the same seed") {
    const Corpus corpus = split_corpus(periodic_tokens(2000), 5);
    const Trial trial = tiny_trial(60);
    const Outcome outcome = run_trial(trial, corpus), again = run_trial(trial, corpus);
    REQUIRE(outcome.losses.size() == 60);
    CHECK(outcome.losses[0] == doctest::Approx(std::log(11.0)).epsilon(0.05));
    CHECK(outcome.training_loss < 0.5);
    CHECK(outcome.validation_loss < 0.5);
    CHECK(outcome.training_loss == doctest::Approx(mean_of_last(outcome.losses, 6)));
    CHECK(again.losses == outcome.losses);
    CHECK(again.validation_loss == outcome.validation_loss);
    Trial other = trial;
    other.plan.seed = 78;
    CHECK(run_trial(other, corpus).losses != outcome.losses);

    const Outcome shortest = run_trial(tiny_trial(5), corpus);  // a tenth is less than a step
    CHECK(shortest.training_loss == doctest::Approx(double(shortest.losses[4])));
}

TEST_CASE("run_trial decays weights and clips gradients as its plan says") {
    const Corpus corpus = split_corpus(periodic_tokens(500), 5);
    Trial usual = tiny_trial(60), decayed = usual, clipped = usual;
    decayed.plan.weight_decay = 20;         // takes away a third of each weight at every step
    clipped.plan.longest_gradient = 1e-12;  // far below AdamW's eps
    CHECK(run_trial(usual, corpus).training_loss < 0.5);
    CHECK(run_trial(decayed, corpus).training_loss > 1);
    CHECK(run_trial(clipped, corpus).training_loss > 2);
}

TEST_CASE("run_trial says of the held-out part what an untrained model does, at rate 0") {
    const Corpus corpus = split_corpus(periodic_tokens(500), 5);
    Trial trial = tiny_trial(3);
    trial.plan.schedule.highest = trial.plan.schedule.lowest = 0;
    Generator generator(trial.plan.seed);
    const Variant untrained = make_variant(trial.config, {}, Real(0.02), generator);
    const auto loss = [&](const Batch& batch) {
        return loss_of(untrained, batch.inputs, batch.targets);
    };
    CHECK(run_trial(trial, corpus).validation_loss ==
          doctest::Approx(mean_over_pieces(corpus.validation, trial.plan, 8, loss)));
}

TEST_CASE("run_trial at an absurd rate ends with infinite losses, whenever it breaks") {
    const Corpus corpus = split_corpus(periodic_tokens(500), 5);
    for (std::size_t steps = 2; steps < 12; ++steps) {  // 2: the last step breaks it
        Trial trial = tiny_trial(steps);
        trial.plan.schedule = {Real(1e30), Real(1e30), 0, steps};
        const Outcome outcome = run_trial(trial, corpus);
        INFO(steps);
        CHECK(outcome.training_loss == double(infinity));
        CHECK(outcome.validation_loss == double(infinity));
        for (const Real loss : outcome.losses) CHECK(std::isfinite(loss));
    }
}

TEST_CASE(
    "run_trials: of each trial in its place, the mean of seeds 1, 2, 3 and their spread") {
    const Corpus corpus = split_corpus(periodic_tokens(500), 5);
    std::vector<Trial> trials(2, tiny_trial(20));
    trials[1].plan.schedule.highest = Real(0.001);
    std::vector<std::size_t> told;
    const std::vector<Summary> summaries =
        run_trials(trials, corpus, 3, [&](std::size_t done) { told.push_back(done); });
    CHECK(told == std::vector<std::size_t>{1, 2, 3, 4, 5, 6});
    REQUIRE(summaries.size() == 2);
    for (std::size_t t = 0; t < 2; ++t) {
        std::vector<Outcome> outcomes;
        std::set<double> held_out;
        for (const std::uint32_t seed : {1u, 2u, 3u}) {
            Trial trial = trials[t];
            trial.plan.seed = seed;
            outcomes.push_back(run_trial(trial, corpus));
            held_out.insert(outcomes.back().validation_loss);
        }
        const auto mean = [&](double Outcome::*loss) {
            return doctest::Approx((outcomes[0].*loss + outcomes[1].*loss + outcomes[2].*loss) /
                                   3);
        };
        CHECK(summaries[t].training_loss == mean(&Outcome::training_loss));
        CHECK(summaries[t].validation_loss == mean(&Outcome::validation_loss));
        CHECK(summaries[t].spread == doctest::Approx(*held_out.rbegin() - *held_out.begin()));
        CHECK(summaries[t].losses == outcomes[0].losses);
    }
    CHECK(summaries[0].validation_loss < summaries[1].validation_loss);
}

TEST_CASE("run_trials: where every run breaks, loss and spread are infinite, not NaN") {
    const Corpus corpus = split_corpus(periodic_tokens(500), 5);
    Trial trial = tiny_trial(8);
    trial.plan.schedule.highest = Real(1e30);
    const Summary summary = run_trials({trial}, corpus, 2, {})[0];
    CHECK(summary.validation_loss == double(infinity));
    CHECK(summary.spread == double(infinity));
}

TEST_CASE("learn_tokenizer: every character is a token, sorted, and every text comes back") {
    const std::string text = "Don't stop: café 中 12\n\n  \U0001F600!\t";
    const std::vector<std::string> in_text = characters(text);
    const std::set<std::string> alphabet(in_text.begin(), in_text.end());
    const Tokenizer tokenizer = learn_tokenizer(text, 0);
    std::vector<std::string> expected = {"<unk>"};
    expected.insert(expected.end(), alphabet.begin(), alphabet.end());
    CHECK(tokenizer.pieces == expected);
    CHECK(tokenizer.encode(text).size() == in_text.size());
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    CHECK(learn_tokenizer(text, expected.size()).pieces == expected);
    CHECK_THROWS_WITH_AS(learn_tokenizer(text, expected.size() - 1),
                         ("the text has " + std::to_string(alphabet.size()) +
                          " different characters, too many for a vocabulary of " +
                          std::to_string(alphabet.size()))
                             .c_str(),
                         TextError);
    CHECK_THROWS_AS(learn_tokenizer("a", 1), TextError);
    CHECK(learn_tokenizer("a", 2).pieces == std::vector<std::string>{"<unk>", "a"});
}

TEST_CASE("learn_tokenizer joins characters beyond ASCII, never their bytes") {
    std::string text;
    for (int i = 0; i < 4; ++i) text += "über中文 ";
    const Tokenizer tokenizer = learn_tokenizer(text, 13);
    CHECK(tokenizer.pieces.size() == 13);
    for (const std::string& piece : tokenizer.pieces) CHECK_NOTHROW(characters(piece));
    CHECK(tokenizer.ids.contains("über中文"));
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
}

TEST_CASE("learn_tokenizer: as many tokens as were asked for, from the most frequent pair on") {
    // x y: 4 times; a b and c d: 3 times each, and a has the lower id; after that nothing.
    const std::string text = "xy\nxy\nxy\nxy\ncd\ncd\ncd\nab\nab\nab\n";
    const std::vector<std::string> merged = {"xy", "ab", "cd"};
    for (std::size_t count = 0; count <= 4; ++count) {
        const Tokenizer tokenizer = learn_tokenizer(text, 8 + count);
        const std::size_t learned = std::min<std::size_t>(count, 3);
        REQUIRE(tokenizer.pieces.size() == 8 + learned);
        CHECK(tokenizer.merges.size() == learned);
        for (std::size_t i = 0; i < learned; ++i) CHECK(tokenizer.pieces[8 + i] == merged[i]);
    }
}

TEST_CASE("learn_tokenizer: pairs never cross the words of GPT-2's pattern") {
    // b 1 stands together as often as a b, but ab and 1 are words of their own.
    const std::vector<std::string> expected = {"<unk>", "1", "a", "b", "ab"};
    CHECK(learn_tokenizer("ab1ab1ab1ab1", 100).pieces == expected);

    const std::string text = read_text(asset("data/names.txt")).substr(0, 4000);
    std::string sentences;
    for (const std::string& name : lines_of(text))
        sentences += name + " isn't 12, it's  " + name;
    const Tokenizer tokenizer = learn_tokenizer(sentences, 200);
    CHECK(tokenizer.pieces.size() == 200);
    for (std::size_t id = 1; id < 200; ++id) {
        const std::string& piece = tokenizer.pieces[id];
        CHECK_MESSAGE(Pattern(word_pattern).matches(piece).size() == 1, piece);
        CHECK(tokenizer.encode_word(piece) == std::vector<Id>{static_cast<Id>(id)});
    }
    CHECK(tokenizer.decode(tokenizer.encode(sentences)) == sentences);

    // Written and read, it joins the same pairs in the same order.
    const Scratch scratch;
    const std::string file = (scratch.folder / "tokenizer.json").string();
    save_tokenizer(tokenizer, file);
    CHECK(load_tokenizer(file, 200).encode(sentences) == tokenizer.encode(sentences));
}
