#include "chapters/09_full_model/exercise.hpp"
#include "tests/check.hpp"

using namespace exercise;

namespace {

ModelConfig small_config() {
    ModelConfig config;
    config.hidden_size = 12;
    config.intermediate_size = 16;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 6;
    config.num_key_value_heads = 2;
    config.head_dim = 6;
    config.vocab_size = 9;
    return complete(config);
}

Model small_model(bool tied) {
    ModelConfig config = small_config();
    config.tie_word_embeddings = tied;
    Generator generator(9);
    Model model = make_model(config, generator);
    for (Real& weight : model.norm.weight) weight = generator.next_uniform() + Real(0.5);
    return model;
}

const IdMatrix ids{{1, 5, 8}, {0, 2, 2}};

}  // namespace

TEST_CASE("9.1 find the bug: vectors torn up") {
    const Matrix rows{{1, 2}, {3, 4}}, embed_tokens{{1, 0}, {0, 1}, {1, 1}};
    INFO("logit v is the dot product with row v of the embedding");
    CHECK_CLOSE(tied_logits(rows, embed_tokens), (Matrix{{1, 2, 3}, {3, 4, 7}}), 1e-6);
}

TEST_CASE("9.2 find the bug: too certain") {
    INFO("the logits of the lesson's model");
    for (const bool tied : {true, false})
        CHECK_CLOSE(model_logits(small_model(tied), ids), small_model(tied)(ids), 1e-5);
}

TEST_CASE("9.3 find the bug: right for Llama-2-7B") {
    const ModelConfig config = small_config();
    Generator generator(3);
    const Projections stored = make_projections(config, generator);
    const Projections loaded = from_meta(stored, config);
    {
        INFO("query heads are reordered as before");
        CHECK_CLOSE(loaded.q_proj.weight, interleaved_to_split_half(stored.q_proj, 6).weight,
                    0);
    }
    {
        INFO("each key head is reordered within itself");
        CHECK_CLOSE(loaded.k_proj.weight, interleaved_to_split_half(stored.k_proj, 2).weight,
                    0);
    }
    INFO("values are not rotated, so they stay as they are");
    CHECK_CLOSE(loaded.v_proj.weight, stored.v_proj.weight, 0);
}

TEST_CASE("9.4 find the bug: right for Llama 3") {
    ModelConfig config = small_config();
    const Matrix small{{Real(0.001), Real(-0.001)}};
    for (const Real eps : {Real(1e-6), Real(1e-5), Real(1e-3)}) {
        config.rms_norm_eps = eps;
        INFO("numbers of about 0.001, with the eps of the configuration");
        CHECK_CLOSE(norm_of(config, Vector{1, 2})(small), (RMSNorm{Vector{1, 2}, eps}(small)),
                    1e-6);
    }
}

TEST_CASE("9.5 write memory_bytes") {
    const ModelConfig config = small_config();
    const std::size_t parameters = count_parameters(config).total();
    INFO("the weights alone");
    CHECK(memory_bytes(config, 2, 0) == 2 * parameters);
    INFO("and 5 tokens: 2 layers, keys and values, 2 heads of 6 numbers, 4 bytes each");
    CHECK(memory_bytes(config, 4, 5) == 4 * parameters + 5 * 2 * 2 * 2 * 6 * 4);
    CHECK(memory_bytes(config, 2, 5) == 2 * parameters + 5 * 2 * 2 * 2 * 6 * 2);
    INFO("a configuration without head_dim: 12 / 6 = 2");
    ModelConfig incomplete = config;
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
    INFO("every weight under its name");
    CHECK_CLOSE(projections.q_proj.weight, counting({3, 2}), 0);
    CHECK_CLOSE(projections.k_proj.weight, counting({3, 2}) + Real(1), 0);
    CHECK_CLOSE(projections.v_proj.weight, counting({3, 2}) + Real(2), 0);
    CHECK_CLOSE(projections.o_proj.weight, counting({3, 2}) + Real(3), 0);
    INFO("biases for q, k and v, none for o");
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
        const Tensor3 stream = randn({2, 3, 12}, generator);
        const Tensor3 all = model.logits(stream);
        INFO("the last row of each sequence, with the final norm");
        CHECK_CLOSE(last_logits(model, stream), Matrix(xt::view(all, xt::all(), 2)), 1e-5);
    }
}
