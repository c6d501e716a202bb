#include "chapters/models/encoders/encoder_gguf.hpp"

#include "chapters/models/activations.hpp"
#include "chapters/models/encoders/encoder_tensors.hpp"
#include "chapters/models/encoders/sentence_transformers.hpp"
#include "chapters/models/llama/gguf_tensors.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

struct EncoderGgufWriter : GgufTensorWriter {
    template <std::size_t N>
    void grouped(const std::string& name, const std::array<GroupRows<const Linear>, N>& parts,
                 std::size_t, std::size_t num_groups) {
        list.add_linear(name, fuse_groups(parts, num_groups));
    }
};

const std::string eps_key = "attention.layer_norm_epsilon", act_key = "hidden_activation",
                  pooling_key = ".pooling_type";
// llama.cpp's enum llama_pooling_type.
constexpr int no_pooling = 0, mean_pooling = 1, cls_pooling = 2;

GgufMetadata settings_of(const EncoderFamilyConfig& config, const EncoderGgufOptions& options) {
    const std::string architecture = config.family->gguf_architecture;
    GgufMetadata metadata = {{"general.architecture", architecture}};
    if (block_size(options.dtype) > 1)
        metadata.emplace_back("general.quantization_version", std::int64_t{2});
    for (const auto& entry : size_metadata(architecture, sizes_of(config), eps_key))
        if (config.rope_theta || entry.first.find(".rope.") == entry.first.npos)
            metadata.push_back(entry);
    metadata.emplace_back(architecture + ".attention.causal", false);
    metadata.emplace_back(architecture + pooling_key,
                          std::int64_t{!options.pooling                    ? no_pooling
                                       : *options.pooling == Pooling::mean ? mean_pooling
                                                                           : cls_pooling});
    // Files of encoders with the usual activation do not name it.
    if (config.hidden_act.function != gelu)
        metadata.emplace_back(architecture + "." + act_key,
                              std::string(config.hidden_act.name));
    config.family->add_gguf(config, metadata);
    return metadata;
}

EncoderFamilyConfig read_config_of(const Gguf& file, const EncoderFamily& family) try {
    const GgufSettings gguf{file, family.gguf_architecture};
    EncoderFamilyConfig config = config_with(family, read_common_config(file, eps_key));
    file.boolean(gguf.full("attention.causal"));  // llama.cpp's default is true
    if (gguf.has(act_key)) {
        const auto found = named_activations().find(file.text(gguf.full(act_key)));
        if (found == named_activations().end())
            file.reject(gguf.full(act_key) + " " + file.text(gguf.full(act_key)) +
                        " is not supported; supported: those of ACT2FN");
        config.hidden_act = config.head_activation = found->second;
    }
    family.read_gguf(gguf, config);
    const std::size_t H = config.num_attention_heads;
    for (const auto& [key, only] : {std::pair{"attention.head_count_kv", H},
                                    {"attention.key_length", config.hidden_size / H},
                                    {"attention.value_length", config.hidden_size / H},
                                    {"rope.dimension_count", config.hidden_size / H}})
        if (gguf.has(key) && gguf.size(key) != only)
            file.reject(gguf.full(key) + " " + to_text(gguf.size(key)) +
                        " is not supported; supported: " + to_text(only));
    reject_unread_settings(file, gguf.full(""), false);
    validate(config);
    return config;
} catch (const ValueError& error) {
    file.reject(error.what());
}

}  // namespace

std::vector<TensorInOtherDType> export_gguf(const AnyEncoder& encoder, const std::string& file,
                                            const EncoderGgufOptions& options) {
    reject_existing(file);
    const EncoderFamilyConfig& config = config_of(encoder);
    GgufMetadata metadata = settings_of(config, options);
    metadata.insert(metadata.end(), options.tokenizer.begin(), options.tokenizer.end());
    GgufTensorList list(options.dtype);
    EncoderGgufWriter writer{{list}};
    std::visit(
        [&](const auto& model) { visit_encoder(model, config.family->gguf_names, writer); },
        encoder);
    write_gguf(file, metadata, list.tensors());
    return list.in_other_dtype();
}

EncoderFamilyConfig read_encoder_config(const Gguf& file) {
    const std::string architecture = file.text("general.architecture");
    for (const EncoderFamily* family : encoder_families())
        if (family->gguf_architecture == architecture) return read_config_of(file, *family);
    file.reject("general.architecture " + architecture +
                " is not supported; supported: bert and modern-bert");
}

void check_last_layer(const Gguf& file, const EncoderFamilyConfig& config) {
    const EncoderNames& names = config.family->gguf_names;
    file.tensor(names.layer + std::to_string(config.num_hidden_layers - 1) + "." +
                names.layers.ffn_norm + ".weight");
}

AnyEncoder load_encoder_gguf(const std::string& path) {
    const Gguf file(path);
    const EncoderFamilyConfig config = read_encoder_config(file);
    file.reject_other_types();
    const EncoderNames& names = config.family->gguf_names;
    check_last_layer(file, config);
    GgufTensors tensors(file);
    EncoderReader<GgufTensors> reader{{tensors}};
    AnyEncoder encoder = make_empty_encoder(config);
    std::visit([&](auto& model) { visit_encoder(model, names, reader); }, encoder);
    tensors.reject_unread();
    return encoder;
}

std::optional<Pooling> pooling_of(const std::string& path) {
    if (!is_gguf(path)) {
        const std::string file = path + "/1_Pooling/config.json";
        return is_file(file) ? read_pooling_mode(JsonFile(file)) : std::nullopt;
    }
    const Gguf gguf(path);
    const auto type = gguf.any_number(gguf.text("general.architecture") + pooling_key);
    if (type == mean_pooling) return Pooling::mean;
    if (type == cls_pooling) return Pooling::cls;
    return std::nullopt;
}

}  // namespace llm::models
