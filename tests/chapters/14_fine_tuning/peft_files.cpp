// Adapters in PEFT's files.
#include "chapters/models/chat/peft_files.hpp"
#include "tests/support/training.hpp"

using namespace llm;
using namespace llm::models;

namespace {

LoraAdapter saved_adapter(const Model& model, const fs::path& folder) {
    LoraConfig config;
    config.r = 3;
    config.use_rslora = true;
    config.target_modules = {"o_proj", "gate_proj"};
    Generator generator(2);
    LoraAdapter adapter = make_lora(model, config, generator);
    for (LoraLayer& layer : adapter.layers) layer.lora_B.fill(Real(0.25));
    save_adapter(adapter, folder);
    return adapter;
}

std::string adapter_rejection(const fs::path& folder, const Model& model) try {
    load_adapter(folder, model);
    return "it was loaded";
} catch (const FileError& error) {
    const std::string line = error.what();
    CHECK(line.find('\n') == line.npos);
    CHECK(mentions(line, folder.string()));
    return line;
}

}  // namespace

TEST_CASE("An adapter that is saved and loaded is the same") {
    const Model model = fixture_model();
    const Scratch scratch;
    LoraAdapter saved = saved_adapter(model, scratch.folder / "adapter");
    LoraAdapter loaded = load_adapter(scratch.folder / "adapter", model);
    CHECK(loaded.config.target_modules == saved.config.target_modules);
    CHECK(loaded.config.scaling() == saved.config.scaling());
    CHECK_CLOSE(all_values(named_parameters(loaded)), all_values(named_parameters(saved)), 0);
}

TEST_CASE("adapter_model.safetensors has the keys that PEFT documents") {
    const Model model = fixture_model();
    const Scratch scratch;
    saved_adapter(model, scratch.folder / "adapter");
    const std::string file = content(scratch.folder / "adapter" / "adapter_model.safetensors");
    CHECK(mentions(file, "\"base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight\""));
    CHECK(mentions(file, "\"base_model.model.model.layers.0.mlp.gate_proj.lora_B.weight\""));
}

TEST_CASE("save_adapter does not overwrite an adapter") {
    const Model model = fixture_model();
    const Scratch scratch;
    const LoraAdapter adapter = saved_adapter(model, scratch.folder);
    for (const std::string name : {"adapter_config.json", "adapter_model.safetensors"}) {
        CHECK_THROWS_WITH_AS(
            save_adapter(adapter, scratch.folder),
            ((scratch.folder / name).string() + ": it exists, and is not overwritten").c_str(),
            FileError);
        fs::remove(scratch.folder / name);
    }
    save_adapter(adapter, scratch.folder);
    save_adapter(adapter, scratch.folder, Existing::replace);
    CHECK(load_adapter(scratch.folder, model).layers.size() == adapter.layers.size());
}

TEST_CASE("Adapters of other kinds are rejected by name") {
    const Model model = fixture_model();
    const std::string off = "\"use_dora\": false";
    const std::vector<std::array<std::string, 3>> edits{
        {"\"LORA\"", "\"IA3\"", "peft_type IA3 is not supported; supported: LORA"},
        {"\"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  \"r\": 3,", "\"IA3\",",
         "peft_type IA3 is not supported; supported: LORA"},
        {off, "\"use_dora\": true", "use_dora true is not supported: nothing reads it"},
        {off, "\"modules_to_save\": [\"lm_head\"]", "modules_to_save a list is not supported"},
        {off, "\"rank_pattern\": {\"q_proj\": 4}", "rank_pattern an object is not supported"},
        {off, "\"alpha_pattern\": {\"q_proj\": 2.5}", "alpha_pattern an object is not"},
        {off, "\"layer_replication\": [[0, 1]]", "layer_replication a list is not"},
        {"\"fan_in_fan_out\": false", "\"fan_in_fan_out\": true",
         "fan_in_fan_out true is not supported"},
        {off, "\"trainable_token_indices\": [3]", "trainable_token_indices a list is not"},
        {off, "\"layers_to_transform\": 3", "layers_to_transform 3 is not supported"},
        {off, "\"use_qalora\": true", "use_qalora true is not supported"},
        {off, "\"init_lora_weights\": \"pissa\"",
         "init_lora_weights pissa is not supported; supported: true, false, gaussian"},
        {off, "\"init_lora_weights\": \"olora\"", "init_lora_weights olora is not"},
        {off, "\"init_lora_weights\": 1", "init_lora_weights must be true or false"},
        {"\"none\"", "\"all\"", "bias all is not supported; supported: none"},
        {"\"o_proj\"", "\"c_attn\"", "c_attn"},
        {"\"r\": 3", "\"r\": 4", "lora_A.weight"}};
    for (const auto& [old_text, new_text, named_part] : edits) {
        const Scratch scratch;
        saved_adapter(model, scratch.folder);
        edit(scratch.folder / "adapter_config.json", old_text, new_text);
        mentions(adapter_rejection(scratch.folder, model), named_part);
    }
}

TEST_CASE("What PEFT writes besides, and settings that are off, load") {
    const Model model = fixture_model();
    for (const std::string setting :
         {"\"peft_version\": \"0.17.1\"", "\"init_lora_weights\": true",
          "\"init_lora_weights\": \"gaussian\"", "\"alpha_pattern\": {}",
          "\"trainable_token_indices\": null", "\"megatron_core\": \"megatron.core\"",
          "\"some_new_kind\": false"}) {
        const Scratch scratch;
        saved_adapter(model, scratch.folder);
        edit(scratch.folder / "adapter_config.json", "\"use_dora\": false", setting);
        CHECK(adapter_rejection(scratch.folder, model) == "it was loaded");
    }
}

TEST_CASE("A tensor of an adapter that nothing reads, and a pickle, are rejected by name") {
    const Model model = fixture_model();
    const Scratch scratch;
    const LoraAdapter adapter = saved_adapter(model, scratch.folder);
    const fs::path file = scratch.folder / "adapter_model.safetensors";
    std::vector<NamedTensor> tensors;
    for (const auto& [name, lora_A, lora_B] : adapter.layers) {
        tensors.push_back(named("base_model.model." + name + ".lora_A.weight", lora_A));
        tensors.push_back(named("base_model.model." + name + ".lora_B.weight", lora_B));
    }
    const Matrix other = xt::ones<Real>({2, 2});
    for (const std::string name : {"lm_head.weight", "model.embed_tokens.lora_embedding_A",
                                   "model.layers.0.self_attn.o_proj.lora_magnitude_vector"}) {
        tensors.push_back(named("base_model.model." + name, other));
        write_safetensors(file, tensors);
        mentions(adapter_rejection(scratch.folder, model),
                 "the adapter has a tensor base_model.model." + name +
                     ", which its settings "
                     "do not describe");
        tensors.pop_back();
    }
    fs::rename(file, scratch.folder / "adapter_model.bin");
    mentions(adapter_rejection(scratch.folder, model), "adapter_model.bin is not supported");
}
