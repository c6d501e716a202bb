#include <cmath>
#include <set>

#include "chapters/12_gradients/loss.hpp"
#include "chapters/experiments/ablations.hpp"
#include "tests/support/training.hpp"

using namespace llm;

namespace {

AblationModel ablation_model(const Config& config, const AblationConfig& ablation,
                             std::uint32_t seed) {
    Generator generator(seed);
    return make_ablation_model(config, ablation, WeightInit::normal, generator);
}

// Tokens of which each determines the next: +3, modulo 11.
std::vector<Id> periodic_tokens(std::size_t count) {
    std::vector<Id> tokens(count);
    for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<Id>(3 * i % 11);
    return tokens;
}

Ablation tiny_ablation(std::size_t max_steps) {
    Ablation ablation{tiny_config(1), {}, small_arguments(max_steps)};
    ablation.args.lr_schedule = {Real(0.02), Real(0.002), 2, max_steps};
    return ablation;
}

double mean_of_last(const std::vector<Real>& losses, std::size_t count) {
    double sum = 0;
    for (std::size_t i = losses.size() - count; i < losses.size(); ++i)
        sum += double(losses[i]);
    return sum / double(count);
}

}  // namespace

TEST_CASE("the ReLU MLP of an ablation has as many parameters as the gated MLP") {
    const auto count = [](bool relu_mlp) {
        AblationModel model = ablation_model(tiny_config(2), {.relu_mlp = relu_mlp}, 1);
        std::size_t num_parameters = 0;
        for (const Parameter& parameter : named_parameters(model))
            num_parameters += parameter.values.size();
        return num_parameters;
    };
    CHECK(count(true) == count(false));
}

TEST_CASE("xavier_normal has a standard deviation of sqrt(2 / (fan_in + fan_out))") {
    Generator generator(1), same(1);
    AblationModel normal =
        make_ablation_model(tiny_config(1), {}, WeightInit::normal, generator);
    AblationModel xavier =
        make_ablation_model(tiny_config(1), {}, WeightInit::xavier_normal, same);
    const auto expected = named_parameters(normal);
    const auto actual = named_parameters(xavier);
    std::set<std::size_t> sizes;
    for (std::size_t p = 0; p < actual.size(); ++p) {
        const auto& shape = actual[p].shape;
        if (shape.size() != 2) continue;
        sizes.insert(shape[0] + shape[1]);
        const double ratio = std::sqrt(2.0 / double(shape[0] + shape[1])) / 0.02;
        CHECK(double(actual[p].values[0]) ==
              doctest::Approx(ratio * double(expected[p].values[0])).epsilon(1e-5));
    }
    CHECK(sizes.size() > 2);
}

TEST_CASE("without RoPE all position ids are 0, with RoPE they count from 0") {
    for (const bool use_rope : {true, false}) {
        AblationModel model = ablation_model(tiny_config(1), {.use_rope = use_rope}, 2);
        for (const Parameter& parameter : named_parameters(model))
            if (parameter.shape.size() == 2)
                for (Real& value : parameter.values) value *= 50;  // so that positions matter
        const auto& block = std::get<PreNormBlock>(model.layers[0]);
        const auto& norm = std::get<RMSNorm>(model.norm);
        const IdMatrix input_ids{{1, 5, 2, 3}}, targets{{5, 2, 3, 0}};
        AttentionInputs inputs = causal_attention_inputs(model.config, 1, 4);
        if (!use_rope) inputs.position_ids.fill(0);
        const Model plain{model.config, model.embed_tokens, {}, norm, std::nullopt};
        const Tensor3 logits =
            plain.logits(block(plain.embed(input_ids), inputs).hidden_states);
        CHECK(evaluate_loss(model, input_ids, targets) ==
              doctest::Approx(cross_entropy(logits, targets)).epsilon(1e-5));
    }
}

TEST_CASE("LayerNorm and the ReLU MLP are rejected with norm placements other than pre-norm") {
    for (const auto& named : named_norm_placements()) {
        const NormPlacement norm_placement = named.second;
        INFO(named.first);
        const bool is_pre_norm = norm_placement == NormPlacement::pre_norm;
        for (const bool layer_norm : {true, false}) {
            const AblationConfig config{norm_placement, layer_norm, !layer_norm, true};
            if (is_pre_norm)
                CHECK_NOTHROW(ablation_model(tiny_config(1), config, 1));
            else
                CHECK_THROWS_WITH_AS(
                    ablation_model(tiny_config(1), config, 1),
                    "ablation: LayerNorm and Mlp are supported in pre-norm blocks only",
                    ValueError);
        }
    }
}

TEST_CASE("run_ablation is a plain loop: batch, gradients, clipping, AdamW") {
    const Dataset dataset{square_tokens(200), square_tokens(100)};
    const Ablation ablation{tiny_config(1), {}, small_arguments(4)};
    const AblationResult result = run_ablation(ablation, dataset);
    Generator generator(ablation.args.seed);
    AblationModel model =
        make_ablation_model(ablation.config, {}, WeightInit::normal, generator);
    AdamW optimizer;
    optimizer.weight_decay = ablation.args.weight_decay;
    for (std::size_t step = 0; step < 4; ++step) {
        const Batch batch = random_batch(dataset.train, 3, 5, generator);
        AblationModel gradient = zeros_like(model);
        const double loss = forward_backward(model, batch.input_ids, batch.targets, gradient);
        CHECK(double(result.losses[step]) == doctest::Approx(loss).epsilon(1e-6));
        clip_grad_norm(named_parameters(gradient), ablation.args.max_grad_norm);
        optimizer.step(named_parameters(model), named_parameters(gradient),
                       learning_rate_at(ablation.args.lr_schedule, step));
    }
}

namespace {

// The norm of down_proj's gradient in a block of any type with a gated MLP.
double down_proj_norm(const AblationBlock& block) {
    return std::visit(
        [](const auto& one) {
            double sum_of_squares = 0;
            for (const Real g : one.mlp.down_proj.weight)
                sum_of_squares += double(g) * double(g);
            return std::sqrt(sum_of_squares);
        },
        block);
}

}  // namespace

TEST_CASE("initial_gradient_norms: down_proj's gradient in each layer, mean over seeds") {
    Generator generator(3);
    const Batch batch = random_batch(periodic_tokens(100), 2, 6, generator);
    for (const auto& named : named_norm_placements()) {
        const NormPlacement norm_placement = named.second;
        INFO(named.first);
        const auto norms = [&, kind = norm_placement](std::size_t num_seeds) {
            return initial_gradient_norms(tiny_config(3), kind, batch, num_seeds);
        };
        std::vector<double> expected(3);
        for (const std::uint32_t seed : {1u, 2u, 3u}) {
            Generator same(seed);
            const AblationModel model =
                make_ablation_model(tiny_config(3), {.norm_placement = norm_placement},
                                    WeightInit::xavier_normal, same);
            AblationModel gradient = zeros_like(model);
            forward_backward(model, batch.input_ids, batch.targets, gradient);
            for (std::size_t n = 0; n < 3; ++n)
                expected[n] += down_proj_norm(gradient.layers[n]) / 3;
        }
        const std::vector<double> actual = norms(3);
        REQUIRE(actual.size() == 3);
        for (std::size_t n = 0; n < 3; ++n)
            CHECK(actual[n] == doctest::Approx(expected[n]).scale(0));
        CHECK(norms(3) == actual);
        CHECK(norms(1) != actual);
        for (const double norm : norms(1)) CHECK(norm > 0);
    }
}

TEST_CASE("run_ablation learns a periodic sequence, and repeats it with the same seed") {
    const Dataset dataset = train_validation_split(periodic_tokens(2000), 5);
    const Ablation ablation = tiny_ablation(60);
    const AblationResult result = run_ablation(ablation, dataset),
                         again = run_ablation(ablation, dataset);
    REQUIRE(result.losses.size() == 60);
    CHECK(result.losses[0] == doctest::Approx(std::log(11.0)).epsilon(0.05));
    CHECK(result.train_loss < 0.5);
    CHECK(result.validation_loss < 0.5);
    CHECK(result.train_loss == doctest::Approx(mean_of_last(result.losses, 6)));
    CHECK(again.losses == result.losses);
    CHECK(again.validation_loss == result.validation_loss);
    Ablation other = ablation;
    other.args.seed = 78;
    CHECK(run_ablation(other, dataset).losses != result.losses);

    const AblationResult shortest = run_ablation(tiny_ablation(5), dataset);
    CHECK(shortest.train_loss == doctest::Approx(double(shortest.losses[4])));
}

TEST_CASE("every ablation trains: all norm placements, LayerNorm, ReLU MLP, no RoPE") {
    const Dataset dataset = train_validation_split(periodic_tokens(2000), 5);
    std::vector<AblationConfig> configs = {{.layer_norm = true},
                                           {.relu_mlp = true},
                                           {.layer_norm = true, .relu_mlp = true},
                                           {.use_rope = false}};
    for (const auto& [name, norm_placement] : named_norm_placements())
        configs.push_back({.norm_placement = norm_placement});
    for (std::size_t i = 0; i < configs.size(); ++i) {
        INFO("config ", i);
        Ablation ablation = tiny_ablation(80);
        ablation.config.num_hidden_layers = 2;
        ablation.ablation = configs[i];
        const AblationResult result = run_ablation(ablation, dataset);
        REQUIRE(result.losses.size() == 80);
        CHECK(result.losses[0] == doctest::Approx(std::log(11.0)).epsilon(0.2));
        CHECK(result.train_loss < 0.5);
        CHECK(result.validation_loss < 1);
    }
}

TEST_CASE("run_ablation uses the weight decay and the max_grad_norm of its arguments") {
    const Dataset dataset = train_validation_split(periodic_tokens(500), 5);
    Ablation usual = tiny_ablation(60), decayed = usual, clipped = usual;
    decayed.args.weight_decay = 20;      // removes a third of each weight at every step
    clipped.args.max_grad_norm = 1e-12;  // far below AdamW's eps
    CHECK(run_ablation(usual, dataset).train_loss < 0.5);
    CHECK(run_ablation(decayed, dataset).train_loss > 1);
    CHECK(run_ablation(clipped, dataset).train_loss > 2);
}

TEST_CASE("run_ablation at learning rate 0: the validation loss of the untrained model") {
    const Dataset dataset = train_validation_split(periodic_tokens(500), 5);
    Ablation ablation = tiny_ablation(3);
    LRSchedule& schedule = ablation.args.lr_schedule;
    schedule.learning_rate = schedule.min_learning_rate = 0;
    const AblationModel untrained = ablation_model(ablation.config, {}, ablation.args.seed);
    const auto loss = [&](const Batch& batch) {
        return evaluate_loss(untrained, batch.input_ids, batch.targets);
    };
    CHECK(run_ablation(ablation, dataset).validation_loss ==
          doctest::Approx(mean_loss(evaluation_batches(dataset.validation, 3, 5, 8), loss)));
}

TEST_CASE("run_ablation that diverges ends with infinite losses, at whichever step") {
    const Dataset dataset = train_validation_split(periodic_tokens(500), 5);
    for (std::size_t steps = 2; steps < 12; ++steps) {  // 2: the last step diverges
        Ablation ablation = tiny_ablation(steps);
        ablation.args.lr_schedule = {Real(1e30), Real(1e30), 0, steps};
        const AblationResult result = run_ablation(ablation, dataset);
        INFO(steps);
        CHECK(result.train_loss == double(infinity));
        CHECK(result.validation_loss == double(infinity));
        for (const Real loss : result.losses) CHECK(std::isfinite(loss));
    }
}

TEST_CASE("run_ablations: for each ablation the mean over seeds 1, 2, 3, and the range") {
    const Dataset dataset = train_validation_split(periodic_tokens(500), 5);
    std::vector<Ablation> ablations(2, tiny_ablation(20));
    ablations[1].args.lr_schedule.learning_rate = Real(0.001);
    std::vector<std::size_t> completed;
    const std::vector<AblationSummary> summaries = run_ablations(
        ablations, dataset, 3, [&](std::size_t count) { completed.push_back(count); });
    CHECK(completed == std::vector<std::size_t>{1, 2, 3, 4, 5, 6});
    REQUIRE(summaries.size() == 2);
    for (std::size_t a = 0; a < 2; ++a) {
        std::vector<AblationResult> results;
        std::set<double> validation_losses;
        for (const std::uint32_t seed : {1u, 2u, 3u}) {
            Ablation ablation = ablations[a];
            ablation.args.seed = seed;
            results.push_back(run_ablation(ablation, dataset));
            validation_losses.insert(results.back().validation_loss);
        }
        const auto mean = [&](double AblationResult::*loss) {
            return doctest::Approx((results[0].*loss + results[1].*loss + results[2].*loss) /
                                   3);
        };
        CHECK(summaries[a].train_loss == mean(&AblationResult::train_loss));
        CHECK(summaries[a].validation_loss == mean(&AblationResult::validation_loss));
        CHECK(summaries[a].range ==
              doctest::Approx(*validation_losses.rbegin() - *validation_losses.begin()));
        CHECK(summaries[a].losses == results[0].losses);
    }
    CHECK(summaries[0].validation_loss < summaries[1].validation_loss);
}

TEST_CASE("run_ablations: where every run diverges, loss and range are infinite, not NaN") {
    const Dataset dataset = train_validation_split(periodic_tokens(500), 5);
    Ablation ablation = tiny_ablation(8);
    ablation.args.lr_schedule.learning_rate = Real(1e30);
    const AblationSummary summary = run_ablations({ablation}, dataset, 2)[0];
    CHECK(summary.validation_loss == double(infinity));
    CHECK(summary.range == double(infinity));
}
