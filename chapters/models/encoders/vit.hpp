// ViT, a family for pictures: its settings, published weights, and what it computes. Source:
// Hugging Face, modeling_vit.py.
#pragma once

#include <map>
#include <string>

#include "chapters/27_vision/vision.hpp"
#include "common/files/json_file.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::models {

// The settings of a published ViT.
struct VitFamilyConfig : VitConfig {
    std::string architecture;  // Hugging Face's class
    bool classifier = false;   // logits of labels, from the class token
    bool pooler = false;       // pooler_output, also from the class token
    std::size_t pooler_output_size = 0;
    Activation pooler_act = GELU;
    std::size_t num_labels = 0;
    std::map<std::string, std::string> id2label = {};  // their names, by number
};

struct VitFamilyModel {
    VitFamilyConfig config;
    VitModel vit;
    std::optional<Linear> pooler;      // (pooler_output_size, C)
    std::optional<Linear> classifier;  // (labels, C)
};

// Whether this is the config.json of a ViT. Throws FileError.
bool is_vit(const JsonFile& json);

// Throws FileError, which names the field, for a value that is not supported. Missing fields
// have the defaults of transformers 4.57.
VitFamilyConfig read_vit_config(const JsonFile& json);
JsonObject vit_config_json(const VitFamilyConfig& config, DType dtype);

// Loads a folder with config.json and model.safetensors (or several files and an index); the
// pooler, if the weights have one. Throws FileError, which names the file and the tensor.
VitFamilyModel load_vit(const std::string& folder);

// Writes config.json and model.safetensors in Hugging Face's format. Throws FileError.
void export_model(VitFamilyModel& model, const std::string& folder,
                  DType dtype = DType::float32);

struct VitParameters {
    std::uint64_t embeddings = 0, layers = 0, heads = 0;  // the final norm is of the layers

    std::uint64_t total() const { return embeddings + layers + heads; }
};
VitParameters count_parameters(VitFamilyModel& model);

// The outputs under Hugging Face's names.
struct VitOutputs {
    Tensor3 last_hidden_state;            // (B, 1 + N, C)
    std::optional<Matrix> pooler_output;  // (B, pooler_output_size)
    std::optional<Matrix> logits;         // (B, labels)
};
// The pixels are normalized already. Throws ValueError for another number of channels, for a
// picture that is not image_size, unless positions are to be interpolated, or one that patches
// do not divide.
VitOutputs encode(const VitFamilyModel& model,
                  const Tensor4& pixel_values,  // (B, channels, height, width)
                  bool interpolate_pos_encoding = false);

}  // namespace llm::models
