// The decoder of chapter 18 against those of chapters 12 and 17, and training runs.
#include "chapters/12_gradients/model_backward.hpp"
#include "chapters/18_experts/moe_training.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

namespace {

const IdMatrix targets{{16, 0, 5, 5, 2}, {1, 2, 3, 4, 9}};  // (B, T)

Config decoder_config() {
    Config config = small_config();
    config.tie_word_embeddings = true;
    return config;
}

// Weights that give sensible probabilities.
MoeDecoder decoder_of(const Model& model) {
    return with_layers(model, [&](const PreNormBlock& layer) {
        return MoeBlock{
            make_pattern_attention(layer.self_attn, model.config.head_dim, FullAttention{}),
            layer.mlp, layer.attention_norm, layer.ffn_norm};
    });
}
Model test_model() {
    Generator generator(5);
    Model model = make_model(decoder_config(), generator);
    init_normal(model, Real(0.3), generator);
    return model;
}

MoeDecoder test_decoder(const ExpertSizes& sizes, const Routing& routing) {
    Generator generator(7);
    return make_moe_decoder(decoder_config(), sizes, routing, generator);
}

TrainingArguments short_run(std::size_t num_steps) {
    TrainingArguments args;
    args.batch_size = 2;
    args.seq_len = 6;
    args.lr_schedule = {Real(0.01), Real(0.001), 1, num_steps};
    return args;
}
std::vector<Id> test_tokens() {
    Generator generator(3);
    std::vector<Id> tokens(300);
    for (Id& token : tokens) token = static_cast<Id>(generator.next_32_bits() % 11);
    return tokens;
}

}  // namespace

TEST_CASE("with dense MLPs, loss and gradients are those of chapter 12's model") {
    const Model model = test_model();
    Model expected = zeros_like(model);
    const double loss = forward_backward(model, small_ids, targets, expected);
    const MoeDecoder decoder = decoder_of(model);
    MoeDecoder gradient = zeros_like(decoder);
    CHECK(forward_backward(decoder, small_ids, targets, {{1, 1}}, gradient).cross_entropy ==
          doctest::Approx(loss).epsilon(1e-6));
    check_parameters(named_parameters(gradient), named_parameters(expected));
    CHECK_CLOSE(decoder(small_ids), model(small_ids), 1e-5);
}

TEST_CASE("a mixture of equal experts is a dense model") {
    const Model model = test_model();
    const MoeDecoder dense = decoder_of(model);
    MoeDecoder moe = dense;
    Generator generator(2);
    for (std::size_t n = 0; n < moe.layers.size(); ++n)
        moe.layers[n].mlp = MixtureOfExperts{
            make_linear(model.config.hidden_size, 3, false, generator),
            std::vector<Expert>(3, model.layers[n].mlp), std::nullopt, 2, SoftmaxRouting{}};
    CHECK_CLOSE(moe(small_ids), dense(small_ids), 1e-5);
}

TEST_CASE("the model, run_layers with blocks, and forward_backward compute the same") {
    const MoeDecoder decoder = test_decoder({4, 2, 6, 1}, SoftmaxRouting{});
    const Tensor3 logits = decoder(small_ids);
    const std::vector<RoutedTokens> routed = routed_tokens(decoder, small_ids);
    const PatternAttentionInputs inputs = pattern_attention_inputs(
        rotary_tables(decoder.config, small_ids.shape(1)), small_ids.shape(1));
    std::vector<RollingCache>* const no_caches = nullptr;
    const Tensor3 last_hidden_state =
        run_layers(decoder.layers, embedding(decoder.embed_tokens, small_ids), inputs,
                   no_caches)
            .last_hidden_state;
    CHECK_CLOSE((Linear{decoder.embed_tokens, std::nullopt}(decoder.norm(last_hidden_state))),
                logits, 1e-6);
    REQUIRE(routed.size() == decoder.layers.size());
    CHECK(routed[0].experts.shape() == std::array<std::size_t, 2>{10, 2});
    MoeDecoder gradient = zeros_like(decoder);
    const MoeLoss loss = forward_backward(decoder, small_ids, targets, {}, gradient);
    CHECK(loss.cross_entropy ==
          doctest::Approx(mean_cross_entropy(decoder, {Batch{small_ids, targets}})));
    CHECK_CLOSE(loss.load[1], expert_load(routed[1].experts, 4), 1e-6);
    CHECK(loss.num_choices == 40);
    CHECK(loss.num_dropped == 0);
}

TEST_CASE("the losses of all routers are added up, and their gradients reach the routers") {
    const MoeDecoder decoder = test_decoder({4, 2, 6, 0}, SoftmaxRouting{});
    MoeDecoder gradient = zeros_like(decoder), with_losses = gradient;
    const MoeLoss loss = forward_backward(decoder, small_ids, targets, {}, gradient);
    forward_backward(decoder, small_ids, targets, {{Real(0.5), Real(0.25)}}, with_losses);
    CHECK(loss.aux_loss >= 1.9);  // about 1 for each of two layers
    CHECK(loss.z_loss == doctest::Approx(2 * std::log(4) * std::log(4)).epsilon(0.1));
    for (std::size_t n = 0; n < decoder.layers.size(); ++n) {
        const auto router = [&](MoeDecoder& part) -> Matrix& {
            return std::get<MixtureOfExperts>(part.layers[n].mlp).router.weight;
        };
        CHECK(xt::amax(xt::abs(router(with_losses) - router(gradient)))() > Real(1e-3));
    }
}

TEST_CASE("names and numbers of the parameters, of which the correction bias is none") {
    MoeDecoder decoder = test_decoder({4, 2, 6, 1}, SigmoidRouting{xt::zeros<Real>({4})});
    std::size_t count = 0;
    std::string names;
    for (const Parameter& parameter : named_parameters(decoder)) {
        count += parameter.values.size();
        names += parameter.name + " ";
    }
    CHECK(names.find("model.layers.1.mlp.gate.weight ") != std::string::npos);
    CHECK(names.find("model.layers.1.mlp.experts.3.down_proj.weight ") != std::string::npos);
    CHECK(names.find("model.layers.0.mlp.shared_experts.up_proj.weight ") != std::string::npos);
    const Config config = decoder_config();
    const std::size_t dense = count_parameters(config).total() - count_parameters(config).mlp;
    CHECK(count == dense + config.num_hidden_layers * config.hidden_size * (4 + 5 * 3 * 6));
}

TEST_CASE("attention sinks are parameters, whose gradients begin at 0") {
    MoeDecoder decoder = test_decoder({4, 2, 6, 0}, SoftmaxRouting{});
    const std::size_t without_sinks = named_parameters(decoder).size();
    const std::size_t num_heads = decoder_config().num_attention_heads;
    for (MoeBlock& layer : decoder.layers)
        layer.self_attn.score_mod.sinks = xt::ones<Real>({num_heads});
    CHECK(named_parameters(decoder).size() == without_sinks + decoder.layers.size());
    const MoeDecoder gradient = zeros_like(decoder);
    for (const MoeBlock& layer : gradient.layers)
        CHECK(*layer.self_attn.score_mod.sinks == Vector(xt::zeros<Real>({num_heads})));
}

TEST_CASE("train_moe lowers the loss and reports losses, loads and dropped tokens") {
    MoeDecoder decoder = test_decoder({4, 2, 6, 0}, SoftmaxRouting{});
    Generator generator(1);
    set_capacity_factor(decoder, 0.5);
    const MoeRun run = train_moe(decoder, short_run(60), {}, test_tokens(), generator);
    REQUIRE(run.losses.size() == 60);
    CHECK(run.losses.back() < run.losses.front() - Real(0.2));
    REQUIRE(run.load.size() == 60);
    REQUIRE(run.load[0].size() == decoder.layers.size());
    CHECK(double(xt::sum(run.load[59][1])()) == doctest::Approx(1));
    CHECK(run.dropped >= 0.5);  // half of the choices fit at most
    CHECK(run.dropped < 0.9);
}

TEST_CASE("train_moe: the load-balancing loss balances the load") {
    const auto violation_with = [](Real coefficient) {
        MoeDecoder decoder = test_decoder({4, 1, 6, 0}, SoftmaxRouting{false});
        Generator generator(1);
        BalanceArguments balance;
        balance.coefficients.aux_loss = coefficient;
        const MoeRun run = train_moe(decoder, short_run(60), balance, test_tokens(), generator);
        double sum = 0;
        for (std::size_t step = 40; step < 60; ++step)
            sum += max_violation(run.load[step][0]) / 20;
        return sum;
    };
    CHECK(violation_with(1) < 0.5 * violation_with(0));
}

TEST_CASE("train_moe clips gradients") {
    MoeDecoder decoder = test_decoder({4, 2, 6, 0}, SoftmaxRouting{});
    Generator generator(1);
    TrainingArguments args = short_run(30);
    args.max_grad_norm = 1e-12;  // far below the eps of AdamW: no step
    const MoeRun run = train_moe(decoder, args, {}, test_tokens(), generator);
    CHECK(std::abs(run.losses.back() - run.losses.front()) < Real(0.05));
}

TEST_CASE("tokens are dropped in training, not when a model is evaluated") {
    MoeDecoder decoder = test_decoder({4, 2, 6, 0}, SoftmaxRouting{});
    MoeDecoder gradient = zeros_like(decoder);
    set_capacity_factor(decoder, 0.25);
    const MoeLoss loss = forward_backward(decoder, small_ids, targets, {}, gradient);
    CHECK(loss.num_dropped > 0);
    CHECK(loss.cross_entropy != doctest::Approx(cross_entropy(decoder(small_ids), targets)));
}

TEST_CASE("only the bias update changes the correction bias") {
    const SigmoidRouting routing{xt::zeros<Real>({4})};
    for (const Real rate : {Real(0), Real(0.01)}) {
        MoeDecoder decoder = test_decoder({4, 2, 6, 0}, routing);
        Generator generator(1);
        BalanceArguments balance;
        balance.bias_update_rate = rate;
        train_moe(decoder, short_run(10), balance, test_tokens(), generator);
        const auto& moe = std::get<MixtureOfExperts>(decoder.layers[1].mlp);
        const Vector& bias = std::get<SigmoidRouting>(moe.routing).e_score_correction_bias;
        CHECK((xt::amax(xt::abs(bias))() > 0) == (rate > 0));
    }
}

TEST_CASE("the decoder names a token id outside the vocabulary") {
    MoeDecoder decoder = test_decoder({4, 2, 6, 0}, SoftmaxRouting{});
    MoeDecoder gradient = zeros_like(decoder);
    CHECK_THROWS_WITH_AS(decoder({{99}}), "model: there is no token 99 in a vocabulary of 17",
                         ValueError);
    CHECK_THROWS_AS(forward_backward(decoder, {{-1}}, {{1}}, {}, gradient), ValueError);
}
