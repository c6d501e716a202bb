// Ministral 3, alone and in a Mistral 3 for text and pictures: published keys, defaults, what
// is rejected, GGUF files.
#include <cmath>

#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/parameter_count.hpp"
#include "tests/support/gguf_copies.hpp"
#include "tests/support/model_folders.hpp"
#include "tests/support/random_family.hpp"

using namespace llm;
using namespace llm::models;

namespace {

FamilyConfig read_file(const std::string& text) {
    const Scratch scratch;
    overwrite(scratch.folder / "config.json", text);
    return read_family_config(open_config(scratch.folder / "config.json"));
}

FamilyConfig read_rope(const std::string& members) {
    return read("ministral3", R"("rope_parameters": {"rope_theta": 100.0, )" + members + "}");
}
const std::string yarn_type = R"("rope_type": "yarn", "factor": 4.0)";

const std::optional<TemperatureTuning>& temperature(const FamilyConfig& config) {
    return attention(config, config.layers.size() - 1).temperature_tuning;
}

std::uint64_t count_of(const std::string& sizes) {
    return count_parameters(read_file(R"({"model_type": "ministral3", "vocab_size": 131072, )" +
                                      sizes + "}"))
        .total();
}

}  // namespace

TEST_CASE("mistral3: the keys of the published config.json of Ministral 3 8B") {
    const FamilyConfig config = read_file(R"({
        "architectures": ["Mistral3ForConditionalGeneration"], "dtype": "bfloat16",
        "image_token_index": 10, "model_type": "mistral3", "multimodal_projector_bias": false,
        "projector_hidden_act": "gelu", "spatial_merge_size": 2, "tie_word_embeddings": true,
        "text_config": {
            "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
            "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
            "max_position_embeddings": 262144, "model_type": "ministral3",
            "num_attention_heads": 32, "num_hidden_layers": 34, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05, "rope_parameters": {
                "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0,
                "llama_4_scaling_beta": 0.1, "max_position_embeddings": 262144,
                "mscale": 1.0, "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 16384, "rope_theta": 1000000.0,
                "rope_type": "yarn", "type": "yarn"},
            "sliding_window": null, "tie_word_embeddings": false, "use_cache": true,
            "vocab_size": 131072},
        "transformers_version": "5.0.0.dev0", "vision_feature_layer": -1, "vision_config": {
            "attention_dropout": 0.0, "head_dim": 64, "hidden_act": "silu",
            "hidden_size": 1024, "image_size": 1540, "model_type": "pixtral",
            "num_hidden_layers": 24}})");
    CHECK(config.family == &ministral3_family());
    CHECK_FALSE(config.tie_word_embeddings);  // as the text model says
    CHECK_FALSE(sliding_window(config));
    CHECK(config.rope_theta == 1'000'000);
    const YarnScaling* scaling = scaling_of<YarnScaling>(config, 33);
    REQUIRE(scaling);
    CHECK(yarn_attention_factor(*scaling) == 1);
    CHECK(attention(config).scale == doctest::Approx(1 / std::sqrt(128.0)));
    REQUIRE(temperature(config));
    CHECK(temperature(config)->floor_scale == 16384);
    CHECK(temperature(config)->attn_scale == Real(0.1));
    CHECK(temperature(config)->first_position == 0);
    CHECK(count_parameters(config).total() == 8'489'553'920);
}

TEST_CASE("ministral3: as many parameters as Ministral 3 3B and 14B, Devstral Small 2") {
    CHECK(count_of(R"("hidden_size": 3072, "intermediate_size": 9216, "num_hidden_layers": 26,
                      "tie_word_embeddings": true)") == 3'429'006'336);
    CHECK(count_of(R"("hidden_size": 5120, "intermediate_size": 16384,
                      "num_hidden_layers": 40)") == 13'506'073'600);
    CHECK(count_of(R"("hidden_size": 5120, "intermediate_size": 32768,
                      "num_hidden_layers": 40)") == 23'572'403'200);
}

TEST_CASE("ministral3: keys that a file may leave out") {
    // Without rope_parameters, those of the class.
    for (const std::string members : {"", R"("rope_parameters": null)"}) {
        const FamilyConfig config = read("ministral3", members);
        CHECK(config.rope_theta == 1'000'000);
        const YarnScaling* scaling = scaling_of<YarnScaling>(config, 7);
        REQUIRE(scaling);
        CHECK(scaling->factor == 16);
        CHECK(scaling->original_max_position_embeddings == 16384);
        CHECK(yarn_attention_factor(*scaling) == 1);
        REQUIRE(temperature(config));
        CHECK(temperature(config)->floor_scale == 16384);
        CHECK(temperature(config)->attn_scale == Real(0.1));
    }
    // The temperature: none without β; the original length is that of the whole context.
    CHECK_FALSE(temperature(read_rope(yarn_type)));
    CHECK_FALSE(temperature(read_rope(R"("llama_4_scaling_beta": 0.0, )" + yarn_type)));
    CHECK(temperature(read_rope(R"("llama_4_scaling_beta": 0.1)"))->floor_scale == 64);
    CHECK(scaling_of<std::monostate>(read_rope(R"("llama_4_scaling_beta": 0.1)")));

    // An mscale of 0 is as if it were missing (Devstral 2).
    const auto factor = [&](const std::string& members) {
        return yarn_attention_factor(*scaling_of<YarnScaling>(read_rope(members + yarn_type)));
    };
    const double expected = 0.1 * std::log(4) + 1;
    for (const std::string members : {"", R"("mscale": 1.0, )", R"("mscale_all_dim": 1.0, )",
                                      R"("mscale": 1.0, "mscale_all_dim": 0.0, )",
                                      R"("mscale": 0, "mscale_all_dim": 1.0, )"}) {
        CAPTURE(members);
        CHECK(factor(members) == doctest::Approx(expected));
    }
    CHECK(factor(R"("mscale": 1.0, "mscale_all_dim": 0.5, )") ==
          doctest::Approx(expected / (0.05 * std::log(4) + 1)));

    CHECK_FALSE(sliding_window(read("ministral3", "")));
    CHECK(sliding_window(read("ministral3", R"("sliding_window": 9)")) == 9);
    CHECK(attention(read("ministral3", "")).bias == AttentionBias::none);
}

TEST_CASE("ministral3: what is rejected by name") {
    // Nemotron 3 Embed, which sees the tokens after it.
    CHECK(mentions(rejection_of("ministral3", R"("is_causal": false)"), "is_causal"));
    CHECK(mentions(rejection_of("ministral3", R"("attention_bias": true)"), "attention_bias"));
    CHECK(mentions(rejection_of("ministral3", R"("rope_parameters": {"rope_type": "yarn",
                                                  "factor": 4.0})"),
                   "rope_parameters.rope_theta is missing"));
    CHECK(mentions(rejection_of("ministral3", R"("rope_parameters": {"full_attention":
                                                  {"rope_theta": 100.0}})"),
                   "supported: one RoPE for all layers"));
    CHECK(mentions(rejection_of("ministral3", R"("rope_parameters": {"mscale": -1.0,
                       "mscale_all_dim": 1.0, "rope_theta": 100.0, )" +
                                                  yarn_type + "}"),
                   "mscale must be above 0"));
    // The head in the file is not the embedding.
    const Scratch scratch;
    const fs::path folder = scratch.copy_of("models/mistral3");
    edit(folder / "config.json", R"("tie_word_embeddings": false)",
         R"("tie_word_embeddings": true)");
    CHECK(mentions(rejection_of_folder(folder.string()), "tie_word_embeddings is true, but"));
}

TEST_CASE("export_model of ministral3: without YaRN or a temperature, as with both") {
    for (const std::string& members : std::vector<std::string>{
             R"("rope_type": "default")", R"("llama_4_scaling_beta": 0.3)", yarn_type,
             R"("llama_4_scaling_beta": 0.3, "original_max_position_embeddings": 16, )" +
                 yarn_type}) {
        CAPTURE(members);
        const FamilyConfig config = read_rope(members);
        const Scratch scratch;
        const fs::path file = scratch.folder / "config.json";
        write_json(file, config_json(config, DType::float32));
        const FamilyConfig copy = read_family_config(open_config(file));
        CHECK(*rope_of(copy.layers[0]) == *rope_of(config.layers[0]));
        REQUIRE(bool(temperature(copy)) == bool(temperature(config)));
        if (!temperature(config)) continue;
        CHECK(temperature(copy)->floor_scale == temperature(config)->floor_scale);
        CHECK(temperature(copy)->attn_scale == temperature(config)->attn_scale);
    }
}

TEST_CASE("ministral3 in GGUF files: YaRN's factor and the temperature as llama.cpp has them") {
    const GgufCopies files(random_model("models/ministral3"));
    const std::string rope = "mistral3.rope.scaling.",
                      log_multiplier = rope + "yarn_log_multiplier",
                      scale = "mistral3.attention.temperature_scale";
    const auto yarn_of = [&](const GgufCopies::Changes& changes) {
        return *scaling_of<YarnScaling>(files.read(changes), 3);
    };
    CHECK(yarn_attention_factor(yarn_of({})) == 1);
    CHECK(yarn_of({}).beta_fast == 1);
    CHECK(yarn_of({}).beta_slow == Real(0.1));
    CHECK(yarn_of({{rope + "yarn_beta_fast", std::nullopt},
                   {rope + "yarn_beta_slow", std::nullopt}}) ==
          YarnScaling{8, 8, 32, 1, true, Real(1)});
    const double expected = 0.1 * std::log(8) + 1;
    for (const GgufCopies::Changes& changes :
         {GgufCopies::Changes{{log_multiplier, std::nullopt}}, {{log_multiplier, 0.0}}})
        CHECK(yarn_attention_factor(yarn_of(changes)) == doctest::Approx(expected));
    CHECK(
        yarn_attention_factor(yarn_of({{log_multiplier, 0.4}, {rope + "attn_factor", 1.5}})) ==
        doctest::Approx(1.5 * expected / (0.04 * std::log(8) + 1)));

    CHECK(temperature(files.read({}))->floor_scale == 8);
    CHECK(temperature(files.read({}))->attn_scale == Real(0.7));
    CHECK(temperature(files.read({{scale, 0.2}}))->attn_scale == Real(0.2));
    CHECK_FALSE(temperature(files.read({{scale, std::nullopt}})));
    const FamilyConfig plain = files.read({{rope + "type", std::nullopt},
                                           {log_multiplier, std::nullopt},
                                           {rope + "yarn_beta_fast", std::nullopt},
                                           {rope + "yarn_beta_slow", std::nullopt}});
    CHECK(scaling_of<std::monostate>(plain));
    CHECK(temperature(plain)->floor_scale == 64);
    CHECK(mentions(files.rejection({{rope + "yarn_attn_factor", 1.3}}), "yarn_attn_factor"));
}

TEST_CASE("export_gguf of ministral3 rejects what llama.cpp does not compute") {
    const auto rejection = [](const std::function<void(AttentionConfig&)>& change) {
        FamilyModel model = random_model("models/ministral3");
        change_each<AttentionConfig>(model.config, change);
        return rejection_of_gguf(model);
    };
    CHECK(
        rejection([](AttentionConfig& each) { each.pattern = SlidingWindow{5}; }) ==
        "export: llama.cpp's mistral3 has no window: 64 tokens do not fit into a window of 5");
    CHECK(rejection([](AttentionConfig& each) { each.pattern = SlidingWindow{64}; }) ==
          "not rejected");
    CHECK(rejection([](AttentionConfig& each) {
              std::get<YarnScaling>(each.rope->scaling).truncate = false;
          }) == "export: llama.cpp rounds YaRN's limits to whole pairs");
    CHECK(rejection([](AttentionConfig& each) { each.temperature_tuning->floor_scale = 9; }) ==
          "export: llama.cpp's mistral3 has a temperature that grows every 8 tokens");
    CHECK(rejection([](AttentionConfig& each) { each.rope->scaling = std::monostate{}; }) ==
          "export: llama.cpp's mistral3 has a temperature that grows every 64 tokens");
    CHECK(rejection([](AttentionConfig& each) { each.temperature_tuning.reset(); }) ==
          "not rejected");
}
