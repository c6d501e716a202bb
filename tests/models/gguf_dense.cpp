// GGUF files of dense families. tests/checks/check_llama_cpp.mjs lets the
// real llama.cpp read them.
#include "common/files/gguf.hpp"
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

TEST_CASE("export_gguf of dense families: metadata and tensors") {
    for (const std::string type : {"gemma", "granite"}) {
        CAPTURE(type);
        const FamilyModel model = dense_model(type);
        const Scratch scratch;
        const std::string path = (scratch.folder / "model.gguf").string();
        models::export_gguf(model, shipped_tokenizer(), path);
        const Gguf file(path);
        CHECK(file.text("general.architecture") == type);
        CHECK(file.integer(type + ".attention.key_length") == 6);
        CHECK(file.number(type + ".rope.freq_base") == 500);
        const bool granite = type == "granite";
        if (granite) {
            CHECK(file.number("granite.embedding_scale") == doctest::Approx(3));
            CHECK(file.number("granite.attention.scale") == doctest::Approx(0.3));
            CHECK(file.number("granite.residual_scale") == doctest::Approx(0.4));
            CHECK(file.number("granite.logit_scale") == doctest::Approx(2.5));
        }
        const auto& block = std::get<MoeBlock>(model.layers[2]);
        CHECK_CLOSE(file.read("blk.2.ffn_norm.weight", {20}), block.ffn_norm.weight, 0);
        const Matrix q_proj = file.read("blk.2.attn_q.weight", {24, 20});
        const Matrix& ours = block.self_attn.layer.projections.q_proj.weight;
        CHECK(difference(q_proj, ours, 0).empty() == !granite);  // granite: interleaved pairs
        CHECK(file.tensors().size() == model.layers.size() * 9 + (granite ? 3 : 2));
    }
}

TEST_CASE("export_gguf of gpt2 and cohere2: metadata and tensors") {
    const Scratch scratch;
    const auto exported = [&](const FamilyModel& model) {
        const std::string path =
            (scratch.folder / (model.config.family->model_type + ".gguf")).string();
        models::export_gguf(model, shipped_tokenizer(), path);
        return Gguf(path);
    };
    const FamilyModel gpt2 = dense_model("gpt2");
    const Gguf gpt2_file = exported(gpt2);
    CHECK(gpt2_file.number("gpt2.attention.layer_norm_epsilon") == doctest::Approx(1e-3));
    CHECK_FALSE(gpt2_file.has("gpt2.attention.layer_norm_rms_epsilon"));
    CHECK_CLOSE(gpt2_file.read("position_embd.weight", {64, 24}), *gpt2.embed_positions, 0);
    const auto& block = std::get<Gpt2Block>(gpt2.layers[1]);
    CHECK_CLOSE(gpt2_file.read("blk.1.attn_norm.bias", {24}), *block.attention_norm.bias, 0);
    const Vector biases = gpt2_file.read("blk.1.attn_qkv.bias", {72});
    CHECK_CLOSE(Vector(xt::view(biases, xt::range(24, 48))),
                *block.self_attn.layer.projections.k_proj.bias, 0);
    CHECK(gpt2_file.tensors().size() == 3 * 12 + 4);

    FamilyModel cohere2 = dense_model("cohere2");
    CHECK(
        rejection_of_gguf(cohere2) ==
        "export: llama.cpp's cohere2 has full attention without RoPE in layers 3, 7, ..., and "
        "windows in all others");
    const FamilyConfig cohere2_layers = cohere2.config;  // with a window, without
    for (std::size_t n = 0; n < cohere2.layers.size(); ++n)
        attention(cohere2.config, n) = attention(cohere2_layers, n == 3 ? 1 : 0);
    const Gguf cohere2_file = exported(cohere2);
    CHECK(cohere2_file.number("cohere2.attention.layer_norm_epsilon") == doctest::Approx(1e-3));
    CHECK(cohere2_file.number("cohere2.logit_scale") == doctest::Approx(0.3));
    CHECK(cohere2_file.size("cohere2.attention.sliding_window") == 6);
    CHECK(cohere2_file.tensors().size() == 5 * 8 + 2);
    cohere2.config.tie_word_embeddings = false;
    CHECK(rejection_of_gguf(cohere2) == "export: llama.cpp's cohere2 has a tied head");
}

TEST_CASE("export_gguf of dense families rejects what llama.cpp does not compute") {
    CHECK(
        rejection_of_gguf(dense_model("smollm3")) ==
        "export: llama.cpp's smollm3 has no RoPE in layers 3, 7, ..., and RoPE in all others");
    FamilyModel smollm3 = dense_model("smollm3");
    const FamilyConfig smollm3_layers = smollm3.config;  // with RoPE, without
    for (std::size_t n = 0; n < smollm3.layers.size(); ++n)
        attention(smollm3.config, n) = attention(smollm3_layers, n == 3 ? 1 : 0);
    CHECK(rejection_of_gguf(smollm3) == "not rejected");
    FamilyModel gemma = dense_model("gemma");
    gemma.config.tie_word_embeddings = false;
    CHECK(rejection_of_gguf(gemma) == "export: llama.cpp's gemma has a tied head");
    FamilyModel olmo2 = dense_model("olmo2");
    CHECK(rejection_of_gguf(olmo2) ==
          "export: llama.cpp's olmo2 has 4 heads of 5 for a hidden size of 20");
    FamilyModel phi3 = dense_model("phi3");
    CHECK(rejection_of_gguf(phi3) ==
          "export: llama.cpp's phi3 has no window: 64 tokens do not fit into a window of 6");
    set_patterns(phi3.config, {phi3.layers.size(), AttentionPattern{FullAttention{}}});
    CHECK(rejection_of_gguf(phi3) ==
          "export: llama.cpp's phi3 has 4 heads of 5 for a hidden size of 20");
    olmo2.config.tie_word_embeddings = true;
    CHECK(rejection_of_gguf(olmo2) == "export: llama.cpp's olmo2 has no tied head");
}

TEST_CASE("dense families: settings that are not implemented are rejected") {
    CHECK(mentions(rejection_of("gemma", R"("hidden_act": "relu")"),
                   "hidden_act relu is not supported; supported: gelu_pytorch_tanh"));
    CHECK(mentions(rejection_of("gemma", R"("hidden_activation": "prelu")"),
                   "hidden_activation prelu is not supported"));
    CHECK(mentions(rejection_of("gemma", R"("sliding_window": 8)"), "sliding_window"));
    CHECK(mentions(rejection_of("smollm3", R"("no_rope_layers": [1])"),
                   "no_rope_layers has 1 entries for 8 layers"));
    std::string types;
    for (int n = 0; n < 8; ++n)
        types += n == 0 ? R"("sliding_attention")" : R"(, "full_attention")";
    CHECK(mentions(
        rejection_of("smollm3", R"("sliding_window": 8, "layer_types": [)" + types + "]"),
        "layer_types sliding_attention is not supported"));
    CHECK(mentions(rejection_of("smollm3", R"("layer_types": ["full_attention"])"),
                   "layer_types has 1 entries for 8 layers"));
    CHECK(sliding_window(read("smollm3", R"("use_sliding_window": true, "sliding_window": 8,
                                            "layer_types": [)" +
                                             types + "]")) == 8);
    CHECK(mentions(rejection_of("phi3", R"("use_qk_norm": true)"),
                   "use_qk_norm true is not supported"));
    for (const auto& [member, message] :
         {std::pair{R"("rope_scaling": {"type": "longrope"})", "short_factor is missing"},
          {R"("rope_scaling": {"type": "ntk", "factor": 2})",
           "rope_scaling.rope_type ntk is not supported; supported: default, linear, "},
          {R"("rope_scaling": {"type": "su", "short_factor": [1], "long_factor": [1, 1]})",
           "short_factor must have 2 numbers, one per frequency, not 1"},
          {R"("rope_scaling": {"type": "su", "short_factor": [1, 0], "long_factor": [1, 1]})",
           "short_factor must be above 0, not 0"},
          {R"("rope_scaling": {"type": "su", "short_factor": [1, "1"], "long_factor": [1]})",
           "short_factor must be a number, not"},
          {R"("original_max_position_embeddings": 16, "rope_scaling": {"type": "longrope",
              "short_factor": [1, 1], "long_factor": [1, 1], "factor": 3})",
           "rope_scaling.factor contradicts max_position_embeddings"},
          {R"("partial_rotary_factor": 0.75)",
           "partial_rotary_factor 0.75 is not supported; supported: an even number of the 4"},
          {R"("partial_rotary_factor": 1.5)", "partial_rotary_factor 1.5 is not supported"},
          {R"("partial_rotary_factor": 1e51)", "partial_rotary_factor 1e+51 is not supported"},
          {R"("partial_rotary_factor": 0.5, "rope_parameters": {"rope_theta": 500.0,
              "partial_rotary_factor": 1.0})",
           "partial_rotary_factor contradicts rope_parameters.partial_rotary_factor"}}) {
        const std::string expected = message;
        CHECK(mentions(rejection_of("phi3", member), expected));
    }
    CHECK(rejection_of("granite", R"("partial_rotary_factor": 1.0)") == "not rejected");
    CHECK(mentions(rejection_of("llama4_text", R"("rope_parameters": {"chunked_attention": {
                                "rope_theta": 500.0}})"),
                   "rope_parameters chunked_attention is not supported; supported: "
                   "full_attention and sliding_attention"));
    for (const auto& [member, message] :
         {std::pair{R"("head_dim": 8)",
                    "head_dim 8 is not supported; supported: hidden_size /"},
          {R"("use_qk_norm": true)", "use_qk_norm true is not supported"},
          {R"("position_embedding_type": "nope")", "position_embedding_type nope is not"},
          {R"("rotary_pct": 0.5)", "rotary_pct 0.5 is not supported; supported: 1"},
          {R"("use_parallel_block": false)", "use_parallel_block false is not supported"},
          {R"("layer_switch": 2)", "layer_switch contradicts sliding_window_pattern"}}) {
        const std::string expected = message;
        CHECK(mentions(rejection_of("cohere2", member), expected));
    }
    CHECK(mentions(rejection_of("granite", R"("residual_multiplier": 0)"),
                   "residual_multiplier"));
    CHECK(mentions(rejection_of("granite", R"("no_rope_layers": [1])"), "no_rope_layers"));
}
