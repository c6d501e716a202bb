// LFM2: layers of gated short convolutions, and some of attention with a QK norm. Source:
// Hugging Face, modeling_lfm2.py. The first files have keys of Liquid AI's own library.
#include "chapters/models/families/lfm2.hpp"

#include "chapters/06_swiglu/mlp.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// Two thirds, times a multiplier, rounded up. As transformers, which does not round if the
// multiplier is null (llama.cpp's converter does).
std::size_t read_width(const JsonFile& json, std::size_t width) {
    const std::size_t multiple = json.size_or("block_multiple_of", 256);
    const double multiplier = json.positive_or("block_ffn_dim_multiplier", 1);
    if (!json.boolean_or("block_auto_adjust_ff_dim", true)) return width;
    width = 2 * width / 3;
    if (json.is_null("block_ffn_dim_multiplier")) return width;
    return round_up(std::size_t(multiplier * double(width)), multiple);
}

// Liquid AI's theta, besides rope_theta or without it.
void read_theta(const JsonFile& json, FamilyConfig& config) {
    if (!json.has("theta")) return;
    const Real theta = Real(json.positive_or("theta", 1));
    const bool has_other = json.has("rope_theta") || json.has("rope_parameters");
    for (LayerConfig& layer : config.layers)
        if (RopeParameters* rope = rope_of(layer)) {
            if (has_other && rope->rope_theta != theta)
                json.reject("theta", "contradicts rope_theta");
            rope->rope_theta = theta;
        }
}

// Settings that transformers does not read: other values than these were never published.
void check_settings_of_liquid(const JsonFile& json, std::size_t hidden_size) {
    for (const char* width : {"block_dim", "conv_dim", "conv_dim_out"})
        if (json.size_or(width, hidden_size) != hidden_size)
            json.reject_value(width, to_text(json.size(width)),
                              "the hidden_size, " + to_text(hidden_size));
    for (const char* key : {"block_use_swiglu", "use_pos_enc"})
        if (!json.boolean_or(key, true)) json.reject_value(key, "false", "true");
    for (const char* of_training :
         {"block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
          "block_use_xavier_init", "conv_use_xavier_init"})
        json.ignore(of_training);
}

void read_lfm2(const JsonFile& json, FamilyConfig& config) {
    const std::size_t width = config.intermediate_size;
    if (json.size_or("intermediate_size", width) != width)
        json.reject("intermediate_size", "contradicts block_ff_dim");
    config.intermediate_size = read_width(json, width);
    for (LayerConfig& layer : config.layers)
        mlp_of(layer)->intermediate_size = config.intermediate_size;
    read_theta(json, config);
    check_settings_of_liquid(json, config.hidden_size);
    read_lfm2_layers(json, config);
}

void write_lfm2(const FamilyConfig& config, JsonMembers& json) {
    json.push_back({"block_auto_adjust_ff_dim", false});
    write_lfm2_layers(config, json);
}

}  // namespace

const Family& lfm2_family() {
    static const Family family = [] {
        Family lfm2 = make_lfm2_family();
        lfm2.model_type = "lfm2";
        lfm2.architecture = "Lfm2ForCausalLM";
        lfm2.gguf_architecture = "lfm2";
        lfm2.attribute_map["intermediate_size"] = "block_ff_dim";
        lfm2.defaults = {65536, 2560, 12288, 32, 32, 8, 128'000, 0, 1e-5, 1'000'000, true};
        lfm2.read = read_lfm2;
        lfm2.write = write_lfm2;
        return lfm2;
    }();
    return family;
}

}  // namespace llm::models
