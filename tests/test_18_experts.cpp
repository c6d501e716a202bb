// Parameters of published models, and MXFP4.
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/18_experts/mixture_checkpoint.hpp"
#include "chapters/18_experts/mixture_counts.hpp"
#include "chapters/18_experts/mxfp4.hpp"
#include "tests/check.hpp"

using namespace llm;

namespace {

MixtureConfig config_of(MixtureModelType type, const Config& sizes,
                        const MixtureSizes& experts) {
    MixtureConfig config;
    config.model_type = type;
    config.config = sizes;
    config.config.tie_word_embeddings = false;
    config.sizes = experts;
    config.is_mixture.assign(sizes.num_hidden_layers, true);
    return config;
}

Config sizes_of(std::size_t hidden_size, std::size_t num_hidden_layers, std::size_t num_heads,
                std::size_t num_kv_heads, std::size_t head_dim, std::size_t vocab_size) {
    Config config;
    config.hidden_size = hidden_size;
    config.num_hidden_layers = num_hidden_layers;
    config.num_attention_heads = num_heads;
    config.num_key_value_heads = num_kv_heads;
    config.head_dim = head_dim;
    config.vocab_size = vocab_size;
    return config;
}

double billions(std::uint64_t count) { return double(count) / 1e9; }

}  // namespace

TEST_CASE("count_parameters: the numbers that were published") {
    // The safetensors files of Mixtral 8x7B and Qwen3-30B-A3B.
    CHECK(count_parameters(config_of(MixtureModelType::mixtral,
                                     sizes_of(4096, 32, 32, 8, 128, 32000), {8, 2, 14336, 0}))
              .total() == 46'702'792'704);
    MixtureConfig qwen = config_of(MixtureModelType::qwen3_moe,
                                   sizes_of(2048, 48, 32, 4, 128, 151936), {128, 8, 768, 0});
    qwen.config.qk_norm = QKNormType::with_weights;
    CHECK(count_parameters(qwen).total() == 30'532'122'624);

    // gpt-oss's model card, table 1: total, active, attention, and experts with routers.
    const MixtureCount small = count_parameters(config_of(
        MixtureModelType::gpt_oss, sizes_of(2880, 24, 64, 8, 64, 201088), {32, 4, 2880, 0}));
    CHECK(billions(small.total()) == doctest::Approx(20.91).epsilon(0.0005));
    CHECK(billions(small.active()) == doctest::Approx(3.61).epsilon(0.002));
    CHECK(billions(small.experts + small.router) == doctest::Approx(19.12).epsilon(0.0005));
    CHECK(billions(small.attention) == doctest::Approx(0.64).epsilon(0.01));
    const MixtureCount large = count_parameters(config_of(
        MixtureModelType::gpt_oss, sizes_of(2880, 36, 64, 8, 64, 201088), {128, 4, 2880, 0}));
    CHECK(billions(large.total()) == doctest::Approx(116.83).epsilon(0.0005));
    CHECK(billions(large.active()) == doctest::Approx(5.13).epsilon(0.002));
}

TEST_CASE("count_parameters counts the tensors of a loaded model") {
    for (const std::string type : {"mixtral", "qwen3_moe", "gpt_oss", "llama4_text"}) {
        CAPTURE(type);
        MixtureModel model = load_mixture_model(fixture_path("18_experts/" + type));
        MixtureDecoder decoder{model.config.config, model.embed_tokens, model.layers,
                               model.norm, std::nullopt};
        std::uint64_t count = model.lm_head->size();
        for (const Parameter& parameter : named_parameters(decoder))
            count += parameter.values.size();
        CHECK(count_parameters(model.config).total() == count);
    }
}

TEST_CASE("active parameters: K experts, no look-up table, a tied head once") {
    MixtureConfig config =
        config_of(MixtureModelType::mixtral, sizes_of(8, 2, 2, 1, 4, 10), {4, 2, 6, 0});
    const MixtureCount count = count_parameters(config);
    const std::uint64_t expert = 3 * 8 * 6;
    CHECK(count.total() - count.active() == 2 * 2 * expert + 80);
    config.config.tie_word_embeddings = true;
    CHECK(count_parameters(config).total() == count.total() - 80);
    CHECK(count_parameters(config).active() == count.active());
    config.is_mixture[0] = false;
    config.config.intermediate_size = 5;
    const MixtureCount one = count_parameters(config);
    CHECK(one.experts == 4 * expert);
    CHECK(one.dense_mlp == 3 * 8 * 5);
    CHECK(one.router == 4 * 8);
}

TEST_CASE("dequantize_mxfp4 by hand: the lower half of a byte first, a power of 2 per block") {
    std::vector<std::byte> blocks(32), scales = {std::byte{127}, std::byte{125}};
    blocks[0] = std::byte{0x71};   // 0.5, then 6
    blocks[1] = std::byte{0xFA};   // -1, then -6
    blocks[31] = std::byte{0x52};  // 1, then 3, with a scale of 1/4
    const Vector weights = dequantize_mxfp4(blocks, scales);
    REQUIRE(weights.size() == 64);
    CHECK(weights(0) == Real(0.5));
    CHECK(weights(1) == 6);
    CHECK(weights(2) == -1);
    CHECK(weights(3) == -6);
    CHECK(weights(4) == 0);
    CHECK(weights(62) == Real(0.25));
    CHECK(weights(63) == Real(0.75));
    CHECK_THROWS_WITH_AS(dequantize_mxfp4(std::span(blocks).first(31), scales),
                         "dequantize_mxfp4: 31 bytes of blocks do not match 2 scales",
                         ShapeError);
}
