#include "chapters/apps/chat/chat_model.hpp"

#include "chapters/16_quantization/quantized_model.hpp"
#include "chapters/models/chat/chat_formats.hpp"
#include "chapters/models/chat/chat_templates.hpp"
#include "chapters/models/chat/peft_files.hpp"
#include "chapters/models/gguf/quantized_gguf.hpp"
#include "chapters/models/load.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/gguf.hpp"

namespace llm::chat {
using namespace models;

namespace {

FastModel load_fast_model(const ChatModelFiles& files) {
    const std::string& path = files.model_path;
    const DType dtype = files.dtype.value_or(DType::float32);
    if (files.adapter_path.empty()) {
        if (is_gguf(path) && !files.dtype && !family_of(path))
            return load_quantized_model(path);
        return quantize_model(load_for_fast_path(path), dtype);
    }
    if (is_gguf(path))
        throw FileError(path +
                        ": --adapter needs a model folder; the weights of a GGUF file "
                        "may be quantized, and an adapter cannot be merged into them");
    const Model model = load_for_fast_path(path);
    return quantize_model(merge_lora(model, load_adapter(files.adapter_path, model)), dtype);
}

FamilyModel load_without_fast_path(const ChatModelFiles& files) {
    const std::string& folder = files.model_path;
    const std::string path = folder + (is_gguf(folder) ? "" : "/config.json");
    const std::string type = "model_type " + family_of(folder)->model_type;
    if (!files.adapter_path.empty())
        throw FileError(path + ": --adapter is not supported for " + type);
    if (files.dtype.value_or(DType::float32) != DType::float32)
        throw FileError(path + ": --dtype " + std::string(to_text(*files.dtype)) +
                        " is not supported for " + type + "; supported: float32");
    return std::get<FamilyModel>(load_any_model(folder));
}

std::optional<ChatTemplate> load_chat_template(const ChatModelFiles& files) try {
    if (files.template_name == "none") return {};
    if (!files.template_name.empty()) return chat_template_named(files.template_name);
    if (!files.adapter_path.empty())
        if (const auto found = find_chat_template(files.adapter_path)) return found;
    return find_chat_template(files.model_path);
} catch (const FileError& error) {
    throw FileError(std::string(error.what()) + "; --template chooses one of them, or none");
}

}  // namespace

ChatModel load_chat_model(const ChatModelFiles& files) {
    const std::optional<ChatTemplate> chat_template = load_chat_template(files);
    InferenceModel model = has_fast_path(files.model_path)
                               ? InferenceModel(load_fast_model(files))
                               : load_without_fast_path(files);
    Tokenizer tokenizer = load_tokenizer_of_model(files.model_path, files.tokenizer_path,
                                                  config_of(model).vocab_size);
    std::vector<Id> eos_token_ids = tokenizer.eos_token_ids;
    if (chat_template)
        eos_token_ids.push_back(end_of_turn_id(*chat_template->format, tokenizer));
    return {std::move(model), std::move(tokenizer), chat_template, eos_token_ids,
            read_bad_words(files.adapter_path.empty() ? files.model_path : files.adapter_path)};
}

}  // namespace llm::chat
