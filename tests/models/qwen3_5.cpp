// Qwen3.5, dense and MoE: published keys, class defaults and sizes, what is rejected or left
// out, and the order of value heads in GGUF files.
#include <cstring>
#include <nlohmann/json.hpp>

#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/unread_settings.hpp"
#include "chapters/models/model_size.hpp"
#include "chapters/models/parameter_count.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/random_family.hpp"

using namespace llm;
using namespace llm::models;

namespace {

FamilyConfig read_qwen3_5_file(const std::string& members) {
    const Scratch scratch;
    overwrite(scratch.folder / "config.json", "{" + members + "}");
    return read_family_config(open_config(scratch.folder / "config.json"));
}

const LinearSizes& linear(const FamilyConfig& config) {
    return std::get<LinearSizes>(config.layers.front().mixer);
}

// The file of a random model that llama.cpp can express, with other metadata and more tensors.
std::string changed_gguf(const Scratch& scratch, const std::string& name,
                         const std::function<void(GgufMetadata&)>& change,
                         const std::vector<std::string>& copies_of_the_first_norm = {}) {
    const std::string path = (scratch.folder / "model.gguf").string(),
                      changed = (scratch.folder / "changed.gguf").string();
    models::export_gguf(random_model(name), shipped_tokenizer(), path);
    const Gguf file(path);
    GgufMetadata metadata(file.metadata().begin(), file.metadata().end());
    change(metadata);
    std::vector<NamedGgufTensor> tensors;
    for (const auto& [tensor_name, tensor] : file.tensors())
        tensors.push_back({tensor_name, tensor});
    for (const std::string& copy : copies_of_the_first_norm)
        tensors.push_back({copy, file.tensor("blk.0.attn_norm.weight")});
    write_gguf(changed, metadata, tensors);
    return changed;
}

IdMatrix some_ids() { return load_ids<2>(fixture_file("models/ids")); }

}  // namespace

TEST_CASE("the keys of the published config.json of Qwen3.8-27B, all known") {
    settings_policy().strict = true;
    const FamilyConfig config = read_qwen3_5_file(R"("architectures":
        ["Qwen3_5ForConditionalGeneration"], "image_token_id": 248056, "language_model_only":
        false, "model_type": "qwen3_5", "text_config": {"attention_bias": false,
        "attention_dropout": 0.0, "attn_output_gate": true, "bos_token_id": 248044, "dtype":
        "bfloat16", "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256,
        "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
        "intermediate_size": 17408, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144, "model_type":
        "qwen3_5_text", "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false,
        "num_attention_heads": 24, "num_hidden_layers": 64, "num_key_value_heads": 4,
        "output_gate_type": "swish", "pad_token_id": null, "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-06, "rope_parameters": {"mrope_interleaved": true, "mrope_section":
        [11, 11, 10], "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type":
        "default"}, "tie_word_embeddings": false, "use_cache": true, "vocab_size": 248320},
        "tie_word_embeddings": false, "transformers_version": "4.57.0.dev0", "video_token_id":
        248057, "vision_config": {"depth": 27, "hidden_size": 1152, "model_type": "qwen3_5"},
        "vision_end_token_id": 248054, "vision_start_token_id": 248053)");
    settings_policy().strict = false;
    CHECK(config.family == &qwen3_5_family());
    CHECK(linear(config).num_value_heads == 48);
    CHECK(main_rope(config)->rotary_dim == 64);
    CHECK(config.rope_theta == Real(1e7));
    CHECK(count_parameters(config).total() == 26'895'998'464);  // 26.9 billion
}

// Whose class defaults are the sizes of Qwen3.5-9B and of Qwen3.5-35B-A3B.
TEST_CASE("Qwen3.5: class defaults, and the parameters of the published text models") {
    const FamilyConfig dense = read_qwen3_5_file(R"("model_type": "qwen3_5_text")");
    for (std::size_t n = 0; n < 32; ++n)
        CHECK(bool(attention_of(dense.layers[n])) == (n % 4 == 3));
    CHECK(main_rope(dense)->rotary_dim == 64);
    CHECK(linear(dense).num_key_heads == 16);
    // The tensors of the published file without model.visual.* and mtp.*.
    CHECK(count_parameters(dense).total() == 8'953'803'264);

    const FamilyConfig mixture = read_qwen3_5_file(R"("model_type": "qwen3_5_moe_text")");
    CHECK(moe(mixture).sizes.num_experts_per_tok == 8);
    CHECK(moe(mixture).sizes.shared_width() == 512);
    const ParametersByPart parameters = count_parameters(mixture);
    CHECK(parameters.total() == 34'660'610'688);  // 34.7 billion
    CHECK(double(parameters.active()) / 1e9 == doctest::Approx(2.95).epsilon(0.01));
    // 10 layers cache 2 · 2 · 256 numbers a token; 30 keep states.
    CHECK(kv_cache_bytes(mixture, 1000, 1, 2) ==
          2 * (10 * std::uint64_t{1000} * 1024 + 30 * (32 * 128 * 128 + 3 * 8192)));
}

TEST_CASE("Qwen3.5: text_config by any of its model types, or by none") {
    const std::string sizes = R"("hidden_size": 16, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 17, "num_hidden_layers": 2)";
    for (const auto& [outer, inner, family] :
         {std::tuple{"qwen3_5", R"(, "model_type": "qwen3_5_text")", &qwen3_5_family()},
          {"qwen3_5", R"(, "model_type": "qwen3_5")", &qwen3_5_family()},
          {"qwen3_5", "", &qwen3_5_family()},
          {"qwen3_5_moe", R"(, "model_type": "qwen3_5_moe_text")", &qwen3_5_moe_family()},
          {"qwen3_5_moe", "", &qwen3_5_moe_family()}})
        CHECK(read_qwen3_5_file(R"("model_type": ")" + std::string(outer) +
                                R"(", "text_config": {)" + sizes + inner + "}")
                  .family == family);
}

TEST_CASE("Qwen3.5: what is not implemented is rejected by name") {
    CHECK(rejection_of("qwen3_5_text", R"("attn_output_gate": false)") ==
          "attn_output_gate false is not supported; supported: true");
    CHECK(rejection_of("qwen3_5_text", R"("output_gate_type": "sigmoid")") ==  // Qwen4
          "output_gate_type sigmoid is not supported; supported: swish and silu");
    CHECK(rejection_of("qwen3_5_text", R"("output_gate_type": "silu")") == "not rejected");
    CHECK(mentions(rejection_of("qwen3_5_text", R"("num_experts": 4)"), "num_experts 4"));
    CHECK(mentions(rejection_of("qwen3_5_text", R"("full_attention_interval": 1,
        "layer_types": ["qwen_sparse_attention", "full_attention", "full_attention",
        "full_attention", "full_attention", "full_attention", "full_attention",
        "full_attention"])"),
                   "layer_types qwen_sparse_attention is not supported"));
    const auto moe = [](const std::string& more) {
        return rejection_of("qwen3_5_moe_text", more);
    };
    CHECK(moe(R"("norm_topk_prob": false)") ==
          "norm_topk_prob false is not supported; supported: true");
    CHECK(moe(R"("decoder_sparse_step": 2)") ==
          "decoder_sparse_step 2 is not supported; supported: 1");
    CHECK(moe(R"("mlp_only_layers": [1])") ==
          "mlp_only_layers a list is not supported: nothing reads it");
    CHECK(moe(R"("norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "moe_intermediate_size": 8)") == "not rejected");
}

TEST_CASE("Qwen3.5: a text model with the tensors of pictures and multi-token prediction") {
    const Scratch scratch;
    const fs::path folder = scratch.copy_of("models/qwen3_5");
    const auto all = nlohmann::json::parse(content(folder / "config.json"));
    overwrite(folder / "config.json", all["text_config"].dump());
    // Other programs write no prefix. The header keeps its length.
    std::string bytes = content(folder / "model.safetensors");
    std::uint64_t size;
    std::memcpy(&size, bytes.data(), sizeof size);
    std::string header = replaced(bytes.substr(8, size), "model.language_model.", "model.");
    header.resize(size, ' ');
    overwrite(folder / "model.safetensors", bytes.replace(8, size, header));
    const FamilyModel model = load_family_model(folder.string());
    CHECK(model.config.num_nextn_predict_layers == 1);
    CHECK_CLOSE(model(some_ids()), fixture<3>("models/qwen3_5_logits"), 2e-5);
}

TEST_CASE("Qwen3.5: in GGUF files, key heads take turns: the first value head of each first") {
    const FamilyModel model = random_model("models/qwen3_5");
    const auto& layer = std::get<QwenNextBlock>(model.layers[1]).self_attn;
    REQUIRE(layer.num_key_heads == 2);
    REQUIRE(layer.num_value_heads == 6);
    const Scratch scratch;
    const std::string path = (scratch.folder / "model.gguf").string();
    models::export_gguf(model, shipped_tokenizer(), path);
    const Gguf file(path);
    const Vector biases = file.read("blk.1.ssm_dt.bias", {6});
    const Matrix alpha = file.read("blk.1.ssm_alpha.weight", {6, 24}),
                 beta = file.read("blk.1.ssm_beta.weight", {6, 24}),
                 gate = file.read("blk.1.attn_gate.weight", {30, 24}),
                 qkv = file.read("blk.1.attn_qkv.weight", {50, 24}),
                 kernel = file.read("blk.1.ssm_conv1d.weight", {50, 3}),
                 out = file.read("blk.1.ssm_out.weight", {24, 30});
    const std::array<std::size_t, 6> head = {0, 3, 1, 4, 2, 5};  // 3 of each key head
    for (std::size_t h = 0; h < 6; ++h) {
        CHECK(biases(h) == layer.decay->dt_bias(head[h]));
        CHECK(alpha(h, 7) == layer.decay->in_proj_a.weight(head[h], 7));
        CHECK(beta(h, 7) == layer.in_proj_b->weight(head[h], 7));
        for (std::size_t d = 0; d < 5; ++d) {
            const std::size_t to = 5 * h + d, from = 5 * head[h] + d;
            CHECK(gate(to, 7) == layer.in_proj_z.weight(from, 7));
            CHECK(qkv(20 + to, 7) == layer.in_proj_qkv.weight(20 + from, 7));
            CHECK(kernel(20 + to, 1) == layer.conv1d(20 + from, 1));
            CHECK(out(7, to) == layer.out_proj.weight(7, from));
        }
    }
    for (std::size_t row = 0; row < 20; ++row)  // queries and keys stay
        CHECK(qkv(row, 7) == layer.in_proj_qkv.weight(row, 7));
    CHECK(file.integers("qwen35.rope.dimension_sections") ==
          std::vector<std::int64_t>{1, 1, 0, 0});
}

TEST_CASE("Qwen3.5: a model without attention is exported, one without linear layers is not") {
    FamilyModel model = random_model("models/qwen3_5");
    FamilyConfig& config = model.config;
    const LayerConfig linear_layer = config.layers[0], attention_layer = config.layers[2];
    const FamilyLayer linear_block = model.layers[0], attention_block = model.layers[2];
    config.layers.assign(4, linear_layer);
    model.layers.assign(4, linear_block);
    CHECK(rejection_of_gguf(model) == "not rejected");
    config.layers.assign(4, attention_layer);
    model.layers.assign(4, attention_block);
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp's qwen35 begins with linear attention");
}

TEST_CASE("Qwen3.5: GGUF files with a layer for multi-token prediction, or of experts alone") {
    const Scratch scratch;
    const auto set = [](GgufMetadata& metadata, const std::string& key, std::int64_t value) {
        std::erase_if(metadata, [&](const auto& entry) { return entry.first == key; });
        metadata.emplace_back(key, value);
    };
    const std::string with_nextn =
        changed_gguf(scratch, "models/qwen3_5_moe",
                     [&](GgufMetadata& metadata) {
                         set(metadata, "qwen35moe.block_count", 5);
                         set(metadata, "qwen35moe.nextn_predict_layers", 1);
                         // llama.cpp's converter writes none if all layers have experts.
                         std::erase_if(metadata, [](const auto& entry) {
                             return entry.first == "qwen35moe.feed_forward_length";
                         });
                     },
                     {"blk.4.attn_norm.weight", "blk.4.nextn.enorm.weight"});
    const FamilyModel model = load_family_gguf(with_nextn);
    CHECK(model.layers.size() == 4);
    CHECK(model.config.num_nextn_predict_layers == 1);
    CHECK_CLOSE(model(some_ids()), random_model("models/qwen3_5_moe")(some_ids()), 2e-6);

    const auto rejection = [&](std::int64_t num_layers) -> std::string {
        const Scratch other;
        try {
            load_family_gguf(changed_gguf(other, "models/qwen3_5", [&](GgufMetadata& metadata) {
                set(metadata, "qwen35.nextn_predict_layers", num_layers);
            }));
        } catch (const FileError& error) {
            return error.what();
        }
        return "not rejected";
    };
    CHECK(rejection(0) == "not rejected");
    CHECK(mentions(rejection(4),
                   "qwen35.nextn_predict_layers 4 is not supported; supported: "
                   "fewer than block_count"));
}
