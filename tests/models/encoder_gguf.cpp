// Encoders in GGUF files: the names of llama.cpp, the settings, and what is rejected by name.
#include "chapters/models/encoders/encoder_gguf.hpp"

#include <random>

#include "chapters/models/encoders/sentence_transformers.hpp"
#include "tests/support/gguf_edit.hpp"
#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// The fixtures that llama.cpp can run.
const std::vector<std::string> gguf_fixtures = {"bert", "bert_plain", "modernbert",
                                                "modernbert_mean", "modernbert_plain"};

AnyEncoder load_gguf_fixture(const std::string& name) {
    AnyEncoder encoder = load_encoder(fixture_path("models/" + name));
    if (name == "bert_plain")  // llama.cpp has GELU
        for (BertBlock& layer : std::get<EncoderFamilyModel<BertBlock>>(encoder).encoder.layers)
            layer.mlp.activation = GELUTanh;
    if (name == "bert_plain")
        std::get<EncoderFamilyModel<BertBlock>>(encoder).config.hidden_act = GELUTanh;
    return encoder;
}

std::string rejection_of_export(const std::string& name) {
    const Scratch scratch;
    try {
        models::export_gguf(load_encoder(fixture_path("models/" + name)),
                            (scratch.folder / "model.gguf").string());
    } catch (const ValueError& error) {
        return error.what();
    }
    return "not rejected";
}

using Changes = std::map<std::string, std::optional<GgufValue>>;

// The vectors of a copy of an exported fixture with other settings.
Tensor3 vectors_of_copy(const std::string& name, const Changes& changes) {
    const Scratch scratch;
    const std::string file = (scratch.folder / "model.gguf").string(), copy = file + ".copy";
    models::export_gguf(load_gguf_fixture(name), file);
    edit_gguf(file, copy, changes);
    const AnyEncoder encoder = load_encoder_gguf(copy);
    return without_padding(encode(encoder, encoder_batch(encoder)).last_hidden_state);
}

// The message with which the copy is rejected, without its path.
std::string rejection_of_gguf_copy(const std::string& name, const Changes& changes) {
    try {
        vectors_of_copy(name, changes);
    } catch (const FileError& error) {
        const std::string message = error.what();
        return message.substr(message.find(".copy: ") + 7);
    }
    return "not rejected";
}

}  // namespace

TEST_CASE("export_gguf of an encoder: the file has the same vectors, in every bit") {
    for (const std::string& name : gguf_fixtures) {
        CAPTURE(name);
        const Scratch scratch;
        const std::string file = (scratch.folder / "model.gguf").string();
        const AnyEncoder encoder = load_gguf_fixture(name);
        CHECK(models::export_gguf(encoder, file).empty());
        CHECK(find_encoder_family(file) == config_of(encoder).family);
        const AnyEncoder copy = load_encoder_gguf(file);
        CHECK_CLOSE(encode(copy, encoder_batch(copy)).last_hidden_state,
                    encode(encoder, encoder_batch(encoder)).last_hidden_state, 0);
        CHECK(config_of(copy).heads == EncoderHeads{});
        // As a folder, too.
        const std::string folder = (scratch.folder / "folder").string();
        models::export_model(copy, folder);
        CHECK_CLOSE(encode(load_encoder(folder), encoder_batch(copy)).last_hidden_state,
                    encode(encoder, encoder_batch(encoder)).last_hidden_state, 0);
    }
}

TEST_CASE("bert in GGUF: the names and settings of llama.cpp") {
    const Scratch scratch;
    const std::string path = (scratch.folder / "model.gguf").string();
    models::export_gguf(load_gguf_fixture("bert"), path, {.pooling = Pooling::cls});
    const Gguf file(path);
    CHECK(file.text("general.architecture") == "bert");
    CHECK(file.text("tokenizer.ggml.model") == "no_vocab");
    CHECK_FALSE(file.boolean("bert.attention.causal"));
    CHECK(file.integer("bert.pooling_type") == 2);
    CHECK(file.size("tokenizer.ggml.token_type_count") == 2);
    CHECK(file.number("bert.attention.layer_norm_epsilon") == doctest::Approx(1e-3));
    CHECK_FALSE(file.has("bert.rope.freq_base"));
    CHECK_FALSE(file.has("general.quantization_version"));  // of blocks, below
    const std::string in_blocks = path + ".q8_0";
    models::export_gguf(load_gguf_fixture("bert"), in_blocks, {.dtype = DType::q8_0});
    CHECK(Gguf(in_blocks).integer("general.quantization_version") == 2);
    for (const std::string name : {"token_embd", "position_embd", "token_types"})
        CHECK(file.has_tensor(name + ".weight"));
    for (const std::string name :
         {"token_embd_norm", "blk.2.attn_q", "blk.2.attn_k", "blk.2.attn_v",
          "blk.2.attn_output", "blk.2.attn_output_norm", "blk.2.ffn_up", "blk.2.ffn_down",
          "blk.2.layer_output_norm"})
        for (const std::string part : {".weight", ".bias"}) CHECK(file.has_tensor(name + part));
    CHECK(file.tensors().size() == 5 + 3 * 16);
}

TEST_CASE("modern-bert in GGUF: the names and settings of llama.cpp") {
    const Scratch scratch;
    const std::string path = (scratch.folder / "model.gguf").string();
    models::export_gguf(load_gguf_fixture("modernbert"), path,
                        {.dtype = DType::bfloat16, .pooling = Pooling::mean});
    const Gguf file(path);
    CHECK(file.text("general.architecture") == "modern-bert");
    CHECK(file.integer("modern-bert.pooling_type") == 1);
    CHECK(file.size("modern-bert.attention.sliding_window") == 4);
    CHECK(file.size("modern-bert.attention.sliding_window_pattern") == 3);
    CHECK(file.number("modern-bert.rope.freq_base") == 160);
    CHECK(file.number("modern-bert.rope.freq_base_swa") == 10);
    CHECK(file.tensor("blk.0.attn_qkv.weight").shape == std::vector<std::size_t>{72, 24});
    CHECK(file.tensor("blk.0.ffn_up.weight").shape == std::vector<std::size_t>{28, 24});
    CHECK(file.tensor("blk.0.ffn_up.weight").dtype == DType::bfloat16);
    CHECK(file.tensor("output_norm.weight").dtype == DType::float32);
    CHECK_FALSE(file.has_tensor("blk.0.attn_norm.weight"));
    CHECK(file.has_tensor("blk.1.attn_norm.weight"));
    load_encoder_gguf(path);
}

TEST_CASE("encoders that llama.cpp does not have are not exported") {
    for (bool EncoderFamilyConfig::*bias :
         {&EncoderFamilyConfig::norm_bias, &EncoderFamilyConfig::attention_bias,
          &EncoderFamilyConfig::mlp_bias}) {
        AnyEncoder encoder = load_gguf_fixture("modernbert");
        std::get<EncoderFamilyModel<ModernBertBlock>>(encoder).config.*bias = true;
        const Scratch scratch;
        CHECK_THROWS_WITH_AS(
            models::export_gguf(encoder, (scratch.folder / "model.gguf").string()),
            "export: llama.cpp's modern-bert has no biases", ValueError);
    }
    CHECK(rejection_of_export("bert_classifier") ==
          "export: llama.cpp's bert has GELU, not relu");
    CHECK(rejection_of_export("modernbert_biased") ==
          "export: llama.cpp's modern-bert has no biases");
    CHECK(rejection_of_export("modernbert_cls") ==
          "export: llama.cpp's modern-bert has full attention in every n-th layer alone");
}

TEST_CASE("every setting of an encoder's GGUF file changes its vectors") {
    for (const auto& [name, changes] : std::vector<std::pair<std::string, Changes>>{
             {"bert", {{"bert.attention.layer_norm_epsilon", 0.1}}},
             {"bert", {{"bert.hidden_activation", std::string("relu")}}},
             {"modernbert", {{"modern-bert.attention.layer_norm_epsilon", 0.1}}},
             {"modernbert", {{"modern-bert.hidden_activation", std::string("silu")}}},
             {"modernbert", {{"modern-bert.attention.sliding_window", std::int64_t{2}}}},
             {"modernbert", {{"modern-bert.attention.sliding_window", std::int64_t{0}}}},
             {"modernbert",
              {{"modern-bert.attention.sliding_window_pattern", std::int64_t{2}}}},
             {"modernbert", {{"modern-bert.rope.freq_base", 1600.0}}},
             {"modernbert", {{"modern-bert.rope.freq_base", std::nullopt}}},
             {"modernbert", {{"modern-bert.rope.freq_base_swa", 100.0}}},
             {"modernbert", {{"modern-bert.rope.freq_base_swa", std::nullopt}}}}) {
        CHECK(difference(vectors_of_copy(name, changes), vectors_of_copy(name, {}), 1e-4) !=
              "");
    }
    // The default, 3, is that of the fixture; one for each text, or for each token, is the
    // same.
    for (const Changes& changes :
         {Changes{{"modern-bert.attention.sliding_window_pattern", std::nullopt}},
          Changes{{"modern-bert.pooling_type", std::int64_t{2}}}})
        CHECK_CLOSE(vectors_of_copy("modernbert", changes), vectors_of_copy("modernbert", {}),
                    0);
}

TEST_CASE("settings of an encoder's GGUF file that would change a result are rejected") {
    for (const auto& [changes, message] : std::vector<std::pair<Changes, std::string>>{
             {{{"bert.attention.causal", true}},
              "bert.attention.causal true is not supported; supported: false"},
             {{{"bert.attention.causal", std::nullopt}}, "bert.attention.causal is missing"},
             {{{"bert.hidden_activation", std::string("xielu")}},
              "bert.hidden_activation xielu is not supported; supported: those of ACT2FN"},
             {{{"bert.attention.head_count_kv", std::int64_t{1}}},
              "bert.attention.head_count_kv 1 is not supported; supported: 3"},
             {{{"bert.attention.value_length", std::int64_t{4}}},
              "bert.attention.value_length 4 is not supported; supported: 8"},
             {{{"bert.attention.max_alibi_bias", 8.0}},
              "bert.attention.max_alibi_bias is not supported: nothing reads it"},
             {{{"bert.context_length", std::int64_t{15}}},
              "tensor position_embd.weight should have the shape (15, 24), it has (16, 24)"},
             {{{"bert.block_count", std::int64_t{2}}},
              "the model has a tensor blk.2.attn_k.bias, which is not supported"},
             {{{"bert.block_count", std::int64_t{4}}},
              "tensor blk.3.layer_output_norm.weight is missing"}})
        CHECK(rejection_of_gguf_copy("bert", changes) == message);
    CHECK(rejection_of_gguf_copy("modernbert",
                                 {{"modern-bert.rope.dimension_count", std::int64_t{4}}}) ==
          "modern-bert.rope.dimension_count 4 is not supported; supported: 8");
    CHECK(rejection_of_gguf_copy("modernbert",
                                 {{"modern-bert.rope.scaling.type", std::string("yarn")}}) ==
          "modern-bert.rope.scaling.type yarn is not supported; supported: none");
}

TEST_CASE("a damaged GGUF file of an encoder is loaded or named, and nothing else happens") {
    const Scratch scratch;
    const std::string path = (scratch.folder / "model.gguf").string();
    models::export_gguf(load_gguf_fixture("modernbert"), path);
    const std::string original = content(path);
    std::mt19937 random(25);
    std::size_t num_rejected = 0;
    for (int repetition = 0; repetition < 500; ++repetition) {
        std::string damaged = original;
        damaged[random() % 2500] = char(random() % 128);
        overwrite(path, damaged);
        try {
            load_encoder_gguf(path);
        } catch (const FileError& error) {
            CHECK(std::string(error.what()).starts_with(path));
            ++num_rejected;
        }
    }
    CHECK(num_rejected > 100);
}

TEST_CASE("only encoders are loaded as encoders") {
    const Scratch scratch;
    const std::string path = (scratch.folder / "model.gguf").string();
    write_gguf(path, {{"general.architecture", std::string("llama")}}, {});
    CHECK(find_encoder_family(path) == nullptr);
    CHECK_THROWS_WITH_AS(load_encoder_gguf(path),
                         (path + ": general.architecture llama is not supported; supported: "
                                 "bert and modern-bert")
                             .c_str(),
                         FileError);
}

TEST_CASE("the pooling of sentence-transformers: the mean, the first token, or another one") {
    const Scratch scratch;
    CHECK_FALSE(pooling_of(scratch.folder.string()));
    fs::create_directories(scratch.folder / "1_Pooling");
    const auto pooling = [&](const std::string& members) {
        overwrite(scratch.folder / "1_Pooling" / "config.json", "{" + members + "}");
        return pooling_of(scratch.folder.string());
    };
    CHECK(pooling(R"("pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true)") ==
          Pooling::mean);
    CHECK(pooling(R"("pooling_mode_cls_token": true)") == Pooling::cls);
    CHECK_FALSE(pooling(R"("pooling_mode_max_tokens": true)"));
    for (const std::optional<Pooling> given :
         {std::optional(Pooling::mean), std::optional(Pooling::cls),
          std::optional<Pooling>()}) {
        const std::string file =
            (scratch.folder / (given ? std::to_string(int(*given)) : "none")).string();
        models::export_gguf(load_gguf_fixture("bert"), file, {.pooling = given});
        CHECK(pooling_of(file) == given);
    }
}

TEST_CASE("pooling_type of a GGUF file: none is the mean, and other types are rejected") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "model.gguf").string(), copy = file + ".copy";
    models::export_gguf(load_gguf_fixture("bert"), file, {.pooling = Pooling::cls});
    const auto pooling = [&](const std::optional<GgufValue>& type) {
        fs::remove(copy);
        edit_gguf(file, copy, {{"bert.pooling_type", type}});
        return read_sentence_transformer(copy).pooling;
    };
    CHECK(pooling(std::int64_t{0}) == Pooling::mean);
    CHECK(pooling(std::int64_t{1}) == Pooling::mean);
    CHECK(pooling(std::int64_t{2}) == Pooling::cls);
    CHECK(pooling(std::nullopt) == Pooling::mean);
    for (const std::int64_t type : {-1, 3})
        CHECK_THROWS_WITH_AS(pooling(type),
                             (copy + ": bert.pooling_type " + std::to_string(type) +
                              " is not supported; supported: 0 (none), 1 (mean), 2 (CLS)")
                                 .c_str(),
                             FileError);
}

TEST_CASE("bert in GGUF: a file may have no token types") {
    AnyEncoder encoder = load_gguf_fixture("bert");
    auto& model = std::get<EncoderFamilyModel<BertBlock>>(encoder);
    model.config.type_vocab_size = model.encoder.config.type_vocab_size = 0;
    model.encoder.embeddings.token_type_embeddings = std::nullopt;
    const Scratch scratch;
    const std::string file = (scratch.folder / "model.gguf").string();
    models::export_gguf(encoder, file);
    CHECK(Gguf(file).size("tokenizer.ggml.token_type_count") == 1);
    CHECK_FALSE(Gguf(file).has_tensor("token_types.weight"));
    const AnyEncoder copy = load_encoder_gguf(file);
    CHECK(config_of(copy).type_vocab_size == 0);
    CHECK_CLOSE(encode(copy, encoder_batch(copy)).last_hidden_state,
                encode(encoder, encoder_batch(encoder)).last_hidden_state, 0);
}
