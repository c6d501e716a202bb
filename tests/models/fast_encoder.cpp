// The fast encoder against chapter 25's and PyTorch's: both blocks, windows, several texts in
// one row, and types of weights.
#include "chapters/models/encoders/fast_encoder.hpp"

#include "chapters/25_encoders/unpadded.hpp"
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "tests/support/fast_helpers.hpp"
#include "tests/support/gguf_edit.hpp"
#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

constexpr std::array<std::size_t, 5> lengths = {1, 5, 64, 65, 130};

// Texts of these lengths.
std::vector<std::vector<Id>> texts_of(std::span<const std::size_t> sizes) {
    std::vector<std::vector<Id>> texts;
    for (const std::size_t size : sizes) {
        texts.emplace_back();
        for (std::size_t t = 0; t < size; ++t)
            texts.back().push_back(static_cast<Id>((7 * t + 13 * size) % 50));
    }
    return texts;
}
BatchEncoding batch_of(std::span<const std::size_t> sizes, bool with_types) {
    BatchEncoding batch = pad(texts_of(sizes), 0);
    if (with_types)
        for (std::size_t i = 0; i < batch.token_type_ids.size(); ++i)
            batch.token_type_ids.data()[i] = Id(i % 3 == 0);
    return batch;
}

// Sizes that no block of a kernel divides, unless the width is a multiple of 32.
EncoderFamilyConfig sizes_with(std::size_t hidden_size) {
    EncoderFamilyConfig config;
    config.vocab_size = 50;
    config.hidden_size = hidden_size;
    config.intermediate_size = hidden_size == 36 ? 46 : 96;
    config.num_hidden_layers = 4;
    config.num_attention_heads = hidden_size == 36 ? 3 : 4;
    config.max_position_embeddings = 130;
    config.layer_norm_eps = Real(1e-5);
    config.windows.assign(4, false);
    return config;
}

// Norms and biases are random, too.
template <class Block>
AnyEncoder with_random_weights(const EncoderFamilyConfig& config, Encoder<Block> encoder) {
    Generator generator(25);
    for (const Parameter& parameter : named_parameters(encoder)) {
        const bool is_matrix = parameter.shape.size() > 1;
        generator.fill_normal(parameter.values);
        const Real scale = is_matrix ? 1 / std::sqrt(Real(config.hidden_size)) : Real(0.3);
        const Real shift = is_matrix || parameter.name.ends_with("bias") ? 0 : 1;
        for (Real& value : parameter.values) value = scale * value + shift;
    }
    return EncoderFamilyModel<Block>{config,       encoder,      std::nullopt,
                                     std::nullopt, std::nullopt, std::nullopt};
}
AnyEncoder random_bert(std::size_t hidden_size) {
    EncoderFamilyConfig config = sizes_with(hidden_size);
    config.type_vocab_size = 2;
    config.family = &bert_family();
    return with_random_weights(config, empty_bert(config));
}
AnyEncoder random_modern_bert(std::size_t hidden_size, std::size_t window) {
    EncoderFamilyConfig config = sizes_with(hidden_size);
    config.has_bias = config.norm_bias = config.attention_bias = config.mlp_bias = false;
    config.family = &modernbert_family();
    config.rope_theta = Real(160'000);
    config.windowed = WindowedLayers{window, 3, Real(100)};
    config.windows = {false, true, true, false};
    return with_random_weights(config, empty_modern_bert(config));
}

Tensor3 vectors_of_chapter_25(const AnyEncoder& encoder, const BatchEncoding& batch) {
    return std::visit([&](const auto& model) { return model.encoder(batch); }, encoder);
}

// Rounds all weights that the fast encoder rounds.
void round_weights(AnyEncoder& any, DType dtype) {
    std::visit(
        [&](auto& model) {
            for (const Parameter& parameter : named_parameters(model.encoder)) {
                const bool is_added =
                    parameter.name.find("position_embeddings") != std::string::npos ||
                    parameter.name.find("token_type") != std::string::npos;
                if (parameter.shape.size() < 2 || is_added) continue;
                Matrix weight(std::array{parameter.shape[0], parameter.shape[1]});
                std::ranges::copy(parameter.values, weight.begin());
                weight = dequantize(quantize(weight, quantization_kernels(dtype)));
                std::ranges::copy(weight, parameter.values.begin());
            }
        },
        any);
}

// The largest difference of two vectors, relative to the largest element.
double relative_difference(const Tensor3& actual, const Tensor3& expected) {
    const Tensor3 differences = xt::abs(actual - expected);
    const Tensor3 magnitudes = xt::abs(expected);
    return double(xt::amax(differences)() / xt::amax(magnitudes)());
}

}  // namespace

TEST_CASE("The fast encoder equals PyTorch for every published fixture") {
    for (const std::string& name : encoder_fixtures()) {
        CAPTURE(name);
        const bool of_chapter = name == "bert" || name == "modernbert";
        const AnyEncoder encoder = load_encoder(fixture_path("models/" + name));
        const Tensor3 vectors = make_fast_encoder(encoder)(encoder_batch(encoder));
        const std::string file = (of_chapter ? "25_encoders/" : "models/") + name;
        CHECK_CLOSE(vectors, without_padding(fixture<3>(file + "_last_hidden_state")), 2e-5);
    }
}

TEST_CASE("The fast encoder equals chapter 25's for texts of 1 to 130 tokens in one row") {
    for (const std::size_t hidden_size : {36u, 64u})
        for (const AnyEncoder& encoder :
             {random_bert(hidden_size), random_modern_bert(hidden_size, 3),
              random_modern_bert(hidden_size, 64), random_modern_bert(hidden_size, 0)}) {
            const bool is_bert = config_of(encoder).type_vocab_size > 0;
            const BatchEncoding row = unpad(batch_of(lengths, is_bert));
            CHECK_CLOSE(make_fast_encoder(encoder)(row), vectors_of_chapter_25(encoder, row),
                        2e-5);
        }
}

TEST_CASE("The fast encoder with few tokens, whose weights' rows are divided among threads") {
    for (const std::size_t count : {1u, 2u, 15u, 16u, 17u})
        for (const AnyEncoder& encoder : {random_bert(36), random_modern_bert(36, 3)}) {
            const std::size_t sizes[] = {count};
            const BatchEncoding text = batch_of(sizes, false);
            CHECK_CLOSE(make_fast_encoder(encoder)(text), vectors_of_chapter_25(encoder, text),
                        2e-5);
        }
}

TEST_CASE("The fast encoder gives a padded batch zeros for padding, and the same vectors") {
    const FastEncoder encoder = make_fast_encoder(random_bert(36));
    const BatchEncoding padded = batch_of(lengths, true);
    const Tensor3 vectors = encoder(padded);
    CHECK_CLOSE(vectors, pad_states(encoder(unpad(padded)), padded), 0);
    CHECK(vectors.shape() == std::array<std::size_t, 3>{5, 130, 36});
    CHECK(vectors(0, 1, 0) == 0);
}

TEST_CASE("The fast encoder's window shows two tokens on either side, and no bit of others") {
    AnyEncoder any = random_modern_bert(36, 2);
    auto& layers = std::get<EncoderFamilyModel<ModernBertBlock>>(any).encoder.layers;
    layers.resize(1);
    layers[0].self_attn.has_window = true;
    const FastEncoder encoder = make_fast_encoder(any);
    std::vector<Id> text = texts_of(std::array{std::size_t{130}})[0];
    const Tensor3 before = encoder(pad({text}, 0));
    text[70] = Id(text[70] == 1 ? 2 : 1);
    const Tensor3 after = encoder(pad({text}, 0));
    for (std::size_t t = 0; t < text.size(); ++t) {
        const Vector one = xt::view(before, 0, t), other = xt::view(after, 0, t);
        CAPTURE(t);
        CHECK((one == other) == (t < 68 || t > 72));
    }
}

TEST_CASE("embed_texts: the pooled vectors of chapter 25") {
    for (const Pooling pooling : {Pooling::mean, Pooling::cls})
        for (const AnyEncoder& any : {random_bert(36), random_modern_bert(64, 3)}) {
            const BatchEncoding batch = batch_of(lengths, false);
            const Matrix expected = l2_normalize(
                pool(pooling, vectors_of_chapter_25(any, batch), batch.padding_mask));
            CHECK_CLOSE(embed_texts(make_fast_encoder(any), pooling, texts_of(lengths)),
                        expected, 2e-5);
        }
}

TEST_CASE("embed_texts: a vector does not depend on the other texts, in every bit") {
    std::vector<std::size_t> many(40, 130);  // more tokens than are computed at once
    many.insert(many.end(), lengths.begin(), lengths.end());
    for (const DType dtype : {DType::float32, DType::q8_0, DType::q4_0}) {
        const FastEncoder encoder = make_fast_encoder(random_modern_bert(64, 3), dtype);
        const auto texts = texts_of(many);
        const Matrix together = embed_texts(encoder, Pooling::mean, texts);
        for (std::size_t i = 0; i < texts.size(); i += i < 40 ? 13 : 1)
            CHECK(identical(embed_texts(encoder, Pooling::mean, {texts[i]}),
                            Matrix(xt::view(together, xt::range(i, i + 1)))));
    }
    const FastEncoder encoder = make_fast_encoder(random_bert(36));
    CHECK(embed_texts(encoder, Pooling::mean, {}).shape(0) == 0);
}

TEST_CASE("Quantized weights: with float32 inputs, the encoder of the rounded weights") {
    for (const DType dtype : {DType::bfloat16, DType::q8_0, DType::q4_0})
        for (AnyEncoder any : {random_bert(64), random_modern_bert(64, 3)}) {
            const FastEncoder fast = make_fast_encoder(any, dtype, Activations::float32);
            CHECK(fast.layers[0].qkv_proj.weights[0].dtype() == dtype);
            round_weights(any, dtype);
            const BatchEncoding batch = batch_of(lengths, false);
            CHECK(relative_difference(fast(unpad(batch)),
                                      vectors_of_chapter_25(any, unpad(batch))) < 2e-5);
        }
}

TEST_CASE("Quantized weights and inputs: errors within the rounding of each type") {
    for (const auto& [dtype, at_least, at_most] : {std::tuple{DType::bfloat16, 1e-4, 0.02},
                                                   {DType::q8_0, 1e-4, 0.06},
                                                   {DType::q4_0, 1e-2, 0.5}})
        for (const AnyEncoder& any : {random_bert(64), random_modern_bert(64, 3)}) {
            const BatchEncoding row = unpad(batch_of(lengths, false));
            const double error = relative_difference(make_fast_encoder(any, dtype)(row),
                                                     vectors_of_chapter_25(any, row));
            INFO("error ", error);
            CHECK(error > at_least);
            CHECK(error < at_most);
        }
}

TEST_CASE("load_fast_encoder_gguf: the weights of the file, in every bit") {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::q8_0, DType::q4_0})
        for (const AnyEncoder& any : {random_bert(64), random_modern_bert(64, 3)}) {
            const Scratch scratch;
            const std::string file = (scratch.folder / "model.gguf").string();
            models::export_gguf(any, file, {.dtype = dtype});
            const FastEncoder read = load_fast_encoder_gguf(file);
            CHECK(read.layers[2].gate_up_proj.weights[0].dtype() == dtype);
            CHECK(read.word_embeddings.dtype() == dtype);
            const BatchEncoding batch = batch_of(lengths, false);
            CHECK_CLOSE(read(batch), make_fast_encoder(load_encoder_gguf(file), dtype)(batch),
                        0);
        }
}

TEST_CASE("load_fast_encoder_gguf: every published fixture that llama.cpp can run") {
    for (const std::string name :
         {"bert", "modernbert", "modernbert_mean", "modernbert_plain"}) {
        const Scratch scratch;
        const std::string file = (scratch.folder / "model.gguf").string();
        const AnyEncoder any = load_encoder(fixture_path("models/" + name));
        models::export_gguf(any, file);
        const BatchEncoding batch = encoder_batch(any);
        CHECK_CLOSE(load_fast_encoder_gguf(file)(batch), make_fast_encoder(any)(batch), 0);
    }
}

TEST_CASE("load_fast_encoder_gguf names what is missing or not supported") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "model.gguf").string(), copy = file + ".copy";
    models::export_gguf(random_bert(36), file);
    const auto rejection = [&](const std::map<std::string, std::optional<GgufValue>>& changes) {
        edit_gguf(file, copy, changes);
        try {
            load_fast_encoder_gguf(copy);
        } catch (const FileError& error) {
            return std::string(error.what()).substr(copy.size() + 2);
        }
        return std::string("not rejected");
    };
    CHECK(rejection({}) == "not rejected");
    CHECK(rejection({{"general.architecture", std::string("llama")}}) ==
          "general.architecture llama is not supported; supported: bert and modern-bert");
    CHECK(rejection({{"bert.block_count", std::int64_t{5}}}) ==
          "tensor blk.4.layer_output_norm.weight is missing");
    CHECK(rejection({{"bert.block_count", std::int64_t{3}}}) ==
          "the model has a tensor blk.3.attn_k.bias, which is not supported");
}

TEST_CASE("Rows that blocks do not divide are stored in float16") {
    const FastEncoder encoder = make_fast_encoder(random_bert(36), DType::q8_0);
    CHECK(encoder.word_embeddings.dtype() == DType::float16);
    CHECK(encoder.layers[0].down_proj.weights[0].dtype() == DType::float16);
}

TEST_CASE("The fast encoder rejects what chapter 25's rejects") {
    const FastEncoder encoder = make_fast_encoder(random_bert(36));
    const auto embed = [&](const std::vector<std::vector<Id>>& texts) {
        return embed_texts(encoder, Pooling::mean, texts);
    };
    CHECK_THROWS_WITH_AS(embed({{1, 50}}), "encoder: there is no token 50 among 50",
                         ValueError);
    CHECK_THROWS_WITH_AS(embed({{1}, {}}), "unpad: text 1 has no token", ValueError);
    CHECK_THROWS_WITH_AS(embed({std::vector<Id>(131)}),
                         "encoder: there is no position 130 among 130", ValueError);
    AnyEncoder bad = random_bert(36);
    std::get<EncoderFamilyModel<BertBlock>>(bad).encoder.layers[1].mlp.up_proj.weight(2, 3) =
        not_a_number;
    CHECK_THROWS_WITH_AS(make_fast_encoder(bad),
                         "quantize: a matrix of (46, 36) holds inf or NaN", ValueError);
}
