// config.json of the model types of chapter 18: what is read, defaults, and what is rejected.
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// W for a window, minus n for chunks, 0 for full attention.
std::vector<int> patterns(const FamilyConfig& config) {
    std::vector<int> result;
    for (const LayerConfig& layer : config.layers) {
        const AttentionPattern& pattern = attention_of(layer)->pattern;
        const auto* sliding = std::get_if<SlidingWindow>(&pattern);
        const auto* chunked = std::get_if<ChunkedAttention>(&pattern);
        result.push_back(sliding   ? int(sliding->window)
                         : chunked ? -int(chunked->chunk_size)
                                   : 0);
    }
    return result;
}
using Patterns = std::vector<int>;
using Layers = std::vector<bool>;

Layers moe_layers(const FamilyConfig& config) {
    Layers result;
    for (const LayerConfig& layer : config.layers) result.push_back(moe_of(layer));
    return result;
}
Layers rope_layers(const FamilyConfig& config) {
    Layers result;
    for (const LayerConfig& layer : config.layers) result.push_back(rope_of(layer));
    return result;
}
bool norm_topk_prob(const FamilyConfig& config) {
    return std::get<SoftmaxRouting>(moe(config).routing).norm_topk_prob;
}

}  // namespace

TEST_CASE("is_family_config: the model types with experts") {
    const Scratch scratch;
    const auto is_published = [&](const std::string& json) {
        overwrite(scratch.folder / "config.json", json);
        return is_family_config(JsonFile(scratch.folder / "config.json"));
    };
    for (const std::string type : {"mixtral", "qwen3_moe", "gpt_oss", "llama4_text"})
        CHECK(is_published(R"({"model_type": ")" + type + "\"}"));
    CHECK_FALSE(is_published(R"({"model_type": "llama"})"));
    CHECK_FALSE(is_published("{}"));
    CHECK_THROWS_WITH_AS(
        is_published(R"({"model_type": "mamba"})"),
        doctest::Contains("model_type mamba is not supported; supported: llama, "
                          "mistral, qwen2, qwen3, mini-llm, gpt2, gemma, "),
        FileError);
}

TEST_CASE("read_family_config: defaults of mixtral and qwen3_moe") {
    const FamilyConfig mixtral = read("mixtral", "");
    CHECK(mixtral.head_dim == 4);  // there is no such key
    CHECK(mixtral.rope_theta == 1'000'000);
    CHECK(mixtral.rms_norm_eps == Real(1e-5));
    CHECK_FALSE(mixtral.tie_word_embeddings);
    CHECK(moe(mixtral).sizes.num_experts == 8);
    CHECK(moe(mixtral).sizes.num_experts_per_tok == 2);
    CHECK(moe(mixtral).sizes.moe_intermediate_size == 20);
    CHECK(norm_topk_prob(mixtral));
    CHECK(patterns(mixtral) == Patterns(8, 0));
    CHECK(patterns(read("mixtral", R"("sliding_window": 9)")) == Patterns(8, 9));
    CHECK(patterns(read("mixtral", R"("sliding_window": null)")) == Patterns(8, 0));

    const FamilyConfig qwen = read("qwen3_moe", "");
    CHECK(qwen.rope_theta == 10'000);
    CHECK(qwen.rms_norm_eps == Real(1e-6));
    CHECK(attention(qwen).qk_norm == QKNormType::with_weights);
    CHECK(moe(qwen).sizes.num_experts == 128);
    CHECK(moe(qwen).sizes.num_experts_per_tok == 8);
    CHECK(moe(qwen).sizes.moe_intermediate_size == 768);
    CHECK_FALSE(norm_topk_prob(qwen));
    CHECK(norm_topk_prob(read("qwen3_moe", R"("norm_topk_prob": true)")));
    CHECK(moe_layers(qwen) == Layers(8, true));
    CHECK(patterns(read("qwen3_moe", R"("sliding_window": 9)")) == Patterns(8, 0));
}

TEST_CASE("qwen3_moe: decoder_sparse_step and mlp_only_layers combine") {
    CHECK(moe_layers(read("qwen3_moe", R"("decoder_sparse_step": 2)")) ==
          Layers{false, true, false, true, false, true, false, true});
    CHECK(moe_layers(
              read("qwen3_moe", R"("decoder_sparse_step": 2, "mlp_only_layers": [3, 4])")) ==
          Layers{false, true, false, false, false, true, false, true});
    CHECK(moe_layers(read("qwen3_moe", R"("mlp_only_layers": [])")) == Layers(8, true));
    CHECK(rejection_of("qwen3_moe", R"("mlp_only_layers": [8])") ==
          "mlp_only_layers has no layer 8 of 8");
}

TEST_CASE("read_family_config: defaults of gpt_oss, its windows and its YaRN") {
    const FamilyConfig config = read("gpt_oss", "");
    CHECK(config.head_dim == 64);
    CHECK(config.rope_theta == 150'000);
    CHECK(attention(config).qk_norm == QKNormType::none);
    CHECK(moe(config).sizes.num_experts == 128);
    CHECK(moe(config).sizes.num_experts_per_tok == 4);
    CHECK(moe(config).swiglu_limit == Real(7));
    CHECK(patterns(config) == Patterns{128, 0, 128, 0, 128, 0, 128, 0});
    const auto* yarn = scaling_of<YarnScaling>(config);
    REQUIRE(yarn);
    CHECK(yarn->factor == 32);
    CHECK(yarn->original_max_position_embeddings == 4096);
    CHECK_FALSE(yarn->truncate);
    const FamilyConfig truncated =
        read("gpt_oss", R"("rope_scaling": {"rope_type": "yarn", "factor": 4})");
    CHECK(scaling_of<YarnScaling>(truncated)->truncate);
    CHECK(scaling_of<std::monostate>(read("gpt_oss", R"("rope_scaling": null)")));
    CHECK(patterns(read("gpt_oss", R"("sliding_window": 3, "layer_types": [)"
                                   R"("full_attention", "sliding_attention", "full_attention",
                                      "full_attention", "full_attention", "full_attention",
                                      "full_attention", "full_attention"])")) ==
          Patterns{0, 3, 0, 0, 0, 0, 0, 0});
    CHECK(moe(read("gpt_oss", R"("experts_per_token": 3)")).sizes.num_experts_per_tok == 3);
}

TEST_CASE("llama4_text: 1 in no_rope_layers means RoPE, an empty list every fourth layer") {
    const FamilyConfig config = read("llama4_text", R"("num_local_experts": 4)");
    const Layers every_fourth = {true, true, true, false, true, true, true, false};
    CHECK(config.head_dim == 128);
    CHECK(config.intermediate_size == 16384);
    CHECK(config.rope_theta == 500'000);
    CHECK(moe(config).sizes.moe_intermediate_size == 20);
    CHECK(moe(config).sizes.num_experts_per_tok == 1);
    CHECK(moe(config).sizes.n_shared_experts == 1);
    CHECK(rope_layers(config) == every_fourth);
    CHECK(patterns(config) == Patterns{-8192, -8192, -8192, 0, -8192, -8192, -8192, 0});
    // The temperature is that of the layers without RoPE, the QK norm that of the others.
    CHECK_FALSE(attention(config, 2).temperature_tuning);
    REQUIRE(attention(config, 3).temperature_tuning);
    CHECK(attention(config, 3).temperature_tuning->floor_scale == 8192);
    CHECK(attention(config, 3).qk_norm == QKNormType::none);
    CHECK(moe_layers(config) == Layers(8, true));
    CHECK(rope_layers(read("llama4_text", R"("no_rope_layers": [])")) == every_fourth);
    CHECK(rope_layers(read("llama4_text", R"("no_rope_layers": [0, 1, 1, 1, 1, 1, 1, 1])")) ==
          Layers{false, true, true, true, true, true, true, true});
    CHECK(attention(config, 2).qk_norm == QKNormType::without_weights);
    CHECK(attention(read("llama4_text", R"("use_qk_norm": false)"), 2).qk_norm ==
          QKNormType::none);
    CHECK_FALSE(attention(read("llama4_text", R"("attn_temperature_tuning": false)"), 3)
                    .temperature_tuning);
    CHECK(moe_layers(read("llama4_text", R"("interleave_moe_layer_step": 2)")) ==
          Layers{false, true, false, true, false, true, false, true});
    CHECK(moe_layers(
              read("llama4_text", R"("interleave_moe_layer_step": 2, "moe_layers": [0])")) ==
          Layers{true, false, false, false, false, false, false, false});
    const std::string equal_factors =
        R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
           "high_freq_factor": 1, "original_max_position_embeddings": 8192})";
    CHECK(scaling_of<Llama3Scaling>(read("llama4_text", equal_factors)));
}

TEST_CASE("config_json: windows, and layers with a mixture, are written and read again") {
    const auto written = [](const FamilyConfig& config) {
        const Scratch scratch;
        const fs::path file = scratch.folder / "config.json";
        write_json(file, config_json(config, DType::float32));
        return read_family_config(JsonFile(file));
    };
    const FamilyConfig windows =
        written(read("qwen3_moe", R"("use_sliding_window": true, "sliding_window": 9)"));
    CHECK(patterns(windows) == Patterns(8, 9));
    CHECK(moe_layers(written(read("llama4_text", R"("moe_layers": [0, 3])"))) ==
          Layers{true, false, false, true, false, false, false, false});
}

TEST_CASE("read_family_config names what is not supported") {
    CHECK(rejection_of("deepseek_v32", "")
              .starts_with(
                  "model_type deepseek_v32 is not supported; supported: llama, mistral, "));
    CHECK(rejection_of("mixtral", R"("hidden_act": "prelu")") ==
          "hidden_act prelu is not supported; supported: silu, gelu, relu and the others of "
          "ACT2FN but prelu and xielu");
    CHECK(rejection_of("mixtral", R"("attention_bias": true)") ==
          "attention_bias true is not supported: nothing reads it");
    CHECK(rejection_of("mixtral", R"("mlp_bias": true)") ==
          "mlp_bias true is not supported: nothing reads it");
    CHECK(rejection_of("qwen3_moe", R"("use_qk_norm": false)") ==
          "use_qk_norm false is not supported; supported: true");
    CHECK(rejection_of("qwen3_moe", R"("rope_scaling": {"rope_type": "yarn"})") ==
          "rope_scaling.factor is missing");
    CHECK(rejection_of("gpt_oss", R"("rope_scaling": {"rope_type": "linear"})") ==
          "rope_scaling.factor must be above 0");
    CHECK(rejection_of("llama4_text", R"("rope_scaling": {"rope_type": "proportional"})") ==
          "rope_scaling.rope_type proportional is not supported; supported: default, linear, "
          "dynamic, llama3, yarn and longrope");
    for (const LayerConfig& layer :
         read("qwen3_moe", R"("num_experts": 0, "num_experts_per_tok": 0)").layers)
        CHECK_FALSE(moe_of(layer));
    CHECK(rejection_of("mixtral", R"("num_experts_per_tok": 0)") ==
          "num_experts_per_tok must be at least 1, not 0");
    CHECK(rejection_of("mixtral", R"("num_experts_per_tok": 9)") ==
          "num_experts_per_tok must be at most the number of experts, 8, not 9");
    CHECK(rejection_of("llama4_text", R"("no_rope_layers": [1, 1])") ==
          "no_rope_layers has 2 entries for 8 layers");
    CHECK(rejection_of("gpt_oss", R"("layer_types": ["full_attention"])") ==
          "layer_types has 1 entries for 8 layers");
    CHECK(rejection_of("gpt_oss", R"("layer_types": ["chunked_attention"])") ==
          "layer_types chunked_attention is not supported; supported: full_attention and "
          "sliding_attention");
}
