// OLMo 3: published keys, the spellings of RoPE by type of layer, GGUF files.
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/parameter_count.hpp"
#include "tests/support/gguf_copies.hpp"
#include "tests/support/random_family.hpp"

using namespace llm;
using namespace llm::models;

namespace {

const std::string yarn_members =
    R"("beta_fast": 8.0, "beta_slow": 0.5, "factor": 4.0, "rope_type": "yarn",
       "original_max_position_embeddings": 16)";

// The RoPE of each layer.
std::vector<RopeParameters> ropes(const FamilyConfig& config) {
    std::vector<RopeParameters> result;
    for (const LayerConfig& layer : config.layers) result.push_back(*rope_of(layer));
    return result;
}

// Whether the config.json of an exported model of these settings has rope_parameters instead of
// rope_scaling, and what is read from it.
struct Exported {
    bool nested;
    FamilyConfig config;
};
Exported exported(const FamilyConfig& config) {
    const Scratch scratch;
    const fs::path file = scratch.folder / "config.json";
    write_json(file, config_json(config, DType::float32));
    const JsonFile json = open_config(file);
    CHECK(json.has("rope_parameters") != json.has("rope_theta"));
    return {json.has("rope_parameters"), read_family_config(json)};
}

FamilyModel exportable_model() { return random_model("models/olmo3_v4"); }

}  // namespace

TEST_CASE("olmo3: the keys of the published config.json, YaRN in full layers alone") {
    const FamilyConfig config = read("olmo3", R"(
        "architectures": ["Olmo3ForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0, "eos_token_id": 100257, "hidden_act": "silu",
        "initializer_range": 0.02, "layer_types": [
            "sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
            "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
        "pad_token_id": 100277, "rms_norm_eps": 1e-06,
        "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32.0,
                         "beta_slow": 1.0, "factor": 8.0,
                         "original_max_position_embeddings": 8, "rope_type": "yarn"},
        "rope_theta": 500000, "sliding_window": 16, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16", "transformers_version": "4.57.1", "use_cache": false)");
    CHECK(config.norm_placement == NormPlacement::res_post_norm);
    for (std::size_t n = 0; n < 8; ++n) {
        CHECK(attention(config, n).qk_norm == QKNormType::over_all_heads);
        CHECK(rope_of(config.layers[n])->rope_theta == 500'000);
        CHECK(window_of(config.layers[n]).value_or(0) == (n % 4 == 3 ? 0 : 16));
        CHECK(bool(scaling_of<YarnScaling>(config, n)) == (n % 4 == 3));
    }
    CHECK(*scaling_of<YarnScaling>(config, 3)->attention_factor ==
          doctest::Approx(1.2079441541679836));
    // Every fourth layer, 4096 tokens.
    const FamilyConfig defaults = read("olmo3", "");
    CHECK(window_of(defaults.layers[2]) == 4096);
    CHECK_FALSE(window_of(defaults.layers[7]));
}

TEST_CASE("olmo3: rope_scaling, flat and nested rope_parameters say the same") {
    const std::vector<RopeParameters> expected =
        ropes(read("olmo3", R"("rope_theta": 300.0, "rope_scaling": {)" + yarn_members + "}"));
    CHECK(std::holds_alternative<YarnScaling>(expected[3].scaling));
    CHECK(std::holds_alternative<std::monostate>(expected[4].scaling));
    // transformers 5.0 to 5.12 write one object. Its theta is that of windows, too:
    // transformers 5.15 takes 500000 for them.
    const std::string theta = R"("rope_theta": 300.0)";
    for (const std::string& members :
         {R"("rope_parameters": {)" + theta + ", " + yarn_members + "}",
          R"("rope_parameters": {"full_attention": {)" + theta + ", " + yarn_members +
              R"(}, "sliding_attention": {"rope_type": "default", )" + theta + "}}"})
        CHECK(ropes(read("olmo3", members)) == expected);
    CHECK(mentions(
        rejection_of("olmo3", R"("rope_parameters": {"full_attention": {)" + theta + "}}"),
        "rope_parameters.sliding_attention.rope_theta is missing"));
    CHECK(mentions(rejection_of("olmo3", R"("rope_parameters": {"chunked_attention": {)" +
                                             theta + "}, " + theta + "}"),
                   "rope_parameters chunked_attention is not supported"));
}

TEST_CASE("olmo3: an exported config.json is nested only where one object does not suffice") {
    CHECK_FALSE(exported(read("olmo3",
                              R"("rope_theta": 300.0, "rope_scaling": {)" + yarn_members + "}"))
                    .nested);

    const std::string full = R"("full_attention": {"rope_theta": 300.0, )" + yarn_members + "}",
                      linear = R"("sliding_attention": {"rope_type": "linear", "factor": 2.0,
                                                        "rope_theta": 300.0})",
                      other_theta = R"("sliding_attention": {"rope_theta": 200.0})",
                      windows = R"("layer_types": ["sliding_attention", "sliding_attention",
            "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
            "sliding_attention", "sliding_attention"])";
    for (const std::string& members :
         {R"("rope_parameters": {)" + full + ", " + linear + "}",
          R"("rope_parameters": {)" + full + ", " + other_theta + "}",
          windows + R"(, "rope_parameters": {)" + linear + "}"}) {
        CAPTURE(members);
        const FamilyConfig config = read("olmo3", members);
        CHECK(exported(config).nested);
        CHECK(ropes(exported(config).config) == ropes(config));
    }
    // All windows with plain RoPE; none.
    for (const std::string& members : {windows, std::string(R"("sliding_window": null)")}) {
        const FamilyConfig config = read("olmo3", members);
        CHECK_FALSE(exported(config).nested);
        CHECK(ropes(exported(config).config) == ropes(config));
    }
}

TEST_CASE("export_gguf of olmo3: windows and YaRN, and what llama.cpp lacks is rejected") {
    const FamilyModel model = exportable_model();
    const Scratch scratch;
    const std::string path = (scratch.folder / "model.gguf").string();
    models::export_gguf(model, shipped_tokenizer(), path);
    const Gguf file(path);
    CHECK(file.text("general.architecture") == "olmo2");
    CHECK(file.size("olmo2.attention.sliding_window") == 5);
    CHECK(file.flags("olmo2.attention.sliding_window_pattern") ==
          std::vector<bool>{true, false, true, false});
    CHECK(file.number("olmo2.rope.scaling.factor") == 4);

    const auto rejection = [](const std::function<void(FamilyConfig&)>& change) {
        FamilyModel changed = exportable_model();
        change(changed.config);
        return rejection_of_gguf(changed);
    };
    const auto with_yarn = [&](const std::function<void(YarnScaling&)>& change) {
        return rejection([&](FamilyConfig& config) {
            for (LayerConfig& layer : config.layers)
                if (auto* yarn = std::get_if<YarnScaling>(&rope_of(layer)->scaling))
                    change(*yarn);
        });
    };
    const std::string one_rope =
                          "export: llama.cpp's olmo2 has one theta, and no scaling in windows",
                      limits =
                          "export: llama.cpp rounds YaRN's limits, of 32 and 1 rotations, "
                          "to whole pairs",
                      factor =
                          "export: llama.cpp's olmo2 has an attention_factor of "
                          "0.1 ln(factor) + 1";
    CHECK(rejection([](FamilyConfig& config) {
              rope_of(config.layers[2])->rope_theta = 300;
          }) == one_rope);
    CHECK(rejection([](FamilyConfig& config) {
              rope_of(config.layers[0])->scaling = rope_of(config.layers[1])->scaling;
          }) == one_rope);
    CHECK(rejection([](FamilyConfig& config) {
              set_patterns(config, std::vector<AttentionPattern>(4, FullAttention{}));
          }) == "export: no olmo3 without windows is written as GGUF");
    CHECK(rejection([](FamilyConfig& config) { config.tie_word_embeddings = true; }) ==
          "export: llama.cpp's olmo2 has no tied head");
    CHECK(with_yarn([](YarnScaling& yarn) { yarn.truncate = false; }) == limits);
    CHECK(with_yarn([](YarnScaling& yarn) { yarn.beta_fast = 16; }) == limits);
    CHECK(with_yarn([](YarnScaling& yarn) { yarn.beta_slow = 2; }) == limits);
    CHECK(with_yarn([](YarnScaling& yarn) { yarn.attention_factor = Real(1.3); }) == factor);
    // The value of published files.
    CHECK(with_yarn([](YarnScaling& yarn) { yarn.attention_factor = Real(1.138629436); }) ==
          "not rejected");
}

TEST_CASE("olmo3 in GGUF files of converters: patterns, attention factors, no windows") {
    const GgufCopies files(exportable_model());
    const auto windows = [&](const GgufCopies::Changes& changes) {
        std::string text;
        for (const LayerConfig& layer : files.read(changes).layers)
            text += window_of(layer) ? 'S' : 'F';
        return text;
    };
    const std::string pattern = "olmo2.attention.sliding_window_pattern",
                      scaling = "olmo2.rope.scaling.";
    CHECK(windows({}) == "SFSF");
    CHECK(windows({{pattern, std::int64_t{3}}}) == "SSFS");
    CHECK(windows({{pattern, std::nullopt}}) == "SSSF");
    CHECK(windows({{pattern, std::vector<std::int64_t>{0, 1, 1, 0}}}) == "FSSF");
    CHECK(files.rejection({{pattern, std::vector<bool>{true, false}}}) ==
          pattern + " has 2 entries for 4 layers");
    // 0.1 ln 4 + 1, under the name of 2025 and that of 2026.
    for (const std::string& key : {scaling + "attn_factor", scaling + "yarn_attn_factor"}) {
        CHECK(*scaling_of<YarnScaling>(files.read({{key, 1.138629436}}), 1) ==
              YarnScaling{4, 16});
        CHECK(mentions(files.rejection({{key, 1.3}}), key));
    }
    CHECK(mentions(files.rejection({{scaling + "yarn_beta_fast", 16.0}}), "yarn_beta_fast"));
    const FamilyConfig plain = files.read({{scaling + "type", std::nullopt}});
    CHECK(scaling_of<std::monostate>(plain, 1));
    CHECK(files
              .read({{"olmo2.attention.sliding_window", std::nullopt},
                     {pattern, std::nullopt},
                     {scaling + "type", std::nullopt}})
              .family == &olmo2_family());
}

TEST_CASE("olmo3: as many parameters as the files of OLMo 3 32B") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "config.json";
    overwrite(file, R"({"model_type": "olmo3", "hidden_size": 5120, "intermediate_size": 27648,
        "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
        "vocab_size": 100278, "max_position_embeddings": 65536, "rope_theta": 500000})");
    CHECK(count_parameters(read_family_config(JsonFile(file))).total() == 32'233'522'176);
}
