#include "chapters/models/load.hpp"

#include <algorithm>

#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "chapters/models/encoders/t5.hpp"
#include "chapters/models/encoders/vit.hpp"
#include "chapters/models/families/families.hpp"
#include "chapters/models/family_checkpoint.hpp"
#include "chapters/models/family_gguf.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "common/files/gguf.hpp"
#include "common/files/mapped_file.hpp"

namespace llm::models {
namespace {

const Family* family_of(const JsonFile& json) {
    return is_family_config(json) ? &family_named_in(json) : nullptr;
}

// Of a config.json or of the header of a GGUF file.
template <class File>
ModelKind kind(const File& file) {
    if (is_t5(file)) return ModelKind::encoder_decoder;
    if constexpr (std::is_same_v<File, JsonFile>)  // llama.cpp has no GGUF files of a ViT alone
        if (is_vit(file)) return ModelKind::vision;
    return find_encoder_family(file) ? ModelKind::encoder : ModelKind::decoder;
}

template <class File>
void reject_other_kinds(const std::string& name, const File& file) {
    const ModelKind found = kind(file);
    if (found == ModelKind::decoder) return;
    const std::string what =
        found == ModelKind::encoder_decoder ? "t5 has an encoder, and perhaps a decoder"
        : found == ModelKind::vision
            ? "vit reads pictures"
            : find_encoder_family(file)->model_type + " is an encoder, which writes no text";
    throw FileError(name + ": " + what + "; ./learn model runs it");
}

// The settings of a model for which family_of is not null.
FamilyConfig config_at(const std::string& path) {
    return is_gguf(path) ? read_family_config(Gguf(path))
                         : read_family_config(open_config(path + "/config.json"));
}

}  // namespace

ModelKind kind_of(const std::string& path) {
    if (is_gguf(path)) return kind(Gguf(path));
    const std::string config = path + "/config.json";
    return is_file(config) ? kind(open_config(config)) : ModelKind::decoder;
}

const Family* family_of(const std::string& path) {
    if (is_gguf(path)) {
        const Gguf file(path);
        reject_other_kinds(path, file);
        return find_family(file);
    }
    const std::string config = path + "/config.json";
    if (!is_file(config)) return nullptr;
    const JsonFile json = open_config(config);
    reject_other_kinds(path, json);
    return family_of(json);
}

LoadedModel load_any_model(const std::string& path) {
    if (!family_of(path)) return load_model(path);
    return is_gguf(path) ? load_family_gguf(path) : load_family_model(path);
}

AnyEncoder load_any_encoder(const std::string& path) {
    return is_gguf(path) ? load_encoder_gguf(path) : load_encoder(path);
}

FamilyConfig read_any_config(const JsonFile& json) {
    reject_other_kinds(json.path().string(), json);
    if (const std::string method = quantization_method(json); !method.empty())
        json.remark("the weights are quantized (" + method +
                    "); the sizes are those of the unquantized model");
    if (family_of(json)) return read_family_config(json);
    FamilyConfig config = config_with(llama_family(), read_config(json));
    for (LayerConfig& layer : config.layers) attention_of(layer)->qk_norm = config.qk_norm;
    read_head_of_class(json, config);
    return config;
}

bool has_fast_path(const std::string& path) {
    if (!family_of(path)) return true;
    const FamilyConfig config = config_at(path);
    const bool plain = std::all_of(
        config.layers.begin(), config.layers.end(),
        [](const LayerConfig& layer) { return attention_of(layer) && mlp_of(layer); });
    // Without experts, whose number is not yet checked, an empty model takes little memory.
    return plain && as_llama_model(make_empty_model(config));
}

Model load_for_fast_path(const std::string& path) {
    LoadedModel loaded = load_any_model(path);
    if (auto* model = std::get_if<Model>(&loaded)) return std::move(*model);
    const Family& family = *std::get<FamilyModel>(loaded).config.family;
    std::optional<Model> model = as_llama_model(std::get<FamilyModel>(std::move(loaded)));
    if (model) return std::move(*model);
    throw FileError(path + ": model_type " + family.model_type +
                    " has no fast path (chapters 15 and 16); ./learn chat runs it");
}

}  // namespace llm::models
