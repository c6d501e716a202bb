#include <array>
#include <string>
#include <vector>

#include "chapters/models/llama/config_json.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"
#include "tests/support/rejection.hpp"

using namespace llm;

namespace {

// The message for a checkpoint with these members added to its config.json.
std::string rejection_of_config_with(const std::string& name, const std::string& members) {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/" + name);
    edit(folder + "/config.json", "\"hidden_act\"", members + ", \"hidden_act\"");
    return rejection(folder);
}

}  // namespace

TEST_CASE("read_config reads every field and fills in those that may be missing") {
    const Scratch scratch;
    const auto read = [&](const std::string& json) {
        overwrite(scratch.folder / "config.json", json);
        return models::read_config(JsonFile(scratch.folder / "config.json"));
    };
    const std::string sizes =
        R"("hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 3,
           "num_attention_heads": 4, "vocab_size": 17, "max_position_embeddings": 64,
           "rms_norm_eps": 0.25)";
    const Config llama = read(R"({"model_type": "llama", )" + sizes + "}");
    CHECK(llama.hidden_size == 16);
    CHECK(llama.intermediate_size == 20);
    CHECK(llama.num_hidden_layers == 3);
    CHECK(llama.num_attention_heads == 4);
    CHECK(llama.num_key_value_heads == 4);  // defaults to the query heads
    CHECK(llama.head_dim == 4);
    CHECK(llama.vocab_size == 17);
    CHECK(llama.max_position_embeddings == 64);
    CHECK(llama.rms_norm_eps == Real(0.25));
    CHECK(llama.rope_theta == 10000);
    CHECK_FALSE(llama.tie_word_embeddings);
    CHECK(llama.qk_norm == QKNormType::none);
    CHECK(llama.attention_bias == AttentionBias::none);

    // model_type takes precedence over Mini-LLM's field names; without both it is an error.
    CHECK(read(R"({"model_type": "llama", "dim": 8, )" + sizes + "}").hidden_size == 16);
    CHECK_THROWS_AS(read("{" + sizes + "}"), FileError);
    CHECK(read(R"({"dim": 16, "n_layers": 1, "n_heads": 4, "vocab_size": 17,
                   "multiple_of": 24, "max_seq_len": 32})")
              .hidden_size == 16);

    const Config biased =
        read(R"({"model_type": "llama", "attention_bias": true, )" + sizes + "}");
    CHECK(biased.attention_bias == AttentionBias::qkvo);
    const Config qwen2 = read(R"({"model_type": "qwen2", )" + sizes + "}");
    CHECK(qwen2.attention_bias == AttentionBias::qkv);
    const Config qwen3 = read(R"({"model_type": "qwen3", )" + sizes + "}");
    CHECK(qwen3.head_dim == 128);
    CHECK(qwen3.qk_norm == QKNormType::with_weights);

    const Config mini = read(
        R"({"model_type": "mini-llm", "dim": 16, "n_layers": 3, "n_heads": 4, "vocab_size": 17,
            "multiple_of": 24, "max_seq_len": 32})");
    CHECK(mini.num_key_value_heads == 4);
    CHECK(mini.intermediate_size == 72);
    CHECK(mini.max_position_embeddings == 32);
    CHECK(mini.rms_norm_eps == Real(1e-6));
    CHECK(mini.tie_word_embeddings);
    CHECK(mini.qk_norm == QKNormType::none);

    // Windows: Mistral's default is 4096; Qwen has none unless use_sliding_window is true.
    const std::string longer = std::string(sizes).replace(sizes.find(": 64"), 4, ": 8192");
    const auto rejected = [&](const std::string& start) {
        CHECK_THROWS_AS(read("{" + start + ", " + longer + "}"), FileError);
    };
    const auto with_context = [&](const std::string& length) {
        return R"({"model_type": "mistral", )" +
               std::string(sizes).replace(sizes.find(": 64"), 4, length) + "}";
    };
    CHECK_NOTHROW(read(with_context(": 4096")));
    CHECK_THROWS_AS(read(with_context(": 4097")), FileError);
    rejected(R"("model_type": "mistral")");
    rejected(R"("model_type": "qwen2", "use_sliding_window": true)");
    rejected(R"("model_type": "mistral", "sliding_window": 8, "use_sliding_window": false)");
    CHECK_NOTHROW(read(R"({"model_type": "mistral", "sliding_window": null, )" + longer + "}"));
    CHECK_NOTHROW(read(R"({"model_type": "qwen3", "sliding_window": 8, )" + longer + "}"));
}

TEST_CASE("an unsupported or invalid field of config.json is rejected by name") {
    const std::vector<std::array<std::string, 3>> cases = {
        {"\"model_type\": \"mistral\"", "\"model_type\": \"gpt2\"", "model_type gpt2"},
        {"\"silu\"", "\"gelu\"", "hidden_act gelu"},
        {"\"sliding_window\": null", "\"sliding_window\": 8", "sliding_window"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"", "yarn"},
        {"\"sliding_window\": null", "\"mlp_bias\": true", "mlp_bias"},
        {"\"sliding_window\": null", "\"quantization_config\": {\"quant_method\": \"awq\"}",
         "quantization_config says that the weights are quantized (awq)"},
        {"\"hidden_size\": 16", "\"hidden_size\": 0", "hidden_size must be a whole number"},
        {"\"hidden_size\": 16", "\"hidden_size\": 1e3", "hidden_size must be a whole number"},
        {"\"hidden_size\": 16", "\"hidden_size\": \"16\"", "not \"16\""},
        {"\"hidden_size\": 16", "\"hidden_size\": 99999999999", "not 99999999999"},
        {"\"hidden_size\": 16", "\"other\": 16", "should have the shape (4096,)"},
        {"\"num_attention_heads\": 4", "\"num_attention_heads\": 3", "3 query heads"},
        {"\"rms_norm_eps\": 0.001", "\"rms_norm_eps\": true", "rms_norm_eps must be a number"},
        {"\"rms_norm_eps\": 0.001", "\"rms_norm_eps\": 0", "rms_norm_eps must be above 0"},
        {"\"rope_theta\": 500.0", "\"rope_theta\": -1", "rope_theta must be above 0"},
        {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 0",
         "must be true or false"},
        {"\"hidden_act\"", "hidden_act", "not valid JSON at line "},
        {"\"rope_type\": \"default\"", "\"type\": \"linear\"", "factor must be above 0"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"llama3\"", "factor is missing"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"dynamic\"", "factor is missing"},
        {"\"sliding_window\": null", "\"rope_scaling\": {\"type\": \"yarn\"}", "contradict"},
        {"\"head_dim\": 4", "\"head_dim\": 5", "head_dim must be even"},
        {"\"hidden_size\": 16", "\"hidden_size\": " + std::string(200000, '['),
         "nested more than 128 deep"},
        {"\"hidden_size\": 16",
         "\"hidden_size\": " + std::string(200000, '[') + std::string(200000, ']'),
         "nested more than 128 deep"},
        {"\"mistral\"", "\"gemma2\"", "(./learn model reads other types)"},
        {"\"mistral\"", "\"gpt_oss\"", "(./learn model reads other types)"},
        {"\"mistral\"", "\"mamba\"", "supported: llama, mistral, qwen2, qwen3, mini-llm"},
        {"\"silu\"", "\"" + std::string(100000, 'x') + "\"", "hidden_act xxx"},
    };
    for (const auto& [old_text, new_text, message] : cases) {
        const Scratch scratch;
        const std::string folder = scratch.copy_of("09_full_model/mistral");
        edit(folder + "/config.json", old_text, new_text);
        CHECK(mentions(rejection(folder), message));
    }
    for (const auto& [old_text, new_text] : std::vector<std::array<std::string, 2>>{
             {"\"factor\": 8.0", "\"factor\": 0"},
             {"\"low_freq_factor\": 1.0", "\"low_freq_factor\": 4.5"},
             {"\"low_freq_factor\": 1.0", "\"low_freq_factor\": 0"},
             {"\"original_max_position_embeddings\": 32",
              "\"original_max_position_embeddings\": 0"}}) {
        const Scratch damaged;
        const std::string folder = damaged.copy_of("09_full_model/llama");
        edit(folder + "/config.json", old_text, new_text);
        CHECK(mentions(rejection(folder), "rope_scaling needs"));
    }
    const Scratch unscaled;  // a factor of 1 is valid
    const std::string llama = unscaled.copy_of("09_full_model/llama");
    edit(llama + "/config.json", "\"factor\": 8.0", "\"factor\": 1.0");
    CHECK_NOTHROW(models::load_model(llama));

    const Scratch scratch;  // a window as wide as the model's context masks nothing
    const std::string folder = scratch.copy_of("09_full_model/mistral");
    edit(folder + "/config.json", "\"sliding_window\": null", "\"sliding_window\": 64");
    CHECK_NOTHROW(models::load_model(folder));
}

TEST_CASE(
    "a setting that would change the result is rejected with key, value and alternative") {
    const std::vector<std::array<std::string, 3>> cases = {
        {"partial_rotary_factor", "0.5", "1"},
        {"embedding_multiplier", "12.0", "1"},
        {"residual_multiplier", "0.22", "1"},
        {"logits_scaling", "8", "1"},
        {"logit_scale", "0.0625", "1"},
        {"scale_emb", "12", "1"},
        {"attention_multiplier", "0.5", "null"},
        {"query_pre_attn_scalar", "256", "null"},
        {"clip_qkv", "8", "null"},
        {"attn_logit_softcapping", "50.0", "null"},
        {"final_logit_softcapping", "30.0", "null"},
        {"scale_depth", "1.4", "null"},
        {"dim_model_base", "256", "null"},
        {"hidden_activation", "\"gelu\"", "\"silu\""},
        {"mlp_bias", "true", "false"},
        {"use_qk_norm", "true", "false"},
        {"qk_layernorm", "true", "false"},
        {"use_parallel_residual", "true", "false"},
        {"use_bidirectional_attention", "true", "false"},
        {"is_causal", "false", "true"},
        {"sliding_window", "63", "64"},
        {"layer_types", "[\"chunked_attention\"]", "[\"full_attention\"]"},
        {"layer_types", "[\"full_attention\", \"sliding_attention\"], \"sliding_window\": 8",
         "[\"full_attention\", \"sliding_attention\"], \"sliding_window\": 64"},
        {"no_rope_layers", "[1, 0]", "null"},
    };
    for (const auto& [key, rejected, accepted] : cases) {
        const std::string& setting = key;  // INFO's lambda cannot capture a structured binding
        INFO(setting);
        const std::string line =
            rejection_of_config_with("llama", "\"" + key + "\": " + rejected);
        CHECK(mentions(line, "is not supported"));
        if (rejected.find_first_of("[\"") == rejected.npos)
            CHECK(mentions(line, "config.json: " + key + " " + rejected.substr(0, 2)));
        CHECK(rejection_of_config_with("llama", "\"" + key + "\": " + accepted) ==
              "it was loaded");
        CHECK(rejection_of_config_with("llama", "\"" + key + "\": null") == "it was loaded");
    }
    CHECK(mentions(rejection_of_config_with("llama", "\"partial_rotary_factor\": 0.25"),
                   "/config.json: partial_rotary_factor 0.25 is not supported; supported: 1"));
    CHECK(mentions(rejection_of_config_with("llama", "\"final_logit_softcapping\": 30.0"),
                   "final_logit_softcapping 30.0 is not supported: nothing reads it (--ignore "
                   "final_logit_softcapping reads the file as if this were not there)"));
    CHECK(mentions(rejection_of_config_with("llama", "\"sliding_window\": 8"),
                   "supported: null, or at least max_position_embeddings 64"));
    CHECK(rejection_of_config_with("llama",
                                   "\"sliding_window\": 8, \"use_sliding_window\": false") ==
          "it was loaded");
    CHECK(
        mentions(rejection_of_config_with("qwen2", "\"layer_types\": [\"sliding_attention\"]"),
                 "sliding_window 8 is not supported"));
    CHECK(rejection_of_config_with("qwen3", "\"use_qk_norm\": true") == "it was loaded");
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/mini_llm");
    edit(folder + "/config.json", "\"dim\"", "\"rope_theta\": 500000.0, \"dim\"");
    CHECK(mentions(rejection(folder), "rope_theta 500000 is not supported; supported: 10000"));
    edit(folder + "/config.json", "\"rope_theta\": 500000.0", "\"norm_eps\": 1e-5");
    CHECK(mentions(rejection(folder), "norm_eps 1e-05 is not supported; supported: 1e-06"));
}

TEST_CASE("RoPE: a missing type, a partial rotation and two values of theta are rejected") {
    const auto scaled = [](const std::string& object) {
        return rejection_of_config_with("qwen2", "\"rope_scaling\": " + object);
    };
    const std::string missing = "rope_scaling has no rope_type";
    CHECK(scaled("{}") == "it was loaded");
    CHECK(mentions(scaled("{\"factor\": 2.0}"), missing));
    CHECK(mentions(scaled("{\"type\": \"yarn\", \"factor\": 2.0}"),
                   "rope_scaling.rope_type yarn is not supported; supported: default, linear"));
    CHECK(mentions(scaled("[2]"), "rope_scaling must be an object"));
    CHECK(scaled("{\"type\": \"default\"}") == "it was loaded");
    CHECK(mentions(scaled("{\"type\": \"default\", \"partial_rotary_factor\": 0.5}"),
                   "rope_scaling.partial_rotary_factor 0.5 is not supported"));

    const auto after = [](const std::string& old_text, const std::string& new_text) {
        const Scratch scratch;
        const std::string folder = scratch.copy_of("09_full_model/mistral");
        edit(folder + "/config.json", old_text, new_text);
        return rejection(folder);
    };
    const std::string type = "\"rope_type\": \"default\"";
    CHECK(after(type, "\"other\": null") == "it was loaded");
    CHECK(mentions(after(type, "\"rotary_dim\": 2"),
                   "rope_parameters.rotary_dim 2 is not supported: nothing reads it"));
    CHECK(after(type, type + ", \"type\": \"default\"") == "it was loaded");
    CHECK(mentions(after(type, type + ", \"type\": \"linear\""),
                   "rope_parameters.rope_type default and rope_parameters.type linear "
                   "contradict each other"));
    CHECK(mentions(after(type, "\"factor\": 2.0"), "rope_parameters has no rope_type"));
    CHECK(mentions(after(type, type + ", \"partial_rotary_factor\": 0.5"),
                   "rope_parameters.partial_rotary_factor 0.5 is not supported"));
    CHECK(mentions(after(type, type + ", \"full_attention\": {}"),
                   "rope_parameters.full_attention is not supported"));
    const std::string act = "\"hidden_act\"";
    CHECK(mentions(after(act, "\"rope_theta\": 10000.0, " + act),
                   "rope_theta 10000 and rope_parameters.rope_theta 500 contradict"));
    CHECK(after(act, "\"rope_theta\": 500, " + act) == "it was loaded");
}
