#include "chapters/models/encoders/vit.hpp"

#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tensor_list.hpp"

namespace llm::models {
namespace {

// A tensor in memory, and its name and shape in a file.
struct VitTensor {
    std::string name;
    std::vector<std::size_t> shape;
    std::span<Real> values;
};

// The names of chapter 25, and those of Hugging Face without its prefix.
std::string name_in_file(std::string name) {
    static const std::vector<std::pair<std::string, std::string>> parts = {
        {"encoder.embeddings.projection", "embeddings.patch_embeddings.projection"},
        {"encoder.embeddings.", "embeddings."},
        {"encoder.layers.", "encoder.layer."},
        {"encoder.final_norm.", "layernorm."},
        {"self_attn.q_proj", "attention.attention.query"},
        {"self_attn.k_proj", "attention.attention.key"},
        {"self_attn.v_proj", "attention.attention.value"},
        {"self_attn.o_proj", "attention.output.dense"},
        {"mlp.up_proj", "intermediate.dense"},
        {"mlp.down_proj", "output.dense"},
        {"input_layernorm", "layernorm_before"},
        {"post_attention_layernorm", "layernorm_after"}};
    for (const auto& [ours, theirs] : parts)
        if (const std::size_t at = name.find(ours); at != name.npos)
            name.replace(at, ours.size(), theirs);
    return name;
}

// A model with a head has a prefix before the names of the encoder, ViTModel has none.
std::string prefix_of(const VitFamilyConfig& config) { return config.classifier ? "vit." : ""; }

// All tensors of the model. The projection of patches is a convolution in the file, and the
// class token and the positions have an axis more.
std::vector<VitTensor> tensors_of(VitFamilyModel& model) {
    const std::string prefix = prefix_of(model.config);
    const std::size_t P = model.config.patch_size;
    std::vector<VitTensor> tensors;
    for (const Parameter& parameter : named_parameters(model.vit)) {
        std::vector<std::size_t> shape = parameter.shape;
        if (parameter.name.ends_with("projection.weight"))
            shape = {shape[0], model.config.num_channels, P, P};
        if (parameter.name.ends_with("position_embeddings")) shape.insert(shape.begin(), 1);
        if (parameter.name.ends_with("cls_token")) shape = {1, 1, shape[0]};
        tensors.push_back({prefix + name_in_file(parameter.name), shape, parameter.values});
    }
    ParameterList heads;
    if (model.pooler) add_parameters(heads, prefix + "pooler.dense", *model.pooler);
    if (model.classifier) add_parameters(heads, "classifier", *model.classifier);
    for (const Parameter& head : heads) tensors.push_back({head.name, head.shape, head.values});
    return tensors;
}

// Gives the tensors of the encoder the prefix of the class, whether the file has it or not.
void name_as_class(const VitFamilyConfig& config, SafeTensors& tensors) {
    tensors.rename([&](const std::string& name) {
        const std::string bare = name.starts_with("vit.") ? name.substr(4) : name;
        return bare.starts_with("classifier.") ? bare : prefix_of(config) + bare;
    });
}

// Checks each size of the settings with one tensor, before there is memory for all.
void check_vit_sizes(const VitFamilyConfig& config, const SafeTensors& tensors) {
    const std::string prefix = prefix_of(config), embeddings = prefix + "embeddings.";
    const std::string last_layer =
        prefix + "encoder.layer." + std::to_string(config.num_hidden_layers - 1) + ".";
    const std::size_t C = config.hidden_size, P = config.patch_size;
    const std::size_t N = config.image_height / P * (config.image_width / P);
    tensors.read(embeddings + "cls_token", {1, 1, C});
    tensors.read(embeddings + "patch_embeddings.projection.weight",
                 {C, config.num_channels, P, P});
    tensors.read(embeddings + "position_embeddings", {1, 1 + N, C});
    tensors.read(last_layer + "intermediate.dense.bias", {config.intermediate_size});
    if (config.classifier) tensors.read("classifier.bias", {config.num_labels});
    if (config.pooler) tensors.read(prefix + "pooler.dense.bias", {config.pooler_output_size});
}

void check_picture(const VitConfig& config, const Tensor4& pixel_values, bool interpolate) {
    const auto [batch_size, channels, height, width] = dims(pixel_values);
    require(pixel_values.size() > 0, "vit: pixel values of {} hold no pixel",
            pixel_values.shape());
    require(channels == config.num_channels, "vit: the pictures have {} channels, not {}",
            channels, config.num_channels);
    require(interpolate || (height == config.image_height && width == config.image_width),
            "vit: the pictures have {} x {} pixels, the model's positions are those of {} x "
            "{}; --interpolate interpolates them",
            height, width, config.image_height, config.image_width);
}

Matrix activated(const Activation& activation, Matrix rows) {
    for (Real& value : rows) value = activation.function(value);
    return rows;
}

}  // namespace

VitFamilyModel load_vit(const std::string& folder) {
    const JsonFile json = open_config(folder + "/config.json");
    VitFamilyConfig config = read_vit_config(json);
    if (const std::string method = quantization_method(json); !method.empty())
        json.reject("quantization_config", "says that the weights are quantized (" + method +
                                               "); supported for vit: float32, float16 and "
                                               "bfloat16");
    SafeTensors tensors(folder);
    name_as_class(config, tensors);
    config.pooler = tensors.has(prefix_of(config) + "pooler.dense.weight");
    check_vit_sizes(config, tensors);
    const std::size_t C = config.hidden_size;
    VitFamilyModel model{config, empty_vit(config), std::nullopt, std::nullopt};
    if (config.pooler) model.pooler = zero_linear(C, config.pooler_output_size, true);
    if (config.classifier) model.classifier = zero_linear(C, config.num_labels, true);
    for (const VitTensor& tensor : tensors_of(model))
        tensors.read(tensor.name, tensor.shape, tensor.values);
    reject_unread_tensors(tensors, json, "", {}, {"embeddings.mask_token"});
    return model;
}

void export_model(VitFamilyModel& model, const std::string& folder, DType dtype) {
    std::vector<NamedTensor> tensors;
    for (const VitTensor& tensor : tensors_of(model))
        tensors.push_back({tensor.name, tensor.shape, tensor.values});
    make_folder(folder);
    write_safetensors(folder + "/model.safetensors", tensors, dtype);
    write_json(folder + "/config.json", vit_config_json(model.config, dtype));
}

VitParameters count_parameters(VitFamilyModel& model) {
    VitParameters count;
    const std::string prefix = prefix_of(model.config);
    for (const VitTensor& tensor : tensors_of(model)) {
        const bool is_head = tensor.name.find("pooler.") != tensor.name.npos ||
                             tensor.name.starts_with("classifier.");
        (is_head                                           ? count.heads
         : tensor.name.starts_with(prefix + "embeddings.") ? count.embeddings
                                                           : count.layers) +=
            tensor.values.size();
    }
    return count;
}

VitOutputs encode(const VitFamilyModel& model, const Tensor4& pixel_values,
                  bool interpolate_pos_encoding) {
    check_picture(model.config, pixel_values, interpolate_pos_encoding);
    VitOutputs outputs{model.vit(pixel_values), std::nullopt, std::nullopt};
    const Matrix class_tokens =  // (B, C)
        xt::view(outputs.last_hidden_state, xt::all(), 0);
    if (model.pooler)
        outputs.pooler_output =
            activated(model.config.pooler_act, (*model.pooler)(class_tokens));
    if (model.classifier) outputs.logits = (*model.classifier)(class_tokens);
    return outputs;
}

}  // namespace llm::models
