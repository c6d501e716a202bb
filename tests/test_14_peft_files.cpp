// Adapters in PEFT's files.
#include "chapters/models/chat/peft_files.hpp"
#include "tests/training.hpp"

using namespace llm;

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
    CHECK_THROWS_AS(save_adapter(adapter, scratch.folder), FileError);
}

TEST_CASE("Adapters of other kinds are rejected by name") {
    const Model model = fixture_model();
    const std::vector<std::array<std::string, 3>> edits{
        {"\"LORA\"", "\"IA3\"", "peft_type"},
        {"\"use_dora\": false", "\"use_dora\": true", "use_dora"},
        {"\"use_dora\": false", "\"modules_to_save\": [\"lm_head\"]", "modules_to_save"},
        {"\"use_dora\": false", "\"rank_pattern\": {\"q_proj\": 4}", "rank_pattern"},
        {"\"none\"", "\"all\"", "bias"},
        {"\"o_proj\"", "\"c_attn\"", "c_attn"},
        {"\"r\": 3", "\"r\": 4", "lora_A.weight"}};
    for (const auto& [old_text, new_text, named_part] : edits) {
        const Scratch scratch;
        saved_adapter(model, scratch.folder);
        edit(scratch.folder / "adapter_config.json", old_text, new_text);
        mentions(adapter_rejection(scratch.folder, model), named_part);
    }
}
