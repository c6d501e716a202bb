// GLM-4-0414: published keys, defaults, what is written and rejected, and the published sizes.
#include "chapters/models/parameter_count.hpp"
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// The configuration, written as config.json and read again.
FamilyConfig written(const FamilyConfig& config) {
    const Scratch scratch;
    write_json(scratch.folder / "config.json", models::config_json(config, DType::bfloat16));
    return read_family_config(JsonFile(scratch.folder / "config.json"));
}

// The numbers of parameters of the files.
std::uint64_t count_of(std::size_t hidden_size, std::size_t intermediate_size,
                       std::size_t num_hidden_layers, AttentionBias bias) {
    Config sizes;
    sizes.hidden_size = hidden_size;
    sizes.intermediate_size = intermediate_size;
    sizes.num_hidden_layers = num_hidden_layers;
    sizes.head_dim = 128;
    sizes.num_attention_heads = hidden_size / 128;
    sizes.num_key_value_heads = 2;
    sizes.vocab_size = 151552;
    sizes.tie_word_embeddings = false;
    sizes.attention_bias = bias;
    return count_parameters(config_with(glm4_family(), sizes)).total();
}

}  // namespace

TEST_CASE("glm4: the keys of the published config.json, and as transformers 5 writes them") {
    const std::string common = R"("architectures": ["Glm4ForCausalLM"], "attention_bias": true,
        "attention_dropout": 0.0, "head_dim": 12, "hidden_act": "silu",
        "initializer_range": 0.02, "rms_norm_eps": 1e-05, "tie_word_embeddings": false,
        "use_cache": true, "eos_token_id": [1, 2, 3], "pad_token_id": 1, )";
    for (const std::string& members :
         {common + R"("partial_rotary_factor": 0.5, "rope_theta": 10000.0,
                      "torch_dtype": "bfloat16", "transformers_version": "4.52.0.dev0")",
          common + R"("bos_token_id": null, "dtype": "bfloat16", "rope_parameters": {
                      "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
                      "rope_type": "default"}, "transformers_version": "5.0.0")"}) {
        const FamilyConfig config = read("glm4", members);
        CHECK(config.norm_placement == NormPlacement::sandwich);
        CHECK(attention(config, 7).bias == AttentionBias::qkv);
        CHECK(attention(config).rope == RopeParameters{10'000, 12, 6});
        CHECK(attention(written(config)).bias == AttentionBias::qkv);
    }
}

TEST_CASE("glm4: defaults are half of each head, and biases of queries, keys and values") {
    const FamilyConfig config = read("glm4", "");
    CHECK(attention(config, 7).rope->rotary_dim == 64);
    CHECK(attention(config, 7).bias == AttentionBias::qkv);
    CHECK(attention(read("glm4", R"("attention_bias": false)")).bias == AttentionBias::none);
}

TEST_CASE("glm4: what differs from the defaults is written") {
    for (const std::string factor : {"0.25", "0.5", "1.0"}) {
        const FamilyConfig config =
            read("glm4", R"("attention_bias": false, "partial_rotary_factor": )" + factor);
        CHECK(attention(written(config)).bias == AttentionBias::none);
        CHECK(attention(written(config)).rope == attention(config).rope);
        CHECK(double(attention(config).rope->rotary_dim) == 128 * std::stod(factor));
    }
}

TEST_CASE("glm4: a file whose heads cannot be rotated is rejected by name") {
    CHECK(mentions(rejection_of("glm4", R"("partial_rotary_factor": 1.5)"),
                   "partial_rotary_factor 1.5 is not supported; supported: an even number of "
                   "the 128 features of a head"));
}

TEST_CASE("glm4 in GGUF: the names of llama.cpp, and the number of rotated features") {
    const Scratch scratch;
    const fs::path path = scratch.folder / "model.gguf";
    const FamilyModel model = dense_model("glm4");
    models::export_gguf(model, shipped_tokenizer(), path.string());
    const Gguf file(path);
    CHECK(file.integer("glm4.rope.dimension_count") == 6);
    for (const std::string name :
         {"attn_norm.weight", "attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.weight",
          "post_attention_norm.weight", "ffn_norm.weight", "ffn_up.weight", "ffn_down.weight",
          "post_ffw_norm.weight"})
        CHECK(file.has_tensor("blk.2." + name));
    CHECK_FALSE(file.has_tensor("blk.2.ffn_gate.weight"));  // in ffn_up
    auto metadata = file.metadata();
    metadata.erase("glm4.rope.dimension_count");
    std::vector<NamedGgufTensor> tensors;
    for (const auto& [name, tensor] : file.tensors())
        tensors.push_back({name, {tensor.dtype, tensor.shape, tensor.bytes}});
    const fs::path changed = scratch.folder / "changed.gguf";
    write_gguf(changed, {metadata.begin(), metadata.end()}, tensors);
    CHECK_THROWS_WITH_AS(load_family_gguf(changed.string()),
                         doctest::Contains("glm4.rope.dimension_count"), FileError);
}

TEST_CASE("glm4: parameters of the published sizes") {
    CHECK(count_of(4096, 13696, 40, AttentionBias::qkv) == 9'400'279'040);
    CHECK(count_of(6144, 23040, 61, AttentionBias::none) == 32'566'081'536);
}
