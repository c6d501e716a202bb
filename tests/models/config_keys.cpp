// The keys that published config.json files have, with small sizes: all are read or known to
// have no effect.
#include "chapters/models/llama/config_json.hpp"
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

TEST_CASE("the keys of published config.json files are read: chapters/models") {
    const std::string common =
        R"("architectures": ["X"], "attention_dropout": 0.0, "bos_token_id": 1,
           "eos_token_id": [2, 3], "initializer_range": 0.02, "torch_dtype": "bfloat16",
           "transformers_version": "4.57.1", "use_cache": true, )";
    const std::vector<std::pair<std::string, std::string>> published = {
        {"gemma",
         R"("attention_bias": false, "head_dim": 4, "hidden_act": "gelu",
            "hidden_activation": null, "pad_token_id": 0, "rope_scaling": null,
            "rope_theta": 10000.0)"},
        {"gemma", R"("hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh")"},
        {"smollm3",
         R"("attention_bias": false, "hidden_act": "silu", "max_window_layers": 28,
            "layer_types": ["full_attention", "full_attention", "full_attention",
                            "full_attention", "full_attention", "full_attention",
                            "full_attention", "full_attention"],
            "mlp_bias": false, "no_rope_layer_interval": 4,
            "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0], "pretraining_tp": 2,
            "rope_scaling": null, "rope_theta": 5000000.0, "sliding_window": null,
            "use_sliding_window": false)"},
        {"phi3",
         R"("attention_bias": false, "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
            "embd_pdrop": 0.0, "hidden_act": "silu", "original_max_position_embeddings": 64,
            "pad_token_id": 32000, "partial_rotary_factor": 1.0, "resid_pdrop": 0.0,
            "rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 2047,
            "tie_word_embeddings": false)"},
        {"phi3",  // Phi-4-mini
         R"("attention_bias": false, "embd_pdrop": 0.0, "full_attn_mod": 1, "head_dim": 8,
            "hidden_act": "silu", "interpolate_factor": 1, "lm_head_bias": false,
            "mlp_bias": false, "original_max_position_embeddings": 16,
            "partial_rotary_factor": 0.75, "resid_pdrop": 0.0,
            "rope_scaling": {"long_factor": [1, 1.5, 9.25], "short_factor": [1.0, 1.0, 1.0],
                             "type": "longrope"},
            "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true)"},
        {"olmo2",
         R"("attention_bias": false, "hidden_act": "silu", "rope_scaling": null,
            "rope_theta": 500000, "tie_word_embeddings": false)"},
        {"granite",
         R"("attention_bias": false, "attention_multiplier": 0.015625,
            "embedding_multiplier": 12.0, "hidden_act": "silu", "logits_scaling": 8.0,
            "mlp_bias": false, "residual_multiplier": 0.22, "rope_scaling": null,
            "rope_theta": 5000000.0, "tie_word_embeddings": true)"},
        {"cohere2",
         R"("attention_bias": false, "cache_implementation": "hybrid", "head_dim": 4,
            "hidden_act": "silu", "layer_norm_eps": 1e-05, "layer_switch": 4,
            "logit_scale": 0.25, "order_of_interleaved_layers": "local_attn_first",
            "position_embedding_type": "rope_gptj", "rope_scaling": null,
            "rope_theta": 50000, "rotary_pct": 1.0, "sliding_window": 16,
            "sliding_window_pattern": 4, "use_embedding_sharing": true,
            "use_gated_activation": true, "use_parallel_block": true,
            "use_parallel_embedding": false)"},
        {"mistral", R"("sliding_window": 16, "hidden_act": "silu")"},
        {"gemma2",
         R"("attention_bias": false, "attn_logit_softcapping": 50.0,
            "cache_implementation": "hybrid", "final_logit_softcapping": 30.0,
            "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
            "pad_token_id": 0, "query_pre_attn_scalar": 4, "sliding_window": 16,
            "sliding_window_size": 16)"},
        {"gemma3_text",
         R"("_sliding_window_pattern": 6, "attention_bias": false,
            "attn_logit_softcapping": null, "cache_implementation": "hybrid",
            "final_logit_softcapping": null, "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 4, "rope_local_base_freq": 10000, "rope_scaling": null,
            "sliding_window": 16, "use_bidirectional_attention": false)"},
        {"mixtral",
         R"("hidden_act": "silu", "num_experts_per_tok": 2, "num_local_experts": 8,
            "output_router_logits": false, "router_aux_loss_coef": 0.02,
            "router_jitter_noise": 0.0, "sliding_window": null)"},
        {"qwen3_moe",
         R"("attention_bias": false, "decoder_sparse_step": 1, "hidden_act": "silu",
            "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 6,
            "norm_topk_prob": true, "num_experts": 8, "num_experts_per_tok": 2,
            "output_router_logits": false, "rope_scaling": null,
            "router_aux_loss_coef": 0.001, "sliding_window": 4096,
            "use_sliding_window": false)"},
        {"gpt_oss",
         R"("attention_bias": true, "experts_per_token": 2, "hidden_act": "silu",
            "initial_context_length": 32, "num_experts_per_tok": 2, "num_local_experts": 4,
            "output_router_logits": false, "pad_token_id": 0,
            "quantization_config": {"quant_method": "mxfp4",
                                    "modules_to_not_convert": ["lm_head"]},
            "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                             "original_max_position_embeddings": 32, "rope_type": "yarn",
                             "truncate": false},
            "router_aux_loss_coef": 0.9, "sliding_window": 8, "swiglu_limit": 7.0)"},
        {"llama4_text",
         R"("attention_bias": false, "attention_chunk_size": 8, "attn_scale": 0.1,
            "attn_temperature_tuning": 4, "cache_implementation": "hybrid",
            "floor_scale": 8192, "for_llm_compression": false, "hidden_act": "silu",
            "interleave_moe_layer_step": 1, "intermediate_size_mlp": 14,
            "no_rope_layers": [], "num_experts_per_tok": 1, "num_local_experts": 4,
            "output_router_logits": false, "rope_scaling": null,
            "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "use_qk_norm": true)"}};
    for (const auto& [type, members] : published) {
        const std::string& model_type = type;  // a lambda cannot capture a structured binding
        INFO(model_type);
        CHECK_NOTHROW(read(type, common + members));
    }
}

TEST_CASE("gpt2 has names of its own for common keys, and 4 C for a missing n_inner") {
    const auto gpt2 = [](const std::string& members) {
        const Scratch scratch;
        overwrite(scratch.folder / "config.json",
                  R"({"activation_function": "gelu_new", "attn_pdrop": 0.1, "embd_pdrop": 0.1,
                      "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024,
                      "n_embd": 24, "n_head": 4, "n_layer": 2, "n_positions": 64,
                      "resid_pdrop": 0.1, "summary_first_dropout": 0.1,
                      "summary_type": "cls_index",
                      "task_specific_params": {"text-generation": {"max_length": 50}},
                      "vocab_size": 31)" +
                      members + "}");
        return read_family_config(JsonFile(scratch.folder / "config.json"));
    };
    const FamilyConfig config = gpt2("");
    CHECK(config.intermediate_size == 96);
    CHECK(config.head_dim == 6);
    CHECK(config.num_key_value_heads == 4);
    CHECK(config.tie_word_embeddings);
    CHECK(gpt2(R"(, "n_inner": null)").intermediate_size == 96);
    CHECK(gpt2(R"(, "n_inner": 40)").intermediate_size == 40);
    CHECK(gpt2(R"(, "hidden_size": 24)").hidden_size == 24);  // both spellings, if they agree
    CHECK_THROWS_AS(gpt2(R"(, "hidden_size": 25)"), FileError);
    CHECK_THROWS_AS(gpt2(R"(, "rope_theta": 10000)"), FileError);
    for (const std::string flag :
         {R"("scale_attn_weights": false)", R"("add_cross_attention": true)",
          R"("scale_attn_by_inverse_layer_idx": true)"})
        CHECK_THROWS_AS(gpt2(", " + flag), FileError);
}

TEST_CASE("the keys of published config.json files are read: chapter 09's model types") {
    const Scratch scratch;
    const auto read_llama = [&](const std::string& members) {
        overwrite(scratch.folder / "config.json",
                  "{" + small_sizes +
                      R"(, "num_hidden_layers": 3, "max_position_embeddings": 64,
                      "rms_norm_eps": 1e-5, "hidden_act": "silu", "initializer_range": 0.02,
                      "torch_dtype": "bfloat16", "use_cache": true, )" +
                      members + "}");
        return models::read_config(JsonFile(scratch.folder / "config.json"));
    };
    const std::vector<std::string> published = {
        R"("model_type": "llama", "attention_bias": false, "attention_dropout": 0.0,
           "head_dim": 4, "mlp_bias": false, "pretraining_tp": 1,
           "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                            "original_max_position_embeddings": 32, "rope_type": "llama3"},
           "rope_theta": 500000.0, "tie_word_embeddings": true)",
        R"("model_type": "llama", "_name_or_path": "x", "is_llama_config": true,
           "rope_interleaved": false, "rope_scaling": null,
           "transformers.js_config": {"dtype": "q4", "kv_cache_dtype": {"q4f16": "float16"}})",
        R"("model_type": "mistral", "sliding_window": null, "head_dim": 4)",
        R"("model_type": "qwen2", "max_window_layers": 28, "sliding_window": 32768,
           "use_mrope": false, "use_sliding_window": false)",
        R"("model_type": "qwen3", "attention_bias": false, "head_dim": 4,
           "max_window_layers": 28, "rope_scaling": null, "sliding_window": null,
           "use_sliding_window": false)"};
    for (const std::string& members : published) {
        INFO(members);
        CHECK_NOTHROW(read_llama(members));
    }
}

TEST_CASE("rope_scaling: the type and the factor have no default once the object is there") {
    CHECK(scaling_of<YarnScaling>(read("gpt_oss", ""))->factor == 32);
    CHECK(scaling_of<YarnScaling>(read("gpt_oss", R"("rope_scaling": {})"))->factor == 32);
    CHECK_FALSE(scaling_of<YarnScaling>(
        read("gpt_oss", R"("rope_scaling": {"rope_type": "default"})")));
    CHECK(mentions(rejection_of("gpt_oss", R"("rope_scaling": {"factor": 2})"),
                   "rope_scaling has no rope_type"));
    CHECK(mentions(rejection_of("gpt_oss", R"("rope_scaling": {"rope_type": "yarn"})"),
                   "rope_scaling.factor is missing"));
    CHECK(mentions(rejection_of("gpt_oss", R"("rope_scaling": {"type": "linear", "factor": 2,
                                               "rope_type": "yarn"})"),
                   "contradict each other"));
    const FamilyConfig gemma3 =
        read("gemma3_text", R"("rope_scaling": {"type": "linear", "factor": 8})");
    CHECK(scaling_of<FrequencyFactors>(gemma3, 5)->factors(0) == 8);
}

TEST_CASE("rope_parameters of transformers 5 say the same as rope_theta and rope_scaling") {
    const auto same_as = [](const std::string& type, const std::string& old_members,
                            const std::string& new_members) {
        const FamilyConfig expected = read(type, old_members);
        const FamilyConfig config = read(type, new_members);
        CHECK(config.rope_theta == expected.rope_theta);
        for (std::size_t n = 0; n < config.layers.size(); ++n) {
            const RopeParameters *rope = rope_of(config.layers[n]),
                                 *expected_rope = rope_of(expected.layers[n]);
            REQUIRE(bool(rope) == bool(expected_rope));
            if (rope) CHECK(*rope == *expected_rope);
        }
        CHECK_CLOSE(rotary_tables(config, 16).front().cos,
                    rotary_tables(expected, 16).front().cos, 0);
    };
    for (const std::string type : {"mistral", "gemma", "gemma2", "smollm3", "granite", "olmo2",
                                   "phi3", "cohere2", "mixtral", "qwen3_moe"})
        same_as(type, R"("rope_theta": 500.0)",
                R"("rope_parameters": {"rope_type": "default", "rope_theta": 500.0})");
    same_as("gemma3_text",
            R"("rope_theta": 500.0, "rope_local_base_freq": 100.0,
               "rope_scaling": {"rope_type": "linear", "factor": 4.0})",
            R"("rope_parameters": {
                 "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
                 "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})");
    const std::string longrope = R"("rope_type": "longrope", "short_factor": [1.0, 1.5],
        "long_factor": [2.0, 9.0])";
    same_as("phi3",
            R"("rope_theta": 500.0, "head_dim": 8, "partial_rotary_factor": 0.5,
               "original_max_position_embeddings": 16, "rope_scaling": {)" +
                longrope + "}",
            R"("head_dim": 8, "original_max_position_embeddings": 16,
               "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5,
                   "original_max_position_embeddings": 16, "factor": 4.0, )" +
                longrope + "}");
    const std::string yarn = R"("rope_type": "yarn", "factor": 4.0, "beta_fast": 4.0,
        "beta_slow": 1.0, "original_max_position_embeddings": 16, "truncate": false)";
    same_as("gpt_oss", R"("rope_theta": 500.0, "rope_scaling": {)" + yarn + "}",
            R"("rope_parameters": {"rope_theta": 500.0, )" + yarn + "}");
    const std::string llama3 = R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16)";
    same_as("llama4_text", R"("rope_theta": 500.0, "rope_scaling": {)" + llama3 + "}",
            R"("rope_parameters": {"rope_theta": 500.0, )" + llama3 + "}");

    CHECK(mentions(rejection_of("mixtral", R"("rope_parameters": {"rope_type": "ntk",
                                               "factor": 2, "rope_theta": 500.0})"),
                   "rope_parameters.rope_type ntk is not supported; supported: default, "
                   "linear, dynamic, llama3, yarn and longrope"));
    // By type of layer, also with scaling of the windows.
    const FamilyConfig by_type = read("gemma3_text", R"("rope_parameters": {
                     "full_attention": {"rope_theta": 500.0},
                     "sliding_attention": {"rope_type": "linear", "factor": 2.0,
                                           "rope_theta": 100.0}})");
    CHECK(rope_of(by_type.layers[0])->rope_theta == 100);
    CHECK(scaling_of<FrequencyFactors>(by_type, 0)->factors(1) == 2);
    CHECK(rope_of(by_type.layers[5])->rope_theta == 500);
    CHECK(scaling_of<std::monostate>(by_type, 5));
    CHECK(by_type.rope_theta == 500);
    const FamilyConfig without_windows = read("mixtral", R"("rope_parameters": {
        "full_attention": {"rope_theta": 7.0}, "sliding_attention": {"rope_theta": 2.0}})");
    CHECK(without_windows.rope_theta == 7);
    CHECK(mentions(rejection_of("gemma3_text", R"("rope_parameters": {
                     "full_attention": {"rope_theta": 500.0, "rotary_dim": 1},
                     "sliding_attention": {"rope_theta": 100.0}})"),
                   "rope_parameters.full_attention.rotary_dim 1 is not supported: nothing"));
}

TEST_CASE("Llama 4: attn_temperature_tuning may be a number, layer_types must agree") {
    const auto tuning = [](const std::string& value) {
        const FamilyConfig config =
            read("llama4_text", "\"attn_temperature_tuning\": " + value);
        return attention(config, 3).temperature_tuning.has_value();
    };
    CHECK(tuning("4"));
    CHECK(!tuning("0"));
    CHECK(!tuning("false"));
    std::string types, layers;
    for (int n = 0; n < 8; ++n) {
        types += std::string(n > 0 ? ", " : "") +
                 (n == 2 ? "\"full_attention\"" : "\"chunked_attention\"");
        layers += std::string(n > 0 ? ", " : "") + (n == 2 ? "0" : "1");
    }
    const std::string both = "\"layer_types\": [" + types + "], \"no_rope_layers\": [";
    CHECK(!rope_of(read("llama4_text", both + layers + "]").layers[2]));
    CHECK(mentions(rejection_of("llama4_text", both + "]"),
                   "layer_types and no_rope_layers contradict each other"));
}
