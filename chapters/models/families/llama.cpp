// Llama, Qwen2 and Qwen3. models/llama reads what chapter 09's model can compute; this reads
// what it cannot: other activations, biases in the MLP, YaRN, windows. Source: Hugging Face,
// modeling_llama.py, modeling_qwen2.py, modeling_qwen3.py.
#include "chapters/models/family_keys.hpp"

namespace llm::models {
namespace {

// Qwen: with use_sliding_window, layers from max_window_layers on have a window, or those that
// layer_types lists.
void read_qwen(const JsonFile& json, FamilyConfig& config) {
    const std::size_t num_layers = config.num_hidden_layers;
    const bool slides =
        json.boolean_or("use_sliding_window", false) && !json.is_null("sliding_window");
    const SlidingWindow window{json.size_or("sliding_window", 4096)};
    const std::size_t first = json.count_or("max_window_layers", 28);
    std::vector<AttentionPattern> patterns(num_layers, FullAttention{});
    if (json.has("layer_types"))
        patterns = read_layer_types(json, window, num_layers);
    else if (slides)
        for (std::size_t n = first; n < num_layers; ++n) patterns[n] = window;
    set_patterns(config, patterns);
}

void write_qwen(const FamilyConfig& config, JsonMembers& json) {
    add_windows(config, json);
    if (sliding_window(config)) json.push_back({"use_sliding_window", true});
}

void build_qwen2(FamilyConfig& config) {
    for (LayerConfig& layer : config.layers) attention_of(layer)->bias = AttentionBias::qkv;
}

void build_qwen3(FamilyConfig& config) {
    for (LayerConfig& layer : config.layers)
        attention_of(layer)->qk_norm = QKNormType::with_weights;
}

// What chapter 09's model computes is exported from there.
void reject_gguf(const FamilyConfig& config) {
    require(false, "export: a {} that chapter 09's model cannot compute is not written as GGUF",
            config.family->model_type);
}

Family llama_like(const std::string& type, const std::string& architecture) {
    return {.model_type = type,
            .architecture = architecture,
            .gguf_architecture = type,
            .names = hugging_face_layer_names(),
            .gguf_names = gguf_layer_names(),
            .defaults = class_defaults_of(type),
            .read = read_qwen,
            .write = write_qwen,
            .check_gguf = reject_gguf};
}

}  // namespace

const Family& llama_family() {
    static const Family family = [] {
        Family llama = llama_like("llama", "LlamaForCausalLM");
        llama.read = read_mlp_bias;
        llama.write = add_mlp_bias;
        return llama;
    }();
    return family;
}

const Family& qwen2_family() {
    static const Family family = [] {
        Family qwen2 = llama_like("qwen2", "Qwen2ForCausalLM");
        qwen2.build = build_qwen2;
        return qwen2;
    }();
    return family;
}

const Family& qwen3_family() {
    static const Family family = [] {
        Family qwen3 = llama_like("qwen3", "Qwen3ForCausalLM");
        qwen3.build = build_qwen3;
        return qwen3;
    }();
    return family;
}

}  // namespace llm::models
