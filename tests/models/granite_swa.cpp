// Granite 4.1 and Granite with windows: published keys and sizes, what a file may leave out,
// what is rejected, and llama.cpp's two arrays of layers.
#include "chapters/models/parameter_count.hpp"
#include "tests/support/gguf_edit.hpp"
#include "tests/support/published_models.hpp"
#include "tests/support/random_family.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// The windows of the layers, 0 for full attention, and their thetas, 0 for no RoPE.
std::vector<std::size_t> windows_of_granite(const FamilyConfig& config) {
    std::vector<std::size_t> result;
    for (const LayerConfig& layer : config.layers)
        result.push_back(window_of(layer).value_or(0));
    return result;
}
std::vector<Real> thetas_of_granite(const FamilyConfig& config) {
    std::vector<Real> result;
    for (const LayerConfig& layer : config.layers)
        result.push_back(rope_of(layer) ? rope_of(layer)->rope_theta : 0);
    return result;
}

FamilyConfig read_granite_file(const std::string& text) {
    const Scratch scratch;
    overwrite(scratch.folder / "config.json", text);
    return read_family_config(JsonFile(scratch.folder / "config.json"));
}

using GraniteWindows = std::vector<std::size_t>;
using GraniteThetas = std::vector<Real>;

}  // namespace

TEST_CASE("the published config.json of granite-swash-2b, and its parameters") {
    const FamilyConfig config =
        read_granite_file(R"({"architectures": ["GraniteSWAForCausalLM"],
        "attention_bias": false, "attention_multiplier": 0.0078125, "bos_token_id": 100257,
        "embedding_multiplier": 12, "eos_token_id": 100257, "hidden_act": "silu",
        "hidden_size": 2560, "initializer_range": 0.1, "intermediate_size": 8192,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                        "sliding_attention", "full_attention", "sliding_attention"],
        "logits_scaling": 10, "max_position_embeddings": 8192, "mlp_bias": false,
        "model_type": "granite_swa", "num_attention_heads": 20, "num_hidden_layers": 6,
        "num_key_value_heads": 4, "pad_token_id": 100256, "residual_multiplier": 0.28,
        "rms_norm_eps": 1e-05, "rope_theta": 10000, "sliding_window": 128,
        "tie_word_embeddings": true, "vocab_size": 100352})");
    CHECK(windows_of_granite(config) == GraniteWindows{0, 128, 128, 128, 0, 128});
    CHECK(thetas_of_granite(config) == GraniteThetas(6, 10'000));
    CHECK(config.head_dim == 128);
    CHECK(attention(config, 0).sinks);
    CHECK(attention(config, 1).sinks);
    CHECK(attention(config, 1).scale == 0.0078125);
    CHECK(config.residual_multiplier == Real(0.28));
    CHECK(read_granite_file(R"({"architectures": ["GraniteSWAForCausalLM"]})").family ==
          &granite_swa_family());
    // All sizes are the defaults of the class; the model card has 2.1 billion parameters.
    const FamilyConfig whole = read_granite_file(R"({"model_type": "granite_swa"})");
    CHECK(count_parameters(whole).total() == 2'144'463'840);
    CHECK(windows_of_granite(whole)[23] == 128);
}

TEST_CASE("Granite 4.1: the published sizes have 3.4, 8.4 and 28.9 billion parameters") {
    const auto parameters = [](const std::string& sizes) {
        return count_parameters(read_granite_file(R"({"model_type": "granite", "architectures":
            ["GraniteForCausalLM"], "dtype": "bfloat16", "num_key_value_heads": 8, "vocab_size":
            100352, "attention_multiplier": 0.0078125, "embedding_multiplier": 12,
            "logits_scaling": 16.0, "residual_multiplier": 0.22, "tie_word_embeddings": true,
            "rope_parameters": {"rope_theta": 10000000, "rope_type": "default"}, )" +
                                                  sizes + "}"))
            .total();
    };
    CHECK(parameters(R"("hidden_size": 2560, "intermediate_size": 8192,
                        "num_attention_heads": 40, "num_hidden_layers": 40)") == 3'402'836'480);
    CHECK(parameters(R"("hidden_size": 4096, "intermediate_size": 12800,
                        "num_attention_heads": 32, "num_hidden_layers": 40)") == 8'380'551'168);
    CHECK(parameters(R"("hidden_size": 4096, "intermediate_size": 32768,
                        "num_attention_heads": 32, "num_hidden_layers": 64)") ==
          28'865'728'512);
}

TEST_CASE("granite_swa: what a file may leave out, and thetas of layers") {
    const FamilyConfig config = read("granite_swa", "");
    CHECK(windows_of_granite(config) == GraniteWindows{0, 128, 128, 128, 0, 128, 128, 128});
    CHECK(thetas_of_granite(config) == GraniteThetas(8, 10'000));
    CHECK(attention(config).scale == 1);
    CHECK(config.tie_word_embeddings);
    const std::string eight = R"("layer_rope_theta": [0, 40.0, 5e2, 500, 0.0, 1, 2, 3])";
    CHECK(thetas_of_granite(read("granite_swa", eight)) ==
          GraniteThetas{0, 40, 500, 500, 0, 1, 2, 3});
    // The scaling is that of rope_parameters in all layers.
    const FamilyConfig linear = read("granite_swa", eight + R"(, "rope_parameters":
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 7.0})");
    CHECK(scaling_of<FrequencyFactors>(linear, 1)->factors(0) == 4);
    CHECK(thetas_of_granite(linear)[1] == 40);
    const std::string full = R"("sliding_window": null, "layer_types": ["full_attention",
        "full_attention", "full_attention", "full_attention", "full_attention",
        "full_attention", "full_attention", "full_attention"])";
    CHECK(windows_of_granite(read("granite_swa", full)) == GraniteWindows(8, 0));
}

TEST_CASE("granite_swa: lists of another length and impossible values are rejected by name") {
    const auto rejection = [](const std::string& members) {
        return rejection_of("granite_swa", members);
    };
    CHECK(rejection(R"("layer_rope_theta": [1.0, 0.0])") ==
          "layer_rope_theta has 2 entries for 8 layers");
    CHECK(mentions(rejection(R"("layer_rope_theta": [1, 1, 1, 1, 1, 1, 1, -1])"),
                   "layer_rope_theta must be 0 or above, not -1"));
    CHECK(mentions(rejection(R"("layer_types": ["full_attention"])"),
                   "layer_types has 1 entries for 8 layers"));
    CHECK(mentions(rejection(R"("layer_types": ["chunked_attention"])"),
                   "chunked_attention is not supported"));
    CHECK(rejection(R"("sliding_window": null)") ==
          "sliding_window is null, but the layers have windows");
    CHECK(
        mentions(rejection_of("granite", R"("layer_rope_theta": [1.0])"), "layer_rope_theta"));
}

TEST_CASE("granite_swa: what llama.cpp computes differently is not exported") {
    const auto rejection = [](const auto& change) {
        FamilyModel model = random_model("models/granite_swa");
        change_each<AttentionConfig>(model.config, change);
        return rejection_of_gguf(model);
    };
    CHECK(rejection([](AttentionConfig& layer) {
              if (layer.rope && window_of({layer})) layer.rope->rope_theta = 40;
          }) == "export: llama.cpp's granite_swa has one rope_theta: 500 and 40");
    CHECK(rejection([](AttentionConfig& layer) { layer.pattern = FullAttention{}; }) ==
          "export: llama.cpp's granite_swa has a window");
    CHECK(rejection([](AttentionConfig& layer) { layer.rope.reset(); }) ==
          "export: llama.cpp's granite_swa has RoPE in a layer");
}

TEST_CASE("granite_swa in GGUF: which layers have a window, and which rotate") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "model.gguf", other = scratch.folder / "other.gguf";
    models::export_gguf(random_model("models/granite_swa"), shipped_tokenizer(), file.string());
    const std::string windowed = "granite_swa.attention.sliding_window_pattern",
                      rotated = "granite_swa.attention.rope_pattern";
    const auto config_with_pattern = [&](const std::string& key,
                                         const std::optional<GgufValue>& value) {
        edit_gguf(file, other, {{key, value}});
        return read_family_config(Gguf(other));
    };
    CHECK(windows_of_granite(read_family_config(Gguf(file))) == GraniteWindows{5, 0, 5, 5});
    CHECK(thetas_of_granite(read_family_config(Gguf(file))) == GraniteThetas{500, 500, 0, 500});
    using Integers = std::vector<std::int64_t>;
    CHECK(windows_of_granite(config_with_pattern(windowed, Integers{0, 1, 2, 0})) ==
          GraniteWindows{0, 5, 5, 0});
    CHECK(thetas_of_granite(
              config_with_pattern(rotated, std::vector<bool>{true, false, true, false})) ==
          GraniteThetas{500, 0, 500, 0});
    CHECK(thetas_of_granite(config_with_pattern(rotated, std::nullopt)) ==
          GraniteThetas(4, 500));
    CHECK_THROWS_WITH_AS(
        config_with_pattern(rotated, Integers{1}),
        (other.string() + ": " + rotated + " has 1 entries for 4 layers").c_str(), FileError);
    CHECK_THROWS_AS(config_with_pattern(windowed, std::nullopt), FileError);
    CHECK_THROWS_AS(config_with_pattern(windowed, std::string("4")), FileError);
}
