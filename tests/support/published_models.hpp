// What the tests of published models share: config.json files of one size, and the messages
// with which files are rejected.
#pragma once

#include "chapters/models/family_checkpoint.hpp"
#include "chapters/models/family_gguf.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"
#include "tests/support/small_sizes.hpp"

namespace llm {

// A model of each family, and of Phi-3 a second one.
inline const std::vector<std::string> family_fixtures = {"models/gpt2",
                                                         "models/cohere2",
                                                         "models/gemma",
                                                         "models/smollm3",
                                                         "models/granite",
                                                         "models/olmo2",
                                                         "models/phi3",
                                                         "models/phi3_longrope",
                                                         "18_experts/mixtral",
                                                         "18_experts/qwen3_moe",
                                                         "18_experts/gpt_oss",
                                                         "18_experts/llama4_text",
                                                         "17_long_context/mistral",
                                                         "17_long_context/gemma2",
                                                         "17_long_context/gemma3_text",
                                                         "19_latent_attention/deepseek_v2",
                                                         "19_latent_attention/deepseek_v3",
                                                         "20_linear_attention/qwen3_next"};

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
