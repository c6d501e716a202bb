// GGUF files of chapter 18. tests/check_llama_cpp.mjs lets the real llama.cpp read them.
#include "chapters/10_tokenizer/load_tokenizer.hpp"
#include "chapters/18_experts/mixture_checkpoint.hpp"
#include "chapters/18_experts/mixture_gguf.hpp"
#include "common/files/gguf.hpp"
#include "tests/check.hpp"
#include "tests/files.hpp"

using namespace llm;

namespace {

// A model of tests/fixtures with the vocabulary of the shipped tokenizer and with settings that
// llama.cpp has.
MixtureModel test_model(const std::string& type) {
    MixtureModel model = load_mixture_model(fixture_path("18_experts/" + type));
    MixtureConfig& config = model.config;
    Generator generator(3);
    config.config.vocab_size = 1024;
    model.embed_tokens = randn({1024, 32}, generator);
    model.lm_head = randn({1024, 32}, generator);
    config.swiglu_limit = 7;
    if (type == "mixtral") config.patterns.assign(3, FullAttention{});
    if (type == "qwen3_moe") {  // layer 1 has the only mixture
        config.is_mixture.assign(4, true);
        for (MixtureBlock& layer : model.layers) layer.mlp = model.layers[1].mlp;
    }
    if (type == "gpt_oss") {
        config.yarn->truncate = true;
        config.yarn->beta_fast = 32;
    }
    if (type == "llama4_text") {
        config.use_rope = {true, true, true, false};
        config.patterns.assign(4, ChunkedAttention{8192});
        config.patterns[3] = FullAttention{};
        config.temperature_tuning = TemperatureTuning{};
        config.is_mixture = {false, true, false, true};
    }
    return model;
}

Tokenizer shipped_tokenizer() { return load_tokenizer(asset("king_james/tokenizer.json")); }

std::string refusal_of(const MixtureModel& model) {
    const Scratch scratch;
    try {
        export_gguf(model, shipped_tokenizer(), (scratch.folder / "model.gguf").string());
    } catch (const ShapeError& error) {
        return error.what();
    }
    return "not refused";
}

}  // namespace

TEST_CASE("export_gguf of chapter 18: metadata and tensors of each type") {
    const std::vector<std::array<std::string, 2>> types = {{"mixtral", "llama"},
                                                           {"qwen3_moe", "qwen3moe"},
                                                           {"gpt_oss", "gpt-oss"},
                                                           {"llama4_text", "llama4"}};
    for (const auto& names : types) {
        const std::string type = names[0], architecture = names[1];
        CAPTURE(type);
        const MixtureModel model = test_model(type);
        const Scratch scratch;
        const std::string path = (scratch.folder / "model.gguf").string();
        export_gguf(model, shipped_tokenizer(), path);
        CHECK_THROWS_AS(export_gguf(model, shipped_tokenizer(), path), FileError);
        const Gguf file(path);
        CHECK(file.text("general.architecture") == architecture);
        const MixtureSizes& sizes = model.config.sizes;
        const auto size = [&](const std::string& key) {
            return std::size_t(file.integer(architecture + "." + key));
        };
        CHECK(size("expert_count") == sizes.num_experts);
        CHECK(size("expert_used_count") == sizes.num_experts_per_tok);
        if (type != "mixtral")
            CHECK(size("expert_feed_forward_length") == sizes.moe_intermediate_size);

        const auto& mixture = std::get<MixtureOfExperts>(model.layers[1].mlp);
        const std::size_t E = sizes.num_experts, F = sizes.moe_intermediate_size;
        CHECK_CLOSE(file.read("blk.1.ffn_gate_inp.weight", {E, 32}), mixture.router.weight, 0);
        const Tensor3 up = file.read("blk.1.ffn_up_exps.weight", {E, F, 32});
        std::visit(
            [&](const auto& expert) {
                CHECK_CLOSE(Matrix(xt::view(up, 2)), expert.up_proj.weight, 0);
            },
            mixture.experts[2]);
        CHECK(file.has_tensor("blk.1.ffn_up_exps.bias") == (type == "gpt_oss"));
        CHECK(file.has_tensor("blk.1.attn_sinks.weight") == (type == "gpt_oss"));
        CHECK(file.has_tensor("blk.1.post_attention_norm.weight") == (type == "gpt_oss"));
        CHECK(file.has_tensor("blk.1.ffn_up_shexp.weight") == (type == "llama4_text"));
        CHECK(file.has_tensor("rope_freqs.weight") == (type == "llama4_text"));
        CHECK(file.has_tensor("blk.1.attn_q_norm.weight") == (type == "qwen3_moe"));
    }
}

TEST_CASE("export_gguf of chapter 18 refuses what llama.cpp does not compute") {
    MixtureModel model = test_model("mixtral");
    model.config.patterns[1] = SlidingWindow{6};
    CHECK(refusal_of(model) ==
          "export: llama.cpp's llama has no window: 64 tokens do not fit into a window of 6");
    model = test_model("qwen3_moe");
    model.config.norm_topk_prob = false;
    CHECK(refusal_of(model) == "export: llama.cpp's qwen3moe normalizes the gates");
    model = test_model("qwen3_moe");
    model.config.is_mixture[2] = false;
    CHECK(refusal_of(model) ==
          "export: llama.cpp's qwen3moe has a mixture in every layer; layer 2 is dense");
    model = test_model("gpt_oss");
    model.config.yarn->truncate = false;
    CHECK(refusal_of(model) ==
          "export: llama.cpp rounds YaRN's limits, of 32 and 1 rotations, to whole pairs");
    model = test_model("gpt_oss");
    model.config.swiglu_limit = 6;
    CHECK(refusal_of(model) == "export: llama.cpp's gpt-oss has a swiglu_limit of 7");
    model = test_model("gpt_oss");
    model.config.patterns[1] = SlidingWindow{5};
    CHECK(
        refusal_of(model) ==
        "export: llama.cpp's gpt-oss has windows in layers 0, 2, ... and full attention in all "
        "others");
    model = test_model("gpt_oss");
    model.config.config.tie_word_embeddings = true;
    CHECK(refusal_of(model) == "export: llama.cpp's gpt-oss has an lm_head");
    model = test_model("llama4_text");
    model.config.temperature_tuning->attn_scale = 1;
    CHECK(refusal_of(model) ==
          "export: llama.cpp's llama4 has a floor_scale of 8192 and an attn_scale of 0.1");
    const std::string no_such_norm =
        "export: llama.cpp's llama4 has no QK norm if it has 128 experts, and one otherwise";
    model = test_model("llama4_text");
    model.config.config.qk_norm = QKNormType::none;
    CHECK(refusal_of(model) == no_such_norm);
    model = test_model("llama4_text");
    model.config.sizes.num_experts = 128;
    CHECK(refusal_of(model) == no_such_norm);
    model = test_model("llama4_text");
    model.config.patterns[0] = ChunkedAttention{5};
    CHECK(refusal_of(model) ==
          "export: llama.cpp's llama4 has full attention without RoPE in layers 3, 7, ... and "
          "chunks of 8192 in all others");
    model = test_model("llama4_text");
    model.config.is_mixture[2] = true;
    CHECK(refusal_of(model) ==
          "export: llama.cpp's llama4 has mixtures at equal distances, unlike layer 2");
}
