#include "chapters/models/encoders/sentence_transformers.hpp"

#include "chapters/models/encoders/encoder_gguf.hpp"
#include "common/files/gguf.hpp"
#include "common/files/unicode.hpp"
#include "common/files/unicode_properties.hpp"

namespace llm::models {

std::optional<Pooling> read_pooling_mode(const JsonFile& json) {
    std::optional<Pooling> pooling;
    for (const auto& [key, value] : json.members()) {
        if (!key.starts_with("pooling_mode_") || !json.boolean_or(key, false)) continue;
        if (pooling) return std::nullopt;  // several, one after the other
        if (key == "pooling_mode_mean_tokens")
            pooling = Pooling::mean;
        else if (key == "pooling_mode_cls_token")
            pooling = Pooling::cls;
        else
            return std::nullopt;
    }
    return pooling;
}

namespace {

// The name of a module's class, without those of Python's packages.
std::string class_of(const JsonFile& module) {
    const std::string type = module.text("type");
    return type.substr(type.rfind('.') + 1);
}

void read_modules(const std::string& folder, SentenceTransformer& model) {
    const std::string file = folder + "/modules.json";
    if (!is_file(file)) return;
    const JsonFile json(file, "{\"modules\": " + read_text(file) + "}");
    for (const JsonFile& module : json.objects("modules")) {
        const std::string name = class_of(module);
        if (name == "Normalize") model.normalize = true;
        if (name != "Transformer" && name != "Pooling" && name != "Normalize")
            module.reject_value("type", name, "Transformer, Pooling and Normalize");
    }
}

void read_pooling(const std::string& folder, SentenceTransformer& model) {
    const std::string file = folder + "/1_Pooling/config.json";
    if (!is_file(file)) return;
    const JsonFile json(file);
    const std::optional<Pooling> pooling = read_pooling_mode(json);
    if (!pooling)
        json.reject("supported: pooling_mode_mean_tokens or pooling_mode_cls_token alone");
    model.pooling = *pooling;
    model.include_prompt = json.boolean_or("include_prompt", true);
}

void read_prompts(const std::string& folder, SentenceTransformer& model) {
    const std::string file = folder + "/config_sentence_transformers.json";
    if (!is_file(file)) return;
    const JsonFile json(file);
    const std::string similarity = "similarity_fn_name", name = "default_prompt_name";
    const std::string function = json.has(similarity) ? json.text(similarity) : "cosine";
    if (function != "cosine" && function != "dot")
        json.reject_value(similarity, function, "cosine and dot");
    model.has_dot_products = function == "dot";
    if (json.has("prompts")) model.prompts = json.texts("prompts");
    if (!json.has(name)) return;
    model.default_prompt_name = json.text(name);
    if (!model.prompts.contains(model.default_prompt_name))
        json.reject(name + " " + model.default_prompt_name + " is none of the prompts");
}

void read_transformer(const std::string& folder, SentenceTransformer& model) {
    const std::string file = folder + "/sentence_bert_config.json";
    if (!is_file(file)) return;
    const JsonFile json(file);
    model.do_lower_case = json.boolean_or("do_lower_case", false);
    if (json.has("max_seq_length")) model.max_seq_length = json.size("max_seq_length");
}

// llama.cpp's types: 0 is none, as of a model without the key.
Pooling read_gguf_pooling(const std::string& file) {
    const Gguf gguf(file);
    const std::string key = gguf.text("general.architecture") + ".pooling_type";
    const auto type = gguf.any_number(key);
    if (type && (*type < 0 || *type > 2))
        gguf.reject(key + " " + std::to_string(std::int64_t(*type)) +
                    " is not supported; supported: 0 (none), 1 (mean), 2 (CLS)");
    return pooling_of(file).value_or(Pooling::mean);
}

}  // namespace

SentenceTransformer read_sentence_transformer(const std::string& path) {
    SentenceTransformer model;
    if (is_gguf(path)) {
        model.pooling = read_gguf_pooling(path);
        return model;
    }
    read_modules(path, model);
    read_pooling(path, model);
    read_prompts(path, model);
    read_transformer(path, model);
    return model;
}

std::string with_prompt(const SentenceTransformer& model, const std::string& prompt_name,
                        const std::string& text) {
    const std::string& name = prompt_name.empty() ? model.default_prompt_name : prompt_name;
    std::string prompted = text;
    if (!name.empty()) {
        const auto found = model.prompts.find(name);
        std::string names;
        for (const auto& [each, prompt] : model.prompts)
            names += (names.empty() ? "" : ", ") + each;
        require(found != model.prompts.end(), "--prompt-name {}: the model's prompts are {}",
                name, names.empty() ? "none" : names);
        require(found->second.empty() || model.include_prompt,
                "--prompt-name {}: a mean without the prompt (include_prompt false) is not "
                "supported",
                name);
        prompted = found->second + text;
    }
    return model.do_lower_case ? lower_case(prompted) : prompted;
}

}  // namespace llm::models
