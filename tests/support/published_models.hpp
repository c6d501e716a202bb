// What the tests of published models share: config.json files of one size, and the messages
// with which files are rejected.
#pragma once

#include <algorithm>
#include <functional>

#include "chapters/models/family_checkpoint.hpp"
#include "chapters/models/family_gguf.hpp"
#include "chapters/models/family_keys.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"
#include "tests/support/small_sizes.hpp"

namespace llm {

// The models of tests/fixtures with logits and a greedy text of PyTorch: "models/gpt2". At
// least one of each family; families that write to the same folder are not listed anywhere
// else.
inline std::vector<std::string> family_fixtures() {
    std::vector<std::string> names;
    for (const std::string chapter : {"17_long_context", "18_experts", "19_latent_attention",
                                      "20_linear_attention", "models"})
        for (const auto& entry : fs::directory_iterator(fixture_path(chapter))) {
            const std::string name = chapter + "/" + entry.path().filename().string();
            if (fs::exists(entry.path() / "config.json") &&
                fs::exists(fixture_file(name + "_greedy")))
                names.push_back(name);
        }
    std::sort(names.begin(), names.end());
    return names;
}

// The settings of attention of layer n, and of the first mixture of experts.
inline models::AttentionConfig& attention(models::FamilyConfig& config, std::size_t n) {
    return std::get<models::AttentionConfig>(config.layers[n].mixer);
}
inline const models::AttentionConfig& attention(const models::FamilyConfig& config,
                                                std::size_t n = 0) {
    return std::get<models::AttentionConfig>(config.layers[n].mixer);
}
inline const models::MoeConfig& moe(const models::FamilyConfig& config) {
    const models::MoeConfig* const found = models::first_moe(config);
    REQUIRE(found);
    return *found;
}
// The scaling of the layers' RoPE; null if it is of another type.
template <class Scaling>
Scaling* scaling_of(models::FamilyConfig& config, std::size_t n = 0) {
    return std::get_if<Scaling>(&models::rope_of(config.layers[n])->scaling);
}
template <class Scaling>
const Scaling* scaling_of(const models::FamilyConfig& config, std::size_t n = 0) {
    return std::get_if<Scaling>(&models::rope_of(config.layers[n])->scaling);
}
// Changes the settings of this kind in all layers that have it.
template <class Kind>
void change_each(models::FamilyConfig& config, const std::function<void(Kind&)>& change) {
    const auto change_if_so = [&](auto& part) {
        if constexpr (std::same_as<std::remove_cvref_t<decltype(part)>, Kind>) change(part);
    };
    for (models::LayerConfig& layer : config.layers) {
        std::visit(change_if_so, layer.mixer);
        std::visit(change_if_so, layer.mlp);
    }
}

inline JsonFile config_json(const Scratch& scratch, const std::string& type,
                            const std::string& members) {
    overwrite(scratch.folder / "config.json",
              R"({"model_type": ")" + type + "\", " + small_sizes +
                  R"(, "num_hidden_layers": 8, "max_position_embeddings": 64)" +
                  (members.empty() ? "" : ", ") + members + "}");
    return JsonFile(scratch.folder / "config.json");
}

inline models::FamilyConfig read(const std::string& type, const std::string& members) {
    const Scratch scratch;
    return models::read_family_config(config_json(scratch, type, members));
}

// The message, without the path of the file and the advice to --ignore the setting.
inline std::string rejection_of(const std::string& type, const std::string& members) {
    try {
        read(type, members);
    } catch (const FileError& error) {
        const std::string message = error.what();
        const std::size_t begin = message.find(": ") + 2;
        return message.substr(begin, message.find(" (--ignore ") - begin);
    }
    return "not rejected";
}

inline Tokenizer shipped_tokenizer() {
    return models::load_tokenizer(asset("king_james/tokenizer.json"));
}

// A model of tests/fixtures with the vocabulary of the shipped tokenizer.
inline models::FamilyModel dense_model(const std::string& type) {
    models::FamilyModel model = models::load_family_model(fixture_path("models/" + type));
    Generator generator(3);
    model.config.vocab_size = 1024;
    const std::size_t width = model.config.hidden_size;
    model.embed_tokens = randn({1024, width}, generator);
    if (model.lm_head) model.lm_head = randn({1024, width}, generator);
    return model;
}

inline std::string rejection_of_gguf(const models::FamilyModel& model) {
    const Scratch scratch;
    try {
        models::export_gguf(model, shipped_tokenizer(),
                            (scratch.folder / "model.gguf").string());
    } catch (const ValueError& error) {
        return error.what();
    }
    return "not rejected";
}

inline IdMatrix fixture_ids(const std::string& name) { return load_ids<2>(fixture_file(name)); }

}  // namespace llm
