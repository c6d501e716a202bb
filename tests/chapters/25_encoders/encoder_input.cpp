// What an encoder reads and rejects, its defaults, and the weights it begins with.
#include "chapters/25_encoders/masked_lm.hpp"
#include "chapters/25_encoders/text_embedding.hpp"
#include "chapters/25_encoders/unpadded.hpp"
#include "tests/support/check.hpp"

using namespace llm;

namespace {

EncoderConfig config_of_all_sizes() {
    EncoderConfig config;
    config.vocab_size = 50;
    config.hidden_size = 36;
    config.intermediate_size = 40;
    config.num_hidden_layers = 4;
    config.num_attention_heads = 2;
    config.max_position_embeddings = 30;
    config.type_vocab_size = 31;
    return config;
}

double root_mean_square(std::span<const Real> values) {
    double squares = 0;
    for (const Real value : values) squares += double(value) * double(value);
    return std::sqrt(squares / double(values.size()));
}

// The message with which an encoder of these sizes rejects a batch, after a change.
template <class Change>
std::string rejected_batch(const EncoderConfig& config, const Change& change) {
    BatchEncoding batch = pad({{3, 4, 5}, {6, 7}}, 0);
    change(batch);
    try {
        check_batch(config, batch);
    } catch (const ValueError& error) {
        return error.what();
    }
    return "not rejected";
}

}  // namespace

TEST_CASE("pad: the padding token on the right, positions from 0, one token type") {
    const BatchEncoding batch = pad({{4, 6}, {7, 8, 9}, {}, {3}}, 5);
    CHECK_CLOSE(batch.input_ids, (IdMatrix{{4, 6, 5}, {7, 8, 9}, {5, 5, 5}, {3, 5, 5}}), 0);
    CHECK_CLOSE(batch.padding_mask, (IdMatrix{{1, 1, 0}, {1, 1, 1}, {0, 0, 0}, {1, 0, 0}}), 0);
    CHECK_CLOSE(batch.position_ids, (IdMatrix{{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2}}), 0);
    const IdMatrix zeros = xt::zeros<Id>({4, 3});
    CHECK_CLOSE(batch.token_type_ids, zeros, 0);
    CHECK(batch.cu_seqlens.empty());
    CHECK(padding_share(batch) == doctest::Approx(6.0 / 12));
    CHECK(padding_share(pad({{1, 2}, {3, 4, 5, 6}, {7}}, 0)) == doctest::Approx(5.0 / 12));
}

TEST_CASE("unpad keeps the token types and positions of each text") {
    BatchEncoding batch = pad({{4, 6}, {7, 8, 9}, {3}}, 5);
    batch.token_type_ids = {{0, 1, 0}, {1, 0, 1}, {1, 0, 0}};
    const BatchEncoding row = unpad(batch);
    CHECK_CLOSE(row.input_ids, (IdMatrix{{4, 6, 7, 8, 9, 3}}), 0);
    CHECK_CLOSE(row.padding_mask, (IdMatrix{{1, 1, 1, 1, 1, 1}}), 0);
    CHECK_CLOSE(row.token_type_ids, (IdMatrix{{0, 1, 1, 0, 1, 1}}), 0);
    CHECK_CLOSE(row.position_ids, (IdMatrix{{0, 1, 0, 1, 2, 0}}), 0);
    CHECK(row.cu_seqlens == std::vector<std::size_t>{0, 2, 5, 6});
}

TEST_CASE("A batch may hold every id below its count, and no other") {
    const EncoderConfig config = config_of_all_sizes();
    const auto rejected = [&](const auto& change) { return rejected_batch(config, change); };
    using Batch = BatchEncoding;
    CHECK(rejected([](Batch& b) {
              b.input_ids(0, 0) = 49;
              b.token_type_ids(0, 0) = 30;
              b.position_ids(1, 1) = 29;
          }) == "not rejected");
    CHECK(rejected([](Batch& b) { b.input_ids(1, 2) = 50; }) ==
          "encoder: there is no token 50 among 50");
    CHECK(rejected([](Batch& b) { b.input_ids(1, 2) = -1; }) ==
          "encoder: there is no token -1 among 50");
    CHECK(rejected([](Batch& b) { b.token_type_ids(0, 1) = -1; }) ==
          "encoder: there is no token type -1 among 31");
    CHECK(rejected([](Batch& b) { b.position_ids(0, 1) = 30; }) ==
          "encoder: there is no position 30 among 30");
    const std::string shapes = "encoder: input ids of (2, 3) do not match a padding mask of ";
    CHECK(rejected([](Batch& b) {
              b.token_type_ids = xt::zeros<Id>({2, 4});
          }) == shapes + "(2, 3), token types of (2, 4) and positions of (2, 3)");
    CHECK(rejected([](Batch& b) {
              b.position_ids = xt::zeros<Id>({3, 3});
          }) == shapes + "(2, 3), token types of (2, 3) and positions of (3, 3)");
    CHECK(rejected([](Batch& b) {
              for (IdMatrix* ids :
                   {&b.input_ids, &b.padding_mask, &b.token_type_ids, &b.position_ids})
                  *ids = xt::zeros<Id>({2, 0});
          }) == "encoder: input ids of (2, 0) hold no token");
}

TEST_CASE("Without token types, a batch has type 0 alone") {
    EncoderConfig config = config_of_all_sizes();
    config.type_vocab_size = 0;
    CHECK(rejected_batch(config, [](BatchEncoding&) {}) == "not rejected");
    CHECK(rejected_batch(config, [](BatchEncoding& batch) {
              batch.token_type_ids(1, 0) = 1;
          }) == "encoder: there is no token type 1 among 1");
}

TEST_CASE("No size of an encoder but its layers may be 0, and heads have an even width") {
    using Size = std::size_t EncoderConfig::*;
    for (const Size size :
         {&EncoderConfig::vocab_size, &EncoderConfig::hidden_size,
          &EncoderConfig::intermediate_size, &EncoderConfig::num_attention_heads,
          &EncoderConfig::max_position_embeddings}) {
        EncoderConfig config = config_of_all_sizes();
        config.*size = 0;
        CHECK_THROWS_AS(validate(config), ValueError);
        config.*size = size == &EncoderConfig::hidden_size ? 4 : 1;
        CHECK_NOTHROW(validate(config));
    }
    EncoderConfig config = config_of_all_sizes();
    config.num_attention_heads = 4;
    CHECK_THROWS_WITH_AS(validate(config),
                         "encoder: 4 heads do not divide a hidden size of 36 into even parts",
                         ValueError);
    config.num_attention_heads = 8;
    CHECK_THROWS_AS(validate(config), ValueError);
    config.num_attention_heads = 6;
    config.num_hidden_layers = 0;
    CHECK_NOTHROW(validate(config));
}

TEST_CASE("The defaults are BERT's norm and activation, and ModernBERT's windows") {
    const EncoderConfig config;
    CHECK(config.layer_norm_eps == Real(1e-12));
    CHECK(config.hidden_act.name == "gelu");
    CHECK(config.has_bias);
    CHECK(config.num_hidden_layers == 0);
    CHECK(config.type_vocab_size == 0);
    CHECK_THROWS_WITH_AS(validate(config),
                         "encoder: vocab_size 0, hidden_size 0, intermediate_size 0, "
                         "num_attention_heads 0 and max_position_embeddings 0 must not be 0",
                         ValueError);
    const WindowedLayers windowed;
    CHECK(windowed.window == 64);
    CHECK(windowed.rope_theta == 10'000);
    for (std::size_t layer = 0; layer < 9; ++layer)
        CHECK(windowed.has_window(layer) == (layer != 0 && layer != 3 && layer != 6));
}

TEST_CASE(
    "init_weights: matrices from N(0, 0.02²), those added to the residual less by √(2L)") {
    BertModel model = empty_bert(config_of_all_sizes());
    Generator generator(8);
    init_weights(model, generator);
    std::size_t num_residual = 0;
    for (const Parameter& parameter : named_parameters(model)) {
        CAPTURE(parameter.name);
        const bool is_bias = parameter.name.ends_with("bias");
        const bool is_residual = parameter.name.find("o_proj.weight") != std::string::npos ||
                                 parameter.name.find("down_proj.weight") != std::string::npos;
        num_residual += is_residual ? 1 : 0;
        double expected = is_bias ? 0 : 1;
        if (parameter.shape.size() == 2) expected = is_residual ? 0.02 / std::sqrt(8.0) : 0.02;
        CHECK(root_mean_square(parameter.values) == doctest::Approx(expected).epsilon(0.1));
    }
    CHECK(num_residual == 2 * 4);
}

TEST_CASE("mask_tokens: random tokens are those of the vocabulary, all of them") {
    // The texts have another token, and the mask is a third one.
    const BatchEncoding batch =
        pad(std::vector<std::vector<Id>>(30, std::vector<Id>(50, 8)), 0);
    Generator generator(6);
    const MaskedBatch all = mask_tokens(
        batch, {.mask_token_id = 9, .vocab_size = 7, .special_tokens = {}, .probability = 1},
        generator);
    std::vector<std::size_t> counts(10);
    for (const Id id : all.inputs.input_ids) ++counts.at(std::size_t(id));
    for (std::size_t id = 0; id < 7; ++id) CHECK(counts[id] > 0);
    CHECK(counts[7] == 0);
    for (const Id label : all.labels) CHECK(label == 8);
    const MaskedBatch none = mask_tokens(
        batch, {.mask_token_id = 9, .vocab_size = 7, .special_tokens = {}, .probability = 0},
        generator);
    for (const Id label : none.labels) CHECK(label == ignored_label);
}

TEST_CASE("The contrastive loss needs a text, and the gradient of a row of zeros stays") {
    const Matrix none = xt::zeros<Real>({0, 4});
    CHECK_THROWS_WITH_AS(contrastive_loss(none, none, 1),
                         "contrastive_loss: queries of (0, 4) do not match passages of (0, 4)",
                         ValueError);
    const Matrix gradient =
        l2_normalize_backward(Matrix{{0, 0}, {3, 4}}, Matrix{{1, 2}, {1, 2}});
    CHECK_CLOSE(gradient, (Matrix{{1, 2}, {Real(-0.064), Real(0.048)}}), 1e-6);
}
