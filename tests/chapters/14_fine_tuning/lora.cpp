// LoRA against PyTorch's autograd, and merged against unmerged weights.
#include <cmath>

#include "chapters/14_fine_tuning/log_probs.hpp"
#include "chapters/14_fine_tuning/lora.hpp"
#include "tests/support/training.hpp"

using namespace llm;

namespace {

LoraConfig lora_config() {
    LoraConfig config;
    config.r = 3;
    config.lora_alpha = 6;
    config.target_modules = {"q_proj", "down_proj"};
    return config;
}

LoraAdapter random_lora(const Model& model) {
    Generator generator(5);
    LoraAdapter adapter = make_lora(model, lora_config(), generator);
    for (const Parameter& parameter : named_parameters(adapter))
        for (Real& value : parameter.values) value = Real(0.3) * generator.next_normal();
    return adapter;
}

}  // namespace

TEST_CASE("A new LoRA adapter changes no logit: A is random, B is 0") {
    const Model model = fixture_model();
    Generator generator(1);
    const LoraAdapter adapter = make_lora(model, lora_config(), generator);
    REQUIRE(adapter.layers.size() == 2 * model.layers.size());
    CHECK(adapter.layers[1].name == "model.layers.0.mlp.down_proj");
    for (const std::size_t n : {0, 1}) {  // down_proj is not square
        const Matrix& a = adapter.layers[n].lora_A;
        const Real bound = 1 / std::sqrt(Real(a.shape(1)));
        Real largest = 0;
        for (const Real value : a) largest = std::max(largest, std::abs(value));
        CHECK(largest <= bound);
        CHECK(largest > Real(0.9) * bound);
    }
    const IdMatrix ids{{1, 2, 3, 4}};
    CHECK_CLOSE(merge_lora(model, adapter)(ids), model(ids), 0);
}

TEST_CASE("The gradients of A and B equal PyTorch's autograd") {
    const Model model = fixture_model();
    LoraAdapter adapter = random_lora(model);
    const Vector values = fixture<1>("14_fine_tuning/lora_values");
    std::size_t offset = 0;
    for (const Parameter& parameter : named_parameters(adapter)) {
        REQUIRE(offset + parameter.values.size() <= values.size());
        std::copy_n(values.data() + offset, parameter.values.size(), parameter.values.begin());
        offset += parameter.values.size();
    }
    REQUIRE(offset == values.size());

    const IdMatrix ids = id_fixture<2>("14_fine_tuning/lora_ids");
    const IdMatrix inputs = xt::view(ids, xt::all(), xt::range(0, 5));
    const IdMatrix targets = xt::view(ids, xt::all(), xt::range(1, 6));
    const Model merged = merge_lora(model, adapter);
    const auto [logits, activations] = model_forward(merged, inputs);
    const TokenLoss sft =
        sft_loss(token_log_probs(logits, targets), fixture<2>("14_fine_tuning/lora_mask"));
    Model model_gradient = zeros_like(model);
    model_backward(merged, activations, token_log_probs_backward(logits, targets, sft.gradient),
                   model_gradient);
    LoraAdapter gradient = zeros_like(adapter);
    lora_backward(adapter, model_gradient, gradient);
    CHECK(sft.loss == doctest::Approx(fixture<1>("14_fine_tuning/lora_loss")(0)));
    CHECK_CLOSE(all_values(named_parameters(gradient)),
                fixture<1>("14_fine_tuning/lora_gradients"), 2e-6);
    lora_backward(adapter, model_gradient, gradient);
    CHECK_CLOSE(all_values(named_parameters(gradient)),
                fixture<1>("14_fine_tuning/lora_gradients") * Real(2), 2e-6);
}

TEST_CASE("A merged linear layer computes what the unmerged one does, with its bias") {
    Generator generator(3);
    const Linear linear = make_linear(7, 5, true, generator);
    const LoraLayer layer{"", randn({2, 7}, generator), randn({5, 2}, generator)};
    const Matrix inputs = randn({4, 7}, generator);
    Linear merged = linear;
    for (const auto [o, i, k] : every_index(5, 7, 2))
        merged.weight(o, i) += Real(0.25) * layer.lora_B(o, k) * layer.lora_A(k, i);
    CHECK_CLOSE(lora_linear(linear, layer, Real(0.25), inputs), merged(inputs), 1e-6);
}

TEST_CASE("merge_lora adds s B A to the target modules, and unmerge_lora subtracts it") {
    Model model = fixture_model();
    const LoraAdapter adapter = random_lora(model);
    Model merged = merge_lora(model, adapter);
    const std::size_t width = model.layers[0].mlp.down_proj.weight.shape(1);
    const Matrix inputs = xt::ones<Real>({std::size_t(2), width});
    CHECK_CLOSE(merged.layers[0].mlp.down_proj(inputs),
                lora_linear(model.layers[0].mlp.down_proj, adapter.layers[1], 2, inputs), 1e-6);
    CHECK_CLOSE(merged.layers[0].mlp.up_proj.weight, model.layers[0].mlp.up_proj.weight, 0);
    merge_lora(model, adapter, merged);  // again from the base: the same, not twice
    CHECK_CLOSE(
        all_values(merged),
        [&] {
            Model once = merge_lora(model, adapter);
            return all_values(once);
        }(),
        0);
    unmerge_lora(merged, adapter);
    CHECK_CLOSE(all_values(merged), all_values(model), 1e-6);
}

TEST_CASE("LoRA counts: r (in + out) parameters per layer, and rsLoRA divides by the root") {
    const Model model = fixture_model();
    const LoraAdapter adapter = random_lora(model);
    std::uint64_t expected = 0;
    for (const auto& [name, linear] : named_linears(model))
        if (name.ends_with("q_proj") || name.ends_with("down_proj"))
            expected += 3 * (linear->weight.shape(0) + linear->weight.shape(1));
    CHECK(num_parameters(adapter) == expected);
    CHECK(num_parameters(adapter) < count_parameters(model).total());
    CHECK(optimizer_bytes(1000) == 8000);
    LoraConfig config;
    config.r = 16;
    config.lora_alpha = 8;
    CHECK(config.scaling() == Real(0.5));
    config.use_rslora = true;
    CHECK(config.scaling() == 2);
}

TEST_CASE(
    "An adapter has its layers in the order of the model, whatever its configuration says") {
    const Model model = fixture_model();
    Generator generator(1);
    LoraConfig config;
    config.target_modules = {"up_proj", "gate_proj", "v_proj"};
    const LoraAdapter adapter = make_lora(model, config, generator);
    const std::vector<std::string> expected = {"self_attn.v_proj", "mlp.gate_proj",
                                               "mlp.up_proj"};
    for (std::size_t i = 0; i < 3; ++i)
        CHECK(adapter.layers[i].name == "model.layers.0." + expected[i]);
}

TEST_CASE("LoRA names ranks, modules and shapes that do not fit") {
    const Model model = fixture_model();
    Generator generator(1);
    LoraConfig config;
    config.target_modules = {};
    CHECK_THROWS_WITH_AS(make_lora(model, config, generator),
                         "LoRA: there are no target_modules", ValueError);
    config.target_modules = {"q_proj", "c_attn"};
    CHECK_THROWS_WITH_AS(
        make_lora(model, config, generator),
        "LoRA: target_modules has c_attn, which is no linear layer of this model", ValueError);
    config.r = 0;
    CHECK_THROWS_WITH_AS(make_lora(model, config, generator), "LoRA: the rank r is 0",
                         ValueError);
    LoraAdapter adapter = random_lora(model);
    adapter.layers[0].name = "model.layers.9.self_attn.q_proj";
    CHECK_THROWS_WITH_AS(merge_lora(model, adapter),
                         "LoRA: the model has no linear layer model.layers.9.self_attn.q_proj",
                         ValueError);

    // A must be (r, in) and B (out, r).
    const auto [out, in] = dims(model.layers[0].mlp.down_proj.weight);
    using Shape = std::array<std::size_t, 2>;
    for (const auto& [a, b] : {std::pair<Shape, Shape>{{3, in}, {out, 4}},
                               {{3, in + 1}, {out, 3}},
                               {{3, in}, {out + 1, 3}}}) {
        adapter = random_lora(model);
        adapter.layers[1].lora_A = xt::ones<Real>(a);
        adapter.layers[1].lora_B = xt::ones<Real>(b);
        const std::string message = "LoRA: A of " + to_text(a) + " and B of " + to_text(b) +
                                    " do not fit model.layers.0.mlp.down_proj.weight of " +
                                    to_text(Shape{out, in});
        CHECK_THROWS_WITH_AS(check_adapter(model, adapter), message.c_str(), ValueError);
        CHECK_THROWS_WITH_AS(merge_lora(model, adapter), message.c_str(), ValueError);
    }
}
