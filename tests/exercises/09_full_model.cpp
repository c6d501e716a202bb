#include <cmath>

#include "chapters/09_full_model/exercise.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

Config small_config(std::size_t num_hidden_layers = 2) {
    Config config = mini_llm_config();
    config.hidden_size = 12;
    config.intermediate_size = 16;
    config.num_hidden_layers = num_hidden_layers;
    config.num_attention_heads = 6;
    config.num_key_value_heads = 2;
    config.head_dim = 6;
    config.vocab_size = 9;
    return validate_model(config);
}

void randomize(Vector& weight, Generator& generator) {
    for (Real& element : weight) element = generator.next_uniform() + Real(0.5);
}

// A model with random norms, so that no norm can be swapped or omitted.
Model small_model(bool tied, std::size_t num_hidden_layers = 2) {
    Config config = small_config(num_hidden_layers);
    config.tie_word_embeddings = tied;
    config.rms_norm_eps = Real(0.01);
    config.rope_theta = 100;
    Generator generator(9);
    Model model = make_model(config, generator);
    randomize(model.norm.weight, generator);
    for (PreNormBlock& layer : model.layers) {
        randomize(layer.attention_norm.weight, generator);
        randomize(layer.ffn_norm.weight, generator);
    }
    return model;
}

const IdMatrix ids{{1, 5, 8}, {0, 2, 2}};

// The right weights of a model, for the steps after load_weights.
LayerWeights weights_of(const PreNormBlock& layer) {
    const Projections& projections = layer.self_attn.projections;
    return {projections.q_proj.weight,  projections.k_proj.weight,   projections.v_proj.weight,
            projections.o_proj.weight,  layer.mlp.gate_proj.weight,  layer.mlp.up_proj.weight,
            layer.mlp.down_proj.weight, layer.attention_norm.weight, layer.ffn_norm.weight};
}

Weights weights_of(const Model& model) {
    Weights weights{model.embed_tokens, {}, model.norm.weight};
    for (const PreNormBlock& layer : model.layers) weights.layers.push_back(weights_of(layer));
    return weights;
}

Vector last_row(const Tensor3& logits) { return xt::view(logits, 0, logits.shape(1) - 1); }

}  // namespace

TEST_CASE("9.1 predict the logits of a tiny model") {
    const Vector prediction = predicted_logits();
    Config config = small_config();
    config.vocab_size = 3;
    const Model model{
        config, Matrix{{1, 0}, {0, 1}, {1, -1}}, {}, RMSNorm{Vector{10, 5}, Real(1e-6)}, {}};
    INFO("the logits of the three tokens");
    CHECK_CLOSE(prediction, reshape(model.logits(Tensor3{{{1, 7}}}), {3}), 0.001);
}

TEST_CASE("9.2 predict two losses") {
    const Vector prediction = predicted_losses();
    const double trained = -(std::log(0.5) + std::log(0.25) + std::log(0.125)) / 3;
    REQUIRE(prediction.size() == 2);
    {
        INFO("the loss of equal probabilities for 65,536 tokens");
        CHECK_CLOSE(Vector{prediction(0)}, Vector{Real(std::log(65536.0))}, 0.005);
    }
    INFO("the loss of the probabilities 0.5, 0.25 and 0.125");
    CHECK_CLOSE(Vector{prediction(1)}, Vector{Real(trained)}, 0.05);
}

TEST_CASE("9.3 predict the number of parameters") {
    const Vector prediction = predicted_parameter_counts();
    Config config = mini_llm_config();
    config.vocab_size = 1000;
    config.hidden_size = 64;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 16;
    config.intermediate_size = 128;
    const std::size_t tied = count_parameters(config).total();
    config.tie_word_embeddings = false;
    INFO("the number of parameters with a tied head, and with an untied one");
    CHECK_CLOSE(prediction, (Vector{Real(tied), Real(count_parameters(config).total())}), 0);
}

TEST_CASE("9.4 predict which logits change") {
    const Vector prediction = predicted_changes();
    const Model model = small_model(true);
    const Tensor3 before = model(IdMatrix{{1, 5, 8, 0, 2}}), after = model({{1, 5, 3, 0, 2}});
    Vector changes = xt::zeros<Real>({5});
    for (const auto [t, v] : every_index(5, 9))
        if (std::abs(before(0, t, v) - after(0, t, v)) > Real(1e-4)) changes(t) = 1;
    INFO("the positions whose logits change: 1, the others: 0");
    CHECK_CLOSE(prediction, changes, 0);
}

TEST_CASE("9.5 find the bug: a loss of 0 before training") {
    const Tensor3 logits{{{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}};
    {
        INFO("equal logits of four tokens: ln 4");
        CHECK(next_token_loss(logits, {{1, 2, 3}}) == doctest::Approx(std::log(4.0)));
    }
    const Tensor3 confident{{{0, 20, 0, 0}, {0, 0, 20, 0}, {0, 0, 0, 20}}};
    {
        INFO("ids 1, 2, 3, and logits of 20 for the input tokens 1, 2, 3");
        CHECK(next_token_loss(confident, {{1, 2, 3}}) == doctest::Approx(20).epsilon(0.001));
    }
    INFO("ids 0, 1, 2, and logits of 20 for the next tokens 1, 2, 3");
    CHECK(next_token_loss(confident, {{0, 1, 2}}) < 0.001);
}

TEST_CASE("9.6 find the bug: right with one layer") {
    INFO("the logits of the lesson's model");
    for (const std::size_t num_hidden_layers : {1, 2, 3})
        for (const bool tied : {true, false}) {
            const Model model = small_model(tied, num_hidden_layers);
            CHECK_CLOSE(model_logits(model, ids), model(ids), 1e-5);
        }
}

TEST_CASE("9.7 write memory_bytes") {
    const Config config = small_config();
    const std::size_t parameters = count_parameters(config).total();
    {
        INFO("the parameters alone");
        CHECK(memory_bytes(config, 2, 0) == 2 * parameters);
    }
    {
        INFO("and 5 tokens: 2 layers, keys and values, 2 heads of 6 features, 4 bytes each");
        CHECK(memory_bytes(config, 4, 5) == 4 * parameters + 5 * 2 * 2 * 2 * 6 * 4);
        CHECK(memory_bytes(config, 2, 5) == 2 * parameters + 5 * 2 * 2 * 2 * 6 * 2);
    }
    INFO("a configuration whose head_dim is 0: 12 / 6 = 2");
    Config incomplete = config;
    incomplete.head_dim = 0;
    CHECK(memory_bytes(incomplete, 2, 5) - memory_bytes(incomplete, 2, 0) ==
          5 * 2 * 2 * 2 * 2 * 2);
}

TEST_CASE("9.8 write load_weights") {
    const Model model = models::load_model(asset("king_james"));
    const Weights loaded = load_weights(SafeTensors(asset("king_james")), model.config);
    const Weights right = weights_of(model);
    {
        INFO("the embedding and the final norm");
        CHECK_CLOSE(loaded.embed_tokens, right.embed_tokens, 0);
        CHECK_CLOSE(loaded.norm, right.norm, 0);
    }
    {
        INFO("the number of layers");
        REQUIRE(loaded.layers.size() == 4);
    }
    for (std::size_t n = 0; n < 4; ++n) {
        INFO("the tensors of layer " << n);
        CHECK_CLOSE(loaded.layers[n].q_proj, right.layers[n].q_proj, 0);
        CHECK_CLOSE(loaded.layers[n].k_proj, right.layers[n].k_proj, 0);
        CHECK_CLOSE(loaded.layers[n].v_proj, right.layers[n].v_proj, 0);
        CHECK_CLOSE(loaded.layers[n].o_proj, right.layers[n].o_proj, 0);
        CHECK_CLOSE(loaded.layers[n].gate_proj, right.layers[n].gate_proj, 0);
        CHECK_CLOSE(loaded.layers[n].up_proj, right.layers[n].up_proj, 0);
        CHECK_CLOSE(loaded.layers[n].down_proj, right.layers[n].down_proj, 0);
        CHECK_CLOSE(loaded.layers[n].input_layernorm, right.layers[n].input_layernorm, 0);
        CHECK_CLOSE(loaded.layers[n].post_attention_layernorm,
                    right.layers[n].post_attention_layernorm, 0);
    }
}

TEST_CASE("9.9 write attention_update") {
    const Model model = small_model(true);
    const PreNormBlock& layer = model.layers[1];
    Generator generator(7);
    const Tensor3 hidden_states = randn({1, 5, 12}, generator);
    const AttentionInputs inputs = causal_attention_inputs(model.rotary_table(5), 1, 5);
    INFO("the output of self_attn for the normalized hidden states, with H = 6 and Hkv = 2");
    CHECK_CLOSE(attention_update(weights_of(layer), model.config, hidden_states),
                layer.self_attn(layer.attention_norm(hidden_states), inputs).hidden_states,
                1e-5);
}

TEST_CASE("9.10 write mlp_update") {
    const Model model = small_model(true);
    const PreNormBlock& layer = model.layers[1];
    Generator generator(7);
    const Tensor3 hidden_states = randn({1, 5, 12}, generator);
    INFO("the output of mlp for the normalized hidden states");
    CHECK_CLOSE(mlp_update(weights_of(layer), model.config, hidden_states),
                layer.mlp(layer.ffn_norm(hidden_states)), 1e-5);
}

TEST_CASE("9.11 write next_token_logits") {
    const Model model = small_model(true);
    const Weights weights = weights_of(model);
    {
        INFO("a small model, the ids 1, 5, 8, 0: the logits after the last id");
        CHECK_CLOSE(next_token_logits(weights, model.config, {1, 5, 8, 0}),
                    last_row(model(IdMatrix{{1, 5, 8, 0}})), 1e-5);
    }
    {
        INFO("no ids, and ids that are not in the vocabulary of 9: a ValueError");
        CHECK_THROWS_AS(next_token_logits(weights, model.config, {}), ValueError);
        CHECK_THROWS_AS(next_token_logits(weights, model.config, {1, 9}), ValueError);
        CHECK_THROWS_AS(next_token_logits(weights, model.config, {-1, 1}), ValueError);
    }
    const Model shipped = models::load_model(asset("king_james"));
    INFO("the shipped model, \"And the LORD said unto\"");
    CHECK_CLOSE(
        next_token_logits(weights_of(shipped), shipped.config, {103, 66, 148, 195, 127}),
        last_row(shipped(IdMatrix{{103, 66, 148, 195, 127}})), 1e-5);
}

TEST_CASE("9.12 write greedy_ids") {
    const Config config = models::load_model(asset("king_james")).config;
    const Weights weights = load_weights(SafeTensors(asset("king_james")), config);
    {
        INFO("\"And God said\", and the 24 tokens that PyTorch appends");
        const IdMatrix text = id_fixture<2>("13_training/king_james_ids");
        CHECK(greedy_ids(weights, config, {103, 194, 195}, 24) ==
              std::vector<Id>(text.begin() + 3, text.end()));
    }
    {
        INFO("\"And the LORD said unto\", and 40 tokens");
        const std::vector<Id> expected = {494, 7,   624, 86,  142, 66,  148, 7,   104, 110,
                                          200, 266, 127, 171, 7,   75,  204, 120, 266, 126,
                                          64,  98,  9,   1,   103, 494, 195, 127, 66,  272,
                                          7,   624, 85,  204, 120, 266, 246, 660, 7,   204};
        CHECK(greedy_ids(weights, config, {103, 66, 148, 195, 127}, 40) == expected);
    }
    {
        INFO("a count of 0: no new tokens");
        CHECK(greedy_ids(weights, config, {103}, 0).empty());
    }
    INFO("max_position_embeddings is 256: a ValueError for 256 tokens and a new one");
    CHECK_THROWS_AS(greedy_ids(weights, config, std::vector<Id>(256, 103), 1), ValueError);
}
