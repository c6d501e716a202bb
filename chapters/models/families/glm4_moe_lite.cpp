// GLM-4.7-Flash: a DeepSeek-V3 with other sizes and without groups of experts, whose values are
// wider than the unrotated part of its keys. Source: Hugging Face, modular_glm4_moe_lite.py;
// the published file has DeepSeek's first_k_dense_replace, which transformers 5 writes as
// mlp_layer_types. llama.cpp knows it as deepseek2.
#include "chapters/models/families/deepseek.hpp"

namespace llm::models {
namespace {

// mlp_layer_types has dense or sparse for each layer; without it, the first layers are dense.
std::vector<bool> read_mlp_layer_types(const JsonFile& json, const FamilyConfig& config) {
    if (!json.has("mlp_layer_types")) return read_first_dense_layers(json, 1, config);
    json.ignore("first_k_dense_replace");
    return read_layer_kinds(json, "mlp_layer_types", "sparse", "dense", config.layers.size());
}

void read_glm4_moe_lite(const JsonFile& json, FamilyConfig& config) {
    read_deepseek_v3(json,
                     {{0, 0, 768, 512, 192, 64, 256}, {64, 4, 1536, 1}, Real(1.8), {1, 1}},
                     read_mlp_layer_types(json, config), config);
}

void write_glm4_moe_lite(const FamilyConfig& config, JsonMembers& json) {
    deepseek_v3_family().write(config, json);
    std::vector<std::string> types;
    for (const LayerConfig& layer : config.layers)
        types.push_back(moe_of(layer) ? "sparse" : "dense");
    json.push_back({"mlp_layer_types", types});
}

}  // namespace

const Family& glm4_moe_lite_family() {
    static const Family family = [] {
        Family glm = deepseek_v3_family();
        glm.model_type = "glm4_moe_lite";
        glm.architecture = "Glm4MoeLiteForCausalLM";
        glm.defaults = {154880, 2048, 10240, 47, 20, 20, 202752, 64, 1e-5};
        glm.read = read_glm4_moe_lite;
        glm.write = write_glm4_moe_lite;
        return glm;
    }();
    return family;
}

}  // namespace llm::models
