#include "chapters/09_full_model/checkpoint.hpp"

#include <cmath>
#include <cstring>

#include "common/files/safetensors.hpp"

namespace llm {
namespace {

// What a tensor is called. Those of layer n stand behind "layer" and n.
struct Names {
    std::string embed_tokens, layer, norm, lm_head;
    std::string attention_norm, q_proj, k_proj, v_proj, o_proj;
    std::string ffn_norm, gate_proj, up_proj, down_proj;
};
const Names hugging_face = {
    "model.embed_tokens", "model.layers.",
    "model.norm",         "lm_head",
    "input_layernorm",    "self_attn.q_proj",
    "self_attn.k_proj",   "self_attn.v_proj",
    "self_attn.o_proj",   "post_attention_layernorm",  // it stands before the MLP
    "mlp.gate_proj",      "mlp.up_proj",
    "mlp.down_proj"};
const Names mini_llm = {
    "tok_embeddings.emb", "layers.",         "norm",           "output",       "attention_norm",
    "attention.wq",       "attention.wk",    "attention.wv",   "attention.wo", "ffn_norm",
    "feed_forward.w1",    "feed_forward.w3", "feed_forward.w2"};

ModelConfig mini_llm_config(const JsonFile& json) {
    ModelConfig config;
    config.hidden_size = json.size("dim");
    config.num_hidden_layers = json.size("n_layers");
    config.num_attention_heads = json.size("n_heads");
    config.num_key_value_heads =
        json.has("n_kv_heads") ? json.size("n_kv_heads") : config.num_attention_heads;
    config.vocab_size = json.size("vocab_size");
    config.max_position_embeddings = json.size("max_seq_len");

    // What its config does not say, but its code.
    config.intermediate_size = round_up(4 * config.hidden_size, json.size("multiple_of"));
    config.interleaved_rope = true;
    return config;
}

// Refuses what would change the numbers and is not implemented here.
void refuse_the_unknown(const JsonFile& json, const std::string& type,
                        const ModelConfig& config) {
    if (json.has("hidden_act") && json.text("hidden_act") != "silu")
        json.refuse("hidden_act " + json.text("hidden_act") + " is not supported, silu is");
    if (json.has("mlp_bias") && json.boolean("mlp_bias"))
        json.refuse("mlp_bias is not supported");
    if (json.has("quantization_config")) json.refuse("quantization_config is not supported");

    // Mistral always has a window, the Qwens if they say so, and 4096 is the default width.
    const bool has_window = type == "mistral"
                                ? !json.is_null("sliding_window")
                                : type != "llama" && json.has("use_sliding_window") &&
                                      json.boolean("use_sliding_window");
    const std::size_t window = json.has("sliding_window") ? json.size("sliding_window") : 4096;
    if (has_window && window < config.max_position_embeddings)
        json.refuse("a sliding_window of " + to_text(window) + " is not supported");
}

// Llama 3's scaling, from the object that holds it.
Llama3Scaling read_scaling(const JsonFile& json, const std::string& inside) {
    const auto number = [&](const std::string& name) {
        return static_cast<Real>(json.number(inside + "." + name));
    };
    const Llama3Scaling scaling{number("factor"), number("low_freq_factor"),
                                number("high_freq_factor"),
                                number("original_max_position_embeddings")};
    if (!(scaling.factor >= 1 && scaling.low_freq_factor > 0 &&
          scaling.high_freq_factor > scaling.low_freq_factor &&
          scaling.original_max_position_embeddings > 0))
        json.refuse(inside + " needs a factor of at least 1, 0 < low_freq_factor < " +
                    "high_freq_factor and original_max_position_embeddings above 0");
    return scaling;
}

// The frequencies: theta at the top level, or newer, in rope_parameters with the scaling.
void read_rope(const JsonFile& json, ModelConfig& config) {
    if (json.has("rope_parameters") && json.has("rope_scaling"))
        json.refuse("rope_parameters and rope_scaling contradict each other");
    const std::string inside = json.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    const std::string theta = json.has("rope_parameters") && !json.has("rope_theta")
                                  ? inside + ".rope_theta"
                                  : "rope_theta";
    if (json.has(theta) || theta != "rope_theta")
        config.rope_theta = static_cast<Real>(json.number(theta));
    if (!(config.rope_theta > 0)) json.refuse("rope_theta must be above 0");
    if (!json.has(inside)) return;
    if (!json.is_object(inside)) json.refuse(inside + " must be an object");

    const std::string key = json.has(inside + ".rope_type") ? ".rope_type" : ".type";
    const std::string type = json.has(inside + key) ? json.text(inside + key) : "default";
    if (type == "llama3") {
        config.rope_scaling = read_scaling(json, inside);
    } else if (type != "default") {
        json.refuse(inside + " of type " + type + " is not supported");
    }
}

ModelConfig hugging_face_config(const JsonFile& json, const std::string& type) {
    ModelConfig config;
    config.hidden_size = json.size("hidden_size");
    config.intermediate_size = json.size("intermediate_size");
    config.num_hidden_layers = json.size("num_hidden_layers");
    config.num_attention_heads = json.size("num_attention_heads");
    config.num_key_value_heads = json.has("num_key_value_heads")
                                     ? json.size("num_key_value_heads")
                                     : config.num_attention_heads;
    config.head_dim = json.has("head_dim") ? json.size("head_dim") : type == "qwen3" ? 128 : 0;
    config.vocab_size = json.size("vocab_size");
    config.max_position_embeddings = json.size("max_position_embeddings");
    config.rms_norm_eps = static_cast<Real>(json.number("rms_norm_eps"));
    if (!(config.rms_norm_eps > 0)) json.refuse("rms_norm_eps must be above 0");
    config.tie_word_embeddings =
        json.has("tie_word_embeddings") && json.boolean("tie_word_embeddings");
    config.use_qk_norm = type == "qwen3";

    // Qwen2 has a bias for q, k and v, whatever its config says; the others say it for all
    // four.
    const bool says_bias = json.has("attention_bias") && json.boolean("attention_bias");
    config.attention_bias = type == "qwen2" || says_bias;
    config.attention_output_bias = type != "qwen2" && says_bias;
    read_rope(json, config);
    refuse_the_unknown(json, type, config);
    return config;
}

// The parts of a model, read from a file of tensors under the names of its kind.
struct Parts {
    const ModelConfig& config;
    const SafeTensors& tensors;
    const Names& names;

    Matrix table(const std::string& name) const {
        return tensors.read(name + ".weight", {config.vocab_size, config.hidden_size});
    }

    RMSNorm norm(const std::string& name) const {
        return {tensors.read(name + ".weight", {config.hidden_size}), config.rms_norm_eps};
    }

    Linear linear(const std::string& name, std::size_t out, std::size_t in,
                  bool with_bias = false) const {
        Linear result{tensors.read(name + ".weight", {out, in}), std::nullopt};
        if (with_bias) result.bias = tensors.read(name + ".bias", {out});
        return result;
    }

    AttentionLayer attention(const std::string& layer) const {
        const std::size_t C = config.hidden_size, D = config.head_dim;
        const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
        Projections projections{
            linear(layer + names.q_proj, H * D, C, config.attention_bias),
            linear(layer + names.k_proj, Hkv * D, C, config.attention_bias),
            linear(layer + names.v_proj, Hkv * D, C, config.attention_bias),
            linear(layer + names.o_proj, C, H * D, config.attention_output_bias)};
        if (config.interleaved_rope) {
            projections.q_proj = interleaved_to_split_half(projections.q_proj, H);
            projections.k_proj = interleaved_to_split_half(projections.k_proj, Hkv);
        }
        AttentionLayer result{config, std::move(projections), {}, {}};
        if (config.use_qk_norm) {
            result.q_norm = tensors.read(layer + "self_attn.q_norm.weight", {D});
            result.k_norm = tensors.read(layer + "self_attn.k_norm.weight", {D});
        }
        return result;
    }

    GatedMlp mlp(const std::string& layer) const {
        const std::size_t C = config.hidden_size, F = config.intermediate_size;
        return {linear(layer + names.gate_proj, F, C), linear(layer + names.up_proj, F, C),
                linear(layer + names.down_proj, C, F)};
    }
};

// One layer after the other, so that no more than one tensor is in memory twice.
Model load_tensors(const ModelConfig& config, const SafeTensors& tensors, const Names& names) {
    const Parts parts{config, tensors, names};
    Model model{config, parts.table(names.embed_tokens), {}, parts.norm(names.norm), {}};
    for (std::size_t n = 0; n < config.num_hidden_layers; ++n) {
        const std::string layer = names.layer + std::to_string(n) + ".";
        model.layers.push_back({{parts.attention(layer), parts.mlp(layer)},
                                parts.norm(layer + names.attention_norm),
                                parts.norm(layer + names.ffn_norm)});
    }
    if (!config.tie_word_embeddings) model.lm_head = parts.table(names.lm_head);
    model.config.interleaved_rope = false;
    return model;
}

// llama2.c's first format: seven numbers, then all floats, type by type.
class Llama2c {
 public:
    explicit Llama2c(const std::string& path) : file_(path) {
        if (file_.bytes().size() < sizeof header_) refuse("too short for a llama2.c file");
        std::memcpy(header_.data(), file_.bytes().data(), sizeof header_);
        at_ = sizeof header_;
    }

    ModelConfig config() const {
        for (std::size_t i = 0; i < header_.size(); ++i)
            if (i != 5 && (header_[i] < 1 || header_[i] > 1 << 24))
                refuse("field " + to_text(i) + " of the header is " + to_text(header_[i]) +
                       ": not a llama2.c file");
        ModelConfig config;
        config.hidden_size = size(0);
        config.intermediate_size = size(1);
        config.num_hidden_layers = size(2);
        config.num_attention_heads = size(3);
        config.num_key_value_heads = size(4);
        config.vocab_size = size(5);
        config.max_position_embeddings = size(6);
        config.tie_word_embeddings = header_[5] > 0;  // a negative size means a head of its own
        config.rms_norm_eps = Real(1e-5);
        config.interleaved_rope = true;
        return complete(config);
    }

    // Refuses a file of another size before anything is allocated. The sizes of a header can
    // multiply to more than 64 bits hold, but not to more than a double does.
    void expect_size_of(const ModelConfig& config) const {
        const double C = double(config.hidden_size), F = double(config.intermediate_size);
        const double L = double(config.num_hidden_layers), V = double(config.vocab_size);
        const double D = double(config.head_dim), P = double(config.max_position_embeddings);
        const double H = double(config.num_attention_heads);
        const double Hkv = double(config.num_key_value_heads);
        const double layer = 2 * C + 2 * H * D * C + 2 * Hkv * D * C + 3 * F * C;
        const double heads = config.tie_word_embeddings ? 1 : 2;  // embedding, head
        const double expected = sizeof header_ + 4 * (heads * V * C + L * layer + C + P * D);
        const auto actual = file_.bytes().size();
        if (double(actual) != expected)
            refuse(
                "the file has " + to_text(actual) + " bytes, its header promises " +
                (expected < 1e15 ? to_text(static_cast<std::size_t>(expected)) : "far more"));
    }

    // The next tensor of the file.
    template <std::size_t N>
    xt::xtensor<Real, N> next(const std::size_t (&shape)[N]) {
        xt::xtensor<Real, N> tensor(std::to_array(shape));
        const auto bytes = file_.bytes().subspan(at_, tensor.size() * sizeof(float));
        std::memcpy(tensor.data(), bytes.data(), bytes.size());
        for (const Real number : tensor)
            if (!std::isfinite(number)) refuse("a tensor holds a number that is not finite");
        file_.forget(bytes);
        at_ += bytes.size();
        return tensor;
    }

    [[noreturn]] void refuse(const std::string& reason) const {
        throw FileError(file_.path().string() + ": " + reason);
    }

 private:
    MappedFile file_;
    std::array<std::int32_t, 7> header_{};
    std::size_t at_ = 0;

    std::size_t size(std::size_t field) const {
        return static_cast<std::size_t>(std::abs(static_cast<std::int64_t>(header_[field])));
    }
};

Model load_llama2c(const std::string& path) try {
    Llama2c file(path);
    const ModelConfig config = file.config();
    file.expect_size_of(config);
    const std::size_t C = config.hidden_size, F = config.intermediate_size, D = config.head_dim;
    const std::size_t H = config.num_attention_heads, Hkv = config.num_key_value_heads;
    const Real eps = config.rms_norm_eps;

    Model model{config, file.next({config.vocab_size, C}), {}, {}, {}};
    model.layers.resize(config.num_hidden_layers);
    const auto for_each_layer = [&](auto read) {
        for (PreNormBlock& layer : model.layers) read(layer, layer.self_attn.projections);
    };
    for_each_layer([&](auto& layer, auto&) { layer.self_attn.config = config; });
    for_each_layer([&](auto& layer, auto&) { layer.attention_norm = {file.next({C}), eps}; });
    for_each_layer([&](auto&, auto& attention) {
        attention.q_proj = interleaved_to_split_half({file.next({H * D, C}), {}}, H);
    });
    for_each_layer([&](auto&, auto& attention) {
        attention.k_proj = interleaved_to_split_half({file.next({Hkv * D, C}), {}}, Hkv);
    });
    for_each_layer([&](auto&, auto& attention) {
        attention.v_proj.weight = file.next({Hkv * D, C});
    });
    for_each_layer([&](auto&, auto& attention) {
        attention.o_proj.weight = file.next({C, H * D});
    });
    for_each_layer([&](auto& layer, auto&) { layer.ffn_norm = {file.next({C}), eps}; });
    for_each_layer([&](auto& layer, auto&) { layer.mlp.gate_proj.weight = file.next({F, C}); });
    for_each_layer([&](auto& layer, auto&) { layer.mlp.down_proj.weight = file.next({C, F}); });
    for_each_layer([&](auto& layer, auto&) { layer.mlp.up_proj.weight = file.next({F, C}); });
    model.norm = {file.next({C}), eps};
    file.next(
        {config.max_position_embeddings, D});  // RoPE's tables, which we compute ourselves
    if (!config.tie_word_embeddings) model.lm_head = file.next({config.vocab_size, C});
    model.config.interleaved_rope = false;
    return model;
} catch (const ShapeError& error) {
    throw FileError(path + ": " + error.what());
}

// A config.json that says the same as the configuration.
std::vector<std::pair<std::string, JsonValue>> config_of(const ModelConfig& config,
                                                         NumberType number_type) {
    const bool qwen2 = config.attention_bias && !config.attention_output_bias;
    require(!(qwen2 && config.use_qk_norm),
            "export: no model type has biases for q, k, v alone and a QK norm");
    const std::string type = config.use_qk_norm ? "qwen3" : qwen2 ? "qwen2" : "llama";
    const std::string name = config.use_qk_norm ? "Qwen3" : qwen2 ? "Qwen2" : "Llama";
    std::vector<std::pair<std::string, JsonValue>> json = {
        {"architectures", std::vector<std::string>{name + "ForCausalLM"}},
        {"model_type", type},
        {"hidden_size", config.hidden_size},
        {"intermediate_size", config.intermediate_size},
        {"num_hidden_layers", config.num_hidden_layers},
        {"num_attention_heads", config.num_attention_heads},
        {"num_key_value_heads", config.num_key_value_heads},
        {"head_dim", config.head_dim},
        {"vocab_size", config.vocab_size},
        {"max_position_embeddings", config.max_position_embeddings},
        {"rms_norm_eps", static_cast<double>(config.rms_norm_eps)},
        {"rope_theta", static_cast<double>(config.rope_theta)},
        {"tie_word_embeddings", config.tie_word_embeddings},
        {"attention_bias", config.attention_bias},
        {"hidden_act", std::string("silu")},
        {"torch_dtype", std::string(number_type == NumberType::f32 ? "float32" : "bfloat16")}};
    if (const auto& scaling = config.rope_scaling) {
        const auto original =
            static_cast<std::size_t>(scaling->original_max_position_embeddings);
        json.insert(json.end(),
                    {{"rope_scaling.rope_type", std::string("llama3")},
                     {"rope_scaling.factor", double(scaling->factor)},
                     {"rope_scaling.low_freq_factor", double(scaling->low_freq_factor)},
                     {"rope_scaling.high_freq_factor", double(scaling->high_freq_factor)},
                     {"rope_scaling.original_max_position_embeddings", original}});
    }
    return json;
}

// Every tensor of the model under Hugging Face's name.
std::vector<NamedTensor> tensors_of(const Model& model) {
    const Names& names = hugging_face;
    std::vector<NamedTensor> tensors = {
        named(names.embed_tokens + ".weight", model.embed_tokens),
        named(names.norm + ".weight", model.norm.weight)};
    if (model.lm_head) tensors.push_back(named(names.lm_head + ".weight", *model.lm_head));
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const PreNormBlock& block = model.layers[n];
        const AttentionLayer& attention = block.self_attn;
        const std::string layer = names.layer + std::to_string(n) + ".";
        const auto add = [&](const std::string& name, const auto& tensor) {
            tensors.push_back(named(layer + name, tensor));
        };
        for (const auto& [name, linear] :
             std::initializer_list<std::pair<const std::string&, const Linear&>>{
                 {names.q_proj, attention.projections.q_proj},
                 {names.k_proj, attention.projections.k_proj},
                 {names.v_proj, attention.projections.v_proj},
                 {names.o_proj, attention.projections.o_proj},
                 {names.gate_proj, block.mlp.gate_proj},
                 {names.up_proj, block.mlp.up_proj},
                 {names.down_proj, block.mlp.down_proj}}) {
            add(name + ".weight", linear.weight);
            if (linear.bias) add(name + ".bias", *linear.bias);
        }
        add(names.attention_norm + ".weight", block.attention_norm.weight);
        add(names.ffn_norm + ".weight", block.ffn_norm.weight);
        if (attention.q_norm) add("self_attn.q_norm.weight", *attention.q_norm);
        if (attention.k_norm) add("self_attn.k_norm.weight", *attention.k_norm);
    }
    return tensors;
}

}  // namespace

ModelConfig read_config(const JsonFile& json) try {
    const bool names_no_type = !json.has("model_type") && json.has("dim");
    const std::string type = names_no_type ? "mini-llm" : json.text("model_type");
    if (type != "mini-llm" && type != "llama" && type != "mistral" && type != "qwen2" &&
        type != "qwen3")
        json.refuse("model_type " + type +
                    " is not supported; llama, mistral, qwen2, qwen3 and mini-llm are");
    return complete(type == "mini-llm" ? mini_llm_config(json)
                                       : hugging_face_config(json, type));
} catch (const ShapeError& error) {
    json.refuse(error.what());
}

Model load_model(const std::string& path) {
    if (!is_folder(path)) return load_llama2c(path);
    const ModelConfig config = read_config(JsonFile(path + "/config.json"));
    return load_tensors(config, SafeTensors(path),
                        config.interleaved_rope ? mini_llm : hugging_face);
}

void export_model(const Model& model, const std::string& folder, NumberType type) {
    const auto config = config_of(model.config, type);
    make_folder(folder);
    write_safetensors(folder + "/model.safetensors", tensors_of(model), type);
    write_json(folder + "/config.json", config);
}

}  // namespace llm
