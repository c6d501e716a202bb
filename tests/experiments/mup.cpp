// The maximal update parametrization: factors, and changes that do not depend on the width.
#include <cmath>

#include "chapters/experiments/mup.hpp"
#include "tests/support/training.hpp"

using namespace llm;

namespace {

// Four heads, so that the head dimension grows with the width.
Config config_of(std::size_t width) {
    Config config = tiny_config(2);
    config.hidden_size = width;
    config.intermediate_size = 2 * width;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    return validate_model(config);
}

MupRun run_of(Parametrization parametrization, std::size_t width) {
    MupRun run{config_of(width), config_of(16), parametrization, small_arguments(20)};
    run.args.batch_size = 4;
    return run;
}

MupFactors factors_of(const std::string& name, std::size_t width) {
    Generator generator(1);
    Model model = make_model(config_of(width), generator);
    for (const Parameter& parameter : named_parameters(model))
        if (parameter.name == name)
            return mup_factors(parameter, config_of(width), config_of(16));
    FAIL("no parameter " << name);
    return {};
}

void check_factors(const std::string& name, Real initial_weight, Real learning_rate) {
    INFO(name);
    const MupFactors factors = factors_of(name, 64);
    CHECK(factors.initial_weight == doctest::Approx(initial_weight));
    CHECK(factors.learning_rate == doctest::Approx(learning_rate));
    CHECK(factors_of(name, 16).initial_weight == 1);
    CHECK(factors_of(name, 16).learning_rate == 1);
}

CoordinateCheck check_of(Parametrization parametrization, std::size_t width) {
    const std::vector<Id> tokens = square_tokens(200);
    return coordinate_check(run_of(parametrization, width), batch_at(tokens, {0, 20, 41}, 5),
                            4);
}

}  // namespace

TEST_CASE("mup_factors of a model that is four times as wide") {
    check_factors("model.embed_tokens.weight", 1, 1);
    check_factors("model.layers.0.input_layernorm.weight", 1, 1);
    check_factors("model.layers.1.self_attn.q_proj.weight", Real(0.25), Real(0.125));
    for (const char* name : {"self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                             "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
        check_factors(std::string("model.layers.1.") + name + ".weight", Real(0.5), Real(0.25));
    check_factors("model.norm.weight", Real(0.25), Real(0.25));
}

TEST_CASE("At the width of the base model, muP is the standard parametrization, bit for bit") {
    const std::vector<Id> tokens = square_tokens(200);
    Model standard = train_mup(run_of(Parametrization::standard, 16), tokens);
    Model mup = train_mup(run_of(Parametrization::mup, 16), tokens);
    CHECK(all_values(standard) == all_values(mup));
    Model wide = train_mup(run_of(Parametrization::standard, 32), tokens);
    Model wide_mup = train_mup(run_of(Parametrization::mup, 32), tokens);
    CHECK(all_values(wide) != all_values(wide_mup));
}

// Scaling the weights in the forward pass by a and training with Adam is the same as scaling
// initial weight and learning rate.
TEST_CASE("Coordinate check: with muP the changes do not grow with the width") {
    const CoordinateCheck narrow = check_of(Parametrization::mup, 32);
    const CoordinateCheck wide = check_of(Parametrization::mup, 256);
    CHECK(wide.hidden_states / narrow.hidden_states > 0.6);
    CHECK(wide.hidden_states / narrow.hidden_states < 1.6);
    CHECK(wide.logits / narrow.logits > 0.5);
    CHECK(wide.logits / narrow.logits < 2);
    const CoordinateCheck standard_narrow = check_of(Parametrization::standard, 32);
    const CoordinateCheck standard_wide = check_of(Parametrization::standard, 256);
    CHECK(standard_wide.hidden_states / standard_narrow.hidden_states > 3);
    CHECK(standard_wide.logits / standard_narrow.logits > 3);
}

TEST_CASE("run_mup: the mean of the last tenth of the losses, or infinity") {
    const std::vector<Id> tokens = square_tokens(200);
    MupRun run = run_of(Parametrization::mup, 32);
    std::vector<double> losses;
    train_mup(run, tokens, [&](double loss) { losses.push_back(loss); });
    REQUIRE(losses.size() == 20);
    CHECK(run_mup(run, tokens) == doctest::Approx((losses[18] + losses[19]) / 2));
    CHECK(losses[19] < losses[0]);
    run.args.lr_schedule.learning_rate = Real(1e30);
    CHECK(run_mup(run, tokens) == double(infinity));
}
