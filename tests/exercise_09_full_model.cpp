#include "chapters/09_full_model/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

Config small_config() {
    Config config = mini_llm_config();
    config.hidden_size = 12;
    config.intermediate_size = 16;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 6;
    config.num_key_value_heads = 2;
    config.head_dim = 6;
    config.vocab_size = 9;
    return validate_model(config);
}

Model small_model(bool tied) {
    Config config = small_config();
    config.tie_word_embeddings = tied;
    Generator generator(9);
    Model model = make_model(config, generator);
    for (Real& weight : model.norm.weight) weight = generator.next_uniform() + Real(0.5);
    return model;
}

const IdMatrix ids{{1, 5, 8}, {0, 2, 2}};

}  // namespace

TEST_CASE("9.1 find the bug: the tied head") {
    const Matrix hidden_states{{1, 2}, {3, 4}}, embed_tokens{{1, 0}, {0, 1}, {1, 1}};
    INFO("logit v is the dot product of a hidden state and row v of embed_tokens");
    CHECK_CLOSE(tied_logits(hidden_states, embed_tokens), (Matrix{{1, 2, 3}, {3, 4, 7}}), 1e-6);
}

TEST_CASE("9.2 find the bug: overconfident probabilities") {
    INFO("the logits of the lesson's model, tied and untied");
    for (const bool tied : {true, false})
        CHECK_CLOSE(model_logits(small_model(tied), ids), small_model(tied)(ids), 1e-5);
}

TEST_CASE("9.3 find the bug: correct for Llama-2-7B, wrong for 70B") {
    const Config config = small_config();
    Generator generator(3);
    const Projections stored = make_projections(config, generator);
    const Projections loaded = from_meta(stored, config);
    {
        INFO("q_proj: the rows of each of the 6 query heads are reordered");
        CHECK_CLOSE(loaded.q_proj.weight, interleaved_to_split_half(stored.q_proj, 6).weight,
                    0);
    }
    {
        INFO("k_proj: the rows of each of the 2 key heads are reordered");
        CHECK_CLOSE(loaded.k_proj.weight, interleaved_to_split_half(stored.k_proj, 2).weight,
                    0);
    }
    INFO("RoPE is not applied to values, so v_proj is unchanged");
    CHECK_CLOSE(loaded.v_proj.weight, stored.v_proj.weight, 0);
}

TEST_CASE("9.4 find the bug: correct for Llama 3, wrong for Qwen3") {
    Config config = small_config();
    const Matrix small{{Real(0.001), Real(-0.001)}};
    for (const Real eps : {Real(1e-6), Real(1e-5), Real(1e-3)}) {
        config.rms_norm_eps = eps;
        INFO("hidden states of about 0.001, with the rms_norm_eps of the configuration");
        CHECK_CLOSE(make_checkpoint_norm(config, Vector{1, 2})(small),
                    (RMSNorm{Vector{1, 2}, eps}(small)), 1e-6);
    }
}

TEST_CASE("9.5 write memory_bytes") {
    const Config config = small_config();
    const std::size_t parameters = count_parameters(config).total();
    INFO("the parameters alone");
    CHECK(memory_bytes(config, 2, 0) == 2 * parameters);
    INFO("and 5 tokens: 2 layers, keys and values, 2 heads of 6 features, 4 bytes each");
    CHECK(memory_bytes(config, 4, 5) == 4 * parameters + 5 * 2 * 2 * 2 * 6 * 4);
    CHECK(memory_bytes(config, 2, 5) == 2 * parameters + 5 * 2 * 2 * 2 * 6 * 2);
    INFO("a configuration whose head_dim is 0: 12 / 6 = 2");
    Config incomplete = config;
    incomplete.head_dim = 0;
    CHECK(memory_bytes(incomplete, 2, 5) - memory_bytes(incomplete, 2, 0) ==
          5 * 2 * 2 * 2 * 2 * 2);
}

TEST_CASE("9.6 write qwen2_projections") {
    StoredAttention stored;
    for (const std::string name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
        const Real start = static_cast<Real>(stored.weights.size());
        stored.weights[name + ".weight"] = counting({3, 2}) + start;
        if (name != "o_proj") stored.biases[name + ".bias"] = counting({3}) + start;
    }
    const Projections projections = qwen2_projections(stored);
    INFO("each projection has the weight of its name");
    CHECK_CLOSE(projections.q_proj.weight, counting({3, 2}), 0);
    CHECK_CLOSE(projections.k_proj.weight, counting({3, 2}) + Real(1), 0);
    CHECK_CLOSE(projections.v_proj.weight, counting({3, 2}) + Real(2), 0);
    CHECK_CLOSE(projections.o_proj.weight, counting({3, 2}) + Real(3), 0);
    INFO("q, k and v have biases, o has none");
    REQUIRE((projections.q_proj.bias && projections.k_proj.bias && projections.v_proj.bias));
    CHECK_FALSE(projections.o_proj.bias.has_value());
    CHECK_CLOSE(*projections.q_proj.bias, counting({3}), 0);
    CHECK_CLOSE(*projections.k_proj.bias, counting({3}) + Real(1), 0);
    CHECK_CLOSE(*projections.v_proj.bias, counting({3}) + Real(2), 0);
}

TEST_CASE("9.7 write last_logits") {
    for (const bool tied : {true, false}) {
        const Model model = small_model(tied);
        Generator generator(7);
        const Tensor3 hidden_states = randn({2, 3, 12}, generator);
        const Tensor3 all = model.logits(hidden_states);
        INFO("the logits of the last position of each sequence, after the final norm");
        CHECK_CLOSE(last_logits(model, hidden_states), Matrix(xt::view(all, xt::all(), 2)),
                    1e-5);
    }
}
