// config.json of the model types of chapter 17: what is read, defaults, and what is rejected.
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
        const AttentionPattern& pattern = layer.pattern;
        const auto* sliding = std::get_if<SlidingWindow>(&pattern);
        result.push_back(sliding ? sliding->window : 0);
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
    CHECK(mistral.query_pre_attn_scalar == 4);
    CHECK_FALSE(mistral.final_logit_softcapping.has_value());

    const FamilyConfig gemma2 = read("gemma2", "");
    CHECK(gemma2.head_dim == 256);
    CHECK(gemma2.rope_theta == 10000);
    CHECK(gemma2.tie_word_embeddings);
    CHECK(gemma2.qk_norm == QKNormType::none);
    CHECK(windows(gemma2) == Windows{4096, 0, 4096, 0, 4096, 0, 4096, 0});
    CHECK(gemma2.query_pre_attn_scalar == 256);
    CHECK(gemma2.attn_logit_softcapping == Real(50));
    CHECK(gemma2.final_logit_softcapping == Real(30));
    CHECK_FALSE(gemma2.rope_local_base_freq.has_value());

    const FamilyConfig gemma3 = read("gemma3_text", "");
    CHECK(gemma3.rope_theta == 1'000'000);
    CHECK(gemma3.rope_local_base_freq == Real(10'000));
    CHECK(gemma3.rope_factor == 1);
    CHECK(gemma3.rms_norm_eps == Real(1e-6));
    CHECK(gemma3.qk_norm == QKNormType::with_weights);
    CHECK(windows(gemma3) == Windows{4096, 4096, 4096, 4096, 4096, 0, 4096, 4096});
    CHECK_FALSE(gemma3.attn_logit_softcapping.has_value());
    CHECK_FALSE(gemma3.final_logit_softcapping.has_value());
}

// Source: the configuration files of transformers 4.57.
TEST_CASE("read_family_config: the defaults of every family for keys that all have") {
    struct Defaults {
        std::size_t head_dim;  // hidden_size / num_attention_heads is 4
        double rms_norm_eps, rope_theta;
        bool tie_word_embeddings;
    };
    const std::map<std::string, Defaults> defaults = {
        {"llama", {4, 1e-6, 10'000, false}},
        {"qwen2", {4, 1e-6, 10'000, false}},
        {"qwen3", {128, 1e-6, 10'000, false}},
        {"mistral", {4, 1e-6, 10'000, false}},
        {"gemma", {256, 1e-6, 10'000, true}},
        {"gemma2", {256, 1e-6, 10'000, true}},
        {"gemma3_text", {256, 1e-6, 1'000'000, true}},
        {"smollm3", {4, 1e-6, 2'000'000, true}},
        {"granite", {4, 1e-6, 10'000, false}},
        {"olmo2", {4, 1e-5, 10'000, false}},
        {"phi3", {4, 1e-5, 10'000, false}},
        {"cohere2", {4, 1e-5, 10'000, true}},
        {"mixtral", {4, 1e-5, 1'000'000, false}},
        {"qwen3_moe", {4, 1e-6, 10'000, false}},
        {"gpt_oss", {64, 1e-5, 150'000, false}},
        {"deepseek_v2", {64, 1e-6, 10'000, false}},
        {"deepseek_v3", {64, 1e-6, 10'000, false}},
        {"llama4_text", {128, 1e-5, 500'000, false}},
        {"qwen3_next", {256, 1e-6, 10'000, false}}};
    for (const auto& [name, expected] : defaults) {
        const std::string& type = name;  // a lambda cannot capture a structured binding
        CAPTURE(type);
        const FamilyConfig config =
            read(type, type == "deepseek_v2" ? R"("num_experts_per_tok": 6)" : "");
        CHECK(config.head_dim == expected.head_dim);
        CHECK(config.rms_norm_eps == Real(expected.rms_norm_eps));
        CHECK(config.rope_theta == Real(expected.rope_theta));
        CHECK(config.tie_word_embeddings == expected.tie_word_embeddings);
    }
    CHECK(defaults.size() + 1 == families().size());  // gpt2 has other names
    const FamilyConfig granite = read("granite", "");
    for (const Real multiplier : {granite.embedding_multiplier, *granite.attention_multiplier,
                                  granite.residual_multiplier, granite.logits_scaling})
        CHECK(multiplier == 1);
    CHECK(read("cohere2", "").logits_scaling == 16);
    const std::string longrope = R"("max_position_embeddings": 8192, "rope_scaling":
        {"type": "longrope", "short_factor": [1, 1], "long_factor": [2, 2]})";
    const Scratch scratch;
    const fs::path file = scratch.folder / "config.json";
    overwrite(file, R"({"model_type": "phi3", "num_hidden_layers": 2, )" + small_sizes + ", " +
                        longrope + "}");
    CHECK(read_family_config(JsonFile(file)).longrope->original_max_position_embeddings ==
          4096);
}

TEST_CASE("read_family_config: settings with two values, and older names of keys") {
    const FamilyConfig gemma = read("gemma2", R"("head_dim": 6)");
    CHECK(gemma.query_pre_attn_scalar == 256);
    CHECK(
        read("gemma2", R"("head_dim": 6, "query_pre_attn_scalar": 9)").query_pre_attn_scalar ==
        9);
    CHECK(
        windows(read("gemma3_text", R"("sliding_window": 9, "_sliding_window_pattern": 2)")) ==
        Windows{9, 0, 9, 0, 9, 0, 9, 0});
    CHECK(
        read("gemma3_text", R"("rope_scaling": {"type": "linear", "factor": 4})").rope_factor ==
        4);
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
    CHECK_FALSE(
        read("gemma2", R"("attn_logit_softcapping": null)").attn_logit_softcapping.has_value());
    CHECK(read("gemma3_text", R"("rope_scaling": {"rope_type": "linear", "factor": 8})")
              .rope_factor == 8);
    CHECK(read("mistral", R"("rope_scaling": null, "head_dim": 6)").head_dim == 6);
}

TEST_CASE("read_family_config rejects what is not implemented, by name") {
    CHECK(rejection_of("gemma9", "") ==
          "model_type gemma9 is not supported; supported: llama, mistral, qwen2, qwen3, "
          "mini-llm, gpt2, gemma, gemma2, gemma3_text, smollm3, granite, olmo2, phi3, cohere2, "
          "mixtral, qwen3_moe, gpt_oss, "
          "llama4_text, deepseek_v2, deepseek_v3, qwen3_next");
    CHECK(rejection_of("mistral", R"("hidden_act": "xielu")") ==
          "hidden_act xielu is not supported; supported: silu, gelu, relu and the others of "
          "ACT2FN but prelu and xielu");
    CHECK(rejection_of("mistral", R"("attention_bias": true)") ==
          "attention_bias true is not supported; supported: false");
    CHECK(rejection_of("llama", R"("mlp_bias": true, "sliding_window": 5)") ==
          "sliding_window 5 is not supported: nothing reads it");
    CHECK(rejection_of("gemma3_text", R"("use_bidirectional_attention": true)") ==
          "use_bidirectional_attention true is not supported; supported: false");
    CHECK(rejection_of("gemma3_text", R"("rope_scaling": {"rope_type": "su", "factor": 8})") ==
          "rope_scaling.rope_type su is not supported; supported: default, linear, dynamic, "
          "llama3 and yarn");
    CHECK(rejection_of("gemma3_text", R"("rope_scaling": {"factor": 8})") ==
          "rope_scaling has no rope_type");
    CHECK(rejection_of("mistral", R"("layer_types": ["full_attention"])") ==
          "layer_types has 1 entries for 8 layers");
    CHECK(rejection_of("mistral", R"("layer_types": ["chunked_attention"])") ==
          "layer_types chunked_attention is not supported; supported: full_attention and "
          "sliding_attention");
    CHECK(rejection_of("mistral",
                       R"("sliding_window": null, "layer_types": ["sliding_attention"])") ==
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
    edit(folder + "/config.json", "\"num_hidden_layers\": 3",
         "\"num_hidden_layers\": 16777216");
    CHECK_THROWS_WITH_AS(
        load_family_model(folder),
        doctest::Contains("model.layers.16777215.input_layernorm.weight of shape (32,) is "
                          "missing"),
        FileError);
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
