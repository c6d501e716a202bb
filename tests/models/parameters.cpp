// Parameters of published models.
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/models/parameter_count.hpp"
#include "tests/support/published_models.hpp"

using namespace llm;
using namespace llm::models;

namespace {

FamilyConfig config_of(const Family& family, const Config& sizes, const ExpertSizes& experts) {
    FamilyConfig config = config_with(family, sizes);
    config.tie_word_embeddings = false;
    if (experts.num_experts == 0) return config;
    const MoeConfig mixture = make_experts(config, experts, SoftmaxRouting{});
    for (LayerConfig& layer : config.layers) layer.mlp = mixture;
    return config;
}

Config sizes_of(std::size_t hidden_size, std::size_t num_hidden_layers, std::size_t num_heads,
                std::size_t num_kv_heads, std::size_t head_dim, std::size_t num_tokens) {
    Config config;
    config.hidden_size = hidden_size;
    config.num_hidden_layers = num_hidden_layers;
    config.num_attention_heads = num_heads;
    config.num_key_value_heads = num_kv_heads;
    config.head_dim = head_dim;
    config.vocab_size = num_tokens;
    return config;
}

double billions(std::uint64_t count) { return double(count) / 1e9; }

}  // namespace

TEST_CASE("count_parameters: the numbers that were published") {
    // The safetensors files of Mixtral 8x7B and Qwen3-30B-A3B.
    CHECK(count_parameters(config_of(mixtral_family(), sizes_of(4096, 32, 32, 8, 128, 32000),
                                     {8, 2, 14336, 0}))
              .total() == 46'702'792'704);
    FamilyConfig qwen =
        config_of(qwen3_moe_family(), sizes_of(2048, 48, 32, 4, 128, 151936), {128, 8, 768, 0});
    CHECK(count_parameters(qwen).total() == 30'532'122'624);

    // gpt-oss's model card, table 1: total, active, attention, and experts with routers.
    const ParametersByPart small = count_parameters(
        config_of(gpt_oss_family(), sizes_of(2880, 24, 64, 8, 64, 201088), {32, 4, 2880, 0}));
    CHECK(billions(small.total()) == doctest::Approx(20.91).epsilon(0.0005));
    CHECK(billions(small.active()) == doctest::Approx(3.61).epsilon(0.002));
    CHECK(billions(small.experts + small.router) == doctest::Approx(19.12).epsilon(0.0005));
    CHECK(billions(small.attention) == doctest::Approx(0.64).epsilon(0.01));
    const ParametersByPart large = count_parameters(
        config_of(gpt_oss_family(), sizes_of(2880, 36, 64, 8, 64, 201088), {128, 4, 2880, 0}));
    CHECK(billions(large.total()) == doctest::Approx(116.83).epsilon(0.0005));
    CHECK(billions(large.active()) == doctest::Approx(5.13).epsilon(0.002));
}

TEST_CASE("count_parameters: dense families, the sizes that their makers give") {
    const auto count_of = [](const Family& family, const Config& sizes,
                             std::size_t intermediate_size, bool tied = true) {
        FamilyConfig config = config_of(family, sizes, {});
        config.tie_word_embeddings = tied;
        change_each<MlpConfig>(
            config, [&](MlpConfig& mlp) { mlp.intermediate_size = intermediate_size; });
        return count_parameters(config).total();
    };
    // The safetensors files of Gemma 2B and 7B and of SmolLM3 3B; Granite 3.1 2B: 2.53 billion.
    CHECK(count_of(gemma_family(), sizes_of(2048, 18, 8, 1, 256, 256000), 16384) ==
          2'506'172'416);
    CHECK(count_of(gemma_family(), sizes_of(3072, 28, 16, 16, 256, 256000), 24576) ==
          8'537'680'896);
    CHECK(count_of(smollm3_family(), sizes_of(2048, 36, 16, 4, 128, 128256), 11008) ==
          3'075'098'624);
    // GPT-2, the smallest and the largest, with learned positions; the latter as its repository
    // counts them: 1558M.
    Config gpt2 = sizes_of(768, 12, 12, 12, 64, 50257);
    gpt2.max_position_embeddings = 1024;
    CHECK(count_of(gpt2_family(), gpt2, 3072) == 124'439'808);
    Config gpt2_xl = sizes_of(1600, 48, 25, 25, 64, 50257);
    gpt2_xl.max_position_embeddings = 1024;
    CHECK(count_of(gpt2_family(), gpt2_xl, 6400) == 1'557'611'200);
    // The safetensors files of Command R7B.
    CHECK(count_of(cohere2_family(), sizes_of(4096, 32, 32, 8, 128, 256000), 14336) ==
          8'028'033'024);
    // Phi-3 mini.
    CHECK(count_of(phi3_family(), sizes_of(3072, 32, 32, 32, 96, 32064), 8192, false) ==
          3'821'079'552);
    // OLMo 2 1124 7B.
    CHECK(count_of(olmo2_family(), sizes_of(4096, 32, 32, 32, 128, 100352), 11008, false) ==
          7'298'617'344);
    CHECK(billions(count_of(granite_family(), sizes_of(2048, 40, 32, 8, 64, 49155), 8192)) ==
          doctest::Approx(2.53).epsilon(0.002));
}

TEST_CASE("count_parameters counts the tensors of a loaded model") {
    for (const std::string& type : family_fixtures()) {
        CAPTURE(type);
        FamilyModel model = load_family_model(fixture_path(type));
        std::uint64_t count = 0;
        for (const Parameter& parameter : named_parameters(model))
            count += parameter.values.size();
        CHECK(count_parameters(model.config).total() == count);
    }
}

TEST_CASE("active parameters: K experts, no look-up table, a tied head once") {
    FamilyConfig config =
        config_of(mixtral_family(), sizes_of(8, 2, 2, 1, 4, 10), {4, 2, 6, 0});
    const ParametersByPart count = count_parameters(config);
    const std::uint64_t expert = 3 * 8 * 6;
    CHECK(count.total() - count.active() == 2 * 2 * expert + 80);
    config.tie_word_embeddings = true;
    CHECK(count_parameters(config).total() == count.total() - 80);
    CHECK(count_parameters(config).active() == count.active());
    config.layers[0].mlp = MlpConfig{5};
    const ParametersByPart one = count_parameters(config);
    CHECK(one.experts == 4 * expert);
    CHECK(one.dense_mlp == 3 * 8 * 5);
    CHECK(one.router == 4 * 8);
    // The gate of a shared expert is not the router: three layers of five experts, one dense.
    const ParametersByPart shared = count_parameters(
        load_family_model(fixture_path("20_linear_attention/qwen3_next")).config);
    CHECK(shared.router == 3 * 5 * 24);
    CHECK(shared.dense_mlp == 3 * 24 * 11 + 3 * (3 * 24 * 9 + 24));
}
