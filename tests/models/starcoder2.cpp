// StarCoder2: published keys, defaults, what is rejected, and the published sizes.
#include "chapters/models/parameter_count.hpp"
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

namespace {

const MlpConfig& mlp(const FamilyConfig& config) {
    return std::get<MlpConfig>(config.layers.back().mlp);
}

// The numbers of parameters of the safetensors files.
std::uint64_t count_of(std::size_t hidden_size, std::size_t num_hidden_layers,
                       std::size_t num_key_value_heads, bool tied) {
    Config sizes;
    sizes.hidden_size = hidden_size;
    sizes.intermediate_size = 4 * hidden_size;
    sizes.num_hidden_layers = num_hidden_layers;
    sizes.head_dim = 128;
    sizes.num_attention_heads = hidden_size / 128;
    sizes.num_key_value_heads = num_key_value_heads;
    sizes.vocab_size = 49152;
    sizes.tie_word_embeddings = tied;
    return count_parameters(config_with(starcoder2_family(), sizes)).total();
}

}  // namespace

TEST_CASE("starcoder2: the keys of the published config.json, a window in every layer") {
    const FamilyConfig config =
        read("starcoder2", R"("architectures": ["Starcoder2ForCausalLM"],
        "attention_dropout": 0.1, "bos_token_id": 0, "embedding_dropout": 0.1,
        "eos_token_id": 0, "hidden_act": "gelu_pytorch_tanh", "initializer_range": 0.018042,
        "mlp_type": "default", "norm_epsilon": 1e-05, "norm_type": "layer_norm",
        "residual_dropout": 0.1, "rope_theta": 999999.4420358813, "sliding_window": 40,
        "torch_dtype": "bfloat16", "transformers_version": "4.37.0.dev0", "use_bias": true,
        "use_cache": true)");
    CHECK(config.rope_theta == Real(999999.4420358813));
    for (const LayerConfig& layer : config.layers) CHECK(window_of(layer) == 40);
    CHECK_FALSE(sliding_window(read("starcoder2", R"("sliding_window": null)")));
    // Without a model_type, the class says it.
    const Scratch scratch;
    overwrite(scratch.folder / "config.json",
              R"({"architectures": ["Starcoder2ForCausalLM"]})");
    CHECK(&family_named_in(JsonFile(scratch.folder / "config.json")) == &starcoder2_family());
}

TEST_CASE("starcoder2: defaults are biases everywhere, no window and the GELU with tanh") {
    const FamilyConfig config = read("starcoder2", "");
    CHECK(attention(config).bias == AttentionBias::qkvo);
    CHECK(mlp(config).bias);
    CHECK_FALSE(mlp(config).gate);
    CHECK(mlp(config).activation.name == GELUTanh.name);
    CHECK(config.norm_type == NormType::layer_norm);
    CHECK_FALSE(sliding_window(config));
}

TEST_CASE("starcoder2: use_bias false means no bias but those of the norms") {
    const FamilyConfig config = read("starcoder2", R"("use_bias": false)");
    CHECK(attention(config).bias == AttentionBias::none);
    CHECK_FALSE(mlp(config).bias);
    CHECK(config.norm_type == NormType::layer_norm);
}

TEST_CASE("starcoder2: another MLP, or other norms, are rejected by name") {
    CHECK(rejection_of("starcoder2", R"("mlp_type": "gated")") ==
          "mlp_type gated is not supported; supported: default");
    CHECK(rejection_of("starcoder2", R"("norm_type": "rms_norm")") ==
          "norm_type rms_norm is not supported; supported: layer_norm");
    CHECK(mentions(rejection_of("starcoder2", R"("sliding_window": 0)"), "sliding_window"));
}

TEST_CASE("starcoder2: what llama.cpp's graph has not is not exported") {
    const auto rejection = [](const std::string& name, const auto& change) {
        FamilyModel model = dense_model(name);
        change(model.config);
        return rejection_of_gguf(model);
    };
    const auto nothing = [](FamilyConfig&) {};
    CHECK(rejection("starcoder2", nothing) ==
          "export: llama.cpp's starcoder2 has no window: 64 tokens do not fit into a window of "
          "6");
    CHECK(rejection("starcoder2_full", nothing) == "not rejected");
    CHECK(mentions(rejection("starcoder2_unbiased", nothing), "another activation"));
    CHECK(mentions(rejection("starcoder2_unbiased",
                             [](FamilyConfig& config) {
                                 for (LayerConfig& layer : config.layers)
                                     mlp_of(layer)->activation = GELUTanh;
                             }),
                   "another choice of biases"));
    CHECK(mentions(
        rejection("starcoder2_full", [](FamilyConfig& config) { config.head_dim = 4; }),
        "llama.cpp's starcoder2 has 4 heads of 6"));
}

TEST_CASE("starcoder2 in GGUF: the names of llama.cpp, with biases") {
    const Scratch scratch;
    const fs::path path = scratch.folder / "model.gguf";
    models::export_gguf(dense_model("starcoder2_full"), shipped_tokenizer(), path.string());
    const Gguf file(path);
    CHECK(file.text("general.architecture") == "starcoder2");
    for (const std::string name : {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output",
                                   "ffn_norm", "ffn_up", "ffn_down"})
        for (const std::string part : {".weight", ".bias"})
            CHECK(file.has_tensor("blk.2." + name + part));
    CHECK(file.has_tensor("output_norm.bias"));
}

TEST_CASE("starcoder2: parameters of the published sizes") {
    CHECK(count_of(3072, 30, 2, true) == 3'030'371'328);
    CHECK(count_of(4608, 32, 4, true) == 7'173'923'840);
    CHECK(count_of(6144, 40, 4, false) == 15'957'889'024);
}
