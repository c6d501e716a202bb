// config.json of the model types of chapter 17: what is read, defaults, and what is rejected.
#include <nlohmann/json.hpp>

#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

namespace {

bool is_published(const std::string& type, const std::string& members) {
    const Scratch scratch;
    return is_family_config(config_json(scratch, type, members));
}

// W for a window, 0 for full attention.
std::vector<std::size_t> windows(const FamilyConfig& config) {
    std::vector<std::size_t> result;
    for (const LayerConfig& layer : config.layers) {
        result.push_back(window_of(layer).value_or(0));
    }
    return result;
}

using Windows = std::vector<std::size_t>;

}  // namespace

TEST_CASE("read_family_config: defaults of mistral, gemma2 and gemma3_text") {
    const FamilyConfig mistral = read("mistral", "");
    CHECK(mistral.head_dim == 4);
    CHECK(mistral.rope_theta == 10000);
    CHECK_FALSE(mistral.tie_word_embeddings);
    CHECK(windows(mistral) == Windows(8, 4096));
    CHECK(attention(mistral).scale == 0.5);
    CHECK_FALSE(mistral.final_logit_softcapping.has_value());

    const FamilyConfig gemma2 = read("gemma2", "");
    CHECK(gemma2.head_dim == 256);
    CHECK(gemma2.rope_theta == 10000);
    CHECK(gemma2.tie_word_embeddings);
    CHECK(attention(gemma2).qk_norm == QKNormType::none);
    CHECK(windows(gemma2) == Windows{4096, 0, 4096, 0, 4096, 0, 4096, 0});
    CHECK(attention(gemma2).scale == 1.0 / 16);
    CHECK(attention(gemma2).attn_logit_softcapping == Real(50));
    CHECK(gemma2.final_logit_softcapping == Real(30));
    CHECK(attention(gemma2, 0).rope == attention(gemma2, 1).rope);

    const FamilyConfig gemma3 = read("gemma3_text", "");
    CHECK(gemma3.rope_theta == 1'000'000);
    CHECK(attention(gemma3, 0).rope->rope_theta == 10'000);
    CHECK(attention(gemma3, 5).rope->rope_theta == 1'000'000);
    CHECK(scaling_of<std::monostate>(gemma3, 5));
    CHECK(gemma3.rms_norm_eps == Real(1e-6));
    CHECK(attention(gemma3).qk_norm == QKNormType::with_weights);
    CHECK(windows(gemma3) == Windows{4096, 4096, 4096, 4096, 4096, 0, 4096, 4096});
    CHECK_FALSE(attention(gemma3).attn_logit_softcapping.has_value());
    CHECK_FALSE(gemma3.final_logit_softcapping.has_value());
}

// Source: the configuration files of transformers 4.57.
// Those of a model whose hidden_size / num_attention_heads is 4; null: other names (gpt2).
TEST_CASE("read_family_config: the defaults of every family for keys that all have") {
    const nlohmann::json defaults =
        nlohmann::json::parse(content(fixture_path("models/defaults.json")));
    for (const Family* const family : families()) {
        const std::string& type = family->model_type;
        CAPTURE(type);
        REQUIRE(defaults.contains(type));
        const nlohmann::json& expected = defaults[type];
        if (expected.is_null()) continue;
        const FamilyConfig config =
            read(type, type == "deepseek_v2" ? R"("num_experts_per_tok": 6)" : "");
        // V, C, F, L, H, Hkv (0: H) and the positions, of a file without these keys.
        const ClassDefaults& sizes = family->defaults;
        CHECK(expected["sizes"] ==
              nlohmann::json({sizes.vocab_size, sizes.hidden_size, sizes.intermediate_size,
                              sizes.num_hidden_layers, sizes.num_attention_heads,
                              sizes.num_key_value_heads, sizes.max_position_embeddings}));
        CHECK(config.head_dim == expected["head_dim"].get<std::size_t>());
        CHECK(config.rms_norm_eps == Real(expected["rms_norm_eps"].get<double>()));
        CHECK(config.rope_theta == Real(expected["rope_theta"].get<double>()));
        CHECK(config.tie_word_embeddings == expected["tie_word_embeddings"].get<bool>());
    }
    CHECK(defaults.size() == families().size());
    const FamilyConfig granite = read("granite", "");
    CHECK(attention(granite).scale == 1);
    for (const Real multiplier :
         {granite.embedding_multiplier, granite.residual_multiplier, granite.logits_scaling})
        CHECK(multiplier == 1);
    CHECK(read("cohere2", "").logits_scaling == 16);
    const std::string longrope = R"("max_position_embeddings": 8192, "rope_scaling":
        {"type": "longrope", "short_factor": [1, 1], "long_factor": [2, 2]})";
    const Scratch scratch;
    const fs::path file = scratch.folder / "config.json";
    overwrite(file, R"({"model_type": "phi3", "num_hidden_layers": 2, )" + small_sizes + ", " +
                        longrope + "}");
    CHECK(scaling_of<LongRopeScaling>(read_family_config(JsonFile(file)))
              ->original_max_position_embeddings == 4096);
}

TEST_CASE("read_family_config: settings with two values, and older names of keys") {
    const FamilyConfig gemma = read("gemma2", R"("head_dim": 6)");
    CHECK(attention(gemma).scale == 1.0 / 16);
    CHECK(attention(read("gemma2", R"("head_dim": 6, "query_pre_attn_scalar": 9)")).scale ==
          1.0 / 3);
    CHECK(
        windows(read("gemma3_text", R"("sliding_window": 9, "_sliding_window_pattern": 2)")) ==
        Windows{9, 0, 9, 0, 9, 0, 9, 0});
    // The factor is that of the layers that see all.
    const FamilyConfig gemma3 =
        read("gemma3_text", R"("rope_scaling": {"type": "linear", "factor": 4})");
    CHECK(scaling_of<FrequencyFactors>(gemma3, 5)->factors(0) == 4);
    CHECK(scaling_of<std::monostate>(gemma3, 4));
    for (const std::string key : {"rms_norm_eps", "rope_theta", "query_pre_attn_scalar"})
        CHECK(mentions(rejection_of("gemma2", "\"" + key + "\": 0"), key + " must be above 0"));
}

TEST_CASE("is_family_config: Gemma, and mistral if a window hides tokens of its context") {
    CHECK(is_published("gemma2", ""));
    CHECK(is_published("gemma3_text", ""));
    CHECK(is_published("mistral", R"("sliding_window": 63)"));
    CHECK_FALSE(is_published("mistral", R"("sliding_window": 64)"));
    CHECK_FALSE(is_published("mistral", R"("sliding_window": null)"));
    CHECK_FALSE(is_published(
        "mistral", R"("sliding_window": null, "rope_parameters": {"rope_theta": 100})"));
    CHECK(is_published("llama", R"("mlp_bias": true)"));
    CHECK_FALSE(is_published("llama", R"("mlp_bias": false)"));
    CHECK(is_published("mixtral", ""));
}

TEST_CASE("read_family_config: layer_types wins over a pattern, null is no window") {
    CHECK(windows(read("gemma3_text", R"("sliding_window": 9, "sliding_window_pattern": 3)")) ==
          Windows{9, 9, 0, 9, 9, 0, 9, 9});
    CHECK(windows(read("gemma3_text",
                       R"("sliding_window": 9, "sliding_window_pattern": 3, "layer_types": [
                          "full_attention", "sliding_attention", "full_attention",
                          "full_attention", "sliding_attention", "full_attention",
                          "full_attention", "sliding_attention"])")) ==
          Windows{0, 9, 0, 0, 9, 0, 0, 9});
    CHECK(windows(read("mistral", R"("sliding_window": null)")) == Windows(8, 0));
    CHECK_FALSE(attention(read("gemma2", R"("attn_logit_softcapping": null)"))
                    .attn_logit_softcapping.has_value());
    CHECK(read("mistral", R"("rope_scaling": null, "head_dim": 6)").head_dim == 6);
}

TEST_CASE("read_family_config rejects what is not implemented, by name") {
    std::string types;
    for (const std::string& type : all_model_types())
        types += (types.empty() ? "" : ", ") + type;
    CHECK(rejection_of("gemma9", "") ==
          "model_type gemma9 is not supported; supported: " + types);
    CHECK(types.starts_with("llama, mistral, qwen2, qwen3, mini-llm, gpt2, gemma, gemma2, "));
    CHECK(rejection_of("mistral", R"("hidden_act": "xielu")") ==
          "hidden_act xielu is not supported; supported: silu, gelu, relu and the others of "
          "ACT2FN but prelu and xielu");
    CHECK(rejection_of("mistral", R"("attention_bias": true)") ==
          "attention_bias true is not supported: nothing reads it");
    CHECK(rejection_of("llama", R"("mlp_bias": true, "sliding_window": 5)") ==
          "sliding_window 5 is not supported: nothing reads it");
    CHECK(rejection_of("gemma3_text", R"("use_bidirectional_attention": true)") ==
          "use_bidirectional_attention true is not supported: nothing reads it");
    CHECK(rejection_of("gemma3_text", R"("rope_scaling": {"rope_type": "ntk", "factor": 8})") ==
          "rope_scaling.rope_type ntk is not supported; supported: default, linear, dynamic, "
          "llama3, yarn and longrope");
    CHECK(rejection_of("gemma3_text", R"("rope_scaling": {"factor": 8})") ==
          "rope_scaling has no rope_type");
    CHECK(rejection_of("mistral", R"("layer_types": ["full_attention"])") ==
          "layer_types has 1 entries for 8 layers");
    CHECK(rejection_of("mistral", R"("layer_types": ["chunked_attention"])") ==
          "layer_types chunked_attention is not supported; supported: full_attention and "
          "sliding_attention");
    CHECK(rejection_of("mistral", R"("sliding_window": null, "layer_types": [
              "sliding_attention", "full_attention", "full_attention", "full_attention",
              "full_attention", "full_attention", "full_attention", "full_attention"])") ==
          "layer_types has sliding_attention, but sliding_window is null");
    CHECK(rejection_of("gemma2", R"("final_logit_softcapping": -1)") ==
          "final_logit_softcapping must be above 0");
}

TEST_CASE("a checkpoint of chapter 17 with missing or unknown tensors is rejected") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("17_long_context/gemma2");
    // As gemma3_text, it would need a QK norm; as mistral, it has two norms too many.
    edit(folder + "/config.json", "\"gemma2\"", "\"gemma3_text\"");
    CHECK_THROWS_AS(load_family_model(folder), FileError);
    edit(folder + "/config.json", "\"gemma3_text\"", "\"mistral\"");
    CHECK_THROWS_AS(load_family_model(folder), FileError);
}

TEST_CASE("a configuration with more layers than the file is rejected before memory is used") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("18_experts/mixtral");
    edit(folder + "/config.json", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 10000");
    CHECK_THROWS_WITH_AS(
        load_family_model(folder),
        doctest::Contains("model.layers.9999.input_layernorm.weight of shape (32,) is missing"),
        FileError);
    // Their settings alone would take gigabytes.
    edit(folder + "/config.json", "10000", "16777216");
    CHECK_THROWS_WITH_AS(
        load_family_model(folder),
        doctest::Contains("num_hidden_layers must be at most 10000, not 16777216"), FileError);
}

TEST_CASE("a checkpoint with a tensor that its settings do not describe is rejected by name") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("18_experts/mixtral");
    edit(folder + "/config.json", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2");
    CHECK_THROWS_WITH_AS(load_family_model(folder),
                         (folder + "/config.json: the weights have a tensor "
                                   "model.layers.2.block_sparse_moe.experts.0.w1.weight, which "
                                   "these settings do not describe")
                             .c_str(),
                         FileError);
}
