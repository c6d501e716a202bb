// The configurations of DeepSeek-V2 and V3: published keys, defaults, what is rejected, and the
// layers that are left out.
#include <cmath>

#include "chapters/models/model_size.hpp"
#include "chapters/models/parameter_count.hpp"
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

namespace {

const std::string deepseek_sizes =
    R"("qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "kv_lora_rank": 12,
       "moe_intermediate_size": 10, "n_routed_experts": 8, "num_experts_per_tok": 2)";

FamilyConfig read_deepseek(const std::string& type, const std::string& more) {
    return read(type, deepseek_sizes + more);
}
std::string rejection_of_deepseek(const std::string& type, const std::string& more) {
    return rejection_of(type, deepseek_sizes + more);
}

const std::string v2 = R"(, "q_lora_rank": null)";

const LatentConfig& latent(const FamilyConfig& config) {
    return std::get<LatentConfig>(config.layers.front().mixer);
}
template <class AnyRouting>
const AnyRouting& routing(const FamilyConfig& config) {
    return std::get<AnyRouting>(moe(config).routing);
}
bool is_moe(const FamilyConfig& config, std::size_t n) { return moe_of(config.layers[n]); }

}  // namespace

TEST_CASE("the keys of the published config.json of DeepSeek-V2-Lite and V3") {
    const FamilyConfig lite = read_deepseek("deepseek_v2", R"(,
        "architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0, "aux_loss_alpha": 0.001,
        "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV2Config"},
        "bos_token_id": 1, "eos_token_id": 2, "first_k_dense_replace": 1, "hidden_act": "silu",
        "initializer_range": 0.02, "moe_layer_freq": 1, "n_group": 1, "n_shared_experts": 2,
        "norm_topk_prob": false, "pretraining_tp": 1, "q_lora_rank": null,
        "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
                         "mscale_all_dim": 0.707, "original_max_position_embeddings": 16,
                         "type": "yarn"},
        "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax",
        "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1,
        "topk_method": "greedy", "torch_dtype": "bfloat16", "use_cache": true)");
    CHECK(lite.head_dim == 4);
    CHECK_FALSE(latent(lite).sizes.q_lora_rank);
    CHECK(moe(lite).sizes.n_shared_experts == 2);
    const double mscale = 0.0707 * std::log(40.0) + 1;
    CHECK(latent(lite).scale() == doctest::Approx(mscale * mscale / std::sqrt(12.0)));
    CHECK(*scaling_of<YarnScaling>(lite)->attention_factor == 1);
    CHECK(kv_cache_bytes(lite, 1, 1, 1) == 16 * lite.layers.size());
    CHECK_FALSE(routing<SoftmaxRouting>(lite).norm_topk_prob);

    const FamilyConfig v3 = read_deepseek("deepseek_v3", R"(,
        "attention_bias": false, "ep_size": 1, "first_k_dense_replace": 3, "head_dim": 4,
        "hidden_act": "silu", "moe_layer_freq": 1, "n_group": 4, "n_shared_experts": 1,
        "norm_topk_prob": true, "num_nextn_predict_layers": 1, "q_lora_rank": 9,
        "qk_head_dim": 12, "rope_interleave": true, "rope_scaling": null,
        "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_group": 2,
        "topk_method": "noaux_tc")");
    CHECK(latent(v3).sizes.q_lora_rank == 9);
    CHECK(latent(v3).scale() == doctest::Approx(1 / std::sqrt(12.0)));
    CHECK(v3.num_nextn_predict_layers == 1);
    CHECK(routing<SigmoidRouting>(v3).groups.n_group == 4);
    CHECK_FALSE(is_moe(v3, 2));
    CHECK(is_moe(v3, 3));
}

TEST_CASE("DeepSeek: defaults of keys that a file may leave out") {
    const FamilyConfig config = read("deepseek_v3", "");
    const LatentSizes& sizes = latent(config).sizes;
    CHECK(sizes.q_lora_rank == 1536);
    CHECK(sizes.kv_lora_rank == 512);
    CHECK(sizes.qk_nope_head_dim + 1000 * sizes.qk_rope_head_dim == 64128);
    CHECK(sizes.v_head_dim == 128);
    CHECK(moe(config).sizes.num_experts == 256);
    CHECK(moe(config).sizes.num_experts_per_tok == 8);
    CHECK(moe(config).sizes.moe_intermediate_size == 2048);
    CHECK(moe(config).sizes.n_shared_experts == 1);
    CHECK(routing<SigmoidRouting>(config).groups.n_group == 8);
    CHECK(routing<SigmoidRouting>(config).groups.topk_group == 4);
    CHECK_FALSE(is_moe(config, 2));
    CHECK(is_moe(config, 3));
    const FamilyConfig v2_config = read("deepseek_v2", R"("num_experts_per_tok": 6)");
    CHECK(is_moe(v2_config, 0));
    CHECK(moe(v2_config).sizes.num_experts == 64);
    CHECK(moe(v2_config).sizes.moe_intermediate_size == 1407);
    CHECK(moe(v2_config).sizes.n_shared_experts == 2);
    CHECK(routing<SoftmaxRouting>(v2_config).routed_scaling_factor == 1);
    CHECK(mentions(rejection_of("deepseek_v2", ""), "num_experts_per_tok"));
    CHECK(config.rms_norm_eps == Real(1e-6));
    CHECK(config.rope_theta == 10'000);
    CHECK(routing<SigmoidRouting>(config).routed_scaling_factor == Real(2.5));
    CHECK(routing<SigmoidRouting>(config).norm_topk_prob);
    CHECK(config.num_nextn_predict_layers == 0);
    CHECK(is_moe(read_deepseek("deepseek_v3", R"(, "first_k_dense_replace": 0)"), 0));
    const FamilyConfig yarn =
        read_deepseek("deepseek_v2", v2 + R"(, "rope_scaling": {"type": "yarn", "factor": 4})");
    CHECK(latent(yarn).scale() == doctest::Approx(1 / std::sqrt(12.0)));
    CHECK(*scaling_of<YarnScaling>(yarn)->attention_factor ==
          doctest::Approx(0.1 * std::log(4.0) + 1));
}

TEST_CASE("DeepSeek: what is not implemented, or contradicts itself, is rejected by name") {
    const auto v3 = [](const std::string& more) {
        return rejection_of_deepseek("deepseek_v3", ", " + more);
    };
    CHECK(v3(R"("scoring_func": "softmax")") ==
          "scoring_func softmax is not supported; supported: sigmoid");
    CHECK(v3(R"("topk_method": "greedy")") ==
          "topk_method greedy is not supported; supported: noaux_tc");
    CHECK(v3(R"("rope_interleave": false)") ==
          "rope_interleave false is not supported; supported: true");
    CHECK(v3(R"("moe_layer_freq": 2)") == "moe_layer_freq 2 is not supported; supported: 1");
    CHECK(v3(R"("attention_bias": true)") ==
          "attention_bias true is not supported: nothing reads it");
    CHECK(mentions(v3(R"("n_group": 3)"), "n_group must divide the number of experts, 8"));
    CHECK(mentions(v3(R"("n_group": 2, "topk_group": 3)"),
                   "topk_group must be at most n_group, 2"));
    CHECK(mentions(v3(R"("n_group": 8, "topk_group": 1)"),
                   "topk_group groups have fewer than num_experts_per_tok experts, 2"));
    CHECK(mentions(rejection_of("deepseek_v3", R"("qk_rope_head_dim": 3)"), "even"));
    CHECK(mentions(v3(R"("rope_scaling": {"type": "ntk", "factor": 2})"),
                   "ntk is not supported; supported: default, linear"));
    CHECK(mentions(v3(R"("index_topk": 1)"), "index_topk"));
    const auto of_v2 = [](const std::string& more) {
        return rejection_of_deepseek("deepseek_v2", v2 + ", " + more);
    };
    CHECK(of_v2(R"("scoring_func": "sigmoid")") ==
          "scoring_func sigmoid is not supported; supported: softmax");
    CHECK(of_v2(R"("norm_topk_prob": true)") ==
          "norm_topk_prob true is not supported; supported: false");
    CHECK(of_v2(R"("topk_method": "noaux_tc")") ==
          "topk_method noaux_tc is not supported; supported: greedy and group_limited_greedy");
    CHECK(mentions(rejection_of("mixtral", R"("kv_lora_rank": 4)"),
                   "kv_lora_rank 4 is not supported: nothing reads it"));
    CHECK(mentions(rejection_of("deepseek_v3", R"("kv_lora_rank": null)"),
                   "kv_lora_rank is missing"));
    CHECK(mentions(v3(R"("use_mla": false)"), "kv_lora_rank is missing"));
}

TEST_CASE("DeepSeek: layers for multi-token prediction are left out if the file counts them") {
    const Scratch scratch;
    const fs::path folder = scratch.copy_of("19_latent_attention/deepseek_v3");
    CHECK(load_family_model(folder.string()).layers.size() == 3);
    edit(folder / "config.json", "\"num_nextn_predict_layers\": 1",
         "\"num_nextn_predict_layers\": 0");
    try {
        load_family_model(folder.string());
        FAIL_CHECK("it was loaded");
    } catch (const FileError& error) {
        CHECK(mentions(error.what(), "the weights have a tensor model.layers.3."));
    }
}

TEST_CASE("DeepSeek: what llama.cpp computes differently is not exported") {
    const auto rejection = [](const std::string& type, const auto& change_latent,
                              const auto& change) {
        FamilyModel model = load_family_model(fixture_path("19_latent_attention/" + type));
        FamilyConfig& config = model.config;
        config.rms_norm_eps = Real(1e-6);
        change_each<LatentConfig>(config, [&](LatentConfig& latent) {
            auto& yarn = std::get<YarnScaling>(latent.rope.scaling);
            yarn.beta_fast = 32;
            yarn.beta_slow = 1;
            change_latent(latent, yarn);
        });
        change(config);
        return rejection_of_gguf(model);
    };
    const auto no_latent = [](LatentConfig&, YarnScaling&) {};
    const auto nothing = [](FamilyConfig&) {};
    CHECK(mentions(
        rejection("deepseek_v3", no_latent, [](auto& config) { config.rms_norm_eps = 1; }),
        "one eps for all norms"));
    CHECK(mentions(rejection(
                       "deepseek_v3",
                       [](LatentConfig& latent, YarnScaling&) { latent.mscale = 2; }, nothing),
                   "one mscale"));
    CHECK(mentions(rejection(
                       "deepseek_v3",
                       [](LatentConfig&, YarnScaling& yarn) { yarn.beta_slow = 2; }, nothing),
                   "limits of 32 and 1"));
    CHECK(
        mentions(rejection(
                     "deepseek_v3",
                     [](LatentConfig&, YarnScaling& yarn) { yarn.truncate = false; }, nothing),
                 "limits of 32 and 1"));
    CHECK(mentions(rejection("deepseek_v2", no_latent, nothing),
                   "low-rank queries unless it has 26 or 27 layers, not 3"));
    for (const std::size_t num_layers : {25, 26, 27, 28}) {
        const std::string message =
            rejection("deepseek_v2", no_latent, [&](FamilyConfig& config) {
                config.num_hidden_layers = num_layers;
                config.layers.resize(num_layers, config.layers.back());
                change_each<LatentConfig>(
                    config, [](LatentConfig& latent) { latent.sizes.q_lora_rank.reset(); });
            });
        const bool is_lite = num_layers == 26 || num_layers == 27;
        CHECK((message.find("low-rank queries") == message.npos) == is_lite);
    }
    CHECK(mentions(rejection(
                       "deepseek_v2",
                       [](LatentConfig& latent, YarnScaling&) {
                           latent.sizes.q_lora_rank = 9;
                           latent.mscale = latent.mscale_all_dim;
                       },
                       nothing),
                   "with a softmax has no groups"));
}

TEST_CASE("DeepSeek: parameters of the published sizes, and the cache of latent vectors") {
    Config sizes;
    sizes.hidden_size = 7168;
    sizes.intermediate_size = 18432;
    sizes.num_hidden_layers = 61;
    sizes.num_attention_heads = sizes.num_key_value_heads = 128;
    sizes.head_dim = 64;
    sizes.vocab_size = 129280;
    sizes.tie_word_embeddings = false;
    FamilyConfig config = config_with(deepseek_v3_family(), sizes);
    for (std::size_t n = 0; n < 61; ++n) {
        config.layers[n].mixer = LatentConfig{{7168, 128, 1536, 512, 128, 64, 128}};
        if (n >= 3) config.layers[n].mlp = MoeConfig{{256, 8, 2048, 1}, SigmoidRouting{}};
    }
    // Without the layer for multi-token prediction and the correction biases: 671 billion, 37
    // active (the report's abstract).
    CHECK(double(count_parameters(config).total()) / 1e9 ==
          doctest::Approx(671).epsilon(0.001));
    CHECK(double(count_parameters(config).active()) / 1e9 ==
          doctest::Approx(36.6).epsilon(0.01));
    CHECK(kv_cache_bytes(config, 1000, 2, 2) == std::uint64_t{2000} * 61 * 576 * 2);
}
