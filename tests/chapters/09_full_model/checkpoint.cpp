#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "chapters/09_full_model/parameters.hpp"
#include "chapters/models/llama/config_json.hpp"
#include "chapters/models/llama/llama2c.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"
#include "tests/support/rejection.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

namespace {

void check_same(const Config& a, const Config& b) {
    CHECK(a.hidden_size == b.hidden_size);
    CHECK(a.intermediate_size == b.intermediate_size);
    CHECK(a.num_hidden_layers == b.num_hidden_layers);
    CHECK(a.num_attention_heads == b.num_attention_heads);
    CHECK(a.num_key_value_heads == b.num_key_value_heads);
    CHECK(a.head_dim == b.head_dim);
    CHECK(a.vocab_size == b.vocab_size);
    CHECK(a.max_position_embeddings == b.max_position_embeddings);
    CHECK(a.rms_norm_eps == b.rms_norm_eps);
    CHECK(a.rope_theta == b.rope_theta);
    CHECK(a.tie_word_embeddings == b.tie_word_embeddings);
    CHECK(a.qk_norm == b.qk_norm);
    CHECK(a.attention_bias == b.attention_bias);
    REQUIRE(a.rope_scaling.has_value() == b.rope_scaling.has_value());
    if (!a.rope_scaling) return;
    const auto scaling_a = std::get<Llama3Scaling>(*a.rope_scaling);
    const auto scaling_b = std::get<Llama3Scaling>(*b.rope_scaling);
    CHECK(scaling_a.factor == scaling_b.factor);
    CHECK(scaling_a.low_freq_factor == scaling_b.low_freq_factor);
    CHECK(scaling_a.high_freq_factor == scaling_b.high_freq_factor);
    CHECK(scaling_a.original_max_position_embeddings ==
          scaling_b.original_max_position_embeddings);
}

// A safetensors file with this header and so many bytes of data.
std::string safetensors(const std::string& header, std::size_t bytes) {
    const std::uint64_t length = header.size();
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, 8);
    return text + header + std::string(bytes, '\0');
}

}  // namespace

TEST_CASE("load_model: checkpoints of every supported type give PyTorch's logits") {
    for (const std::string name : {"llama", "qwen2", "qwen3", "mistral", "mini_llm"}) {
        INFO(name);
        const Model model = models::load_model(checkpoint(name));
        CHECK_CLOSE(model(small_ids), expected_logits(name), 1e-5);
    }
    for (const std::string name : {"llama2c", "llama2c_tied"}) {
        const Model model = models::load_model(checkpoint(name + ".bin"));
        CHECK_CLOSE(model(small_ids), expected_logits(name), 1e-5);
        CHECK(model.lm_head.has_value() == (name == "llama2c"));
    }
}

TEST_CASE("load_model: Mini-LLM's files with a model_type are read as those without one") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/mini_llm");
    edit(folder + "/config.json", "\"dim\"", "\"model_type\": \"mini-llm\", \"dim\"");
    CHECK_CLOSE(models::load_model(folder)(small_ids), expected_logits("mini_llm"), 1e-5);
}

TEST_CASE("export_model: the exported model loads with the same configuration and logits") {
    const Scratch scratch;
    for (const std::string name :
         {"llama", "qwen2", "qwen3", "mistral", "mini_llm", "llama2c.bin"}) {
        INFO(name);
        const Model model = models::load_model(checkpoint(name));
        const std::string folder = (scratch.folder / name).string();
        models::export_model(model, folder);
        const Model again = models::load_model(folder);
        CHECK_CLOSE(again(small_ids), model(small_ids), 0);
        CHECK(count_parameters(again).total() == count_parameters(model).total());
        check_same(again.config, model.config);
    }
    CHECK(mentions(content(scratch.folder / "qwen3/config.json"), "\"Qwen3ForCausalLM\""));
    CHECK(mentions(content(scratch.folder / "qwen2/config.json"), "\"model_type\": \"qwen2\""));
}

TEST_CASE("export_model: biases of all four projections are exported as a llama model") {
    const Scratch scratch;
    Config config = small_config();
    config.attention_bias = AttentionBias::qkvo;
    Generator generator(5);
    const Model model = make_model(config, generator);
    const std::string folder = scratch.folder.string();
    models::export_model(model, folder);
    const Model again = models::load_model(folder);
    CHECK_CLOSE(again(small_ids), model(small_ids), 0);
    check_same(again.config, model.config);
    CHECK(mentions(content(folder + "/config.json"), "\"hidden_act\": \"silu\""));
    CHECK(mentions(content(folder + "/config.json"), "\"model_type\": \"llama\""));
}

TEST_CASE("export_model: biases of q, k and v alone are exported as a qwen2 model") {
    const Scratch scratch;
    Config config = small_config();
    config.attention_bias = AttentionBias::qkv;
    Generator generator(5);
    Model model = make_model(config, generator);
    const std::string folder = scratch.folder.string();
    models::export_model(model, folder);
    const Model again = models::load_model(folder);
    check_same(again.config, model.config);
    CHECK_CLOSE(again(small_ids), model(small_ids), 0);
    for (const PreNormBlock& layer : again.layers) {
        const auto& [q_proj, k_proj, v_proj, o_proj] = layer.self_attn.projections;
        CHECK((q_proj.bias && k_proj.bias && v_proj.bias && !o_proj.bias));
    }
    CHECK(mentions(content(folder + "/config.json"), "\"model_type\": \"qwen2\""));
    CHECK(mentions(content(folder + "/config.json"), "\"attention_bias\": false"));

    // The biases are part of the logits: without those of one layer, the logits differ.
    const Tensor3 with_biases = model(small_ids);
    model.layers[1].self_attn.projections.v_proj.bias.reset();
    CHECK_FALSE(difference(model(small_ids), with_biases, 1e-3).empty());
}

TEST_CASE("export_model rejects biases and norms that no config.json describes, by name") {
    const Scratch scratch;
    const std::string folder = (scratch.folder / "rejected").string();
    Generator generator(5);
    const auto rejected = [&](const Model& model, const std::string& message) {
        CHECK_THROWS_WITH_AS(models::export_model(model, folder), message.c_str(), ValueError);
        CHECK_FALSE(is_folder(folder));  // nothing was written
    };
    Config config = small_config();
    config.qk_norm = QKNormType::without_weights;
    rejected(make_model(config, generator),
             "export: no supported model_type has a QK norm without weights (Llama 4 has)");
    config.qk_norm = QKNormType::over_all_heads;
    rejected(make_model(config, generator),
             "export: no supported model_type has a QK norm over all heads (OLMo 2 has)");
    config.qk_norm = QKNormType::with_weights;
    config.attention_bias = AttentionBias::qkv;
    rejected(make_model(config, generator),
             "export: no supported model_type has biases of q, k and v and a QK norm");

    // Layers that are not those of the configuration.
    Model model = make_model(small_config(), generator);
    model.layers[1].self_attn.qk_norm = QKNormWithoutWeights{};
    rejected(model, "export: the QK norm of layer 1 is not that of the configuration");
    model = make_model(small_config(), generator);
    model.layers[1].attention_norm.bias = Vector(xt::zeros<Real>({16}));
    rejected(model,
             "export: the configuration does not describe model.layers.1.input_layernorm.bias");
    model = make_model(small_config(), generator);
    model.norm.bias = Vector(xt::zeros<Real>({16}));
    rejected(model, "export: the configuration does not describe model.norm.bias");
    model = make_model(small_config(), generator);
    model.layers[0].mlp.up_proj.bias = Vector(xt::zeros<Real>({20}));
    rejected(model,
             "export: the configuration does not describe model.layers.0.mlp.up_proj.bias");

    config = small_config();
    config.attention_bias = AttentionBias::qkv;
    model = make_model(config, generator);
    model.layers[0].self_attn.projections.o_proj.bias = Vector(xt::zeros<Real>({16}));
    rejected(
        model,
        "export: the configuration does not describe model.layers.0.self_attn.o_proj.bias");
    model.layers[0].self_attn.projections.o_proj.bias.reset();
    model.layers[0].mlp.up_proj.bias = Vector(xt::zeros<Real>({20}));
    rejected(model,
             "export: the configuration does not describe model.layers.0.mlp.up_proj.bias");
    model.layers[0].mlp.up_proj.bias.reset();
    model.config.attention_bias = AttentionBias::none;
    rejected(
        model,
        "export: the configuration does not describe model.layers.0.self_attn.q_proj.bias");
    model.config.attention_bias = AttentionBias::qkvo;
    rejected(model,
             "export: the model has no model.layers.0.self_attn.o_proj.bias, which its "
             "configuration describes");

    // What no config.json of these model types has.
    model = make_model(small_config(), generator);
    model.layers[1].mlp.activation = GELU;
    rejected(model, "export: the activation of layer 1 is gelu; supported: silu");
    model = make_model(small_config(), generator);
    const std::string scales =
        "export: the configuration does not describe a scale of embeddings or logits, or a cap "
        "of the logits";
    model.embedding_scale = 4;
    rejected(model, scales);
    model.embedding_scale = 1;
    model.final_logit_softcapping = 30;
    rejected(model, scales);
    model.final_logit_softcapping.reset();
    model.logits_scaling = 8;
    rejected(model, scales);
    model.logits_scaling = 1;
    model.layers[1].residual_multiplier = Real(0.22);
    rejected(model,
             "export: the configuration does not describe the residual multiplier of layer 1");
}

TEST_CASE("export_model replaces the weight files that load_model reads from the folder") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/qwen2");
    const Model model = models::load_model(checkpoint("mistral"));
    models::export_model(model, folder);
    CHECK_CLOSE(models::load_model(folder)(small_ids), model(small_ids), 0);
}

TEST_CASE("weights that config.json does not describe are rejected, not left out") {
    const auto as_type = [](const std::string& name, const std::string& old_text,
                            const std::string& new_text) {
        const Scratch scratch;
        const std::string folder = scratch.copy_of("09_full_model/" + name);
        edit(folder + "/config.json", old_text, new_text);
        return rejection(folder);
    };
    CHECK(mentions(as_type("qwen2", "qwen2", "llama"),
                   "config.json: the weights have a tensor model.layers.0.self_attn.k_proj.bias"
                   ", which these settings do not describe"));
    CHECK(mentions(as_type("qwen3", "qwen3", "llama"), "self_attn.k_norm.weight, which"));
    const Scratch scratch;
    Config config = small_config();
    config.attention_bias = AttentionBias::qkvo;
    Generator generator(5);
    models::export_model(make_model(config, generator), scratch.folder.string());
    edit(scratch.folder / "config.json", "\"llama\"", "\"qwen2\"");
    CHECK(mentions(rejection(scratch.folder.string()), "o_proj.bias, which"));

    // A configuration of fewer layers would be another model.
    const std::string shorter = scratch.copy_of("09_full_model/mistral");
    edit(shorter + "/config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    CHECK(
        mentions(rejection(shorter), "a tensor model.layers.1.input_layernorm.weight, which"));
    edit(shorter + "/config.json", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 3");
    CHECK(mentions(rejection(shorter), "model.layers.2.input_layernorm.weight"));
}

TEST_CASE("a head that equals the tied embedding and frequencies of RoPE may be in the file") {
    const Scratch scratch;
    Generator generator(5);
    const Model model = make_model(small_config(), generator);
    REQUIRE(model.config.tie_word_embeddings);
    models::export_model(model, scratch.folder.string());
    const auto rejection_with = [&](const std::string& name, const auto& values) {
        std::vector<NamedTensor> tensors{named(name, values)};
        for (const auto& [parameter, shape, weights] : named_parameters(model))
            tensors.push_back({parameter, shape, weights});
        write_safetensors((scratch.folder / "model.safetensors").string(), tensors);
        return rejection(scratch.folder.string());
    };
    const Vector frequencies{1, 0.5f};
    CHECK(rejection_with("lm_head.weight", model.embed_tokens) == "it was loaded");
    CHECK(rejection_with("model.layers.0.self_attn.rotary_emb.inv_freq", frequencies) ==
          "it was loaded");
    Matrix other = model.embed_tokens;
    other(16, 15) += Real(0.001);
    CHECK(mentions(rejection_with("lm_head.weight", other),
                   "tie_word_embeddings is true, but lm_head.weight of the weights differs "
                   "from the embedding"));
    CHECK(
        mentions(rejection_with("lm_head.bias", frequencies), "a tensor lm_head.bias, which"));
}

TEST_CASE("a damaged safetensors file is rejected in one line that names the tensor") {
    const auto after = [](const std::string& file_content) {
        const Scratch scratch;
        const std::string folder = scratch.copy_of("09_full_model/mistral");
        overwrite(folder + "/model.safetensors", file_content);
        return rejection(folder);
    };
    const std::string good = content(checkpoint("mistral") + "/model.safetensors");
    CHECK(mentions(after(""), "is empty"));
    CHECK(mentions(after("abc"), "too short"));
    CHECK(mentions(after(std::string(100, '\xff')), "does not fit into a file of 100"));
    CHECK(mentions(after(good.substr(0, good.size() - 1)), "claims bytes"));
    CHECK(mentions(after(safetensors("[]", 0)), "the header must begin with {"));
    CHECK(
        mentions(after(safetensors("{\"a\": }", 0)), "the header: not valid JSON at column 7"));
    CHECK(mentions(after(safetensors("{\"a\": 1}", 0)), "a lacks a dtype"));
    for (const std::string metadata : {"1", "[\"a\"]", "{\"a\": 1}"})
        CHECK(mentions(after(safetensors("{\"__metadata__\": " + metadata + "}", 0)),
                       "__metadata__ must be an object of texts"));
    CHECK(mentions(after(safetensors("{}", 0)),
                   "model.layers.1.input_layernorm.weight of shape (16,) is missing"));
    const auto one = [](const std::string& type, const std::string& shape,
                        const std::string& offsets) {
        return "{\"a\": {\"dtype\": \"" + type + "\", \"shape\": " + shape +
               ", \"data_offsets\": " + offsets + "}}";
    };
    CHECK(mentions(after(safetensors(one("F32", "[2]", "[0, 4]"), 8)), "does not fill its 4"));
    CHECK(mentions(after(safetensors(one("F32", "[2]", "[8, 0]"), 8)), "claims bytes 8 to 0"));
    CHECK(mentions(after(safetensors(one("F32", "[-1]", "[0, 4]"), 8)), "lacks a dtype"));
    CHECK(mentions(after(safetensors(one("F32", "[4294967296, 4294967297]", "[0, 4]"), 8)),
                   "does not fill"));
    // (2^62 + 1) * 4 bytes exceed 64 bits, and what remains is 4.
    CHECK(mentions(after(safetensors(one("F32", "[4611686018427387905]", "[0, 4]"), 4)),
                   "does not fill its 4"));
    CHECK(mentions(after(safetensors(one("F32", "[2]", "[0, 9223372036854775807]"), 8)),
                   "claims bytes"));
    CHECK(mentions(after(safetensors(one("F32", "[2]", "[0, 18446744073709551615]"), 8)),
                   "lacks a dtype, a shape or two offsets"));
    CHECK(
        mentions(after(safetensors(
                     "{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, "
                     "\"b\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [4, 12]}}",
                     12)),
                 "overlaps"));
}

TEST_CASE("a safetensors header has at most 100 million bytes") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.safetensors";
    const auto message = [&](std::uint64_t header_size) -> std::string {
        overwrite(file, std::string(reinterpret_cast<const char*>(&header_size), 8));
        fs::resize_file(file, 8 + header_size);  // zeros that use no disk space
        try {
            SafeTensors tensors(file);
            return "it was read";
        } catch (const FileError& error) {
            return error.what();
        }
    };
    CHECK(mentions(message(100'000'000), "the header must begin with {"));
    CHECK(mentions(message(100'000'001), "a header of 100000001 bytes does not fit"));
}

// Source: the section "Format" of github.com/huggingface/safetensors.
TEST_CASE("safetensors: each sentence of the format's description") {
    const Scratch scratch;
    const std::string file = (scratch.folder / "a.safetensors").string();
    const auto result = [&](const std::string& header, std::size_t bytes) -> std::string {
        overwrite(file, safetensors(header, bytes));
        try {
            SafeTensors tensors(file);
            return "it was read";
        } catch (const FileError& error) {
            return std::string(error.what()).substr(file.size() + 2);
        }
    };
    const auto entry = [](const std::string& name, const std::string& shape, int begin,
                          int end) {
        return "\"" + name + "\": {\"dtype\": \"F32\", \"shape\": " + shape +
               ", \"data_offsets\": [" + std::to_string(begin) + ", " + std::to_string(end) +
               "]}";
    };
    const std::string a = entry("a", "[2]", 0, 8), b = entry("b", "[1]", 8, 12);
    CHECK(result("{" + a + ", " + b + "}", 12) == "it was read");
    CHECK(result("{" + b + ", " + a + "}", 12) == "it was read");

    // It begins with {, and may be padded with spaces, not with other bytes.
    CHECK(result("{" + a + "}   ", 8) == "it was read");
    CHECK(result(" {" + a + "}", 8) == "the header must begin with {");
    for (const std::string& end : {std::string(1, '\0'), std::string("\n"), std::string("x")})
        CHECK(result("{" + a + "}" + end, 8) == "the header must end with } and spaces");

    // __metadata__ maps texts to texts.
    CHECK(result("{\"__metadata__\": {\"format\": \"pt\"}, " + a + "}", 8) == "it was read");
    CHECK(SafeTensors(file).metadata().at("format") == "pt");

    // Duplicate keys are disallowed.
    CHECK(result("{" + a + ", " + a + "}", 8) == "the header: an object has the key a twice");
    CHECK(result("{\"a\": {\"dtype\": \"F32\", \"dtype\": \"F32\"}}", 0) ==
          "the header: an object has the key dtype twice");

    // Empty tensors and tensors of rank 0 are allowed.
    CHECK(result("{" + entry("a", "[3, 0]", 0, 0) + "}", 0) == "it was read");
    CHECK(result("{" + entry("a", "[]", 0, 4) + "}", 4) == "it was read");

    // The data is entirely indexed, without holes.
    CHECK(result("{" + a + "}", 9) == "no tensor has bytes 8 to 9 of the data");
    CHECK(result("{" + entry("a", "[2]", 4, 12) + "}", 12) ==
          "no tensor has bytes 0 to 4 of the data");
    CHECK(result("{" + a + ", " + entry("b", "[1]", 12, 16) + "}", 16) ==
          "no tensor has bytes 8 to 12 of the data");
    CHECK(result("{}", 1) == "no tensor has bytes 0 to 1 of the data");
}

TEST_CASE(
    "a file of a model's folder, and an adapter, are no model: the message says what is") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/mistral");
    for (const std::string name : {"/config.json", "/model.safetensors"})
        CHECK(rejection(folder + name) ==
              folder + name + " is a part of a model: give the folder");
    fs::rename(folder + "/config.json", folder + "/adapter_config.json");
    CHECK(rejection(folder) == folder + " has an adapter: give the folder of its base model");
}

TEST_CASE("a Git LFS pointer, and JSON that is not valid, are rejected by name and position") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/mistral");
    const std::string config = content(folder + "/config.json");
    overwrite(folder + "/config.json", "{\n \"a\": 1,\n}");
    CHECK(mentions(rejection(folder), "config.json: not valid JSON at line 3, column 1"));
    overwrite(folder + "/config.json", "{\"a\": Infinity}");
    CHECK(mentions(rejection(folder), "config.json: not valid JSON at column 7"));
    overwrite(folder + "/config.json", "<html>");
    CHECK(mentions(rejection(folder), "config.json: not valid JSON at column 1"));
    overwrite(folder + "/config.json", "{\"hidden_size\": 16, \"hidden_size\": 32}");
    CHECK(mentions(rejection(folder), "an object has the key hidden_size twice"));
    overwrite(folder + "/config.json", config);
    overwrite(folder + "/model.safetensors",
              "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n");
    CHECK(mentions(rejection(folder), "model.safetensors is a Git LFS pointer"));
}

TEST_CASE("a tensor of the wrong shape or type, or with NaN, is rejected by name") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/mistral");
    edit(folder + "/config.json", "\"intermediate_size\": 20", "\"intermediate_size\": 24");
    CHECK(mentions(rejection(folder),
                   "model.layers.0.mlp.gate_proj.weight should have the shape "
                   "(24, 16), it has (20, 16)"));

    const std::string other_type = scratch.copy_of("09_full_model/qwen3");
    edit(other_type + "/model.safetensors", "\"F32\"", "\"I32\"");
    CHECK(mentions(rejection(other_type), "is of type I32"));

    const std::string with_nan = scratch.copy_of("09_full_model/llama");
    std::string bytes = content(with_nan + "/model.safetensors");
    bytes.replace(bytes.size() - 2, 2, "\xc0\x7f");  // NaN in bfloat16, in the head
    overwrite(with_nan + "/model.safetensors", bytes);
    CHECK(mentions(rejection(with_nan), "lm_head.weight has an element that is not finite"));
    edit(with_nan + "/config.json", "\"tie_word_embeddings\": true",
         "\"tie_word_embeddings\": false");
    CHECK(mentions(rejection(with_nan), "not finite"));
}

TEST_CASE("several weight files: a missing file or an invalid index is rejected") {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("09_full_model/qwen2");
    fs::remove(folder + "/model-00002-of-00002.safetensors");
    CHECK(mentions(rejection(folder), "model-00002-of-00002.safetensors"));
    overwrite(folder + "/model.safetensors.index.json",
              "{\"weight_map\": {\"a\": \"../elsewhere\"}}");
    CHECK(mentions(rejection(folder), "same folder"));
    overwrite(folder + "/model.safetensors.index.json", "{\"weight_map\": {}}");
    CHECK(mentions(rejection(folder), "names no file"));
    overwrite(folder + "/model.safetensors.index.json", "{\"weight_map\": {\"a\": 1}}");
    CHECK(mentions(rejection(folder), "must be a text"));
    overwrite(folder + "/model.safetensors.index.json",
              "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}");
    CHECK(mentions(rejection(folder), "a is not in model-00001"));

    const Vector values{1, 2};
    for (const std::string name : {"one", "two"})
        write_safetensors(folder + "/" + name, {named("a", values), named(name, values)});
    overwrite(folder + "/model.safetensors.index.json",
              R"({"weight_map": {"one": "one", "two": "two"}})");
    CHECK(mentions(rejection(folder), "/two: a is in two files"));
}

TEST_CASE("a damaged llama2.c file, a missing file and a folder without a model are rejected") {
    const Scratch scratch;
    const std::string good = content(checkpoint("llama2c.bin"));
    const std::string file = (scratch.folder / "model.bin").string();
    const auto after = [&](const std::string& bytes) {
        overwrite(file, bytes);
        return rejection(file);
    };
    CHECK(mentions(after(good.substr(0, 20)), "too short"));
    const std::string required = "its header requires " + std::to_string(good.size());
    CHECK(mentions(after(good.substr(0, 5000)), required));
    CHECK(mentions(after(good + "1234"), required));
    const auto with_layers = [&](const std::string& layers) {
        return good.substr(0, 8) + layers + good.substr(12);
    };
    CHECK(mentions(after(with_layers(std::string("\0\0\0\1", 4))), "its header requires"));
    CHECK(mentions(after(std::string(4, '\0') + good.substr(4)), "field 0"));
    CHECK(mentions(after(std::string(28, '\x7f')), "field 0"));
    CHECK(mentions(after(std::string("\1\0\0\1", 4) + good.substr(4)), "field 0"));
    CHECK(mentions(after(good.substr(0, 12) + std::string("\3\0\0\0", 4) + good.substr(16)),
                   "query heads"));
    CHECK(mentions(after(good.substr(0, 28) + "\x01\x01\xc0\x7f" + good.substr(32)),
                   "not finite"));
    CHECK(mentions(rejection((scratch.folder / "nothing").string()), "cannot read"));
    CHECK(mentions(rejection(scratch.folder.string()), "config.json"));
    CHECK(mentions(rejection("/dev/null"), "is not a file"));
}

TEST_CASE("load_model: the trained model stories260K gives the logits of llama2.c") {
    const std::string file = stories260k();
    if (file.empty()) {
        MESSAGE("skipped: STORIES260K does not name a file, and ./stories260K.bin is missing");
        return;
    }
    const Model model = models::load_model(file);
    CHECK(count_parameters(model).total() == 260032);
    const Tensor3 logits = model(IdMatrix{{1}});
    const Vector first = xt::view(logits, 0, 0, xt::range(0, 6));
    CHECK_CLOSE(first, (Vector{-6.2229, 8.4043, -6.2237, -6.2225, -6.2220, -6.2229}), 1e-5);
    const Vector all = xt::view(logits, 0, 0);
    CHECK(std::max_element(all.begin(), all.end()) - all.begin() == 403);
}
