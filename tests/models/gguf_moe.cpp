// GGUF files of models with experts. tests/checks/check_llama_cpp.mjs lets the real llama.cpp
// read them.
#include "common/files/gguf.hpp"
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// A model of tests/fixtures with the vocabulary of the shipped tokenizer and with settings that
// llama.cpp has.
FamilyModel model_with_experts(const std::string& type) {
    FamilyModel model = load_family_model(fixture_path("18_experts/" + type));
    FamilyConfig& config = model.config;
    Generator generator(3);
    config.vocab_size = 1024;
    model.embed_tokens = randn({1024, 32}, generator);
    model.lm_head = randn({1024, 32}, generator);
    if (type == "mixtral")
        set_patterns(config, {config.layers.size(), AttentionPattern{FullAttention{}}});
    if (type == "qwen3_moe") {  // layer 1 has the only mixture of experts
        const MoeConfig mixture = moe(config);
        for (LayerConfig& layer : config.layers) layer.mlp = mixture;
        for (FamilyLayer& layer : model.layers)
            std::get<MoeBlock>(layer).mlp = mlp_of(model.layers[1]);
    }
    if (type == "gpt_oss") {
        change_each<MoeConfig>(config, [](MoeConfig& each) { each.swiglu_limit = 7; });
        YarnScaling yarn = *scaling_of<YarnScaling>(config);
        yarn.truncate = true;
        yarn.beta_fast = 32;
        set_rope_scaling(config, yarn);
    }
    if (type == "llama4_text") {
        const LayerConfig dense = config.layers[0], mixture = config.layers[1];
        std::get<MoeBlock>(model.layers[2]).mlp = mlp_of(model.layers[0]);
        for (std::size_t n = 0; n < 4; ++n) {
            config.layers[n] = n % 2 == 1 ? mixture : dense;
            attention(config, n) = attention(config, 0);
            attention(config, n).pattern = ChunkedAttention{8192};
        }
        AttentionConfig& last = attention(config, 3);
        last.pattern = FullAttention{};
        last.rope.reset();
        last.temperature_tuning = TemperatureTuning{};
    }
    return model;
}

}  // namespace

TEST_CASE("export_gguf of models with experts: metadata and tensors of each type") {
    const std::vector<std::array<std::string, 2>> types = {{"mixtral", "llama"},
                                                           {"qwen3_moe", "qwen3moe"},
                                                           {"gpt_oss", "gpt-oss"},
                                                           {"llama4_text", "llama4"}};
    for (const auto& names : types) {
        const std::string type = names[0], architecture = names[1];
        CAPTURE(type);
        const FamilyModel model = model_with_experts(type);
        const Scratch scratch;
        const std::string path = (scratch.folder / "model.gguf").string();
        models::export_gguf(model, shipped_tokenizer(), path);
        CHECK_THROWS_AS(models::export_gguf(model, shipped_tokenizer(), path), FileError);
        const Gguf file(path);
        CHECK(file.text("general.architecture") == architecture);
        const ExpertSizes& sizes = moe(model.config).sizes;
        const auto size = [&](const std::string& key) {
            return std::size_t(file.integer(architecture + "." + key));
        };
        CHECK(size("expert_count") == sizes.num_experts);
        CHECK(size("expert_used_count") == sizes.num_experts_per_tok);
        if (type != "mixtral")
            CHECK(size("expert_feed_forward_length") == sizes.moe_intermediate_size);

        const auto& moe = std::get<MixtureOfExperts>(mlp_of(model.layers[1]));
        const std::size_t E = sizes.num_experts, F = sizes.moe_intermediate_size;
        CHECK_CLOSE(file.read("blk.1.ffn_gate_inp.weight", {E, 32}), moe.router.weight, 0);
        const Tensor3 up = file.read("blk.1.ffn_up_exps.weight", {E, F, 32});
        std::visit(
            [&](const auto& expert) {
                CHECK_CLOSE(Matrix(xt::view(up, 2)), expert.up_proj.weight, 0);
            },
            moe.experts[2]);
        CHECK(file.has_tensor("blk.1.ffn_up_exps.bias") == (type == "gpt_oss"));
        CHECK(file.has_tensor("blk.1.attn_sinks.weight") == (type == "gpt_oss"));
        CHECK(file.has_tensor("blk.1.post_attention_norm.weight") == (type == "gpt_oss"));
        CHECK(file.has_tensor("blk.1.ffn_up_shexp.weight") == (type == "llama4_text"));
        CHECK(file.has_tensor("rope_freqs.weight") == (type == "llama4_text"));
        CHECK(file.has_tensor("blk.1.attn_q_norm.weight") == (type == "qwen3_moe"));
    }
}

TEST_CASE("export_gguf of models with experts rejects what llama.cpp does not compute") {
    FamilyModel model = model_with_experts("mixtral");
    attention(model.config, 1).pattern = SlidingWindow{6};
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp's llama has no window: 64 tokens do not fit into a window of 6");
    model = model_with_experts("qwen3_moe");
    const auto change_moe = [&](const std::function<void(MoeConfig&)>& change) {
        change_each<MoeConfig>(model.config, change);
    };
    change_moe([](MoeConfig& each) { each.routing = SoftmaxRouting{false}; });
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp's qwen3moe normalizes the routing weights");
    model = model_with_experts("qwen3_moe");
    model.config.layers[2].mlp = MlpConfig{14};
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp's qwen3moe has a mixture in every layer; layer 2 is dense");
    model = model_with_experts("gpt_oss");
    YarnScaling yarn = *scaling_of<YarnScaling>(model.config);
    yarn.truncate = false;
    set_rope_scaling(model.config, yarn);
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp rounds YaRN's limits, of 32 and 1 rotations, to whole pairs");
    model = model_with_experts("gpt_oss");
    change_moe([](MoeConfig& each) { each.swiglu_limit = 6; });
    CHECK(rejection_of_gguf(model) == "export: llama.cpp's gpt-oss has a swiglu_limit of 7");
    model = model_with_experts("gpt_oss");
    attention(model.config, 1).pattern = SlidingWindow{5};
    CHECK(
        rejection_of_gguf(model) ==
        "export: llama.cpp's gpt-oss has windows in layers 0, 2, ... and full attention in all "
        "others");
    model = model_with_experts("gpt_oss");
    attention(model.config, 0).pattern = FullAttention{};
    CHECK(
        rejection_of_gguf(model) ==
        "export: llama.cpp's gpt-oss has windows in layers 0, 2, ... and full attention in all "
        "others");
    model = model_with_experts("gpt_oss");
    model.config.tie_word_embeddings = true;
    CHECK(rejection_of_gguf(model) == "export: llama.cpp's gpt-oss has an lm_head");
    model = model_with_experts("llama4_text");
    attention(model.config, 3).temperature_tuning->attn_scale = 1;
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp's llama4 has a floor_scale of 8192 and an attn_scale of 0.1");
    const std::string no_such_norm =
        "export: llama.cpp's llama4 has no QK norm if it has 128 experts, and one otherwise";
    model = model_with_experts("llama4_text");
    change_each<AttentionConfig>(
        model.config, [](AttentionConfig& each) { each.qk_norm = QKNormType::none; });
    CHECK(rejection_of_gguf(model) == no_such_norm);
    model = model_with_experts("llama4_text");
    change_moe([](MoeConfig& each) { each.sizes.num_experts = 128; });
    CHECK(rejection_of_gguf(model) == no_such_norm);
    model = model_with_experts("llama4_text");
    attention(model.config, 0).pattern = ChunkedAttention{5};
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp's llama4 has full attention without RoPE in layers 3, 7, ... and "
          "chunks of 8192 in all others");
    model = model_with_experts("llama4_text");
    model.config.layers[2].mlp = moe(model.config);
    CHECK(rejection_of_gguf(model) ==
          "export: llama.cpp's llama4 has mixtures at equal distances, unlike layer 2");
}
