// Encoders: masks, BERT and ModernBERT against PyTorch, batches without padding, and masked
// tokens.
#include "chapters/09_full_model/checkpoint.hpp"
#include "chapters/25_encoders/masked_lm.hpp"
#include "chapters/25_encoders/text_embedding.hpp"
#include "chapters/25_encoders/unpadded.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"

using namespace llm;

namespace {

IdMatrix ids(const std::string& name) { return id_fixture<2>("25_encoders/" + name); }

// Three texts of 11, 7 and 4 tokens; the first is a pair.
BatchEncoding batch_of_fixtures() {
    const IdMatrix input_ids = ids("input_ids");
    return {input_ids, ids("padding_mask"), ids("token_type_ids"),
            position_ids(input_ids.shape(0), input_ids.shape(1))};
}

// ModernBERT has no token types.
BatchEncoding batch_without_types() {
    BatchEncoding batch = batch_of_fixtures();
    batch.token_type_ids.fill(0);
    return batch;
}

EncoderConfig config_of_fixtures() {
    EncoderConfig config;
    config.vocab_size = 31;
    config.hidden_size = 24;
    config.intermediate_size = 14;
    config.num_hidden_layers = 3;
    config.num_attention_heads = 3;
    config.max_position_embeddings = 16;
    config.layer_norm_eps = Real(1e-3);
    return config;
}
EncoderConfig bert_config() {
    EncoderConfig config = config_of_fixtures();
    config.type_vocab_size = 2;
    return config;
}
EncoderConfig modern_bert_config() {
    EncoderConfig config = config_of_fixtures();
    config.num_hidden_layers = 5;
    config.rope_theta = Real(160);
    config.windowed = WindowedLayers{2, 3, Real(10)};
    config.has_bias = false;
    return config;
}

template <class Model>
Model load(Model model, const std::string& name) {
    load_parameters(fixture_path("25_encoders/" + name + ".safetensors"),
                    named_parameters(model));
    return model;
}
MaskedLM<BertBlock> bert() {
    const EncoderConfig config = bert_config();
    return load(MaskedLM<BertBlock>{empty_bert(config), empty_head(config)}, "bert");
}
MaskedLM<ModernBertBlock> modern_bert() {
    const EncoderConfig config = modern_bert_config();
    return load(MaskedLM<ModernBertBlock>{empty_modern_bert(config), empty_head(config)},
                "modernbert");
}

// Padding has no meaning, so its vectors are not compared.
Tensor3 without_padding(Tensor3 states, const IdMatrix& padding_mask) {
    for (std::size_t b = 0; b < states.shape(0); ++b)
        for (std::size_t t = 0; t < states.shape(1); ++t)
            if (padding_mask(b, t) == 0) xt::view(states, b, t) = Real(0);
    return states;
}

}  // namespace

#define CHECK_TOKENS(actual, name)                            \
    CHECK_CLOSE(without_padding(actual, ids("padding_mask")), \
                without_padding(fixture<3>("25_encoders/" name), ids("padding_mask")), 2e-5)

TEST_CASE("bidirectional_mask hides padding and nothing else") {
    const IdMatrix padding_mask = {{1, 1, 1, 0}, {1, 1, 1, 1}};
    const Tensor4 mask = bidirectional_mask(padding_mask);
    REQUIRE(mask.shape() == std::array<std::size_t, 4>{2, 1, 4, 4});
    for (auto [b, t, s] : every_index(2, 4, 4))
        CHECK(mask(b, 0, t, s) == (padding_mask(b, s) ? Real(0) : -infinity));
}

TEST_CASE("A window of 2 shows two tokens on either side, and the token itself") {
    const IdMatrix all = xt::ones<Id>({1, 9});
    const Tensor4 mask = bidirectional_mask(all, 2);
    for (auto [t, s] : every_index(9, 9)) {
        const bool near = (t > s ? t - s : s - t) <= 2;
        CHECK(mask(0, 0, t, s) == (near ? Real(0) : -infinity));
    }
    CHECK(xt::sum(xt::equal(mask, Real(0)))() == 9 + 2 * (8 + 7));
}

TEST_CASE("BERT equals torch.nn.TransformerEncoder with padded texts and a pair") {
    CHECK_TOKENS(bert().encoder(batch_of_fixtures()), "bert_last_hidden_state");
    CHECK_TOKENS(bert()(batch_of_fixtures()), "bert_mlm_logits");
}

TEST_CASE("ModernBERT equals PyTorch: windows, two bases of RoPE, no first norm") {
    CHECK_TOKENS(modern_bert().encoder(batch_without_types()), "modernbert_last_hidden_state");
    CHECK_TOKENS(modern_bert()(batch_without_types()), "modernbert_mlm_logits");
}

TEST_CASE("The exact GELU, not its tanh approximation, is BERT's") {
    MaskedLM<BertBlock> wrong = bert();
    for (BertBlock& layer : wrong.encoder.layers) layer.mlp.activation = GELUTanh;
    const Tensor3 right = bert().encoder(batch_of_fixtures());
    CHECK(difference(wrong.encoder(batch_of_fixtures()), right, 2e-5) != "");
    CHECK(difference(wrong.encoder(batch_of_fixtures()), right, 1e-2) == "");
}

TEST_CASE("A text has the same vectors alone, in a padded batch and in a row of texts") {
    const auto check = [](const auto& encoder, const BatchEncoding& batch) {
        const Tensor3 padded = without_padding(encoder(batch), batch.padding_mask);
        const BatchEncoding row = unpad(batch);
        CHECK(row.input_ids.shape() == std::array<std::size_t, 2>{1, 22});
        CHECK(row.cu_seqlens == std::vector<std::size_t>{0, 11, 18, 22});
        CHECK_CLOSE(pad_states(encoder(row), batch), padded, 2e-5);

        // Token type 0, as that of the second text in both batches.
        const std::vector<Id> second(batch.input_ids.data() + 11, batch.input_ids.data() + 18);
        const Tensor3 alone = encoder(pad({second}, 5));
        const Tensor3 in_batch = xt::view(padded, xt::range(1, 2), xt::range(0, 7), xt::all());
        CHECK_CLOSE(alone, in_batch, 2e-5);
    };
    check(bert().encoder, batch_of_fixtures());
    check(modern_bert().encoder, batch_without_types());
}

TEST_CASE("A later token changes the vectors of earlier ones") {
    BatchEncoding batch = batch_of_fixtures();
    const Tensor3 before = bert().encoder(batch);
    batch.input_ids(0, 10) = (batch.input_ids(0, 10) + 1) % 31;
    const Tensor3 after = bert().encoder(batch);
    for (std::size_t t = 0; t < 11; ++t) CHECK(before(0, t, 3) != after(0, t, 3));
    CHECK(before(1, 0, 3) == after(1, 0, 3));
}

TEST_CASE("An encoder without layers gives a token the same vector in every text") {
    EncoderConfig config = modern_bert_config();
    config.num_hidden_layers = 0;
    ModernBertModel encoder = empty_modern_bert(config);
    Generator generator(1);
    init_weights(encoder, generator);
    const Tensor3 states = encoder(pad({{5, 9, 7}, {9}}, 0));  // (2, 3, C)
    for (std::size_t c = 0; c < config.hidden_size; ++c)
        CHECK(states(0, 1, c) == states(1, 0, c));
}

TEST_CASE("An encoder names what does not fit") {
    const auto encoder = bert().encoder;
    const auto with = [](auto change) {
        BatchEncoding batch = batch_of_fixtures();
        change(batch);
        return batch;
    };
    CHECK_THROWS_WITH(encoder(with([](BatchEncoding& b) { b.input_ids(0, 1) = 31; })),
                      "encoder: there is no token 31 among 31");
    CHECK_THROWS_WITH(encoder(with([](BatchEncoding& b) { b.token_type_ids(2, 1) = 2; })),
                      "encoder: there is no token type 2 among 2");
    CHECK_THROWS_WITH(encoder(with([](BatchEncoding& b) { b.position_ids(1, 3) = 16; })),
                      "encoder: there is no position 16 among 16");
    EncoderConfig config = bert_config();
    config.num_attention_heads = 5;
    CHECK_THROWS_WITH(empty_bert(config),
                      "encoder: 5 heads do not divide a hidden size of 24 into even parts");
    config = modern_bert_config();
    config.windowed->full_every = 0;
    CHECK_THROWS_WITH(empty_modern_bert(config), "encoder: full_every must not be 0");
    config = bert_config();
    config.intermediate_size = 0;
    CHECK_THROWS_WITH(empty_bert(config),
                      "encoder: vocab_size 31, hidden_size 24, intermediate_size 0, "
                      "num_attention_heads 3 and max_position_embeddings 16 must not be 0");
    CHECK_THROWS_WITH(encoder(with([](BatchEncoding& b) { b.padding_mask = IdMatrix{{1}}; })),
                      "encoder: input ids of (3, 11) do not match a padding mask of (1, 1), "
                      "token types of (3, 11) and positions of (3, 11)");
    CHECK_THROWS_WITH(pad({{}, {}}, 0), "pad: 2 texts hold no token");
    CHECK_THROWS_WITH(unpad(with([](BatchEncoding& b) { b.padding_mask(0, 2) = 0; })),
                      "unpad: text 0 has padding before token 3");
}

TEST_CASE("Batches without padding, heads and poolings name what does not fit") {
    const BatchEncoding padded = batch_of_fixtures();
    const BatchEncoding row = unpad(padded);
    CHECK_THROWS_WITH(unpad(row), "unpad: the batch has no padding already");
    CHECK_THROWS_WITH(
        encoder_forward(bert().encoder, row),
        "encoder: the backward pass takes a padded batch, not 3 texts in one row");
    const Tensor3 short_row = xt::zeros<Real>({1, 21, 24}),
                  long_row = xt::zeros<Real>({1, 23, 24});
    CHECK_THROWS_WITH(pad_states(short_row, padded),
                      "pad_states: more tokens than the 21 of the row");
    CHECK_THROWS_WITH(pad_states(long_row, padded), "pad_states: 22 tokens for 23 of the row");
    BatchEncoding empty_text = padded;
    xt::view(empty_text.padding_mask, 1, xt::all()) = 0;
    CHECK_THROWS_WITH(unpad(empty_text), "unpad: text 1 has no token");

    EncoderAttention attention = bert().encoder.layers[0].self_attn;
    attention.has_window = true;
    CHECK_THROWS_WITH(inputs_of(attention, encoder_inputs(bert_config(), padded)),
                      "encoder: a layer has a window, the inputs have none");
    Generator generator(1);
    CHECK_THROWS_WITH(mask_tokens(padded, {}, generator),
                      "mask_tokens: vocab_size must not be 0");
    CHECK_THROWS_WITH(
        pool(Pooling::mean, short_row, padded.padding_mask),
        "pool: hidden states of (1, 21, 24) do not match a padding mask of (3, 11)");
    CHECK_THROWS_WITH(contrastive_loss(xt::zeros<Real>({2, 4}), xt::zeros<Real>({2, 5}), 1),
                      "contrastive_loss: queries of (2, 4) do not match passages of (2, 5)");
}

TEST_CASE("mask_tokens chooses 15 %, of which 80 % become the mask and 10 % stay") {
    std::vector<std::vector<Id>> texts(400, std::vector<Id>(50));
    for (std::size_t i = 0; i < texts.size(); ++i)
        for (std::size_t t = 0; t < 50; ++t) texts[i][t] = Id(3 + (i * 7 + t) % 90);
    for (std::vector<Id>& text : texts) text.front() = 1;
    texts.back().resize(20);
    const BatchEncoding batch = pad(texts, 0);
    Generator generator(5);
    const MaskedBatch masked = mask_tokens(batch, {2, 93, {0, 1}}, generator);
    double chosen = 0, mask = 0, same = 0, other = 0;
    for (std::size_t i = 0; i < batch.input_ids.size(); ++i) {
        const Id token = batch.input_ids.data()[i], input = masked.inputs.input_ids.data()[i];
        if (masked.labels.data()[i] == ignored_label) {
            CHECK(input == token);
            continue;
        }
        CHECK(masked.labels.data()[i] == token);
        CHECK(token > 1);  // neither the first token nor padding
        ++chosen;
        ++(input == 2 ? mask : input == token ? same : other);
    }
    const double tokens = 399 * 49 + 19;
    CHECK(std::abs(chosen / tokens - 0.15) < 0.01);
    CHECK(std::abs(mask / chosen - 0.8) < 0.03);
    CHECK(std::abs(same / chosen - 0.1) < 0.02);
    CHECK(std::abs(other / chosen - 0.1) < 0.02);
}

TEST_CASE("The masked loss is the mean over labeled positions of the full logits") {
    const MaskedLM<BertBlock> model = bert();
    MaskedBatch batch{batch_of_fixtures(), IdMatrix({3, 11}, ignored_label)};
    batch.labels(0, 2) = 7;
    batch.labels(2, 3) = 30;
    const Tensor3 logits = model(batch.inputs);
    double sum = 0;
    for (const auto& [b, t] :
         std::vector<std::pair<std::size_t, std::size_t>>{{0, 2}, {2, 3}}) {
        const Vector row = xt::view(logits, b, t);
        sum += log_sum_exp(row) - double(row(std::size_t(batch.labels(b, t))));
    }
    CHECK(masked_lm_loss(model, batch) == doctest::Approx(sum / 2).epsilon(1e-5));
    batch.labels.fill(ignored_label);
    CHECK_THROWS_WITH(masked_lm_loss(model, batch),
                      "masked_lm: no position of a batch of (3, 11) has a label");
}

TEST_CASE("The pooler reads the first token") {
    const Tensor3 states = fixture<3>("25_encoders/bert_last_hidden_state");
    const Pooler pooler{
        {fixture<2>("25_encoders/pooler_weight"), fixture<1>("25_encoders/pooler_bias")}};
    CHECK_CLOSE(pooler(states), fixture<2>("25_encoders/bert_pooler_output"), 1e-5);
}

TEST_CASE("The mean leaves out padding, whatever stands there") {
    Tensor3 states = counting({2, 3, 2});
    xt::view(states, 1, 2) = std::numeric_limits<Real>::quiet_NaN();
    const IdMatrix padding_mask = {{1, 1, 1}, {1, 1, 0}};
    CHECK_CLOSE(pool(Pooling::mean, states, padding_mask), (Matrix{{2, 3}, {7, 8}}), 0);
    CHECK_CLOSE(pool(Pooling::cls, states, padding_mask), (Matrix{{0, 1}, {6, 7}}), 0);
    CHECK_THROWS_WITH(pool(Pooling::mean, states, IdMatrix{{1, 1, 1}, {0, 0, 0}}),
                      "pool: text 1 has no token");
}

TEST_CASE("The contrastive loss and its gradients equal PyTorch's") {
    const auto part = [](const std::string& name) { return fixture<2>("25_encoders/" + name); };
    const ContrastiveLoss result =
        contrastive_loss(part("queries"), part("passages"), Real(0.05));
    CHECK(result.loss ==
          doctest::Approx(fixture<1>("25_encoders/contrastive_loss")(0)).epsilon(1e-5));
    CHECK_CLOSE(result.query_gradient, part("queries_gradient"), 1e-5);
    CHECK_CLOSE(result.passage_gradient, part("passages_gradient"), 1e-5);
    CHECK_THROWS_WITH(contrastive_loss(part("queries"), part("passages"), 0),
                      "contrastive_loss: the temperature must be positive");
}

TEST_CASE("l2_normalize leaves a row of zeros") {
    CHECK_CLOSE(l2_normalize(Matrix{{3, 4}, {0, 0}}), (Matrix{{Real(0.6), Real(0.8)}, {0, 0}}),
                1e-6);
}
