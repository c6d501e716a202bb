// Weights of encoders that do not fit the settings, and tensors that a file may have or lack.
#include <functional>

#include "common/files/unicode.hpp"
#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// The message with which a copy of a fixture that was changed is rejected, after its folder.
std::string rejection_of_copy(const std::string& name,
                              const std::function<void(const std::string&)>& change_folder) {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("models/" + name);
    change_folder(folder);
    try {
        load_encoder(folder);
    } catch (const FileError& error) {
        const std::string message = error.what();
        REQUIRE(message.starts_with(folder + "/"));
        return message.substr(folder.size() + 1);
    }
    return "not rejected";
}
std::string rejection_of_copy(const std::string& name, const nlohmann::json& changes) {
    return rejection_of_copy(name, [&](const std::string& folder) {
        change_members(folder + "/config.json", changes);
    });
}

}  // namespace

TEST_CASE("weights that do not fit the settings are named, with both shapes") {
    CHECK(rejection_of_copy("bert", {{"hidden_size", 18}}) ==
          "model.safetensors: tensor bert.encoder.layer.2.output.LayerNorm.weight should have "
          "the shape (18,), it has (24,)");
    CHECK(rejection_of_copy("bert", {{"type_vocab_size", 3}}) ==
          "model.safetensors: tensor bert.embeddings.token_type_embeddings.weight should have "
          "the shape (3, 24), it has (2, 24)");
    CHECK(rejection_of_copy("bert", {{"vocab_size", 30}}) ==
          "model.safetensors: tensor bert.embeddings.word_embeddings.weight should have the "
          "shape (30, 24), it has (31, 24)");
    CHECK(rejection_of_copy("bert", {{"max_position_embeddings", 17}}) ==
          "model.safetensors: tensor bert.embeddings.position_embeddings.weight should have "
          "the shape (17, 24), it has (16, 24)");
    CHECK(rejection_of_copy("bert", {{"num_hidden_layers", 10'000}}) ==
          "model.safetensors: tensor bert.encoder.layer.9999.output.LayerNorm.weight of "
          "shape (24,) is missing");
    CHECK(rejection_of_copy("bert", {{"num_hidden_layers", 10'001}}) ==
          "config.json: num_hidden_layers must be at most 10000, not 10001");
    CHECK(rejection_of_copy("bert", {{"num_hidden_layers", 2}}) ==
          "config.json: the weights have a tensor "
          "bert.encoder.layer.2.attention.output.LayerNorm.bias, which these settings do not "
          "describe");
    CHECK(rejection_of_copy("bert_classifier", {{"id2label", {{"0", "a"}}}}) ==
          "model.safetensors: tensor classifier.weight should have the shape (1, 24), it has "
          "(3, 24)");
    CHECK(rejection_of_copy("modernbert", {{"intermediate_size", 15}}) ==
          "model.safetensors: tensor model.layers.0.mlp.Wi.weight should have the shape (30, "
          "24), it has (28, 24)");
    for (const std::string part : {"norm", "attention", "mlp"})
        CHECK(
            mentions(rejection_of_copy("modernbert", {{part + "_bias", true}}), "is missing"));
    CHECK(rejection_of_copy("modernbert", {{"classifier_bias", true}}) ==
          "model.safetensors: tensor head.dense.bias of shape (24,) is missing");
    for (const std::string part : {"norm", "attention", "mlp", "classifier"})
        CHECK(mentions(rejection_of_copy("modernbert_biased", {{part + "_bias", false}}),
                       "which these settings do not describe"));
    CHECK(rejection_of_copy("modernbert", {{"decoder_bias", false}}) ==
          "config.json: the weights have a tensor decoder.bias, which these settings do not "
          "describe");
    CHECK(rejection_of_copy("modernbert_biased", {{"decoder_bias", true}}) ==
          "model.safetensors: tensor decoder.bias of shape (31,) is missing");
    CHECK(rejection_of_copy("bert", {{"quantization_config", {{"quant_method", "gptq"}}}}) ==
          "config.json: quantization_config says that the weights are quantized (gptq); "
          "supported for encoders: float32, float16 and bfloat16");
}

TEST_CASE("the decoder of masked tokens: tied, or with a weight of its own") {
    CHECK(rejection_of_copy("bert_untied", {{"tie_word_embeddings", true}}) ==
          "config.json: tie_word_embeddings is true, but cls.predictions.decoder.weight of the "
          "weights differs from the embedding");
    CHECK(rejection_of_copy("modernbert", {{"tie_word_embeddings", false}}) ==
          "model.safetensors: tensor decoder.weight of shape (31, 24) is missing");
}

TEST_CASE("a tied decoder may stand in the file once more") {
    AnyEncoder untied = load_encoder(fixture_path("models/bert"));
    const EncoderOutputs outputs = encode(untied, encoder_batch(untied));
    auto& model = std::get<EncoderFamilyModel<BertBlock>>(untied);
    model.config.tie_word_embeddings = false;
    model.head->decoder.weight = model.encoder.embeddings.word_embeddings;
    const Scratch scratch;
    const std::string folder = scratch.folder.string();
    models::export_model(untied, folder);
    CHECK(mentions(header_of(folder + "/model.safetensors"), "cls.predictions.decoder.weight"));
    for (const bool tied : {false, true}) {
        change_members(folder + "/config.json", {{"tie_word_embeddings", tied}});
        const AnyEncoder encoder = load_encoder(folder);
        CHECK(difference_of(encode(encoder, encoder_batch(encoder)), outputs, 0) == "");
    }
}

TEST_CASE("bert: the bias of the decoder has two names, and may stand under either") {
    const AnyEncoder both = load_encoder(fixture_path("models/bert_untied"));
    const EncoderOutputs outputs = encode(both, encoder_batch(both));
    const Scratch scratch;
    const std::string folder = scratch.copy_of("models/bert_untied"),
                      file = folder + "/model.safetensors", original = content(file);
    // A name that is left alone instead of one of them.
    edit(file, "\"cls.predictions.bias\"", "\".rotary_emb.inv_freq\"");
    const AnyEncoder one = load_encoder(folder);
    CHECK(difference_of(encode(one, encoder_batch(one)), outputs, 0) == "");

    std::string changed = original;  // its last tensor is the second bias
    changed[changed.size() - 2] ^= 1;
    overwrite(file, changed);
    CHECK_THROWS_WITH_AS(
        load_encoder(folder),
        (folder + "/config.json: the weights have two biases of the decoder, "
                  "cls.predictions.bias and cls.predictions.decoder.bias, which differ")
            .c_str(),
        FileError);
}

TEST_CASE("bert: the names of Google's first files are read: gamma, beta and a buffer") {
    // bert_plain has these names without the prefix; here they stand in a model with heads.
    const AnyEncoder now = load_encoder(fixture_path("models/bert"));
    const Scratch scratch;
    const std::string folder = scratch.copy_of("models/bert"),
                      file = folder + "/model.safetensors", original = content(file);
    const std::string old_header = header_of(file);
    std::string header = replaced(replaced(old_header, "LayerNorm.weight", "LayerNorm.gamma"),
                                  "LayerNorm.bias", "LayerNorm.beta");
    const std::string data = original.substr(8 + old_header.size());
    header.insert(1, R"("bert.embeddings.position_ids": {"dtype": "I64", "shape": [1, 16],
                        "data_offsets": [)" +
                         std::to_string(data.size()) + "," + std::to_string(data.size() + 128) +
                         "]}, ");
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const std::uint64_t size = header.size();
    overwrite(file, std::string(reinterpret_cast<const char*>(&size), sizeof size) + header +
                        data + std::string(128, '\0'));
    REQUIRE(mentions(header, "cls.predictions.transform.LayerNorm.gamma"));
    const AnyEncoder encoder = load_encoder(folder);
    CHECK(difference_of(encode(encoder, encoder_batch(encoder)),
                        encode(now, encoder_batch(now)), 0) == "");
}

TEST_CASE("a class needs its heads, and other heads are read if they are there") {
    CHECK(
        rejection_of_copy("bert_plain", {{"architectures", {"BertForMaskedLM"}}}) ==
        "model.safetensors: tensor cls.predictions.transform.dense.weight of shape (24, 24) is "
        "missing");
    const Scratch scratch;
    const std::string folder = scratch.copy_of("models/bert");
    change_members(folder + "/config.json", {{"architectures", {"BertForMaskedLM"}}});
    const EncoderHeads heads = config_of(load_encoder(folder)).heads;
    CHECK(heads == EncoderHeads{true, true, true, false});
    const auto rename_pooler = [](const std::string& copy) {
        edit(copy + "/model.safetensors", "pooler.dense.weight", "pooler.dense.wEIGHT");
    };
    CHECK(rejection_of_copy("bert", rename_pooler) ==
          "model.safetensors: tensor bert.pooler.dense.weight of shape (24, 24) is missing");
    CHECK(mentions(rejection_of_copy("bert_classifier", {{"architectures", {"BertModel"}}}),
                   "the weights have a tensor classifier.bias, which these settings do not "
                   "describe"));
}

TEST_CASE("an encoder may have no layers") {
    AnyEncoder encoder = load_encoder(fixture_path("models/modernbert_plain"));
    auto& model = std::get<EncoderFamilyModel<ModernBertBlock>>(encoder);
    model.encoder.layers.clear();
    model.config.num_hidden_layers = model.encoder.config.num_hidden_layers = 0;
    model.config.windows.clear();
    const Scratch scratch;
    models::export_model(encoder, scratch.folder.string());
    const AnyEncoder copy = load_encoder(scratch.folder.string());
    CHECK(config_of(copy).num_hidden_layers == 0);
    CHECK(difference_of(encode(copy, encoder_batch(copy)),
                        encode(encoder, encoder_batch(encoder)), 0) == "");
}

TEST_CASE("an encoder names a text that is longer than its positions, and a token type") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("models/modernbert");
    change_members(folder + "/config.json", {{"max_position_embeddings", 10}});
    const AnyEncoder encoder = load_encoder(folder);
    CHECK_THROWS_WITH_AS(encode(encoder, encoder_batch(encoder)),
                         "encoder: there is no position 10 among 10", ValueError);
    BatchEncoding batch = pad({{7, 8}}, 0);
    batch.token_type_ids(0, 1) = 1;
    CHECK_THROWS_WITH_AS(encode(encoder, batch), "encoder: there is no token type 1 among 1",
                         ValueError);
}
