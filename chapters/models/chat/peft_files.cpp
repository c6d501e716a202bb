#include "chapters/models/chat/peft_files.hpp"

#include <set>

#include "common/files/json_file.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/safetensors.hpp"

namespace llm::models {

void save_adapter(const LoraAdapter& adapter, const std::string& folder, Existing existing) {
    make_folder(folder);
    const std::string config_file = folder + "/adapter_config.json";
    const std::string tensors_file = folder + "/adapter_model.safetensors";
    for (const std::string& file : {config_file, tensors_file})
        if (existing == Existing::reject && is_file(file))
            throw FileError(file + ": it exists, and is not overwritten");
    // The configuration is last: a folder that has one is complete.
    std::vector<NamedTensor> tensors;
    for (const auto& [name, lora_A, lora_B] : adapter.layers) {
        tensors.push_back(named("base_model.model." + name + ".lora_A.weight", lora_A));
        tensors.push_back(named("base_model.model." + name + ".lora_B.weight", lora_B));
    }
    write_safetensors(tensors_file, tensors);
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
}

namespace {

// What PEFT writes of a run's training, of other libraries, and of the base model.
const std::set<std::string> unused_keys = {"auto_mapping",  "base_model_name_or_path",
                                           "revision",      "inference_mode",
                                           "peft_version",  "task_type",
                                           "lora_dropout",  "eva_config",
                                           "corda_config",  "megatron_config",
                                           "megatron_core", "arrow_config",
                                           "loftq_config",  "qalora_group_size"};

// Throws FileError for everything but the LoRA of chapter 14.
void reject_other_adapters(const JsonFile& json) {
    if (json.has("bias") && json.text("bias") != "none")
        json.reject_value("bias", json.text("bias"), "none");

    // PiSSA, OLoRA, CorDA and LoftQ change the weights of the base model.
    const std::set<std::string> harmless = {"gaussian", "eva", "orthogonal"};
    const std::string key = "init_lora_weights";
    if (json.is_text(key) && !harmless.contains(json.text(key)))
        json.reject_value(key, json.text(key), "true, false, gaussian, eva and orthogonal");
    if (json.has(key) && !json.is_text(key)) json.boolean(key);
    json.reject_unread(unused_keys);
}

LoraConfig read_lora_config(const JsonFile& json) {
    const std::string type = json.text("peft_type");  // first: other types have no r
    if (type != "LORA") json.reject_value("peft_type", type, "LORA");
    LoraConfig config;
    config.r = json.size("r");
    config.lora_alpha = static_cast<Real>(json.number("lora_alpha"));
    config.use_rslora = json.has("use_rslora") && json.boolean("use_rslora");
    config.target_modules.clear();
    for (const std::vector<std::string>& module : json.text_lists("target_modules")) {
        if (module.size() != 1) json.reject("target_modules", "is not a list of names");
        config.target_modules.push_back(module[0]);
    }
    reject_other_adapters(json);
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
    const std::string file = folder + "/adapter_model.safetensors";
    if (!is_file(file) && is_file(folder + "/adapter_model.bin"))
        throw FileError(folder +
                        "/adapter_model.bin is not supported; supported: "
                        "adapter_model.safetensors");
    const SafeTensors tensors(file);
    for (auto& [name, lora_A, lora_B] : adapter.layers) {
        const std::string prefix = "base_model.model." + name;
        lora_A = tensors.read<2>(prefix + ".lora_A.weight", {lora_A.shape(0), lora_A.shape(1)});
        lora_B = tensors.read<2>(prefix + ".lora_B.weight", {lora_B.shape(0), lora_B.shape(1)});
    }
    if (const auto unread = tensors.unread(); !unread.empty())
        throw FileError(file + ": the adapter has a tensor " + unread.front() +
                        ", which its settings do not describe");
    return adapter;
}

}  // namespace llm::models
