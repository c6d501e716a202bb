// A path becomes a model in one place, and which models have the fast path.
#include "chapters/models/load.hpp"
#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "chapters/models/encoders/vit.hpp"
#include "chapters/models/family_gguf.hpp"
#include "chapters/models/gguf/gguf_export.hpp"
#include "chapters/models/parameter_count.hpp"
#include "tests/support/fast_helpers.hpp"
#include "tests/support/files.hpp"
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// Phi-3 with a window as long as its context: a Llama with fused projections.
std::string phi3_without_window(const Scratch& scratch) {
    const fs::path folder = scratch.copy_of("models/phi3");
    edit(folder / "config.json", R"("sliding_window": 6)", R"("sliding_window": 64)");
    return folder.string();
}

}  // namespace

TEST_CASE("load_any_model: Llama's types as chapter 09's model, the others as their families") {
    for (const std::string type : {"llama", "mini_llm", "mistral", "qwen2", "qwen3"}) {
        CAPTURE(type);
        const std::string path = fixture_path("09_full_model/" + type);
        CHECK_FALSE(family_of(path));
        CHECK(std::holds_alternative<Model>(load_any_model(path)));
    }
    for (const std::string type : {"models/gpt2", "17_long_context/mistral"}) {
        const std::string path = fixture_path(type);
        CHECK(family_of(path)->model_type == type.substr(type.find('/') + 1));
        CHECK(std::holds_alternative<FamilyModel>(load_any_model(path)));
    }
    const Scratch scratch;
    const std::string gguf = (scratch.folder / "model.gguf").string();
    export_gguf(dense_model("granite"), shipped_tokenizer(), gguf);
    CHECK(family_of(gguf) == &granite_family());
    CHECK(std::holds_alternative<FamilyModel>(load_any_model(gguf)));
    CHECK_FALSE(family_of(fixture_path("gguf/qwen3.gguf")));
    CHECK(std::holds_alternative<Model>(load_any_model(fixture_path("gguf/qwen3.gguf"))));
}

TEST_CASE("kind_of: a ViT by the model type, or, without one, by the class") {
    const Scratch scratch;
    const auto is = [&](const std::string& text) {
        overwrite(scratch.folder / "config.json", text);
        return kind_of(scratch.folder.string()) == ModelKind::vision;
    };
    CHECK(is(R"({"model_type": "vit"})"));
    CHECK(is(R"({"architectures": ["ViTForImageClassification"]})"));
    CHECK_FALSE(is(R"({"architectures": ["BertModel"]})"));
    CHECK_FALSE(is(R"({"model_type": "deit", "architectures": ["ViTModel"]})"));
    CHECK_FALSE(is("{}"));
    CHECK(kind_of((scratch.folder / "none").string()) == ModelKind::decoder);
}

TEST_CASE("load_any_encoder: the encoders, which no function for models that write takes") {
    const Scratch scratch;
    const std::string gguf = (scratch.folder / "model.gguf").string();
    const std::string folder = fixture_path("models/modernbert");
    export_gguf(load_any_encoder(folder), gguf);
    for (const std::string& path : {folder, gguf}) {
        CAPTURE(path);
        CHECK(kind_of(path) == ModelKind::encoder);
        CHECK(config_of(load_any_encoder(path)).family == &modernbert_family());
        const std::string message =
            path + ": modernbert is an encoder, which writes no text; ./learn model runs it";
        CHECK_THROWS_WITH_AS(family_of(path), message.c_str(), FileError);
        CHECK_THROWS_WITH_AS(load_any_model(path), message.c_str(), FileError);
        CHECK_THROWS_WITH_AS(has_fast_path(path), message.c_str(), FileError);
        CHECK_THROWS_WITH_AS(load_for_fast_path(path), message.c_str(), FileError);
    }
    CHECK_THROWS_WITH_AS(
        read_any_config(JsonFile(folder + "/config.json")),
        (folder + "/config.json: modernbert is an encoder, which writes no text; ./learn model "
                  "runs it")
            .c_str(),
        FileError);
    for (const std::string decoder : {"models/gpt2", "09_full_model/qwen3", "gguf/qwen3.gguf"})
        CHECK(kind_of(fixture_path(decoder)) == ModelKind::decoder);
    CHECK_THROWS_WITH_AS(load_any_encoder(fixture_path("models/gpt2")),
                         (fixture_path("models/gpt2") +
                          "/config.json: model_type gpt2 is not supported; supported: bert, "
                          "modernbert")
                             .c_str(),
                         FileError);
}

TEST_CASE("has_fast_path: none of the families whose layers are not Llama's") {
    for (const std::string& type : family_fixtures()) {
        CAPTURE(type);
        CHECK_FALSE(has_fast_path(fixture_path(type)));
    }
    CHECK(has_fast_path(fixture_path("09_full_model/qwen3")));
    CHECK_THROWS_WITH_AS(load_for_fast_path(fixture_path("models/gpt2")),
                         (fixture_path("models/gpt2") +
                          ": model_type gpt2 has no fast path (chapters 15 and 16); ./learn "
                          "chat runs it")
                             .c_str(),
                         FileError);
}

TEST_CASE(
    "has_fast_path and count_parameters: no memory for experts that only config.json has") {
    const Scratch scratch;
    const fs::path folder = scratch.copy_of("18_experts/mixtral");
    edit(folder / "config.json", R"("num_local_experts": 5)",
         R"("num_local_experts": 16777216)");
    CHECK_FALSE(has_fast_path(folder.string()));
    const FamilyConfig config = read_any_config(JsonFile(folder / "config.json"));
    CHECK(count_parameters(config).experts ==
          config.num_hidden_layers * std::uint64_t{16777216} * 3 * config.hidden_size *
              moe(config).sizes.moe_intermediate_size);
}

TEST_CASE("A Phi-3 without a window has the fast path: the logits of its family") {
    const Scratch scratch;
    const std::string folder = phi3_without_window(scratch);
    CHECK(has_fast_path(folder));
    const FamilyModel family = load_family_model(folder);
    const std::vector<Id> ids = {3, 1, 4, 15, 9, 26, 5, 30, 2};
    const Tensor3 expected = family(one_sequence(ids));  // (1, T, V)
    const Model model = load_for_fast_path(folder);
    CHECK_CLOSE(model(one_sequence(ids)), expected, 1e-6);
    const Matrix fast = in_one_call(make_fast_model(model, DType::float32), ids);
    CHECK_CLOSE(fast, Matrix(xt::view(expected, 0)), 2e-5);
}

TEST_CASE("as_llama_model: each thing that Llama's layers do not have is enough for none") {
    const Scratch scratch;
    const FamilyModel phi3 = load_family_model(phi3_without_window(scratch));
    REQUIRE(as_llama_model(phi3));
    // Granite's scale of 1/√D is a decimal in config.json, and may be rounded otherwise.
    FamilyModel rounded = phi3;
    std::get<MoeBlock>(rounded.layers[1]).self_attn.score_mod.scale *= 1 + Real(1.2e-7);
    CHECK(as_llama_model(rounded));
    const auto changed = [&](const std::function<void(FamilyModel&)>& change) {
        FamilyModel model = phi3;
        change(model);
        return as_llama_model(model).has_value();
    };
    const auto block = [](FamilyModel& model) -> MoeBlock& {
        return std::get<MoeBlock>(model.layers[1]);
    };
    using Published = FamilyModel;
    const std::vector<std::function<void(Published&)>> changes = {
        [](Published& model) {
            model.norm = LayerNorm{Vector{1, 1}, {}};
        },
        [](Published& model) { model.embed_positions = Matrix{}; },
        [](Published& model) { model.embedding_scale = 2; },
        [](Published& model) { model.logits_scaling = 2; },
        [](Published& model) { model.final_logit_softcapping = Real(30); },
        [](Published& model) { set_rope_scaling(model.config, YarnScaling{}); },
        [](Published& model) { set_rope_scaling(model.config, LongRopeScaling{}); },
        [](Published& model) { set_rotary_dim(model.config, 2); },
        [](Published& model) { attention(model.config, 1).rope->rope_theta = 7; },
        [](Published& model) { attention(model.config, 1).num_attention_heads = 2; },
        [&](Published& model) { block(model).mlp = Mlp{}; },
        [&](Published& model) { block(model).mlp = MixtureOfExperts{}; },
        [&](Published& model) { std::get<GatedMlp>(block(model).mlp).activation = GELUTanh; },
        [&](Published& model) { block(model).residual_multiplier = Real(0.5); },
        [&](Published& model) { block(model).self_attn.pattern = SlidingWindow{63}; },
        [&](Published& model) { block(model).self_attn.pattern = ChunkedAttention{64}; },
        [&](Published& model) { block(model).self_attn.position_encoding = NoPE{}; },
        [&](Published& model) {
            block(model).self_attn.temperature_tuning = TemperatureTuning{};
        },
        [&](Published& model) { block(model).self_attn.score_mod.scale *= 2; },
        [&](Published& model) {
            block(model).self_attn.score_mod.attn_logit_softcapping = Real(50);
        },
        [&](Published& model) {
            block(model).self_attn.score_mod.sinks = Vector{1, 1, 1, 1};
        },
        [&](Published& model) { block(model).self_attn.output_gate = Linear{}; }};
    for (std::size_t i = 0; i < changes.size(); ++i) {
        CAPTURE(i);
        CHECK_FALSE(changed(changes[i]));
    }
}

TEST_CASE("a T5 and a ViT are no decoders, and the message says what they are") {
    for (const auto& [name, kind, what] :
         {std::tuple{"t5", ModelKind::encoder_decoder,
                     "t5 has an encoder, and perhaps a decoder"},
          std::tuple{"vit", ModelKind::vision, "vit reads pictures"}}) {
        const std::string path = fixture_path(std::string("models/") + name);
        const std::string message = std::string(what) + "; ./learn model runs it";
        CHECK(kind_of(path) == kind);
        CHECK_THROWS_WITH(load_any_model(path), (path + ": " + message).c_str());
        CHECK_THROWS_WITH(has_fast_path(path), (path + ": " + message).c_str());
        CHECK_THROWS_WITH(read_any_config(JsonFile(path + "/config.json")),
                          (path + "/config.json: " + message).c_str());
    }
}
