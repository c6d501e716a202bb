// The settings of a config.json that its model type does not read, by kind.
#include "chapters/models/llama/unread_settings.hpp"

#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/llama/settings_lists.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"
#include "tests/support/rejection.hpp"

using namespace llm;

namespace {

// The message for a Mistral with this member in its config.json.
std::string with(const std::string& member) {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/mistral");
    edit(folder + "/config.json", "{", "{" + member + ", ");
    return rejection(folder);
}

// Sets --strict and --ignore, and unsets them at the end.
struct CommandLine {
    explicit CommandLine(const models::SettingsPolicy& policy) {
        models::settings_policy() = policy;
    }
    ~CommandLine() { models::settings_policy() = {}; }
};

}  // namespace

TEST_CASE("config.json: bookkeeping and settings without an effect are left alone") {
    for (const std::string member :
         {R"("_attn_implementation_autoset": true)", R"("_num_labels": 1)",
          R"("id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0})",
          R"("chunk_size_feed_forward": 0, "diversity_penalty": 0.0, "length_penalty": 1.0)",
          R"("problem_type": "regression")", R"("output_past": true)", R"("is_decoder": true)",
          R"("some_other_dropout": 0.1)", R"("some_pdrop": 0.1)", R"("vision_end_token_id": 7)",
          R"("transformers.js_config": {"dtype": "q4"})", R"("pretraining_tp": 2)",
          // Without an effect.
          R"("alibi": false)", R"("clip_qkv": null)", R"("expert_layers": [])",
          R"("pruned_heads": {})", R"("attn_type": "")", R"("is_causal": true)",
          R"("logit_scale": 1.0)", R"("num_experts": 0)",
          R"("shared_expert_intermediate_size": 0)",
          // Second spellings.
          R"("n_embd": 16)", R"("hidden_activation": "silu")", R"("rotary_emb_base": 500)"}) {
        INFO(member);
        const CommandLine strict({.strict = true});
        CHECK(with(member) == "it was loaded");
    }
}

TEST_CASE("config.json: a setting of a model that nothing reads is an error") {
    for (const std::string member :
         {R"("alibi": true)", R"("clip_qkv": 8)", R"("is_causal": false)", R"("causal": false)",
          R"("logit_scale": 0.5)", R"("lm_head_multiplier": 0)", R"("num_experts": 8)",
          R"("n_embd": 17)", R"("hidden_activation": "gelu")", R"("rotary_emb_base": 10000)",
          R"("pruned_heads": {"0": [1]})", R"("is_encoder_decoder": true)",
          R"("shared_expert_intermediate_size": 8)", R"("add_cross_attention": true)"}) {
        INFO(member);
        const std::string key = member.substr(1, member.find('"', 1) - 1);
        CHECK(mentions(with(member), "config.json: " + key + " "));
        CHECK(mentions(with(member), " is not supported: nothing reads it (--ignore " + key +
                                         " reads the file as if this were not there)"));
        const CommandLine ignore({.ignored = key});
        CHECK(with(member) == "it was loaded");
    }
}

TEST_CASE("config.json: leftovers are noted, unless --strict or code of the file reads them") {
    for (const std::string member : {R"("some_new_key": 1)", R"("some_new_key": "a")",
                                     R"("some_new_key": [1])", R"("device": "cpu")"}) {
        INFO(member);
        CHECK(with(member) == "it was loaded");
        CHECK(mentions(with(R"("auto_map": {"AutoModelForCausalLM": "my.Model"}, )" + member),
                       "nothing reads it"));
        // A configuration or a tokenizer alone computes nothing.
        CHECK(with(R"("auto_map": {"AutoConfig": "my.Config"}, )" + member) == "it was loaded");
        const CommandLine strict({.strict = true});
        CHECK(mentions(with(member), "nothing reads it"));
    }
    // A file without a model_type may be of any model: all its settings must be read.
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/mini_llm");
    const std::string file = folder + "/config.json";
    edit(file, "{", R"({"device": "cpu", )");
    CHECK(mentions(rejection(folder), "device \"cpu\" is not supported: nothing reads it"));
    edit(file, "{", R"({"model_type": "mini-llm", )");
    CHECK(rejection(folder) == "it was loaded");
}

TEST_CASE("config.json: a key that has a dot itself is named with its value") {
    const CommandLine strict({.strict = true});
    CHECK(mentions(with(R"("llama.head_width": 8)"),
                   "llama.head_width 8 is not supported: nothing reads it"));
}

TEST_CASE("--ignore: several settings, and members of objects") {
    const std::string members =
        R"("alibi": true, "clip_qkv": 8, "rope_parameters": {"rope_type": "yarn", "factor": 2})";
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/llama");
    edit(folder + "/config.json", "\"rope_scaling\"", "\"mlp_bias\": true, \"old\"");
    edit(folder + "/config.json", "{", "{" + members + ", ");
    CHECK(mentions(rejection(folder), "rope_type yarn is not supported"));
    const CommandLine ignore({.ignored = "alibi,clip_qkv,rope_parameters.rope_type,"
                                         "rope_parameters.factor,mlp_bias"});
    CHECK(rejection(folder) == "it was loaded");
}

TEST_CASE("every name is in one list: bookkeeping, or a setting of a model") {
    for (const std::string& name : models::bookkeeping_settings)
        CHECK_FALSE(models::published_settings.contains(name));
    for (const auto& [name, value] : models::neutral_values)
        CHECK_FALSE(models::bookkeeping_settings.contains(name));
    CHECK(models::published_settings.size() > 400);
    CHECK(models::bookkeeping_settings.size() > 100);
}
