#include <algorithm>
#include <functional>
#include <map>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/09_full_model/parameters.hpp"
#include "chapters/models/llama/gguf_config.hpp"
#include "tests/support/files.hpp"
#include "tests/support/rejection.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

namespace {

std::string gguf(const std::string& name) { return fixture_path("gguf/" + name + ".gguf"); }

// Hugging Face's name of a parameter in GGUF: model.layers.0.self_attn.q_proj.bias is
// blk.0.attn_q.bias.
std::string gguf_name(std::string name) {
    const std::pair<std::string, std::string> parts[] = {
        {"model.embed_tokens", "token_embd"},
        {"model.norm", "output_norm"},
        {"lm_head", "output"},
        {"model.layers", "blk"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"input_layernorm", "attn_norm"},
        {"post_attention_layernorm", "ffn_norm"}};
    for (const auto& [hugging_face, in_gguf] : parts)
        if (const auto at = name.find(hugging_face); at != name.npos)
            name.replace(at, hugging_face.size(), in_gguf);
    return name;
}

// A model to write as a GGUF file, after tests have changed metadata or tensors.
struct EditableGguf {
    GgufMetadata metadata;
    std::map<std::string, std::vector<Real>> values;
    std::map<std::string, std::vector<std::size_t>> shapes;

    EditableGguf(const std::string& architecture, const Model& model) {
        const Config& config = model.config;
        set("general.architecture", architecture);
        const auto size = [&](const std::string& key, std::size_t number) {
            set(architecture + "." + key, static_cast<std::int64_t>(number));
        };
        size("block_count", config.num_hidden_layers);
        size("context_length", config.max_position_embeddings);
        size("embedding_length", config.hidden_size);
        size("feed_forward_length", config.intermediate_size);
        size("attention.head_count", config.num_attention_heads);
        size("attention.head_count_kv", config.num_key_value_heads);
        set(architecture + ".attention.layer_norm_rms_epsilon", double(config.rms_norm_eps));
        set(architecture + ".rope.freq_base", double(config.rope_theta));
        for (const auto& [name, shape, numbers] : named_parameters(model))
            add(gguf_name(name), shape, {numbers.begin(), numbers.end()});
    }

    void remove(const std::string& key) {
        std::erase_if(metadata, [&](const auto& entry) { return entry.first == key; });
    }
    void set(const std::string& key, const GgufValue& value) {
        remove(key);
        metadata.emplace_back(key, value);
    }
    void add(const std::string& name, const std::vector<std::size_t>& shape,
             const std::vector<Real>& numbers) {
        values[name] = numbers;
        shapes[name] = shape;
    }
    void erase(const std::string& name) {
        values.erase(name);
        shapes.erase(name);
    }
    // The rows of each head in interleaved pairs: row 2 i + j of a head was row D/2 j + i.
    void to_pairs(const std::string& name, std::size_t num_heads) {
        const std::vector<Real> halves = values.at(name);
        const std::size_t num_rows = shapes.at(name)[0], width = halves.size() / num_rows;
        const std::size_t half = num_rows / num_heads / 2;
        for (auto [head, i, j, c] : every_index(num_heads, half, std::size_t{2}, width))
            values[name][(head * 2 * half + 2 * i + j) * width + c] =
                halves[(head * 2 * half + half * j + i) * width + c];
    }

    // Writes the file and returns its path.
    std::string write(const Scratch& scratch) const {
        const std::string path = (scratch.folder / "a.gguf").string();
        std::vector<NamedGgufTensor> tensors;
        for (const auto& [name, numbers] : values)
            tensors.push_back(
                {name, {DType::float32, shapes.at(name), std::as_bytes(std::span(numbers))}});
        write_gguf(path, metadata, tensors);
        return path;
    }
};

Model small_model(Config config = small_config()) {
    Generator generator(5);
    Model model = make_model(config, generator);
    // Norms and biases of distinct values.
    for (Parameter& parameter : named_parameters(model))
        if (parameter.shape.size() == 1) generator.fill_normal(parameter.values);
    return model;
}

EditableGguf small_llama(const Model& model = small_model()) {
    EditableGguf file("llama", model);
    for (std::size_t n = 0; n < model.layers.size(); ++n)
        for (const auto& [name, tensor] : std::map(file.values)) {
            const std::string layer = "blk." + std::to_string(n);
            if (name.starts_with(layer + ".attn_q."))
                file.to_pairs(name, model.config.num_attention_heads);
            if (name.starts_with(layer + ".attn_k."))
                file.to_pairs(name, model.config.num_key_value_heads);
        }
    return file;
}

// The error message for a small model of architecture llama that is changed.
std::string rejection_with(const std::function<void(EditableGguf&)>& change) {
    const Scratch scratch;
    EditableGguf file = small_llama();
    change(file);
    return rejection(file.write(scratch));
}
std::string rejection_with(const std::string& key, const GgufValue& value) {
    return rejection_with([&](EditableGguf& file) { file.set(key, value); });
}

}  // namespace

TEST_CASE("load_model: GGUF files give PyTorch's logits, as the same weights in safetensors") {
    for (const std::string name : {"llama", "qwen2", "qwen3"}) {
        INFO(name);
        const Model model = models::load_model(gguf(name));
        CHECK_CLOSE(model(small_ids), expected_logits(name), 1e-5);
        CHECK_CLOSE(model(small_ids), models::load_model(checkpoint(name))(small_ids), 1e-6);
        CHECK(model.lm_head.has_value() == (name != "llama"));
        CHECK((model.config.attention_bias == AttentionBias::qkv) == (name == "qwen2"));
    }
    const Model qwen3 = models::load_model(gguf("qwen3"));
    CHECK_CLOSE(qwen3(small_ids), models::load_model(checkpoint("qwen3"))(small_ids), 0);
    CHECK(qwen3.config.head_dim == 6);
}

TEST_CASE("load_model: models that llama.cpp has quantized give PyTorch's logits") {
    for (const std::string name : {"llama_q4_k_m", "llama_q4_0", "qwen3_q8_0"}) {
        INFO(name);
        CHECK_CLOSE(models::load_model(gguf(name))(small_ids),
                    fixture<3>("gguf/" + name + "_logits"), 1e-5);
    }
    // A model of type Q4_K_M has tensors of other types, too.
    const Gguf mixed(gguf("llama_q4_k_m"));
    for (const DType dtype :
         {DType::q4_k, DType::q6_k, DType::q5_0, DType::float16, DType::float32})
        CHECK(std::ranges::any_of(
            mixed.tensors(), [&](const auto& named) { return named.second.dtype == dtype; }));
}

TEST_CASE("load_model: a GGUF model that is exported for Hugging Face keeps its logits") {
    const Scratch scratch;
    const Model model = models::load_model(gguf("llama_q4_k_m"));
    models::export_model(model, scratch.folder.string());
    CHECK_CLOSE(models::load_model(scratch.folder.string())(small_ids), model(small_ids), 0);
}

TEST_CASE("load_model: the biases of a GGUF file are read, those of q and k permuted, too") {
    for (const AttentionBias bias :
         {AttentionBias::none, AttentionBias::qkv, AttentionBias::qkvo}) {
        const Scratch scratch;
        Config config = small_config();
        config.attention_bias = bias;
        const Model model = small_model(config);
        const Model again = models::load_model(small_llama(model).write(scratch));
        CHECK(again.config.attention_bias == bias);
        CHECK_CLOSE(again(small_ids), model(small_ids), 0);
    }
}

TEST_CASE("read_config: all settings of a GGUF file, and the defaults of missing ones") {
    const Scratch scratch;
    Config expected = small_config();
    expected.rope_theta = 500;
    expected.rms_norm_eps = Real(1e-4);
    EditableGguf file = small_llama(small_model(expected));
    const Config config = models::read_config(Gguf(file.write(scratch)));
    CHECK(config.hidden_size == 16);
    CHECK(config.intermediate_size == 20);
    CHECK(config.num_hidden_layers == 2);
    CHECK(config.num_attention_heads == 4);
    CHECK(config.num_key_value_heads == 2);
    CHECK(config.head_dim == 4);
    CHECK(config.vocab_size == 17);
    CHECK(config.max_position_embeddings == 64);
    CHECK(config.rms_norm_eps == Real(1e-4));
    CHECK(config.rope_theta == 500);
    CHECK_FALSE(config.rope_scaling.has_value());
    CHECK(config.tie_word_embeddings);
    CHECK(config.qk_norm == QKNormType::none);

    file.remove("llama.attention.head_count_kv");
    file.remove("llama.rope.freq_base");
    file.set("llama.attention.key_length", std::int64_t{6});
    file.set("llama.attention.value_length", std::int64_t{6});
    file.set("llama.rope.dimension_count", std::int64_t{6});
    file.add("output.weight", {17, 16}, std::vector<Real>(17 * 16));
    const Config other = models::read_config(Gguf(file.write(scratch)));
    CHECK(other.num_key_value_heads == 4);
    CHECK(other.rope_theta == 10000);
    CHECK(other.head_dim == 6);
    CHECK_FALSE(other.tie_word_embeddings);
}

TEST_CASE("rope_freqs.weight: Llama 3's scaling takes effect") {
    const auto frequencies = [](const std::string& path) {
        return rope_frequencies(models::load_model(path).config);
    };
    const Vector scaled = frequencies(gguf("llama"));
    CHECK_CLOSE(scaled, frequencies(checkpoint("llama")), 1e-6);
    CHECK(scaled(1) < 0.9f * inverse_frequencies(4, 500)(1));  // unlike without scaling

    // The rotary table and with it the logits follow from the factors.
    const Scratch scratch;
    EditableGguf file = small_llama();
    const Tensor3 without = models::load_model(file.write(scratch))(small_ids);
    file.add("rope_freqs.weight", {2}, {1, 1});
    CHECK_CLOSE(models::load_model(file.write(scratch))(small_ids), without, 0);
    file.add("rope_freqs.weight", {2}, {1, 8});
    const Model model = models::load_model(file.write(scratch));
    CHECK_FALSE(difference(model(small_ids), without, 1e-4).empty());
    const Vector expected{1, Real(0.01) / 8};
    CHECK_CLOSE(rope_frequencies(model.config), expected, 1e-7);
}

TEST_CASE("rope.scaling.type linear divides all frequencies, also those with factors") {
    const Scratch scratch;
    EditableGguf file = small_llama();
    const Vector original = rope_frequencies(models::load_model(file.write(scratch)).config);
    const auto expect = [&](const Vector& divisors) {
        const Vector scaled = rope_frequencies(models::load_model(file.write(scratch)).config);
        CHECK_CLOSE(scaled, original / divisors, 1e-7);
    };
    file.set("llama.rope.scaling.factor", 4.0);  // llama.cpp's default type is linear
    expect({4, 4});
    file.set("llama.rope.scaling.type", "linear");
    expect({4, 4});
    file.add("rope_freqs.weight", {2}, {1, 2});
    expect({4, 8});
    file.set("llama.rope.scaling.type", "none");
    expect({1, 2});
    file.set("llama.rope.scaling.type", "linear");
    file.remove("llama.rope.scaling.factor");
    expect({1, 2});
    file.set("llama.rope.scale_linear", 2.0);  // the key of old files
    expect({2, 4});
}

TEST_CASE("export_model rejects the frequency factors of a GGUF file by name") {
    const Scratch scratch;
    const std::string folder = (scratch.folder / "exported").string();
    CHECK_THROWS_WITH_AS(models::export_model(models::load_model(gguf("llama")), folder),
                         "export: no supported rope_scaling has a factor for each frequency (a "
                         "GGUF file's rope_freqs.weight has)",
                         ValueError);
    CHECK_FALSE(is_folder(folder));
}

TEST_CASE("load_model rejects unsupported settings of GGUF files by name") {
    const auto one = std::int64_t{1};
    CHECK(mentions(rejection_with("general.architecture", "gemma3"),
                   "general.architecture gemma3 is not supported; supported: llama, qwen2 and "
                   "qwen3"));
    CHECK(mentions(rejection_with("llama.expert_count", std::int64_t{8}),
                   "llama.expert_count 8 is not supported; supported: 0, because a mixture of "
                   "experts cannot be loaded"));
    for (const GgufValue& value :
         {GgufValue(one), GgufValue(true), GgufValue(0.5), GgufValue(std::string("x")),
          GgufValue(std::vector<std::int64_t>{0})})
        CHECK(mentions(rejection_with("llama.not_known", value),
                       "llama.not_known is not supported: nothing reads it"));
    for (const GgufValue& value : {GgufValue(std::int64_t{0}), GgufValue(false), GgufValue(0.0),
                                   GgufValue(std::string()), GgufValue(std::vector<double>{})})
        CHECK(rejection_with("llama.not_known", value) == "it was loaded");
    CHECK(rejection_with("llama.vocab_size", std::int64_t{17}) == "it was loaded");
    CHECK(rejection_with("llama.attention.causal", true) == "it was loaded");
    CHECK(rejection_with("other.not_known", one) == "it was loaded");
    CHECK(mentions(rejection_with("general.type", "adapter"),
                   "general.type adapter is not supported; supported: model"));
    CHECK(
        mentions(rejection_with("llama.rope.scaling.type", "yarn"),
                 "llama.rope.scaling.type yarn is not supported; supported: none and linear"));
    CHECK(mentions(rejection_with("llama.rope.dimension_count", std::int64_t{2}),
                   "llama.rope.dimension_count 2 is not supported; supported: the head_dim of "
                   "queries and keys, 4"));
    CHECK(mentions(rejection_with("llama.attention.value_length", std::int64_t{8}),
                   "llama.attention.value_length 8 is not supported"));
    CHECK(mentions(rejection_with("llama.attention.sliding_window", std::int64_t{32}),
                   "llama.attention.sliding_window 32 is not supported; supported: 0, or at "
                   "least context_length 64"));
    CHECK(
        mentions(rejection_with("split.count", std::int64_t{2}), "one of 2 parts of a model"));
    CHECK(rejection_with("split.count", std::int64_t{1}) == "it was loaded");
    CHECK(mentions(rejection_with("llama.attention.causal", false),
                   "llama.attention.causal false is not supported; supported: true"));
    for (const std::string key :
         {"attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias",
          "attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "embedding_scale",
          "residual_scale", "rope.scaling.attn_factor"})
        CHECK(mentions(rejection_with("llama." + key, 0.5), "llama." + key + " 0.5 is not"));
    CHECK(mentions(rejection_with("llama.attention.head_count_kv", std::vector{one, one}),
                   "head_count_kv must be an integer, not an array of integers"));

    // The same settings without effect.
    for (const auto& [key, value] : {std::pair<std::string, GgufValue>{"expert_count", one - 1},
                                     {"rope.scaling.type", "none"},
                                     {"rope.dimension_count", 4 * one},
                                     {"attention.sliding_window", 64 * one},
                                     {"attention.causal", true},
                                     {"logit_scale", 1.0}})
        CHECK(rejection_with("llama." + key, value) == "it was loaded");
}

TEST_CASE("load_model rejects missing and invalid settings of GGUF files") {
    for (const std::string key :
         {"general.architecture", "llama.block_count", "llama.context_length",
          "llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count",
          "llama.attention.layer_norm_rms_epsilon"})
        CHECK(mentions(rejection_with([&](EditableGguf& file) { file.remove(key); }),
                       key + " is missing"));
    for (const std::string key : {"attention.layer_norm_rms_epsilon", "rope.freq_base"})
        CHECK(
            mentions(rejection_with("llama." + key, 0.0), "llama." + key + " must be above 0"));
    // A factor of 0 means none.
    CHECK(rejection_with("llama.rope.scaling.factor", 0.0) == "it was loaded");
    CHECK(mentions(rejection_with("llama.rope.scaling.factor", -1.0),
                   "llama.rope.scaling.factor must be above 0"));
    CHECK(mentions(rejection_with("llama.attention.head_count_kv", std::int64_t{3}), "3"));
    CHECK(mentions(rejection_with("llama.attention.key_length", std::int64_t{5}),
                   "head_dim must be even"));
    CHECK(mentions(rejection_with("llama.block_count", std::int64_t{1} << 24),
                   "tensor blk.16777215.attn_norm.weight is missing"));
}

TEST_CASE("load_model rejects missing, unexpected and misshapen tensors of GGUF files") {
    const auto without = [](const std::string& name) {
        return rejection_with([&](EditableGguf& file) { file.erase(name); });
    };
    for (const std::string name : {"token_embd", "output_norm", "blk.1.ffn_up"})
        CHECK(mentions(without(name + ".weight"), "tensor " + name + ".weight is missing"));
    const auto with = [](const std::string& name, const std::vector<std::size_t>& shape) {
        return rejection_with([&](EditableGguf& file) {
            file.add(name, shape, std::vector<Real>(element_count(shape)));
        });
    };
    for (const std::string name :
         {"blk.1.attn_q.bias", "blk.1.ffn_up.bias", "blk.0.attn_output.bias",
          "blk.2.attn_q.weight", "blk.0.attn_q_norm.weight", "blk.0.ffn_gate_inp.weight",
          "token_types.weight"})
        CHECK(mentions(with(name, {4}),
                       "the model has a tensor " + name + ", which is not supported"));
    CHECK(mentions(with("blk.0.attn_q.bias", {16}), "tensor blk.0.attn_k.bias is missing"));
    CHECK(mentions(with("token_embd.weight", {2, 2, 2}), "must be a matrix, not (2, 2, 2)"));
    CHECK(mentions(with("output.weight", {16, 17}),
                   "output.weight should have the shape (17, 16), it has (16, 17)"));
    CHECK(mentions(with("rope_freqs.weight", {3}), "should have the shape (2,), it has (3,)"));
    CHECK(mentions(with("rope_freqs.weight", {2}), "has a factor that is not above 0"));
}

TEST_CASE("load_model rejects a GGUF file with a tensor of another type, by name") {
    for (const std::string name : {"blk.0.attn_q.weight", "extra.weight"}) {
        const Scratch scratch;
        EditableGguf file = small_llama();
        file.add("extra.weight", {16, 16}, std::vector<Real>(256));
        const std::string path = file.write(scratch);
        std::string bytes = content(path);
        const std::size_t type = bytes.find(name) + name.size() + 4 + 2 * 8;
        REQUIRE(bytes[type] == 0);  // F32
        bytes[type] = 17;
        overwrite(path, bytes);
        CHECK(mentions(rejection(path), "tensor " + name + " is of type IQ2_XS"));
    }
}

TEST_CASE("load_model: a file that is named .gguf must be one") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "a.gguf";
    overwrite(file, "<html>" + std::string(100, ' '));
    CHECK(mentions(rejection(file.string()), "the header is not that of a GGUF file"));
}
