#include "chapters/models/chat/peft_files.hpp"

#include "common/files/json_file.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/safetensors.hpp"

namespace llm {

void save_adapter(const LoraAdapter& adapter, const std::string& folder) {
    make_folder(folder);
    const std::string config_file = folder + "/adapter_config.json";
    const std::string tensors_file = folder + "/adapter_model.safetensors";
    for (const std::string& file : {config_file, tensors_file})
        if (is_file(file)) throw FileError(file + ": it exists, and is not overwritten");
    const LoraConfig& config = adapter.config;
    write_json(config_file, {{"peft_type", std::string("LORA")},
                             {"task_type", std::string("CAUSAL_LM")},
                             {"r", config.r},
                             {"lora_alpha", static_cast<double>(config.lora_alpha)},
                             {"lora_dropout", 0.0},
                             {"use_rslora", config.use_rslora},
                             {"use_dora", false},
                             {"bias", std::string("none")},
                             {"fan_in_fan_out", false},
                             {"target_modules", config.target_modules}});
    std::vector<NamedTensor> tensors;
    for (const auto& [name, lora_A, lora_B] : adapter.layers) {
        tensors.push_back(named("base_model.model." + name + ".lora_A.weight", lora_A));
        tensors.push_back(named("base_model.model." + name + ".lora_B.weight", lora_B));
    }
    write_safetensors(tensors_file, tensors);
}

namespace {

void reject_other_adapters(const JsonFile& json) {
    const std::string type = json.text("peft_type");
    if (type != "LORA") json.reject("peft_type", "is " + type + "; only LORA is implemented");
    for (const char* key : {"use_dora", "lora_bias", "fan_in_fan_out"})
        if (json.has(key) && json.boolean(key)) json.reject(key, "is not implemented");
    for (const char* key : {"modules_to_save", "layers_to_transform", "layers_pattern",
                            "exclude_modules", "target_parameters", "layer_replication"})
        if (json.has(key)) json.reject(key, "is not implemented");
    for (const char* key : {"rank_pattern", "alpha_pattern"})
        if (json.has(key) && !json.ids_by_name(key).empty())
            json.reject(key, "is not implemented");
    if (json.has("bias") && json.text("bias") != "none")
        json.reject("bias", "is " + json.text("bias") + "; only none is implemented");
}

LoraConfig read_lora_config(const JsonFile& json) {
    reject_other_adapters(json);
    LoraConfig config;
    config.r = json.size("r");
    config.lora_alpha = static_cast<Real>(json.number("lora_alpha"));
    config.use_rslora = json.has("use_rslora") && json.boolean("use_rslora");
    config.target_modules.clear();
    for (const std::vector<std::string>& module : json.text_lists("target_modules")) {
        if (module.size() != 1) json.reject("target_modules", "is not a list of names");
        config.target_modules.push_back(module[0]);
    }
    return config;
}

}  // namespace

LoraAdapter load_adapter(const std::string& folder, const Model& model) {
    const JsonFile json(folder + "/adapter_config.json");
    const LoraConfig config = read_lora_config(json);
    Generator generator(0);  // of values that are overwritten
    LoraAdapter adapter = [&] {
        try {
            return make_lora(model, config, generator);
        } catch (const ValueError& error) {
            json.reject(error.what());
        }
    }();
    const SafeTensors tensors(folder + "/adapter_model.safetensors");
    for (auto& [name, lora_A, lora_B] : adapter.layers) {
        const std::string prefix = "base_model.model." + name;
        lora_A = tensors.read<2>(prefix + ".lora_A.weight", {lora_A.shape(0), lora_A.shape(1)});
        lora_B = tensors.read<2>(prefix + ".lora_B.weight", {lora_B.shape(0), lora_B.shape(1)});
    }
    return adapter;
}

}  // namespace llm
