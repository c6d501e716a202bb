#include "chapters/models/encoders/encoder_family.hpp"

#include "chapters/models/family_keys.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/unread_settings.hpp"

namespace llm::models {
namespace {

std::string key_of(const EncoderFamily& family, const std::string& common) {
    const auto renamed = family.attribute_map.find(common);
    return renamed == family.attribute_map.end() ? common : renamed->second;
}

EncoderFamilyConfig read_common(const JsonFile& json, const EncoderFamily& family) {
    // An encoder may have no layers, which read_sizes accepts of a family without the key.
    const std::string layers = "num_hidden_layers";
    const bool has_none = json.has(layers) && json.value(layers) == Json(0);
    const Config sizes = read_sizes(json, family.defaults, [&](const std::string& common) {
        return has_none && common == layers ? "" : key_of(family, common);
    });
    if (sizes.num_hidden_layers > most_layers)
        json.reject(key_of(family, "num_hidden_layers"), "must be at most " +
                                                             to_text(most_layers) + ", not " +
                                                             to_text(sizes.num_hidden_layers));
    EncoderFamilyConfig config = config_with(family, sizes);
    config.hidden_act = read_activation(json, key_of(family, "hidden_act"), GELU);
    config.pad_token_id =
        static_cast<Id>(json.count_or("pad_token_id", std::size_t(config.pad_token_id)));
    return config;
}

const std::map<std::string, ProblemType> problem_types = {
    {"single_label_classification", ProblemType::single_label},
    {"multi_label_classification", ProblemType::multi_label},
    {"regression", ProblemType::regression}};

// Changes no logits, but what they mean.
ProblemType read_problem_type(const JsonFile& json) {
    const std::string key = "problem_type";
    if (!json.has(key)) return ProblemType::single_label;
    const auto found = problem_types.find(json.text(key));
    if (found == problem_types.end())
        json.reject_value(key, json.text(key),
                          "single_label_classification, multi_label_classification and "
                          "regression");
    return found->second;
}

void read_heads(const JsonFile& json, EncoderFamilyConfig& config) {
    const HeadOfClass head = read_head(json);
    const auto& classes = config.family->classes;
    if (!head.class_name.empty()) config.architecture = head.class_name;
    const auto found = classes.find(config.architecture);
    if (found == classes.end()) {
        std::vector<std::string> supported;
        for (const auto& [name, heads] : classes) supported.push_back(name);
        json.reject_value("architectures", config.architecture, supported);
    }
    config.heads = found->second;
    if (!config.heads.classifier) return;
    config.num_labels = static_cast<std::size_t>(head.num_outputs);
    config.id2label = read_labels(json);
    config.problem_type = read_problem_type(json);
}

}  // namespace

std::map<std::string, std::string> read_labels(const JsonFile& json) {
    std::map<std::string, std::string> labels;
    if (!json.is_object("id2label")) return labels;
    for (const auto& [number, name] : *json.value("id2label").as<JsonObject>())
        if (name.as<std::string>()) labels.emplace(number, *name.as<std::string>());
    return labels;
}

std::string label_of(const std::map<std::string, std::string>& id2label, std::size_t n) {
    const auto named = id2label.find(std::to_string(n));
    return named == id2label.end() ? "LABEL_" + std::to_string(n) : named->second;
}

JsonObject labels_json(const std::map<std::string, std::string>& id2label,
                       std::size_t num_labels) {
    JsonObject names;
    for (std::size_t n = 0; n < num_labels; ++n)
        names.push_back({std::to_string(n), label_of(id2label, n)});
    return names;
}

const std::vector<const EncoderFamily*>& encoder_families() {
    static const std::vector<const EncoderFamily*> all = {&bert_family(), &modernbert_family()};
    return all;
}

const EncoderFamily* find_encoder_family(const JsonFile& json) {
    const bool has_type = json.has("model_type");
    const std::string name = has_type ? json.text("model_type") : read_head(json).class_name;
    for (const EncoderFamily* family : encoder_families())
        if (has_type ? family->model_type == name : family->classes.contains(name))
            return family;
    return nullptr;
}

const EncoderFamily* find_encoder_family(const Gguf& file) {
    const std::string architecture = file.text("general.architecture");
    for (const EncoderFamily* family : encoder_families())
        if (family->gguf_architecture == architecture) return family;
    return nullptr;
}

const EncoderFamily* find_encoder_family(const std::string& path) {
    if (is_gguf(path)) return find_encoder_family(Gguf(path));
    const std::string config = path + "/config.json";
    return is_file(config) ? find_encoder_family(open_config(config)) : nullptr;
}

Config sizes_of(const EncoderFamilyConfig& config) {
    Config sizes;
    sizes.vocab_size = config.vocab_size;
    sizes.hidden_size = config.hidden_size;
    sizes.intermediate_size = config.intermediate_size;
    sizes.num_hidden_layers = config.num_hidden_layers;
    sizes.num_attention_heads = sizes.num_key_value_heads = config.num_attention_heads;
    sizes.head_dim = config.hidden_size / config.num_attention_heads;
    sizes.max_position_embeddings = config.max_position_embeddings;
    sizes.rms_norm_eps = config.layer_norm_eps;
    sizes.rope_theta = config.rope_theta.value_or(sizes.rope_theta);
    sizes.tie_word_embeddings = config.tie_word_embeddings;
    return sizes;
}

EncoderFamilyConfig config_with(const EncoderFamily& family, const Config& sizes) {
    EncoderFamilyConfig config;
    config.family = &family;
    config.architecture = family.base_class;
    config.vocab_size = sizes.vocab_size;
    config.hidden_size = sizes.hidden_size;
    config.intermediate_size = sizes.intermediate_size;
    config.num_hidden_layers = sizes.num_hidden_layers;
    config.num_attention_heads = sizes.num_attention_heads;
    config.max_position_embeddings = sizes.max_position_embeddings;
    config.layer_norm_eps = sizes.rms_norm_eps;
    config.tie_word_embeddings = sizes.tie_word_embeddings;
    config.windows.assign(sizes.num_hidden_layers, false);
    config.pad_token_id = family.default_pad_token_id;
    return config;
}

EncoderFamilyConfig read_encoder_config(const JsonFile& json) try {
    const EncoderFamily* const family = find_encoder_family(json);
    if (!family) {
        std::vector<std::string> types;
        for (const EncoderFamily* each : encoder_families()) types.push_back(each->model_type);
        json.reject_value("model_type", json.text("model_type"), types);
    }
    EncoderFamilyConfig config = read_common(json, *family);
    family->read(json, config);
    read_heads(json, config);
    validate(config);
    check_unread_settings(json);
    return config;
} catch (...) {
    rethrow_as_rejection(json);
}

JsonMembers config_json(const EncoderFamilyConfig& config, DType dtype) {
    const EncoderFamily& family = *config.family;
    JsonMembers members;
    for (const auto& [key, value] :
         common_members(family.model_type, config.architecture, sizes_of(config), dtype))
        if (const std::string own = key_of(family, key); !own.empty())
            members.push_back({own, value});
    members.push_back({key_of(family, "hidden_act"), std::string(config.hidden_act.name)});
    members.push_back({"pad_token_id", config.pad_token_id});
    if (config.num_labels > 0)
        members.push_back({"id2label", labels_json(config.id2label, config.num_labels)});
    for (const auto& [name, type] : problem_types)
        if (type == config.problem_type && type != ProblemType::single_label)
            members.push_back({"problem_type", name});
    family.write(config, members);
    return members;
}

}  // namespace llm::models
