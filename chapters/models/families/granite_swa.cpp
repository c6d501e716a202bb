// Granite with windows: all layers but every fourth one see a window, each head has a learned
// sink, and each layer a theta of its own or no RoPE. Source: Hugging Face,
// modular_granite_swa.py, whose output times sigmoid(logsumexp - sink) is the softmax with one
// more logit; llama.cpp, granite-swa.cpp.
#include "chapters/models/families/granite_swa_gguf.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

void build_granite_swa(FamilyConfig& config) {
    for (LayerConfig& layer : config.layers) attention_of(layer)->sinks = true;
}

void read_windows(const JsonFile& json, FamilyConfig& config) {
    const SlidingWindow window{json.size_or("sliding_window", 128)};
    if (json.has("layer_types"))
        return set_patterns(config, read_layer_types(json, window, config.layers.size()));
    if (json.is_null("sliding_window"))
        json.reject("sliding_window is null, but the layers have windows");
    for (std::size_t n = 0; n < config.layers.size(); ++n)
        if (n % 4 != 0) attention_of(config.layers[n])->pattern = window;
}

// layer_rope_theta has a number for each layer; 0 means no RoPE. Without it, all layers have
// that of rope_parameters.
void read_thetas(const JsonFile& json, FamilyConfig& config) {
    const std::string key = "layer_rope_theta";
    if (!json.has(key)) return;
    const std::vector<double> thetas = json.numbers(key);
    if (thetas.size() != config.layers.size())
        json.reject(key + " has " + to_text(thetas.size()) + " entries for " +
                    to_text(config.layers.size()) + " layers");
    for (std::size_t n = 0; n < thetas.size(); ++n) {
        auto& rope = attention_of(config.layers[n])->rope;
        if (thetas[n] < 0) json.reject(key, "must be 0 or above, not " + brief(thetas[n]));
        if (thetas[n] == 0)
            rope.reset();
        else
            rope->rope_theta = Real(thetas[n]);
    }
}

void read_granite_swa(const JsonFile& json, FamilyConfig& config) {
    granite_family().read(json, config);
    read_windows(json, config);
    read_thetas(json, config);
}

void write_granite_swa(const FamilyConfig& config, JsonMembers& json) {
    granite_family().write(config, json);
    json.insert(json.end(), {{"layer_types", layer_types(config)},
                             {"layer_rope_theta", layer_thetas(config)}});
    if (const auto window = sliding_window(config)) json.push_back({"sliding_window", *window});
}

}  // namespace

std::vector<double> layer_thetas(const FamilyConfig& config) {
    std::vector<double> thetas;
    for (const LayerConfig& layer : config.layers)
        thetas.push_back(rope_of(layer) ? double(rope_of(layer)->rope_theta) : 0);
    return thetas;
}

const Family& granite_swa_family() {
    static const Family family = [] {
        Family swa = granite_family();
        swa.model_type = swa.gguf_architecture = "granite_swa";
        swa.architecture = "GraniteSWAForCausalLM";
        swa.names.sinks = "self_attn.sinks";
        swa.defaults = {100352, 2560, 8192, 24, 20, 4, 8192, 0, 1e-5, 10'000, true};
        swa.build = build_granite_swa;
        swa.read = read_granite_swa;
        swa.write = write_granite_swa;
        swa.check_gguf = check_granite_swa_gguf;
        swa.add_gguf = add_granite_swa_gguf;
        swa.read_gguf = read_granite_swa_gguf;
        return swa;
    }();
    return family;
}

}  // namespace llm::models
