// GLM-4.7-Flash: published keys and sizes, the two spellings, what is rejected, and the GGUF
// files of llama.cpp's converter.
#include <nlohmann/json.hpp>

#include "chapters/models/model_size.hpp"
#include "chapters/models/parameter_count.hpp"
#include "tests/support/gguf_edit.hpp"
#include "tests/support/published_models.hpp"
#include "tests/support/random_family.hpp"

using namespace llm;
using namespace llm::models;

namespace {

const LatentConfig& latent_of_glm(const FamilyConfig& config) {
    return std::get<LatentConfig>(config.layers.front().mixer);
}
const SigmoidRouting& routing_of_glm(const FamilyConfig& config) {
    return std::get<SigmoidRouting>(moe(config).routing);
}
// d for a dense layer, s for one with experts.
std::string kinds_of_mlps(const FamilyConfig& config) {
    std::string result;
    for (const LayerConfig& layer : config.layers) result += moe_of(layer) ? 's' : 'd';
    return result;
}

}  // namespace

TEST_CASE("the published config.json of GLM-4.7-Flash, and its parameters") {
    const Scratch scratch;
    overwrite(scratch.folder / "config.json", R"({
        "architectures": ["Glm4MoeLiteForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0, "dtype": "bfloat16",
        "eos_token_id": [154820, 154827, 154829], "first_k_dense_replace": 1,
        "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 10240,
        "kv_lora_rank": 512, "max_position_embeddings": 202752, "model_type": "glm4_moe_lite",
        "moe_intermediate_size": 1536, "n_group": 1, "n_routed_experts": 64,
        "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 20,
        "num_experts_per_tok": 4, "num_hidden_layers": 47, "num_key_value_heads": 20,
        "num_nextn_predict_layers": 1, "pad_token_id": 154820, "partial_rotary_factor": 1.0,
        "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
        "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000,
        "routed_scaling_factor": 1.8, "tie_word_embeddings": false, "topk_group": 1,
        "topk_method": "noaux_tc", "transformers_version": "5.0.0rc0", "v_head_dim": 256,
        "vocab_size": 154880})");
    const FamilyConfig config = read_family_config(JsonFile(scratch.folder / "config.json"));
    CHECK(latent_of_glm(config).sizes.v_head_dim == 256);
    CHECK(latent_of_glm(config).rope == RopeParameters{1'000'000, 64, 64});
    CHECK(latent_of_glm(config).scale() == doctest::Approx(1.0 / 16));
    CHECK(kinds_of_mlps(config) == "d" + std::string(46, 's'));
    CHECK(config.num_nextn_predict_layers == 1);
    // The file has 31,221,488,576 numbers: 1,278,094,656 of them, of which 2 * 154880 * 2048
    // repeat the embeddings, in the layer for multi-token prediction.
    const std::uint64_t bias = 46 * 64;  // is chosen with, not multiplied by
    CHECK(count_parameters(config).total() == 29'943'393'920 - bias);
    CHECK(double(count_parameters(config).active()) / 1e9 ==
          doctest::Approx(3.58).epsilon(0.001));  // without the embeddings
    CHECK(kv_cache_bytes(config, 1, 1, 2) == 47 * 576 * 2);

    // What the class of transformers has for all keys that a file leaves out.
    const Scratch empty;
    overwrite(empty.folder / "config.json", R"({"architectures": ["Glm4MoeLiteForCausalLM"]})");
    const FamilyConfig defaults = read_family_config(JsonFile(empty.folder / "config.json"));
    CHECK(count_parameters(defaults).total() == count_parameters(config).total());
    CHECK(moe(defaults).sizes.num_experts_per_tok == 4);
    CHECK(routing_of_glm(defaults).routed_scaling_factor == Real(1.8));
    CHECK(routing_of_glm(defaults).norm_topk_prob);
    CHECK(routing_of_glm(defaults).groups.n_group == 1);
    CHECK(routing_of_glm(defaults).groups.topk_group == 1);
    CHECK(kinds_of_mlps(defaults) == kinds_of_mlps(config));
}

TEST_CASE("glm4_moe_lite: mlp_layer_types wins over first_k_dense_replace") {
    const std::string types = R"("mlp_layer_types": ["sparse", "dense", "sparse", "sparse",
        "dense", "sparse", "sparse", "sparse"])";
    const std::string first = R"("first_k_dense_replace": 3)";
    CHECK(kinds_of_mlps(read("glm4_moe_lite", first)) == "dddsssss");
    CHECK(kinds_of_mlps(read("glm4_moe_lite", types)) == "sdssdsss");
    CHECK(kinds_of_mlps(read("glm4_moe_lite", types + ", " + first)) == "sdssdsss");
    CHECK(kinds_of_mlps(read("glm4_moe_lite", R"("mlp_layer_types": null)")) == "dsssssss");
    CHECK(mentions(rejection_of("deepseek_v3", types), "mlp_layer_types"));
}

TEST_CASE("glm4_moe_lite: the published and the fused experts are the same model") {
    const IdMatrix ids = fixture_ids("models/ids");
    const FamilyModel published = load_family_model(fixture_path("models/glm4_moe_lite")),
                      fused = load_family_model(fixture_path("models/glm4_moe_lite_fused"));
    CHECK_CLOSE(published(ids), fused(ids), 0);
    // transformers keeps unknown keys, and leaves out the layer for multi-token prediction.
    const Scratch scratch;
    const fs::path folder = scratch.copy_of("models/glm4_moe_lite_fused");
    edit(folder / "config.json", "{",
         R"({"num_nextn_predict_layers": 1, "first_k_dense_replace": 1, )");
    CHECK_CLOSE(load_family_model(folder.string())(ids), fused(ids), 0);
    // A layer that the file does not count is not left out.
    const fs::path uncounted = scratch.copy_of("models/glm4_moe_lite");
    edit(uncounted / "config.json", "\"num_nextn_predict_layers\": 1",
         "\"num_nextn_predict_layers\": 0");
    CHECK_THROWS_AS(load_family_model(uncounted.string()), FileError);
}

TEST_CASE(
    "glm4_moe_lite: what is not implemented, or contradicts itself, is rejected by name") {
    const auto rejection = [](const std::string& members) {
        return rejection_of("glm4_moe_lite", members);
    };
    CHECK(rejection(R"("mlp_layer_types": ["dense"])") ==
          "mlp_layer_types has 1 entries for 8 layers");
    CHECK(rejection(R"("mlp_layer_types": ["hash_moe"])") ==
          "mlp_layer_types hash_moe is not supported; supported: dense and sparse");
    CHECK(mentions(rejection(R"("partial_rotary_factor": 0.5)"),
                   "partial_rotary_factor must be 1"));
    CHECK(rejection(R"("rope_interleave": false)") ==
          "rope_interleave false is not supported; supported: true");
    CHECK(rejection(R"("attention_bias": true)") ==
          "attention_bias true is not supported: nothing reads it");
    CHECK(rejection(R"("topk_method": "greedy")") ==
          "topk_method greedy is not supported; supported: noaux_tc");
    CHECK(mentions(rejection(R"("index_topk": 1)"), "index_topk"));
}

TEST_CASE("glm4_moe_lite in GGUF: without a gating function, and with another layer") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "model.gguf", other = scratch.folder / "other.gguf";
    FamilyModel model = random_model("models/glm4_moe_lite");
    models::export_gguf(model, shipped_tokenizer(), file.string());
    const IdMatrix ids = fixture_ids("models/ids");
    const Tensor3 expected = model(ids);
    // llama.cpp's converter does not write the function of GLM-4.7-Flash, only the bias.
    const std::string gating = "deepseek2.expert_gating_func";
    REQUIRE(Gguf(file).has(gating));
    edit_gguf(file, other, {{gating, std::nullopt}});
    CHECK_CLOSE(load_family_gguf(other.string())(ids), expected, 2e-6);
    // Without a bias, they are an old DeepSeek-V2.
    const FamilyModel deepseek = random_model("deepseek_v2");
    const fs::path of_v2 = scratch.folder / "v2.gguf", old_v2 = scratch.folder / "old_v2.gguf";
    models::export_gguf(deepseek, shipped_tokenizer(), of_v2.string());
    edit_gguf(of_v2, old_v2, {{gating, std::nullopt}});
    CHECK_CLOSE(load_family_gguf(old_v2.string())(ids), deepseek(ids), 2e-6);
    // The last block is the layer for multi-token prediction.
    const auto with_another_layer = [&](std::int64_t count) {
        edit_gguf(file, other,
                  {{"deepseek2.block_count", std::int64_t{5}},
                   {"deepseek2.nextn_predict_layers", count}},
                  {{"blk.3.attn_norm.weight", "blk.4.attn_norm.weight"},
                   {"blk.3.attn_norm.weight", "blk.4.nextn.enorm.weight"}});
        return load_family_gguf(other.string());
    };
    const FamilyModel loaded = with_another_layer(1);
    CHECK_CLOSE(loaded(ids), expected, 2e-6);
    CHECK(loaded.config.num_nextn_predict_layers == 1);
    CHECK_THROWS_WITH_AS(
        with_another_layer(5),
        (other.string() + ": deepseek2.nextn_predict_layers 5 is not supported; supported: "
                          "fewer than block_count")
            .c_str(),
        FileError);
    CHECK_THROWS_AS(with_another_layer(-1), FileError);
    CHECK_THROWS_AS(with_another_layer(0), FileError);

    const std::string order =
        "export: llama.cpp's deepseek2 has experts in all layers after the first dense ones";
    model.config.layers[0].mlp = moe(model.config);
    CHECK(rejection_of_gguf(model) == order);
    for (LayerConfig& layer : model.config.layers) layer.mlp = MlpConfig{14};
    CHECK(rejection_of_gguf(model) == order);
}
