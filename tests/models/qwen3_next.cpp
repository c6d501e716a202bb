// The configuration of Qwen3-Next: published keys, defaults, what is rejected, what is left
// out, and what its layers keep.
#include "chapters/models/families/qwen3_next.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/models/model_size.hpp"
#include "chapters/models/parameter_count.hpp"
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

namespace {

const std::string folder_name = "20_linear_attention/qwen3_next";

FamilyModel load() { return load_family_model(fixture_path(folder_name)); }

std::vector<bool> linear_layers(const FamilyConfig& config) {
    std::vector<bool> result;
    for (const LayerConfig& layer : config.layers) result.push_back(!attention_of(layer));
    return result;
}

const LinearSizes& linear_of(const FamilyConfig& config) {
    return std::get<LinearSizes>(config.layers.front().mixer);
}
std::size_t rotary_dim(const FamilyConfig& config) { return main_rope(config)->rotary_dim; }

}  // namespace

TEST_CASE("the keys of the published config.json of Qwen3-Next-80B-A3B") {
    const FamilyConfig config = read("qwen3_next", R"(
        "architectures": ["Qwen3NextForCausalLM"], "attention_bias": false,
        "attention_dropout": 0.0, "bos_token_id": 1, "decoder_sparse_step": 1,
        "eos_token_id": 2, "full_attention_interval": 4, "head_dim": 8, "hidden_act": "silu",
        "initializer_range": 0.02, "linear_conv_kernel_dim": 3, "linear_key_head_dim": 5,
        "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_value_head_dim": 7,
        "mlp_only_layers": [], "moe_intermediate_size": 12, "norm_topk_prob": true,
        "num_experts": 8, "num_experts_per_tok": 3, "output_router_logits": false,
        "partial_rotary_factor": 0.25, "rope_scaling": null, "rope_theta": 10000000,
        "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 9,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
        "use_sliding_window": false)");
    CHECK(linear_layers(config) ==
          std::vector<bool>{true, true, true, false, true, true, true, false});
    const LinearSizes& linear = linear_of(config);
    CHECK(linear.hidden_size == 16);
    CHECK(linear.num_key_heads == 2);
    CHECK(linear.num_value_heads == 6);
    CHECK(linear.key_head_dim == 5);
    CHECK(linear.value_head_dim == 7);
    CHECK(linear.conv_kernel_dim == 3);
    CHECK(rotary_dim(config) == 2);
    CHECK(moe(config).sizes.shared_width() == 9);
    CHECK(moe(config).sizes.moe_intermediate_size == 12);
    CHECK(moe_of(config.layers[0]));
    CHECK(std::get<SoftmaxRouting>(moe(config).routing).norm_topk_prob);
}

TEST_CASE(
    "Qwen3-Next: defaults of keys that a file may leave out, and keys of transformers 5") {
    const FamilyConfig config = read("qwen3_next", "");
    const LinearSizes& linear = linear_of(config);
    CHECK(linear.num_key_heads + 1000 * linear.num_value_heads == 32016);
    CHECK(linear.key_head_dim + 1000 * linear.value_head_dim == 128128);
    CHECK(linear.conv_kernel_dim == 4);
    CHECK(rotary_dim(config) == 64);
    CHECK(moe(config).sizes.num_experts == 512);
    CHECK(moe(config).sizes.num_experts_per_tok == 10);
    CHECK(moe(config).sizes.moe_intermediate_size == 512);
    CHECK(moe(config).sizes.shared_width() == 512);
    CHECK(std::get<SoftmaxRouting>(moe(config).routing).norm_topk_prob);
    CHECK(linear_layers(config)[2]);
    CHECK_FALSE(linear_layers(config)[3]);
    const FamilyConfig nested = read("qwen3_next", R"("rope_parameters": {"rope_theta": 500,
        "rope_type": "default", "partial_rotary_factor": 0.5})");
    CHECK(rotary_dim(nested) == 128);
    CHECK(nested.rope_theta == 500);
    CHECK(linear_layers(read("qwen3_next", R"("full_attention_interval": 3)")) ==
          std::vector<bool>{true, true, false, true, true, false, true, true});
    CHECK_FALSE(moe_of(
        read("qwen3_next", R"("norm_topk_prob": false, "decoder_sparse_step": 2)").layers[2]));
}

TEST_CASE("Qwen3-Next: what is not implemented, or contradicts itself, is rejected by name") {
    CHECK(rejection_of("qwen3_next", R"("layer_types": ["full_attention"])") ==
          "layer_types has 1 entries for 8 layers");
    const std::string seven = R"("linear_attention", "linear_attention", "linear_attention",
        "full_attention", "linear_attention", "linear_attention", "linear_attention")";
    CHECK(rejection_of("qwen3_next",
                       R"("layer_types": [)" + seven + R"(, "sliding_attention"])") ==
          "layer_types sliding_attention is not supported; supported: full_attention and "
          "linear_attention");
    CHECK(rejection_of("qwen3_next", R"("linear_num_key_heads": 5)") ==
          "linear_num_key_heads must divide linear_num_value_heads, 32");
    CHECK(mentions(rejection_of("qwen3_next", R"("rope_scaling": {"rope_type": "ntk"})"),
                   "rope_scaling.rope_type ntk is not supported"));
    CHECK(mentions(rejection_of("qwen3_next", R"("sliding_window": 1)"), "sliding_window"));
    CHECK(mentions(rejection_of("mixtral", R"("linear_num_key_heads": 4)"),
                   "linear_num_key_heads"));
    CHECK(mentions(rejection_of("mixtral", R"("shared_expert_intermediate_size": 4)"),
                   "shared_expert_intermediate_size 4 is not supported: nothing reads it"));
    CHECK(rejection_of("mixtral", R"("shared_expert_intermediate_size": 0)") == "not rejected");
}

TEST_CASE("Qwen3-Next: tensors for multi-token prediction are counted, and left out") {
    CHECK(load().config.num_nextn_predict_layers == 1);
    const Scratch scratch;
    models::export_model(load(), scratch.folder.string());
    CHECK(load_family_model(scratch.folder.string()).config.num_nextn_predict_layers == 0);
}

TEST_CASE("Qwen3-Next: the states are as large after one token as after many") {
    const FamilyModel model = load();
    auto cache = make_cache(model, 128);
    const auto size = [&](std::size_t n) {
        const auto& linear = std::get<LinearCache>(cache.layers[n]);
        return linear.state.size() + linear.conv_inputs.size();
    };
    const IdMatrix one = xt::ones<Id>({1, 1});
    model.forward(one, {.cache = &cache});
    const std::size_t after_one = size(0);
    for (int t = 0; t < 100; ++t) model.forward(one, {.cache = &cache});
    CHECK(size(0) == after_one);
    CHECK(after_one == 4 * 4 * 6 + 3 * (2 * 2 * 4 + 4 * 6));
    CHECK(kv_cache_bytes(model.config, 101, 1, 4) ==
          4 * (3 * after_one + 101 * std::uint64_t{2} * 2 * 8));
}

TEST_CASE("Qwen3-Next: a sequence that goes back is computed again, and exact") {
    const FamilyModel model = load();
    const std::vector<Id> first = {1, 7, 3, 20, 12, 5, 9}, second = {1, 7, 3, 4, 4, 8};
    CachedSequence cached = make_cached_sequence(model, 128);
    next_token_logits(first, cached);
    const Vector logits = next_token_logits(second, cached);
    CHECK(cached.ids == second);
    CHECK_CLOSE(logits, last_logits(model.forward(one_sequence(second), {})), 2e-5);
    // What only continues is not computed again.
    std::vector<Id> longer = second;
    longer.push_back(11);
    CHECK(cached.cache->crop(second.size()) == second.size());
    CHECK_CLOSE(next_token_logits(longer, cached),
                last_logits(model.forward(one_sequence(longer), {})), 2e-5);
}

TEST_CASE("Qwen3-Next: what llama.cpp computes differently is not exported") {
    const auto rejection = [](const auto& change) {
        FamilyModel model = load();
        change(model.config);
        return rejection_of_gguf(model);
    };
    const auto all_moe = [](FamilyConfig& config) { config.layers[1].mlp = moe(config); };
    CHECK(mentions(rejection(all_moe), "one size of keys and values, not 4 and 6"));
    const auto with_equal_sizes = [&](const auto& change) {
        return rejection([&](FamilyConfig& config) {
            change_each<LinearSizes>(config,
                                     [](LinearSizes& linear) { linear.value_head_dim = 4; });
            change(config);
        });
    };
    CHECK(
        mentions(with_equal_sizes([](auto&) {}), "a mixture in every layer; layer 1 is dense"));
    CHECK(mentions(with_equal_sizes(all_moe),
                   "full attention at one interval, 2; layer 3 differs"));
    CHECK(mentions(with_equal_sizes([&](FamilyConfig& config) {
                       all_moe(config);
                       change_each<MoeConfig>(config, [](MoeConfig& each) {
                           each.routing = SoftmaxRouting{false};
                       });
                   }),
                   "normalizes the routing weights"));
    CHECK(mentions(with_equal_sizes([&](FamilyConfig& config) {
                       all_moe(config);
                       config.layers[0].mixer = attention(config, 1);
                   }),
                   "begins with linear attention"));
}

TEST_CASE("Qwen3-Next: 80 billion parameters, 3 billion active") {
    Config sizes;
    sizes.hidden_size = 2048;
    sizes.intermediate_size = 5120;
    sizes.num_hidden_layers = 48;
    sizes.num_attention_heads = 16;
    sizes.num_key_value_heads = 2;
    sizes.head_dim = 256;
    sizes.vocab_size = 151936;
    sizes.tie_word_embeddings = false;
    FamilyConfig config = config_with(qwen3_next_family(), sizes);
    MoeConfig mixture{{512, 10, 512, 1, std::size_t{512}}};
    mixture.shared_gate = true;
    for (std::size_t n = 0; n < 48; ++n) {
        config.layers[n].mlp = mixture;
        if (n % 4 != 3) config.layers[n].mixer = LinearSizes{2048, 16, 32, 128, 128, 4};
    }
    // Its safetensors, without mtp.*, and the report's "80B-A3B".
    CHECK(double(count_parameters(config).total()) / 1e9 ==
          doctest::Approx(79.7).epsilon(0.002));
    CHECK(double(count_parameters(config).active()) / 1e9 ==
          doctest::Approx(3.6).epsilon(0.03));
    // 12 layers cache 2 · 2 · 256 numbers a token; 36 keep states.
    CHECK(kv_cache_bytes(config, 1000, 1, 2) ==
          2 * (12 * std::uint64_t{1000} * 1024 + 36 * (32 * 128 * 128 + 3 * 8192)));
}

TEST_CASE("Qwen3-Next: a GGUF file that contradicts itself is rejected by name") {
    const FamilyConfig config =
        read("qwen3_next", R"("linear_num_key_heads": 2, "num_experts": 3,
        "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 4,
        "linear_conv_kernel_dim": 3, "num_experts_per_tok": 2, "head_dim": 8)");
    const Scratch scratch;
    const std::string file = (scratch.folder / "model.gguf").string();
    const auto rejection = [&](const GgufMetadata& metadata) -> std::string {
        fs::remove(file);
        write_gguf(file, metadata, {});
        FamilyConfig result = config;
        try {
            const Gguf gguf(file);
            read_linear_layers_gguf({gguf, "qwen3next"}, result);
        } catch (const FileError& error) {
            return error.what();
        }
        return "not rejected";
    };
    GgufMetadata metadata = {{"general.architecture", std::string("qwen3next")}};
    add_linear_layers_gguf(config, metadata);
    CHECK(rejection(metadata) == "not rejected");
    for (const std::string key : {"ssm.group_count", "ssm.time_step_rank"}) {
        GgufMetadata changed = metadata;
        for (auto& [name, value] : changed)
            if (name == "qwen3next." + key) value = std::int64_t{3};
        CHECK(mentions(rejection(changed),
                       "qwen3next.ssm.time_step_rank must divide ssm.inner_size, and be a "
                       "multiple of ssm.group_count"));
    }
}
