// Exported GGUF files: what chapters 09 and 10 read from them, and their bytes.
#include <algorithm>
#include <random>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/10_tokenizer/bpe_training.hpp"
#include "chapters/14_fine_tuning/conversations.hpp"
#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/16_quantization/quantizers.hpp"
#include "chapters/models/chat/chat_formats.hpp"
#include "chapters/models/gguf/gguf_export.hpp"
#include "chapters/models/gguf/quantized_gguf.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/gguf_pre_types.hpp"
#include "chapters/models/tokenizers/gguf_tokenizer.hpp"
#include "chapters/models/tokenizers/gguf_tokenizer_export.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/show.hpp"
#include "tests/support/fast_helpers.hpp"
#include "tests/support/files.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;
using Ids = std::vector<Id>;
using Texts = std::vector<std::string>;

namespace {

Config plain_config() {
    Config config = small_config();
    config.qk_norm = QKNormType::none;
    return config;
}

Config qwen3_config() {
    Config config = small_config();
    config.qk_norm = QKNormType::with_weights;
    config.head_dim = 6;
    return config;
}

// Rows that blocks of 256 (down_proj) or only of 32 weights (the others) divide.
Config wide_config() {
    Config config = plain_config();
    config.hidden_size = 96;
    config.head_dim = 32;
    config.intermediate_size = 256;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    return config;
}

Model random_model(const Config& config) {
    Generator generator(5);
    Model model = make_model(config, generator);
    // Norms and biases of distinct values.
    for (Parameter& parameter : named_parameters(model))
        if (parameter.shape.size() == 1) generator.fill_normal(parameter.values);
    return model;
}

// As many tokens as the models have.
Tokenizer small_tokenizer() {
    Tokenizer tokenizer = train_bpe("the cat and the hat", 17);
    REQUIRE(tokenizer.vocab_size() <= 17);
    return tokenizer;
}

// A model that is exported and loaded again.
struct Exported {
    Scratch scratch;
    std::string file = (scratch.folder / "a.gguf").string();
    std::vector<models::TensorInOtherDType> fallbacks;

    explicit Exported(const Model& model, DType dtype = DType::float32,
                      const Tokenizer& tokenizer = small_tokenizer())
        : fallbacks(models::export_gguf(model, tokenizer, file, dtype)) {}

    Model model() const { return models::load_model(file); }
    Gguf gguf() const { return Gguf(file); }
};

void check_equal(const Config& actual, const Config& expected) {
    CHECK(actual.hidden_size == expected.hidden_size);
    CHECK(actual.intermediate_size == expected.intermediate_size);
    CHECK(actual.num_hidden_layers == expected.num_hidden_layers);
    CHECK(actual.num_attention_heads == expected.num_attention_heads);
    CHECK(actual.num_key_value_heads == expected.num_key_value_heads);
    CHECK(actual.head_dim == expected.head_dim);
    CHECK(actual.max_position_embeddings == expected.max_position_embeddings);
    CHECK(actual.vocab_size == expected.vocab_size);
    CHECK(actual.rope_theta == expected.rope_theta);
    CHECK(actual.rms_norm_eps == expected.rms_norm_eps);
    CHECK(actual.tie_word_embeddings == expected.tie_word_embeddings);
    CHECK(actual.attention_bias == expected.attention_bias);
    CHECK(actual.qk_norm == expected.qk_norm);
    CHECK(actual.rope_scaling.has_value() == expected.rope_scaling.has_value());
}

// The model with each matrix rounded to what a file of this dtype stores.
Model dequantized(Model model, DType wanted) {
    for (Parameter& parameter : named_parameters(model)) {
        if (parameter.shape.size() == 1) continue;
        const std::size_t in_features = parameter.shape[1];
        const DType dtype = stored_dtype(wanted, in_features);
        std::vector<std::byte> bytes(bytes_per_row(dtype, in_features));
        for (std::size_t row = 0; row < parameter.shape[0]; ++row) {
            const auto weights = parameter.values.subspan(row * in_features, in_features);
            quantize_row(dtype, weights, bytes);
            dequantize_row(dtype, bytes, weights);
        }
    }
    return model;
}

std::string rejection(const Model& model, const Tokenizer& tokenizer = small_tokenizer(),
                      DType dtype = DType::float32) {
    const Scratch scratch;
    const std::string file = (scratch.folder / "a.gguf").string();
    try {
        models::export_gguf(model, tokenizer, file, dtype);
        return "it was exported";
    } catch (const ValueError& error) {
        CHECK_FALSE(fs::exists(file));
        return error.what();
    }
}

Tokenizer fixture_tokenizer(const std::string& kind) {
    return models::load_tokenizer(fixture_path("10_tokenizer/" + kind + "/tokenizer.json"));
}

Tokenizer with_eos(Tokenizer tokenizer, Id id) {
    tokenizer.eos_token_ids = {id};
    return tokenizer;
}

Tokenizer again(const Tokenizer& tokenizer, std::size_t vocab_size) {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.gguf";
    write_gguf(file, models::tokenizer_metadata(tokenizer, vocab_size), {});
    return models::read_gguf_tokenizer(Gguf(file), vocab_size);
}
Tokenizer again(const Tokenizer& tokenizer) { return again(tokenizer, tokenizer.vocab_size()); }

// The value that is written under a key of the tokenizer.
template <class T>
T written(const Tokenizer& tokenizer, const std::string& name) {
    for (const auto& [key, value] :
         models::tokenizer_metadata(tokenizer, tokenizer.vocab_size()))
        if (key == "tokenizer.ggml." + name) return std::get<T>(value);
    FAIL(name);
    return T();
}

std::string tokenizer_rejection(const Tokenizer& tokenizer) try {
    models::tokenizer_metadata(tokenizer, tokenizer.vocab_size());
    return "it was exported";
} catch (const ValueError& error) {
    return error.what();
}

// Texts with special tokens, and random ones of these characters.
Texts example_texts(const std::string& alphabet) {
    Texts texts = {"",
                   " ",
                   "a",
                   "  two  spaces  ",
                   "\n\n x\n\ty",
                   "the <|endoftext|> cat",
                   "<|im_start|>user\nhe<|im_end|>",
                   "<think>the</think>",
                   "<s>the</s>",
                   "It's we'LL",
                   std::string(200, ' ') + "x"};
    const Texts letters = characters(alphabet);
    std::mt19937 random(42);
    for (int i = 0; i < 200; ++i) {
        std::string& text = texts.emplace_back();
        for (std::size_t n = random() % 100; n > 0; --n)
            text += letters[random() % letters.size()];
    }
    return texts;
}
const std::string any_letters =
    "aeehhttnorsx    \n\r\t12é中'.,!?<>|[]{}_-ßI\u0301\u00a0\U0001F600";

void check_equal(const Tokenizer& actual, const Tokenizer& expected, const Texts& texts) {
    CHECK(actual.vocab_size() == expected.vocab_size());
    CHECK(actual.all_special_ids == expected.all_special_ids);
    CHECK(actual.prefix_tokens == expected.prefix_tokens);
    for (const std::string& text : texts) {
        INFO(text);
        const Ids ids = expected.encode(text);
        CHECK(actual.encode(text) == ids);
        CHECK(actual.decode(ids) == expected.decode(ids));
    }
}

// A llama2.c tokenizer: special tokens, 256 bytes, and tokens with spaces and scores.
Tokenizer llama2c_tokenizer(const Scratch& scratch) {
    Texts tokens = {"<unk>", "\n<s>\n", "\n</s>\n"};
    for (int byte = 0; byte < 256; ++byte)
        tokens.push_back(byte_fallback_token(static_cast<unsigned char>(byte)));
    for (const std::string token : {" ", "a", "b", "ab", "ba", " a", "aba", "<s>"})
        tokens.push_back(token);
    std::ofstream file(scratch.folder / "tok.bin", std::ios::binary);
    const auto put = [&](auto number) {
        file.write(reinterpret_cast<const char*>(&number), sizeof number);
    };
    put(std::int32_t{6});
    for (std::size_t id = 0; id < tokens.size(); ++id) {
        const bool is_pair = id >= 262;
        put(is_pair ? float(id % 3) - 1.5f - float(id) : 0.0f);
        put(static_cast<std::int32_t>(tokens[id].size()));
        file << tokens[id];
    }
    file.close();
    return models::load_tokenizer((scratch.folder / "tok.bin").string());
}

}  // namespace

TEST_CASE("export_gguf: load_model gives the same configuration and logits in float32") {
    Config untied = plain_config();
    untied.tie_word_embeddings = false;
    untied.rope_theta = 500;
    untied.rms_norm_eps = Real(1e-4);
    Config qkv = plain_config(), qkvo = plain_config(), narrow = plain_config();
    qkv.attention_bias = AttentionBias::qkv;
    qkvo.attention_bias = AttentionBias::qkvo;
    narrow.head_dim = 6;
    for (const Config& config :
         {plain_config(), untied, qkv, qkvo, narrow, wide_config(), qwen3_config()}) {
        const Model model = random_model(config);
        const Exported exported(model);
        const Model loaded = exported.model();
        check_equal(loaded.config, model.config);
        CHECK_CLOSE(loaded(small_ids), model(small_ids), 0);
        const FastModel fast =
            models::load_quantized_model(exported.file, Activations::float32);
        const std::span<const Id> text(small_ids.data(), small_ids.shape(1));
        CHECK_CLOSE(in_one_call(fast, text), Matrix(xt::view(model(small_ids), 0)), 1e-5);
        CHECK(exported.fallbacks.empty());
        // Without these, llama.cpp divides the embedding length by the number of heads.
        const Gguf file = exported.gguf();
        for (const std::string key :
             {"attention.key_length", "attention.value_length", "rope.dimension_count"})
            CHECK(std::size_t(file.integer(file.text("general.architecture") + "." + key)) ==
                  model.config.head_dim);
        CHECK(file.has_tensor("output.weight") == !config.tie_word_embeddings);
        CHECK(file.text("general.architecture") ==
              (config.qk_norm != QKNormType::none            ? "qwen3"
               : config.attention_bias == AttentionBias::qkv ? "qwen2"
                                                             : "llama"));
    }
}

TEST_CASE("export_gguf writes the tensors that llama.cpp's converter writes") {
    for (const std::string name : {"llama", "qwen2", "qwen3"}) {
        INFO(name);
        const Exported exported(models::load_model(checkpoint(name)));
        const Gguf actual(exported.file), expected(fixture_path("gguf/" + name + ".gguf"));
        CHECK(actual.tensors().size() == expected.tensors().size());
        for (const auto& named : expected.tensors()) {
            const std::string& tensor = named.first;
            const GgufTensor& stored = named.second;
            INFO(tensor);
            CHECK(actual.tensor(tensor).shape == stored.shape);
            CHECK(actual.tensor(tensor).dtype == DType::float32);
            Vector values(std::array{element_count(stored.shape)}), read = values;
            dequantize_row(stored.dtype, stored.bytes, {values.data(), values.size()});
            dequantize_row(DType::float32, actual.tensor(tensor).bytes,
                           {read.data(), read.size()});
            CHECK_CLOSE(read, values, 1e-6);  // the RoPE factors are computed twice
        }
        for (const std::string key :
             {"block_count", "context_length", "embedding_length", "feed_forward_length",
              "attention.head_count", "attention.head_count_kv"})
            CHECK(actual.integer(name + "." + key) == expected.integer(name + "." + key));
        for (const std::string key : {"attention.layer_norm_rms_epsilon", "rope.freq_base"})
            CHECK(actual.number(name + "." + key) == expected.number(name + "." + key));
    }
}

TEST_CASE("export_gguf: rows of q and k are interleaved pairs for llama only") {
    Config config = plain_config();
    config.attention_bias = AttentionBias::qkvo;
    const Model model = random_model(config);
    const Gguf file = Exported(model).gguf();
    const std::size_t H = 4, Hkv = 2, D = 4, C = 16;
    const Projections& projections = model.layers[1].self_attn.projections;
    const Matrix q = file.read("blk.1.attn_q.weight", {H * D, C});
    const Matrix k = file.read("blk.1.attn_k.weight", {Hkv * D, C});
    const Vector q_bias = file.read("blk.1.attn_q.bias", {H * D});
    for (auto [head, pair, half, c] : every_index(H, D / 2, std::size_t{2}, C)) {
        const std::size_t row = head * D + 2 * pair + half;
        const std::size_t source = head * D + half * D / 2 + pair;
        CHECK(q(row, c) == projections.q_proj.weight(source, c));
        CHECK(q_bias(row) == (*projections.q_proj.bias)(source));
        if (head < Hkv) CHECK(k(row, c) == projections.k_proj.weight(source, c));
    }
    const Model qwen3 = random_model(qwen3_config());
    const Matrix split = Exported(qwen3).gguf().read("blk.0.attn_q.weight", {H * 6, C});
    CHECK_CLOSE(split, qwen3.layers[0].self_attn.projections.q_proj.weight, 0);

    config.attention_bias = AttentionBias::qkv;
    const Model qwen2 = random_model(config);
    const Linear& k_proj = qwen2.layers[0].self_attn.projections.k_proj;
    const Gguf qwen2_file = Exported(qwen2).gguf();
    CHECK_CLOSE(qwen2_file.read("blk.0.attn_k.weight", {Hkv * D, C}), k_proj.weight, 0);
    CHECK_CLOSE(qwen2_file.read("blk.0.attn_k.bias", {Hkv * D}), *k_proj.bias, 0);
}

TEST_CASE(
    "export_gguf: biases of q, k and v that llama.cpp's qwen2 does not have are llama's") {
    const auto check = [](const Config& config, const std::string& architecture) {
        const Model model = random_model(config);
        const Exported exported(model);
        CHECK(exported.gguf().text("general.architecture") == architecture);
        CHECK_CLOSE(exported.model()(small_ids), model(small_ids), 1e-6);
        CHECK(exported.model().config.attention_bias == AttentionBias::qkv);
    };
    Config config = plain_config();
    config.attention_bias = AttentionBias::qkv;
    check(config, "qwen2");
    config.rope_scaling = FrequencyFactors{Vector{4, 4}};
    check(config, "qwen2");
    config.rope_scaling = FrequencyFactors{Vector{1, 3}};
    check(config, "llama");
    config.rope_scaling.reset();
    config.head_dim = 6;  // o_proj is not square
    check(config, "llama");
}

TEST_CASE("export_gguf: other dtypes give the logits of the dequantized weights") {
    for (const Config& config : {wide_config(), plain_config(), qwen3_config()}) {
        const Model model = random_model(config);
        for (const DType dtype : {DType::float16, DType::bfloat16, DType::q8_0, DType::q4_0,
                                  DType::q5_0, DType::q4_k, DType::q6_k}) {
            const Exported exported(model, dtype);
            CHECK_CLOSE(exported.model()(small_ids), dequantized(model, dtype)(small_ids), 0);
            const Gguf file = exported.gguf();
            for (const auto& named : file.tensors()) {
                const GgufTensor& tensor = named.second;
                INFO(named.first);
                const bool is_matrix = tensor.shape.size() == 2;
                CHECK(tensor.dtype ==
                      (is_matrix ? stored_dtype(dtype, tensor.shape[1]) : DType::float32));
            }
        }
    }
}

TEST_CASE("export_gguf returns the tensors that fell back to another dtype") {
    const Model wide = random_model(wide_config()), narrow = random_model(plain_config());
    const std::vector<models::TensorInOtherDType> of_wide =
        Exported(wide, DType::q4_k).fallbacks;
    CHECK(of_wide.size() == 1 + 2 * 6);  // the embedding, and all but down_proj
    CHECK(of_wide[0].name == "token_embd.weight");
    for (const auto& [name, dtype] : of_wide) {
        CHECK(dtype == DType::q5_0);
        CHECK(name.find("ffn_down") == name.npos);
    }
    CHECK(Exported(wide, DType::q6_k).fallbacks[1].dtype == DType::q8_0);
    CHECK(Exported(wide, DType::q8_0).fallbacks.empty());
    CHECK(Exported(narrow, DType::bfloat16).fallbacks.empty());
    CHECK(Exported(narrow, DType::q8_0).fallbacks.size() == 1 + 2 * 7);
    CHECK(Exported(narrow, DType::q8_0).fallbacks[0].dtype == DType::float16);
    CHECK(Exported(wide, DType::q8_0).gguf().integer("general.quantization_version") == 2);
    CHECK_FALSE(Exported(wide).gguf().has("general.quantization_version"));
}

TEST_CASE("export_gguf: RoPE scaling is a tensor of factors, or a factor of all frequencies") {
    const auto check = [](const Config& config, bool has_tensor) {
        const Model model = random_model(config);
        const Exported exported(model);
        const Model loaded = exported.model();
        CHECK_CLOSE(rope_frequencies(loaded.config), rope_frequencies(model.config), 1e-7);
        CHECK_CLOSE(loaded(small_ids), model(small_ids), 1e-6);
        CHECK(exported.gguf().has_tensor("rope_freqs.weight") == has_tensor);
        CHECK(exported.gguf().has(exported.gguf().text("general.architecture") +
                                  ".rope.scaling.factor") == !has_tensor);
    };
    Config config = plain_config();
    config.rope_scaling = Llama3Scaling{8, 1, 4, 32};
    check(config, true);
    config.rope_scaling = FrequencyFactors{Vector{1, 3}};
    check(config, true);
    config.rope_scaling = FrequencyFactors{Vector{4, 4}};
    check(config, false);

    Config qwen3 = qwen3_config();
    qwen3.rope_scaling = FrequencyFactors{Vector{4, 4, 4}};
    check(qwen3, false);
    qwen3.rope_scaling = Llama3Scaling{8, 1, 4, 32};
    CHECK(rejection(random_model(qwen3)) ==
          "export: llama.cpp's architecture qwen3 has no rope_freqs.weight (Llama 3's RoPE "
          "scaling)");
}

TEST_CASE("export_gguf rejects models that llama.cpp does not have, by name") {
    Config config = small_config();
    config.qk_norm = QKNormType::without_weights;
    CHECK(
        mentions(rejection(random_model(config)), "no QK norm without weights (Llama 4 has)"));
    config = qwen3_config();
    config.attention_bias = AttentionBias::qkv;
    CHECK(rejection(random_model(config)) ==
          "export: llama.cpp's architecture qwen3 has no attention biases");

    const Model plain = random_model(plain_config());
    const auto rejection_with = [&](const auto& change) {
        Model model = plain;
        change(model.layers[1]);
        return rejection(model);
    };
    const Vector bias = xt::zeros<Real>({16});
    const std::string undescribed =
        "export: the configuration does not describe model.layers.1.";
    CHECK(rejection_with([&](PreNormBlock& layer) {
              layer.self_attn.projections.q_proj.bias = bias;
          }) == undescribed + "self_attn.q_proj.bias");
    CHECK(rejection_with([&](PreNormBlock& layer) { layer.mlp.down_proj.bias = bias; }) ==
          undescribed + "mlp.down_proj.bias");
    CHECK(mentions(rejection_with([](PreNormBlock& layer) { layer.mlp.activation = GELU; }),
                   "the activation of layer 1 is gelu"));
    CHECK(mentions(rejection_with([](PreNormBlock& layer) {
                       layer.self_attn.qk_norm = QKNormWithoutWeights{};
                   }),
                   "the QK norm of layer 1"));
    CHECK(rejection(plain, train_bpe("the cat and the fox", 0)) == "it was exported");
    CHECK(rejection(plain, train_bpe("the quick brown fox jumps over", 0)) ==
          "export: the tokenizer has 22 tokens, but the vocabulary size is 17");
}

TEST_CASE("export_gguf names the tensor of a weight that cannot be stored") {
    Model model = random_model(plain_config());
    model.layers[1].mlp.up_proj.weight(3, 3) = 1e30f;
    CHECK(mentions(rejection(model, small_tokenizer(), DType::float16),
                   "export: tensor blk.1.ffn_up.weight: "));
}

TEST_CASE("export_gguf does not overwrite a file") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "a.gguf").string();
    overwrite(file, "something else");
    const Model model = random_model(plain_config());
    CHECK_THROWS_WITH_AS(models::export_gguf(model, small_tokenizer(), file, DType::float32),
                         (file + ": exists already and is not overwritten").c_str(), FileError);
    CHECK(content(file) == "something else");
    fs::remove(file);
    models::export_gguf(model, small_tokenizer(), file, DType::float32);
    CHECK(fs::directory_iterator(scratch.folder)->path() == file);  // no temporary file
}

TEST_CASE("exported tokenizers with byte-level BPE give the same ids and texts") {
    const Texts texts = example_texts(any_letters);
    const std::vector<std::array<std::string, 2>> kinds = {
        {"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen", "qwen2"}, {"smol", "smollm"}};
    for (const auto& kind_and_pre : kinds) {
        const std::string& kind = kind_and_pre[0];
        INFO(kind);
        const Tokenizer tokenizer = with_eos(fixture_tokenizer(kind), 1);
        CHECK(written<std::string>(tokenizer, "model") == "gpt2");
        CHECK(written<std::string>(tokenizer, "pre") == kind_and_pre[1]);
        check_equal(again(tokenizer), tokenizer, texts);
        CHECK(again(tokenizer).eos_token_ids == Ids{1});
    }
    // Qwen3.5's differs from Qwen2's only where there are marks.
    Tokenizer qwen35 = with_eos(fixture_tokenizer("qwen"), 1);
    for (const models::PreType& pre : models::pre_types())
        if (pre.names.front() == "qwen35") qwen35.pre_tokenizers = pre.pre_tokenizers();
    CHECK(written<std::string>(qwen35, "pre") == "qwen35");
    check_equal(again(qwen35), qwen35, texts);
}

TEST_CASE(
    "a conversation has one BOS token, with the tokenizer of a folder or of a GGUF file") {
    for (const std::string name : {"llama3", "gemma"}) {
        INFO(name);
        Tokenizer of_folder = with_eos(fixture_tokenizer(name), 1);
        if (name == "llama3")
            for (const std::string header : {"<|start_header_id|>", "<|end_header_id|>"}) {
                const Id id = static_cast<Id>(of_folder.token_bytes.size());
                of_folder.added_tokens.push_back({header, id});
                of_folder.token_bytes.push_back(header);
                of_folder.vocab.emplace(header, id);
            }
        const Id bos = models::encode_prompt(of_folder, "").front();
        for (const Tokenizer& tokenizer : {of_folder, again(of_folder)}) {
            CHECK(std::ranges::count(models::encode_prompt(tokenizer, "Hi"), bos) == 1);
            CHECK(models::encode_prompt(tokenizer, "") == Ids{bos});
            const Completion completion =
                ChatEncoder{tokenizer, models::chat_template_named(name)}.completion(
                    {{"user", "Hi"}}, "Hello");
            CHECK(std::ranges::count(completion.prompt_ids, bos) == 1);
            CHECK(completion.prompt_ids.front() == bos);
            CHECK(std::ranges::count(completion.response_ids, bos) == 0);
        }
    }
}

TEST_CASE("the name of a pre-tokenizer is found by its components") {
    Tokenizer tokenizer = with_eos(fixture_tokenizer("gpt2"), 1);
    for (const models::PreType& pre : models::pre_types()) {
        tokenizer.pre_tokenizers = pre.pre_tokenizers();
        tokenizer.normalizers.clear();
        if (pre.nfc) tokenizer.normalizers.push_back(nfc_normalizer());
        tokenizer.ignore_merges = pre.ignore_merges;
        CHECK(written<std::string>(tokenizer, "pre") == pre.names.front());
    }
}

TEST_CASE("the exported king_james tokenizer gives the same ids: all its tokens are ASCII") {
    const Tokenizer tokenizer =
        models::load_tokenizer(asset("king_james/tokenizer.json"), 1024);
    const Tokenizer exported = again(tokenizer);
    std::string alphabet;
    for (const auto& [token, id] : tokenizer.vocab)
        if (token.size() == 1) alphabet += token;
    CHECK(alphabet.size() == 63);
    check_equal(exported, tokenizer, example_texts(alphabet + std::string(30, ' ')));
    const std::string book = read_text(asset("data/apocrypha.txt")).substr(0, 30000);
    CHECK(exported.encode(book) == tokenizer.encode(book));
    CHECK(written<std::string>(tokenizer, "pre") == "gpt-2");

    // A character without token is <unk>, here once for each of its bytes.
    CHECK(tokenizer.encode("aé") == Ids{38, 0});
    CHECK(exported.encode("aé") == Ids{38, 0, 0});
    CHECK(exported.encode("a3") == tokenizer.encode("a3"));

    // llama.cpp takes token 11, a semicolon, for EOS if there is none.
    CHECK(tokenizer.eos_token_ids.empty());
    CHECK(exported.eos_token_ids == Ids{0});
    CHECK(!exported.bos_token_id);
}

TEST_CASE("exported SentencePiece tokenizers give the same ids and texts") {
    const Texts texts = example_texts(any_letters);
    const Tokenizer llama2 = with_eos(fixture_tokenizer("llama2"), 2);
    CHECK(written<std::string>(llama2, "model") == "llama");
    const auto types = written<std::vector<std::int64_t>>(llama2, "token_type");
    CHECK(std::vector(types.begin(), types.begin() + 4) ==
          std::vector<std::int64_t>{2, 3, 3, 6});  // unknown, control, control, byte
    check_equal(again(llama2), llama2, texts);

    // With scores, every way to split a token in two is a merge, at the rank of the token.
    const std::string error =
        "export: the merges are not SentencePiece's, which follow from a score per token";
    const auto merge_of = [](Tokenizer& tokenizer, const std::string& a, const std::string& b) {
        return tokenizer.merges.find({tokenizer.vocab.at(a), tokenizer.vocab.at(b)});
    };
    Tokenizer changed = llama2;
    changed.merges.erase(merge_of(changed, "▁▁", "▁▁"));
    CHECK(tokenizer_rejection(changed) == error);
    changed = llama2;
    merge_of(changed, "▁▁", "▁▁")->second.rank = 1e6;
    CHECK(tokenizer_rejection(changed) == error);
    changed = llama2;
    merge_of(changed, "▁▁▁", "▁")->second.rank = merge_of(changed, "e", "r")->second.rank;
    CHECK(tokenizer_rejection(changed) == error);
    changed = llama2;
    merge_of(changed, "h", "e")->second.rank = merge_of(changed, "i", "n")->second.rank;
    CHECK(tokenizer_rejection(changed) == "it was exported");

    Tokenizer without_prefix = llama2;
    without_prefix.normalizers.erase(without_prefix.normalizers.begin());
    without_prefix.strip_leading_space = false;
    check_equal(again(without_prefix), without_prefix, texts);

    // Gemma's pre-tokenizer splits at spaces, which its normalizer has replaced.
    const Tokenizer gemma = with_eos(fixture_tokenizer("gemma"), 1);
    check_equal(again(gemma), gemma, texts);
}

TEST_CASE("an exported llama2.c tokenizer gives the same ids and texts") {
    const Scratch scratch;
    const Tokenizer tokenizer = llama2c_tokenizer(scratch);
    const Tokenizer exported = again(tokenizer);
    check_equal(exported, tokenizer, example_texts("aabb  <s>\né中"));
    CHECK(exported.bos_token_id == 1);
    CHECK(exported.eos_token_ids == Ids{2, 1});
    CHECK(written<std::int64_t>(tokenizer, "eos_token_id") == 2);
    CHECK(written<Texts>(tokenizer, "tokens")[264] == "▁a");
    CHECK(written<std::vector<double>>(tokenizer, "scores")[262] == 0.5 - 263);
}

TEST_CASE("stories260K.bin and its tokenizer are exported as they are") {
    const std::string file = stories260k();
    if (file.empty()) {
        MESSAGE("skipped: no stories260K.bin");
        return;
    }
    const Model model = models::load_model(file);
    const Tokenizer tokenizer =
        models::load_tokenizer(models::find_tokenizer_file(file, 512), 512);
    const Exported exported(model, DType::float32, tokenizer);
    CHECK_CLOSE(exported.model()({{1, 403, 407, 261}}), model({{1, 403, 407, 261}}), 0);
    check_equal(models::load_tokenizer(exported.file, 512), tokenizer,
                example_texts(any_letters));
}

TEST_CASE("ids without a token, up to the vocabulary size, decode to nothing") {
    const Tokenizer tokenizer = small_tokenizer();
    const Tokenizer padded = again(tokenizer, tokenizer.vocab_size() + 3);
    CHECK(padded.vocab_size() == tokenizer.vocab_size() + 3);
    CHECK(padded.decode({Id(tokenizer.vocab_size()) + 2, 1}) == tokenizer.decode({1}));
    CHECK(padded.encode("the hat") == tokenizer.encode("the hat"));
}

TEST_CASE("special tokens of an exported tokenizer: BOS, and up to three EOS tokens") {
    Tokenizer tokenizer = with_eos(fixture_tokenizer("qwen"), 404);
    tokenizer.eos_token_ids = {404, 402};
    tokenizer.bos_token_id = 402;
    CHECK(again(tokenizer).eos_token_ids == Ids{404, 402});
    CHECK(again(tokenizer).bos_token_id == 402);
    CHECK(again(tokenizer).encode("") == Ids{402});
    CHECK_FALSE(written<bool>(tokenizer, "add_bos_token"));
    const auto types = written<std::vector<std::int64_t>>(tokenizer, "token_type");
    CHECK(types[0] == 1);
    CHECK(types[402] == 3);  // control
    CHECK(types[405] == 4);  // <think>: user-defined

    tokenizer.eos_token_ids = {1, 2, 3, 4};
    CHECK(tokenizer_rejection(tokenizer) == "export: a GGUF file has 1 to 3 EOS tokens, not 4");
    tokenizer.eos_token_ids = {};
    CHECK(tokenizer_rejection(tokenizer) == "export: a GGUF file has 1 to 3 EOS tokens, not 0");
    tokenizer.unk_token_id = 7;
    CHECK(again(tokenizer).eos_token_ids == Ids{7});
    tokenizer.prefix_tokens = {402, 403};
    CHECK(mentions(tokenizer_rejection(tokenizer),
                   "llama.cpp begins a text with BOS or nothing"));
}

TEST_CASE("tokenizers that llama.cpp does not have are rejected") {
    const Tokenizer gpt2 = with_eos(fixture_tokenizer("gpt2"), 402);
    const std::string no_pre_type =
        "export: pre_tokenizer, normalizer and ignore_merges are not those of a name in "
        "tokenizer.ggml.pre; supported: gpt-2, llama-bpe, llama-v3, llama3, qwen2, qwen35, "
        "smollm, tekken";
    Tokenizer changed = gpt2;
    changed.pre_tokenizers = {byte_level_pre_tokenizer(true, true)};
    CHECK(tokenizer_rejection(changed) == no_pre_type);
    changed.pre_tokenizers = {regex_pre_tokenizer("Split", R"(\p{N}{1,3}|\p{L}+)"),
                              byte_level_pre_tokenizer(false, false)};
    CHECK(tokenizer_rejection(changed) == no_pre_type);
    changed.pre_tokenizers = {};
    CHECK(tokenizer_rejection(changed) == no_pre_type);
    changed = gpt2;
    changed.ignore_merges = true;
    CHECK(tokenizer_rejection(changed) == no_pre_type);
    changed = gpt2;
    changed.normalizers = {nfc_normalizer()};
    CHECK(tokenizer_rejection(changed) == no_pre_type);
    changed = gpt2;
    changed.strip_leading_space = true;
    CHECK(mentions(tokenizer_rejection(changed), "strips no space"));
    changed = gpt2;
    changed.token_bytes[5] = "other";
    CHECK(tokenizer_rejection(changed) == "export: token 5 would not decode to 'other'");
    changed = gpt2;
    changed.vocab.erase("!");
    CHECK(mentions(tokenizer_rejection(changed), "would not decode to '!'"));
    changed = gpt2;
    changed.normalized_added_tokens = {{"x", 5}};
    CHECK(mentions(tokenizer_rejection(changed), "no added tokens that are normalized"));
    changed = gpt2;
    for (const AddedToken& token :
         {AddedToken{"<|endoftext|>", 402, true}, AddedToken{"<|endoftext|>", 402, false, true},
          AddedToken{"<|endoftext|>", 402, false, false, true}}) {
        changed.added_tokens = {token};
        CHECK(mentions(tokenizer_rejection(changed),
                       "'<|endoftext|>' has lstrip, rstrip or single_word"));
    }

    // An added token in the alphabet of ByteLevel: Hugging Face's library decodes it to bytes.
    changed = gpt2;
    changed.token_bytes.push_back(
        "\x11"
        "em");
    changed.vocab["đem"] = 403;
    changed.added_tokens.push_back({"đem", 403});
    CHECK(tokenizer_rejection(changed) ==
          "export: the added token 'đem' decodes to '\\x11em', and in llama.cpp to itself");

    // Normalized added tokens, unless a second pass could find other tokens than the first.
    changed = gpt2;
    changed.token_bytes.push_back("<x>");
    changed.vocab["<x>"] = 403;
    changed.normalized_added_tokens = {{"<x>", 403}};
    CHECK(again(changed).encode("a<x>b") == changed.encode("a<x>b"));
    changed.added_tokens.push_back({"x", 87});
    CHECK(tokenizer_rejection(changed) ==
          "export: llama.cpp matches the added tokens '<x>' and 'x' at once");

    CHECK(mentions(tokenizer_rejection(train_bpe("café", 0)),
                   "'é', is not ASCII; llama.cpp has no BPE over characters"));
    CHECK(tokenizer_rejection(byte_tokenizer()) ==
          "export: llama.cpp's SentencePiece does not have these normalizers and "
          "pre-tokenizers: (none)");
    CHECK(mentions(tokenizer_rejection(fixture_tokenizer("metaspace")),
                   "prepends a space after each special token, not only at the beginning"));

    const Scratch scratch;
    const Tokenizer llama2c = llama2c_tokenizer(scratch);
    changed = llama2c;
    changed.normalizers.push_back(nfc_normalizer());
    CHECK(tokenizer_rejection(changed) ==
          "export: llama.cpp's SentencePiece does not have these normalizers and "
          "pre-tokenizers: Prepend, NFC");
    changed = llama2c;
    changed.byte_token_ids.erase(3);
    CHECK(mentions(tokenizer_rejection(changed), "needs 256 byte tokens, not 255"));
    changed = llama2c;
    changed.strip_leading_space = false;
    CHECK(mentions(tokenizer_rejection(changed), "removes a leading space"));
    changed = llama2c;
    changed.pre_tokenizers = {gpt2_pre_tokenizer()};
    CHECK(mentions(tokenizer_rejection(changed), "does not"));
}

namespace {

// An adapter of all linear layers with random A and B.
LoraAdapter random_adapter(const Model& model, bool use_rslora) {
    Generator generator(5);
    LoraConfig config{3, 6, use_rslora, {"q_proj", "k_proj", "v_proj", "o_proj"}};
    for (const char* name : {"gate_proj", "up_proj", "down_proj"})
        config.target_modules.emplace_back(name);
    LoraAdapter adapter = make_lora(model, config, generator);
    for (LoraLayer& layer : adapter.layers)
        layer.lora_B = randn({layer.lora_B.shape(0), layer.lora_B.shape(1)}, generator);
    return adapter;
}

Matrix matrix_in(const Gguf& file, const std::string& name) {
    const std::vector<std::size_t>& shape = file.tensor(name).shape;
    return file.read<2>(name, {shape[0], shape[1]});
}

}  // namespace

// The file of the merged model is made by the code that other tests and llama.cpp check.
TEST_CASE(
    "An adapter in GGUF, added to the file of its model, is the file of the merged model") {
    for (const Config& config : {plain_config(), qwen3_config()})
        for (const bool use_rslora : {false, true}) {
            const Model model = random_model(config);
            const LoraAdapter adapter = random_adapter(model, use_rslora);
            const Scratch scratch;
            const std::string file = scratch.folder / "adapter.gguf";
            models::export_gguf_adapter(adapter, model, file);
            const Gguf lora(file), base = Exported(model).gguf(),
                                   merged = Exported(merge_lora(model, adapter)).gguf();
            CHECK(lora.text("general.architecture") == base.text("general.architecture"));
            CHECK(lora.text("general.type") == "adapter");
            CHECK(lora.text("adapter.type") == "lora");
            const Real scaling = Real(lora.number("adapter.lora.alpha") / 3);
            CHECK(scaling == doctest::Approx(use_rslora ? 6 / std::sqrt(3.0) : 2.0));
            CHECK(lora.tensors().size() == 2 * 7 * config.num_hidden_layers);
            std::size_t num_adapted = 0;
            for (const auto& entry : base.tensors()) {
                const std::string& name = entry.first;
                if (!lora.has_tensor(name + ".lora_a")) continue;
                const Matrix a = matrix_in(lora, name + ".lora_a");
                const Matrix b = matrix_in(lora, name + ".lora_b");
                const Matrix product = xt::linalg::dot(b, a);
                const Matrix sum = matrix_in(base, name) + product * scaling;
                INFO(name);
                CHECK_CLOSE(sum, matrix_in(merged, name), 1e-5);
                ++num_adapted;
            }
            CHECK(num_adapted == 7 * config.num_hidden_layers);
            CHECK_THROWS_WITH_AS(models::export_gguf_adapter(adapter, model, file),
                                 (file + ": exists already and is not overwritten").c_str(),
                                 FileError);
        }
}

TEST_CASE("An adapter of another model is not exported") {
    const Model model = random_model(plain_config());
    Config other = plain_config();
    other.intermediate_size += 4;
    const Scratch scratch;
    const std::string file = scratch.folder / "adapter.gguf";
    CHECK_THROWS_AS(
        models::export_gguf_adapter(random_adapter(random_model(other), false), model, file),
        ValueError);
    CHECK(!fs::exists(file));
}
