// Each setting of config.json that is read has an effect: with one value changed, the logits of
// the fixtures change.
#include <set>

#include "chapters/models/llama/load_model.hpp"
#include "tests/support/change_members.hpp"
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// A text of a fixture's config.json, and what replaces it.
struct Change {
    std::string from, to;
};

// The logits of a fixture, with changes of its config.json.
Tensor3 logits(const std::string& fixture, const IdMatrix& ids,
               const std::vector<Change>& changes) {
    const Scratch scratch;
    const fs::path folder = scratch.copy_of(fixture);
    for (const Change& change : changes) edit(folder / "config.json", change.from, change.to);
    if (is_family_config(JsonFile(folder / "config.json")))
        return load_family_model(folder.string())(ids);
    return models::load_model(folder.string())(ids);
}

// Makes each change alone, after the changes before it that the others need to have an effect.
void check_effects(const std::string& fixture, const std::vector<Change>& changes,
                   const std::vector<Change>& before = {}) {
    const std::string chapter = fixture.substr(0, fixture.find('/'));
    IdMatrix ids = chapter == "09_full_model" ? load_ids<2>(fixture_file("17_long_context/ids"))
                                              : load_ids<2>(fixture_file(chapter + "/ids"));
    if (chapter == "09_full_model")
        for (Id& id : ids) id %= 17;
    const Tensor3 unchanged = logits(fixture, ids, before);
    for (const Change& change : changes) {
        std::vector<Change> with_change = before;
        with_change.push_back(change);
        CAPTURE(fixture);
        CAPTURE(change.to);
        CHECK_FALSE(difference(logits(fixture, ids, with_change), unchanged, 1e-4).empty());
    }
}

const Change epsilon = {R"("rms_norm_eps": 0.001)", R"("rms_norm_eps": 0.1)"};
const Change theta = {R"("rope_theta": 500)", R"("rope_theta": 50)"};

// Adds a member that the config.json of the fixture leaves out.
Change with(const std::string& member) { return {"{", "{" + member + ","}; }

}  // namespace

// The file is a list of objects, each with the members of one change.
TEST_CASE("every change of a fixture's changes.json changes the logits") {
    std::set<std::string> with_changes;
    for (const std::string& name : family_fixtures()) {
        const fs::path file = fs::path(fixture_path(name)) / "changes.json";
        if (!fs::exists(file)) continue;
        const IdMatrix ids = fixture_ids(name.substr(0, name.find('/')) + "/ids");
        const FamilyModel model = load_family_model(fixture_path(name));
        with_changes.insert(model.config.family->model_type);
        const Tensor3 unchanged = model(ids);
        for (const nlohmann::json& changes : nlohmann::json::parse(content(file))) {
            const Scratch scratch;
            const fs::path folder = scratch.copy_of(name);
            change_members(folder / "config.json", changes);
            INFO(name << ": " << changes.dump());
            CHECK_FALSE(
                difference(load_family_model(folder.string())(ids), unchanged, 1e-4).empty());
        }
    }
    // The families before 2026 have their changes in the tests below.
    for (std::size_t n = 20; n < families().size(); ++n) {
        CAPTURE(families()[n]->model_type);
        CHECK(with_changes.contains(families()[n]->model_type));
    }
}

TEST_CASE("every setting of llama, mistral, qwen2 and qwen3 changes the logits") {
    check_effects("09_full_model/llama",
                  {epsilon,
                   theta,
                   {R"("factor": 8)", R"("factor": 80)"},
                   {R"("low_freq_factor": 1.0)", R"("low_freq_factor": 0.2)"},
                   {R"("high_freq_factor": 4.0)", R"("high_freq_factor": 40.0)"},
                   {R"("original_max_position_embeddings": 32)",
                    R"("original_max_position_embeddings": 800)"}});
    check_effects("09_full_model/mistral", {epsilon, theta, {"null", "4"}});
    check_effects("09_full_model/qwen2", {epsilon, theta});
    check_effects("09_full_model/qwen3", {epsilon, theta});
}

TEST_CASE("every setting of mistral with windows, gemma2 and gemma3_text changes the logits") {
    const Change window = {R"("sliding_window": 5)", R"("sliding_window": 4)"};
    const Change scale = {R"("query_pre_attn_scalar": 9.0)", R"("query_pre_attn_scalar": 4.0)"};
    check_effects(
        "17_long_context/mistral",
        {epsilon, theta, window, with(R"("layer_types": ["sliding_attention", "full_attention",
                                           "sliding_attention"])")});
    check_effects("17_long_context/gemma2",
                  {epsilon,
                   theta,
                   window,
                   scale,
                   {R"("attn_logit_softcapping": 2.0)", R"("attn_logit_softcapping": 1.0)"},
                   {R"("attn_logit_softcapping": 2.0)", R"("attn_logit_softcapping": null)"},
                   {R"("final_logit_softcapping": 10.0)", R"("final_logit_softcapping": 5.0)"},
                   {R"("final_logit_softcapping": 10.0)", R"("final_logit_softcapping": null)"},
                   with(R"("layer_types": ["full_attention", "full_attention",
                                           "sliding_attention", "full_attention"])")});
    check_effects("17_long_context/gemma3_text",
                  {epsilon,
                   window,
                   scale,
                   {R"("rope_theta": 5000)", R"("rope_theta": 50)"},
                   {R"("rope_local_base_freq": 100)", R"("rope_local_base_freq": 10)"},
                   {R"("factor": 4.0)", R"("factor": 1.5)"},
                   with(R"("sliding_window_pattern": 3)")});
}

TEST_CASE("every setting of the other dense families changes the logits") {
    check_effects("models/gemma", {epsilon, theta});
    check_effects("models/olmo2", {epsilon, theta});
    check_effects("models/gpt2",
                  {{R"("layer_norm_epsilon": 0.001)", R"("layer_norm_epsilon": 0.1)"}});
    check_effects("models/cohere2", {theta,
                                     {R"("layer_norm_eps": 0.001)", R"("layer_norm_eps": 0.1)"},
                                     {R"("sliding_window": 6)", R"("sliding_window": 5)"},
                                     {R"("logit_scale": 0.3)", R"("logit_scale": 0.6)"},
                                     {R"("full_attention")", R"("sliding_attention")"}});
    check_effects("models/phi3", {epsilon,
                                  theta,
                                  {R"("sliding_window": 6)", R"("sliding_window": 5)"},
                                  with(R"("partial_rotary_factor": 0.7)")});
    const Change short_factor = {"1.3,", "2.3,"}, long_factor = {"9.0,", "19.0,"};
    const Change original = {R"("original_max_position_embeddings": 48)",
                             R"("original_max_position_embeddings": 9)"};
    check_effects(
        "models/phi3_longrope",
        {short_factor,
         original,
         {R"("rope_type": "longrope")", R"("rope_type": "longrope", "attention_factor": 2.0)"},
         {R"("max_position_embeddings": 64)", R"("max_position_embeddings": 640)"}});
    check_effects("models/phi3_longrope_long", {long_factor,
                                                {R"("original_max_position_embeddings": 8)",
                                                 R"("original_max_position_embeddings": 20)"}});
    check_effects("models/smollm3",
                  {epsilon,
                   theta,
                   {"    1,\n    0,\n    1,\n    1,\n    0\n", "1, 0, 1, 1, 1"},
                   {"    1,\n    0,\n    1,\n    1,\n    0\n", ""}});
    check_effects("models/smollm3", {with(R"("no_rope_layer_interval": 2)")},
                  {{"    1,\n    0,\n    1,\n    1,\n    0\n", ""}});
    check_effects("models/granite",
                  {epsilon,
                   theta,
                   {R"("embedding_multiplier": 3.0)", R"("embedding_multiplier": 1.5)"},
                   {R"("attention_multiplier": 0.3)", R"("attention_multiplier": 0.6)"},
                   {R"("residual_multiplier": 0.4)", R"("residual_multiplier": 0.8)"},
                   {R"("logits_scaling": 2.5)", R"("logits_scaling": 5)"}});
}

TEST_CASE("every setting of mixtral and qwen3_moe changes the logits") {
    check_effects("18_experts/mixtral",
                  {epsilon,
                   theta,
                   {R"("sliding_window": 6)", R"("sliding_window": 4)"},
                   {R"("num_experts_per_tok": 2)", R"("num_experts_per_tok": 3)"}});
    check_effects("18_experts/qwen3_moe",
                  {epsilon,
                   {R"("rope_theta": 5000)", R"("rope_theta": 50)"},
                   {R"("num_experts_per_tok": 3)", R"("num_experts_per_tok": 2)"},
                   {R"("norm_topk_prob": true)", R"("norm_topk_prob": false)"}});
}

TEST_CASE("every setting of gpt_oss and llama4_text changes the logits") {
    check_effects("18_experts/gpt_oss",
                  {epsilon,
                   theta,
                   {R"("sliding_window": 5)", R"("sliding_window": 4)"},
                   {R"("num_experts_per_tok": 2)", R"("num_experts_per_tok": 3)"},
                   {R"("swiglu_limit": 1.5)", R"("swiglu_limit": 0.5)"},
                   {R"("factor": 4.0)", R"("factor": 8.0)"},
                   with(R"("layer_types": ["full_attention", "full_attention",
                                           "sliding_attention"])")});
    // With 64 positions, YaRN's limits fall between the three frequencies.
    const Change original = {R"("original_max_position_embeddings": 16)",
                             R"("original_max_position_embeddings": 64)"};
    check_effects("18_experts/gpt_oss", {original});
    check_effects("18_experts/gpt_oss",
                  {{R"("beta_fast": 4.0)", R"("beta_fast": 2.0)"},
                   {R"("beta_slow": 1.0)", R"("beta_slow": 0.5)"},
                   {R"("truncate": false)", R"("truncate": true)"}},
                  {original});
    check_effects("18_experts/llama4_text",
                  {epsilon,
                   theta,
                   with(R"("use_qk_norm": false)"),
                   with(R"("attn_temperature_tuning": false)"),
                   {R"("floor_scale": 4.0)", R"("floor_scale": 2.0)"},
                   {R"("attn_scale": 0.5)", R"("attn_scale": 0.9)"},
                   {R"("attention_chunk_size": 5)", R"("attention_chunk_size": 4)"},
                   {R"("num_experts_per_tok": 1)", R"("num_experts_per_tok": 2)"},
                   {"    1,\n    0,\n    1,\n    1\n", "1, 0, 1, 0"},
                   {R"("factor": 8.0)", R"("factor": 2.0)"},
                   {R"("low_freq_factor": 1.0)", R"("low_freq_factor": 0.2)"},
                   {R"("high_freq_factor": 1.0)", R"("high_freq_factor": 8.0)"},
                   {R"("original_max_position_embeddings": 40)",
                    R"("original_max_position_embeddings": 800)"}});
}

TEST_CASE("every setting of qwen3_next changes the logits") {
    check_effects("20_linear_attention/qwen3_next",
                  {epsilon,
                   {R"("rope_theta": 300)", R"("rope_theta": 30)"},
                   {R"("partial_rotary_factor": 0.5)", R"("partial_rotary_factor": 0.75)"},
                   {R"("num_experts_per_tok": 2)", R"("num_experts_per_tok": 3)"},
                   {R"("norm_topk_prob": true)", R"("norm_topk_prob": false)"}});
}

TEST_CASE("every setting of deepseek_v2 and deepseek_v3 changes the logits") {
    const std::vector<Change> common = {
        epsilon,
        theta,
        {R"("factor": 4.0)", R"("factor": 8.0)"},
        {R"("original_max_position_embeddings": 8)",
         R"("original_max_position_embeddings": 800)"},
        {R"("num_experts_per_tok": 3)", R"("num_experts_per_tok": 2)"},
        {R"("topk_group": 2)", R"("topk_group": 3)"}};
    check_effects("19_latent_attention/deepseek_v2", common);
    // With 800 positions, YaRN's limits fall between the two frequencies.
    const Change original = {R"("original_max_position_embeddings": 8)",
                             R"("original_max_position_embeddings": 800)"};
    const Change fast = {R"("beta_fast": 4.0)", R"("beta_fast": 8.0)"};
    check_effects("19_latent_attention/deepseek_v2", {fast}, {original});
    check_effects("19_latent_attention/deepseek_v2",
                  {{R"("beta_slow": 0.5)", R"("beta_slow": 0.01)"}}, {original, fast});
    check_effects("19_latent_attention/deepseek_v2",
                  {{R"("mscale": 0.7)", R"("mscale": 0.9)"},
                   {R"("mscale_all_dim": 0.9)", R"("mscale_all_dim": 0.7)"},
                   {",\n    \"mscale_all_dim\": 0.9", ""},
                   {R"("routed_scaling_factor": 1.5)", R"("routed_scaling_factor": 1)"},
                   {"group_limited_greedy", "greedy"}});
    check_effects("19_latent_attention/deepseek_v3", common);
    check_effects("19_latent_attention/deepseek_v3",
                  {{R"("routed_scaling_factor": 2.5)", R"("routed_scaling_factor": 1)"},
                   {R"("norm_topk_prob": true)", R"("norm_topk_prob": false)"},
                   {R"("n_group": 3)", R"("n_group": 2)"}});
}
