// The options of ./learn chat and ./learn serve that choose a model. (In a header, since only
// programs have options: tests are built without them.)
#pragma once

#include <array>

#include "chapters/apps/chat/chat_model.hpp"
#include "chapters/models/chat/chat_formats.hpp"
#include "chapters/models/llama/model_path_option.hpp"
#include "common/files/mapped_file.hpp"
#include "common/system/options.hpp"

namespace llm::chat {

inline constexpr std::array dtypes_of_weights = {DType::float32, DType::bfloat16, DType::q8_0,
                                                 DType::q4_0};
inline constexpr std::array dtypes_of_cache = {DType::float32, DType::float16};

inline std::vector<std::string> names_of(std::span<const DType> dtypes) {
    std::vector<std::string> names;
    for (const DType dtype : dtypes) names.emplace_back(to_text(dtype));
    return names;
}

struct ModelOptions {
    ChatModelFiles files{};
    std::string dtype = "float32", cache_dtype = "float32";
};

inline void add_model_options(Options& options, ModelOptions& model) {
    models::add_model_path(options, model.files.model_path,
                           "a Hugging Face folder, a GGUF file or a llama2.c file");
    options.path("--tokenizer", model.files.tokenizer_path,
                 "its tokenizer, if it is neither beside nor in the model");
    options.needs("--tokenizer", "--model");
    options.path("--adapter", model.files.adapter_path,
                 "a LoRA adapter in PEFT's format, which is merged into the weights");
    std::vector<std::string> templates = models::chat_template_names();
    templates.emplace_back("none");
    options.choice("--template", model.files.template_name, templates,
                   "the chat template, instead of the model's own; none: continue texts");
    options.choice("--dtype", model.dtype, names_of(dtypes_of_weights),
                   "the type of the weights in memory; of a GGUF file only if it is given");
    options.choice("--cache-dtype", model.cache_dtype, names_of(dtypes_of_cache),
                   "the type of the KV cache");
}

// Without --model and --adapter: the shipped model, which calls a calculator.
inline bool is_shipped_model(const ModelOptions& model) {
    return model.files.model_path.empty() && model.files.adapter_path.empty();
}

// The files that the command line names, or those of the shipped model; an adapter alone is one
// for its base model. After the options have been parsed.
inline ChatModelFiles chosen_files(const Options& options, const ModelOptions& model) {
    ChatModelFiles files = model.files;
    if (options.given("--dtype")) files.dtype = dtype_named(model.dtype);
    if (!files.model_path.empty()) return files;
    files.model_path = asset(is_shipped_model(model) ? "wordnet_calculator" : "wordnet");
    return files;
}

}  // namespace llm::chat
