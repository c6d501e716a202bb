// The encoder of a T5 in GGUF files: the names of llama.cpp, the settings, and what is
// rejected.
#include "chapters/models/encoders/t5_gguf.hpp"

#include "tests/support/gguf_edit.hpp"
#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

const GgufMetadata no_vocabulary = {{"tokenizer.ggml.model", std::string("no_vocab")}};

// Both kinds of MLP, with llama.cpp's longest distance.
T5FamilyModel t5_for_llama_cpp(const std::string& name) {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("models/" + name);
    change_members(folder + "/config.json", {{"relative_attention_max_distance", 128}});
    return load_t5(folder);
}

Tensor3 encoded_texts(const T5FamilyModel& t5) {
    const IdMatrix ids = id_fixture<2>("models/t5_input_ids"), zeros = IdMatrix(ids.shape(), 0);
    const IdMatrix padding_mask = id_fixture<2>("models/t5_padding_mask");
    Tensor3 states = t5.model.encode({ids, padding_mask, zeros, zeros}).last_hidden_state;
    for (auto [b, s] : every_index(3, 13))
        if (padding_mask(b, s) == 0) xt::view(states, b, s) = Real(0);
    return states;
}

using T5GgufChanges = std::map<std::string, std::optional<GgufValue>>;

// A copy of an exported file with other settings.
T5FamilyModel changed_t5_gguf(const T5GgufChanges& changes) {
    const Scratch scratch;
    const std::string file = (scratch.folder / "model.gguf").string(), copy = file + ".copy";
    models::export_gguf(t5_for_llama_cpp("t5"), file, DType::float32, no_vocabulary);
    edit_gguf(file, copy, changes);
    return load_t5_gguf(copy);
}
std::string rejection_of_t5_gguf(const T5GgufChanges& changes) {
    try {
        changed_t5_gguf(changes);
    } catch (const FileError& error) {
        const std::string message = error.what();
        return message.substr(message.find(".copy: ") + 7);
    }
    return "not rejected";
}

std::string rejected_t5_export(const T5FamilyModel& t5) {
    const Scratch scratch;
    try {
        models::export_gguf(t5, (scratch.folder / "model.gguf").string(), DType::float32,
                            no_vocabulary);
    } catch (const ValueError& error) {
        return error.what();
    }
    return "not rejected";
}

}  // namespace

TEST_CASE("a T5's encoder is read from a GGUF file as it was written, without the decoder") {
    for (const std::string name : {"t5", "t5_gated", "t5_model", "t5_without_decoder"}) {
        CAPTURE(name);
        const Scratch scratch;
        const std::string file = (scratch.folder / "model.gguf").string();
        const T5FamilyModel t5 = t5_for_llama_cpp(name);
        CHECK(models::export_gguf(t5, file, DType::float32, no_vocabulary).empty());
        CHECK(is_t5(Gguf(file)));
        const T5FamilyModel copy = load_t5_gguf(file);
        CHECK_CLOSE(encoded_texts(copy), encoded_texts(t5), 0);
        CHECK_FALSE(copy.config.has_decoder);
        CHECK(copy.config.is_gated_act == t5.config.is_gated_act);

        // Its copy as a folder is that of a T5EncoderModel.
        models::export_model(copy, scratch.folder.string());
        CHECK_CLOSE(encoded_texts(load_t5(scratch.folder.string())), encoded_texts(t5), 0);
    }
}

TEST_CASE("a T5's GGUF file has llama.cpp's names, and biases in float32") {
    const Scratch scratch;
    const std::string path = (scratch.folder / "model.gguf").string();
    models::export_gguf(t5_for_llama_cpp("t5_gated"), path, DType::bfloat16, no_vocabulary);
    const Gguf file(path);
    CHECK(file.text("general.architecture") == "t5encoder");
    CHECK(file.size("t5encoder.attention.relative_buckets_count") == 8);
    CHECK(file.size("t5encoder.attention.key_length") == 6);
    CHECK_FALSE(file.boolean("t5encoder.attention.causal"));
    CHECK_FALSE(file.has("general.quantization_version"));  // of blocks, below
    const std::string in_blocks = path + ".q8_0";
    models::export_gguf(t5_for_llama_cpp("t5"), in_blocks, DType::q8_0, no_vocabulary);
    CHECK(Gguf(in_blocks).integer("general.quantization_version") == 2);
    std::string names;
    for (const auto& [name, tensor] : file.tensors())
        if (!name.starts_with("enc.blk.1")) names += name + " ";
    CHECK(names ==
          "enc.blk.0.attn_k.weight enc.blk.0.attn_norm.weight enc.blk.0.attn_o.weight "
          "enc.blk.0.attn_q.weight enc.blk.0.attn_rel_b.weight enc.blk.0.attn_v.weight "
          "enc.blk.0.ffn_down.weight enc.blk.0.ffn_gate.weight enc.blk.0.ffn_norm.weight "
          "enc.blk.0.ffn_up.weight enc.output_norm.weight token_embd.weight ");
    CHECK(file.tensor("enc.blk.0.attn_rel_b.weight").dtype == DType::float32);
    CHECK(file.tensor("enc.blk.0.attn_q.weight").dtype == DType::bfloat16);
    CHECK(difference(encoded_texts(load_t5_gguf(path)),
                     encoded_texts(t5_for_llama_cpp("t5_gated")), 0.1) == "");
}

TEST_CASE("every setting of a T5's GGUF file is read, or rejected by name") {
    const std::string prefix = "t5encoder.";
    CHECK(difference(encoded_texts(
                         changed_t5_gguf({{prefix + "attention.layer_norm_rms_epsilon", 0.1}})),
                     encoded_texts(t5_for_llama_cpp("t5")), 1e-4) != "");
    CHECK(rejection_of_t5_gguf({{prefix + "attention.head_count", std::int64_t{2}}}) ==
          "tensor enc.blk.0.attn_rel_b.weight should have the shape (8, 2), it has (8, 3)");
    CHECK(rejection_of_t5_gguf({{prefix + "attention.value_length", std::int64_t{5}}}) ==
          "t5encoder.attention.value_length is not attention.key_length");
    CHECK(rejection_of_t5_gguf(
              {{prefix + "attention.relative_buckets_count", std::int64_t{2}}}) ==
          "relative positions: 2 buckets do not fit distances up to 128");
    CHECK(rejection_of_t5_gguf({{prefix + "block_count", std::int64_t{4}}}) ==
          "tensor enc.blk.3.ffn_norm.weight is missing");
    for (const std::string key : {"embedding_length", "attention.key_length",
                                  "feed_forward_length", "block_count", "context_length"})
        CHECK(mentions(rejection_of_t5_gguf({{prefix + key, std::nullopt}}), prefix + key));
    // llama.cpp's own converter does not write it.
    CHECK_CLOSE(encoded_texts(changed_t5_gguf({{prefix + "attention.causal", std::nullopt}})),
                encoded_texts(t5_for_llama_cpp("t5")), 0);
    CHECK(rejection_of_t5_gguf({{prefix + "attention.causal", true}}) ==
          "t5encoder.attention.causal true is not supported; supported: false");
    CHECK(mentions(rejection_of_t5_gguf({{prefix + "rope.freq_base", 5.5}}), "rope.freq_base"));
}

TEST_CASE("a T5 that llama.cpp cannot compute is not exported") {
    CHECK(rejected_t5_export(load_t5(fixture_path("models/t5"))) ==
          "export: llama.cpp's t5encoder has distances up to 128, not 11");
    T5FamilyModel t5 = t5_for_llama_cpp("t5");
    t5.config.activation = SiLU;
    CHECK(rejected_t5_export(t5) ==
          "export: llama.cpp's t5encoder has ReLU or gated GELU, not silu");
    t5 = t5_for_llama_cpp("t5_gated");
    t5.config.activation = ReLU;
    CHECK(rejected_t5_export(t5) ==
          "export: llama.cpp's t5encoder has ReLU or gated GELU, not gated relu");
}
