#include "chapters/models/activations.hpp"
#include "chapters/models/encoders/encoder_family.hpp"
#include "chapters/models/encoders/vit.hpp"
#include "chapters/models/family_keys.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/config_json.hpp"
#include "chapters/models/llama/unread_settings.hpp"

namespace llm::models {
namespace {

const std::string vit_type = "vit", vit_base_class = "ViTModel",
                  vit_classifier_class = "ViTForImageClassification";

// One number, or height and width.
std::array<std::size_t, 2> read_sides(const JsonFile& json, const std::string& key,
                                      std::size_t otherwise) {
    if (!json.has(key)) return {otherwise, otherwise};
    const std::vector<std::int64_t> sides = json.ids(key);
    if (sides.empty() || sides.size() > 2)
        json.reject(key, "must be one number, or height and width");
    return {std::size_t(sides.front()), std::size_t(sides.back())};
}

void read_vit_sizes(const JsonFile& json, VitFamilyConfig& config) {
    const auto [height, width] = read_sides(json, "image_size", 224);
    config.image_height = height;
    config.image_width = width;
    const auto [patch_height, patch_width] = read_sides(json, "patch_size", 16);
    if (patch_height != patch_width)
        json.reject_value("patch_size", json_text(json.value("patch_size")), "squares");
    config.patch_size = patch_height;
    config.num_channels = json.size_or("num_channels", 3);
    config.hidden_size = json.size_or("hidden_size", 768);
    config.intermediate_size = json.size_or("intermediate_size", 3072);
    config.num_hidden_layers = json.size_or("num_hidden_layers", 12);
    config.num_attention_heads = json.size_or("num_attention_heads", 12);

    const std::size_t P = patch_height, C = config.hidden_size, H = config.num_attention_heads;
    require(P > 0 && height > 0 && width > 0 && height % P == 0 && width % P == 0,
            "a patch_size of {} does not divide an image_size of {} x {}", P, height, width);
    require(C % (2 * H) == 0, "{} heads do not divide a hidden size of {} into even parts", H,
            C);
}

void read_vit_class(const JsonFile& json, VitFamilyConfig& config) {
    const HeadOfClass head = read_head(json);
    config.architecture = head.class_name.empty() ? vit_base_class : head.class_name;
    config.classifier = config.architecture == vit_classifier_class;
    if (!config.classifier && config.architecture != vit_base_class)
        json.reject_value("architectures", config.architecture,
                          std::vector{vit_classifier_class, vit_base_class});
    if (!config.classifier) return;
    config.num_labels = static_cast<std::size_t>(head.num_outputs);
    config.id2label = read_labels(json);
}

}  // namespace

bool is_vit(const JsonFile& json) {
    return json.has("model_type")
               ? json.is_text("model_type") && json.text("model_type") == vit_type
               : read_head(json).class_name.starts_with("ViT");
}

VitFamilyConfig read_vit_config(const JsonFile& json) try {
    if (json.has("model_type") && json.text("model_type") != vit_type)
        json.reject_value("model_type", json.text("model_type"), vit_type);
    VitFamilyConfig config;
    read_vit_sizes(json, config);
    config.layer_norm_eps = Real(json.positive_or("layer_norm_eps", 1e-12));
    config.hidden_act = read_activation(json, "hidden_act", GELU);
    config.qkv_bias = json.boolean_or("qkv_bias", true);
    config.pooler_output_size = json.size_or("pooler_output_size", config.hidden_size);
    config.pooler_act = read_activation(json, "pooler_act", named_activations().at("tanh"));
    json.ignore("encoder_stride");  // of a decoder of pixels, for training
    read_vit_class(json, config);
    check_unread_settings(json);
    return config;
} catch (...) {
    rethrow_as_rejection(json);
}

JsonObject vit_config_json(const VitFamilyConfig& config, DType dtype) {
    const bool is_square = config.image_height == config.image_width;
    const Json image_size = is_square
                                ? Json(config.image_height)
                                : Json(std::vector{config.image_height, config.image_width});
    JsonObject members = {{"architectures", std::vector<std::string>{config.architecture}},
                          {"model_type", vit_type},
                          {"image_size", image_size},
                          {"patch_size", config.patch_size},
                          {"num_channels", config.num_channels},
                          {"hidden_size", config.hidden_size},
                          {"intermediate_size", config.intermediate_size},
                          {"num_hidden_layers", config.num_hidden_layers},
                          {"num_attention_heads", config.num_attention_heads},
                          {"layer_norm_eps", double(config.layer_norm_eps)},
                          {"hidden_act", std::string(config.hidden_act.name)},
                          {"qkv_bias", config.qkv_bias},
                          {"pooler_output_size", config.pooler_output_size},
                          {"pooler_act", std::string(config.pooler_act.name)},
                          {"torch_dtype", std::string(to_text(dtype))}};
    if (config.num_labels > 0)
        members.push_back({"id2label", labels_json(config.id2label, config.num_labels)});
    return members;
}

}  // namespace llm::models
