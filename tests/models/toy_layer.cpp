// An architecture costs a layer type: one that is defined here, with its forward and backward
// pass and its cache, is a model that trains, generates and has checkpoints.
#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/12_gradients/linear_backward.hpp"
#include "chapters/13_training/training_loop.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"

namespace llm {
namespace {

// Instead of attention: each token sees the mean of all tokens so far, its own included.
struct CausalMean {
    Linear o_proj;  // (C, C)

    struct Cache {
        Matrix sum = xt::zeros<Real>({0, 0});     // (B, C), empty at first
        bool crop(std::size_t) { return false; }  // a sum forgets its summands
    };
    struct Inputs {
        std::size_t past_len = 0;
        static Inputs make(const std::vector<RotaryTable>&, std::size_t, std::size_t,
                           std::size_t past_len = 0) {
            return {past_len};
        }
    };
    Cache make_cache() const { return {}; }
    BlockOutput operator()(const Tensor3& hidden_states, const Inputs& inputs,
                           Cache* cache) const;
};

// The means, (B, T, C), of tokens that follow past_len others with this sum, which is updated.
Tensor3 causal_means(const Tensor3& hidden_states, std::size_t past_len, Matrix& sum) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    if (sum.size() == 0) sum = xt::zeros<Real>({batch_size, width});
    Tensor3 means(hidden_states.shape());
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t t = 0; t < seq_len; ++t)
            for (std::size_t c = 0; c < width; ++c) {
                sum(b, c) += hidden_states(b, t, c);
                means(b, t, c) = sum(b, c) / static_cast<Real>(past_len + t + 1);
            }
    return means;
}

BlockOutput CausalMean::operator()(const Tensor3& hidden_states, const Inputs& inputs,
                                   Cache* cache) const {
    Cache unused;
    return {o_proj(causal_means(hidden_states, inputs.past_len, (cache ? *cache : unused).sum)),
            {}};
}

struct CausalMeanActivations {
    Tensor3 means;  // (B, T, C)
};

ForwardPass<CausalMeanActivations> attention_forward(const CausalMean& layer,
                                                     const Tensor3& input,
                                                     const CausalMean::Inputs& inputs,
                                                     Generator*) {
    Matrix sum = xt::zeros<Real>({0, 0});
    const Tensor3 means = causal_means(input, inputs.past_len, sum);
    return {layer.o_proj(means), {means}};
}

Tensor3 attention_backward(const CausalMean& layer, const CausalMean::Inputs& inputs,
                           const CausalMeanActivations& saved, const Tensor3& output_gradient,
                           CausalMean& gradient) {
    const Tensor3 means_gradient =
        linear_backward(layer.o_proj, saved.means, output_gradient, gradient.o_proj);
    const auto [batch_size, seq_len, width] = dims(means_gradient);
    Tensor3 input_gradient(means_gradient.shape());
    for (std::size_t b = 0; b < batch_size; ++b)
        for (std::size_t c = 0; c < width; ++c) {
            Real sum = 0;
            for (std::size_t t = seq_len; t-- > 0;) {
                sum += means_gradient(b, t, c) / static_cast<Real>(inputs.past_len + t + 1);
                input_gradient(b, t, c) = sum;
            }
        }
    return input_gradient;
}

void add_parameters(ParameterList& list, const std::string& name, CausalMean& layer) {
    add_parameters(list, name + ".o_proj", layer.o_proj);
}

using ToyModel = DecoderModel<PreNormBlockWith<RMSNorm, GatedMlp, CausalMean>>;

ToyModel make_toy_model(std::uint32_t seed) {
    Config config;
    config.hidden_size = 12;
    config.num_attention_heads = config.num_key_value_heads = 2;
    config.intermediate_size = 20;
    config.num_hidden_layers = 2;
    config.vocab_size = 7;
    config.max_position_embeddings = 40;
    config = validate_model(config);
    Generator generator(seed);
    const RMSNorm norm = make_rms_norm(12, config.rms_norm_eps);
    ToyModel model{config, randn({7, 12}, generator), {}, norm, std::nullopt};
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n)
        model.layers.push_back({{make_linear(12, 12, false, generator)},
                                make_gated_mlp(12, 20, false, SiLU, generator),
                                norm,
                                norm});
    return model;
}

// 0 1 2 3 4 5 6 0 1 ...
const IdMatrix toy_ids{{0, 1, 2, 3, 4, 5, 6, 0, 1}}, toy_targets{{1, 2, 3, 4, 5, 6, 0, 1, 2}};

}  // namespace

TEST_CASE("a layer type of a test: the gradient of each parameter, against differences") {
    ToyModel model = make_toy_model(3), gradient = zeros_like(model);
    forward_backward(model, toy_ids, toy_targets, gradient);
    const auto parameters = named_parameters(model), gradients = named_parameters(gradient);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        CAPTURE(parameters[p].name);
        Real& value = parameters[p].values[5];
        const Real before = value;
        value = before + Real(0.01);
        const double above = evaluate_loss(model, toy_ids, toy_targets);
        value = before - Real(0.01);
        const double below = evaluate_loss(model, toy_ids, toy_targets);
        value = before;
        CHECK((above - below) / 0.02 ==
              doctest::Approx(double(gradients[p].values[5])).epsilon(0.02).scale(0.05));
    }
}

TEST_CASE("a layer type of a test trains, generates with a cache, and has checkpoints") {
    ToyModel model = make_toy_model(3);
    TrainingArguments args;
    args.lr_schedule = {Real(0.02), Real(0.002), 10, 150};
    args.weight_decay = 0;
    const std::vector<Real> losses =
        run_training_loop<ToyModel>(model, args, [&](ToyModel& gradient) {
            return forward_backward(model, toy_ids, toy_targets, gradient);
        });
    REQUIRE(losses.size() == 150);
    CHECK(losses.front() > 1);
    CHECK(losses.back() < Real(0.05));

    GenerationConfig config;
    config.sampling.temperature = 0;
    config.max_new_tokens = 6;
    for (const bool use_cache : {true, false}) {
        config.use_cache = use_cache;
        Generator generator(1);
        CHECK(generate(model, {0, 1, 2}, config, generator).ids ==
              std::vector<Id>{3, 4, 5, 6, 0, 1});
    }

    const Scratch scratch;
    const std::string file = (scratch.folder / "toy.safetensors").string();
    save_parameters(named_parameters(model), file);
    ToyModel copy = make_toy_model(4);
    load_parameters(file, named_parameters(copy));
    CHECK_CLOSE(copy(toy_ids), model(toy_ids), 0);

    copy.lm_head = copy.embed_tokens;
    CHECK_THROWS_WITH_AS(load_parameters(file, named_parameters(copy)),
                         (file + ": tensor lm_head.weight of shape (7, 12) is missing").c_str(),
                         FileError);
    ToyModel shorter = make_toy_model(4);
    shorter.layers.pop_back();
    CHECK_THROWS_WITH_AS(
        load_parameters(file, named_parameters(shorter)),
        (file + ": the model has no tensor model.layers.1.input_layernorm.weight").c_str(),
        FileError);
}

}  // namespace llm
