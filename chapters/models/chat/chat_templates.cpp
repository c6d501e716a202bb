#include "chapters/models/chat/chat_templates.hpp"

#include <array>

#include "chapters/models/chat/chat_formats.hpp"
#include "chapters/models/chat/jinja_text.hpp"
#include "common/files/gguf.hpp"
#include "common/files/json_file.hpp"
#include "common/files/unicode.hpp"

namespace llm::models {
namespace {

// The fingerprints of published templates. In ChatML with a default system prompt, that prompt
// is replaced by the marker before.
struct KnownTemplate {
    std::uint64_t fingerprint;
    ChatTemplate chat_template;
};
const std::array known_templates = {
    // Hugging Face's documentation, "Chat templates"; TRL's setup_chat_format.
    KnownTemplate{0x5b1d053af44b609e, {&chatml_format}},
    // HuggingFaceTB/SmolLM2-135M-Instruct.
    KnownTemplate{0x5c1af3f15fc6bac6, {&chatml_format}},
    // Qwen/Qwen2.5-0.5B-Instruct.
    KnownTemplate{0x2a6b582301524c38, {&chatml_format, "", true}},
    // meta-llama/Meta-Llama-3-8B-Instruct; as first published.
    KnownTemplate{0x4b856f730b55f8be, {&llama3_format}},
    KnownTemplate{0x02acf117f1f7c458, {&first_llama3_format}},
    // meta-llama/Llama-3.2-1B-Instruct.
    KnownTemplate{0xf9ba8e9a69b05cbc, {&llama32_format}},
    // google/gemma-2-2b-it.
    KnownTemplate{0xe63157eff1a29d3b, {&gemma_format}},
    // google/gemma-3-1b-it, which those with images have, too.
    KnownTemplate{0x1ccc419a0b0fa6cd, {&gemma3_format}},
    // Qwen/Qwen3-0.6B, as first published, and the current one.
    KnownTemplate{0xb7754467ab31ba55, {&qwen3_format, "", true}},
    KnownTemplate{0x3a368a29e6de643c, {&qwen3_format, "", true}}};

// The words before and after the default system prompt in a literal of a ChatML template.
const std::string before_default = "\"<|im_start|>system\n", after_default = "<|im_end|>\n";

// Replaces the default system prompt by a marker, and returns it. Empty if there is none.
std::string take_default_system_prompt(std::vector<std::string>& tokens) {
    for (std::string& token : tokens) {
        if (!token.starts_with(before_default) || !token.ends_with(after_default) ||
            token.size() <= before_default.size() + after_default.size())
            continue;
        const std::string prompt = token.substr(
            before_default.size(), token.size() - before_default.size() - after_default.size());
        token = before_default + "DEFAULT" + after_default;
        return prompt;
    }
    return "";
}

// What an unknown template resembles, for the error message only.
std::string resemblance(const std::string& jinja) {
    static const std::array<std::pair<const char*, const char*>, 8> marks = {
        {{"<|im_start|>", "a variant of ChatML or Qwen3"},
         {"<|start_header_id|>", "a variant of Llama 3, such as 3.1"},
         {"<start_of_turn>", "a variant of Gemma"},
         {"[INST]", "the format of Llama 2 or Mistral"},
         {"<|channel|>", "Harmony, the format of gpt-oss"},
         {"<|assistant|>", "the format of Zephyr, Phi or GLM"},
         {"<｜Assistant｜>", "the format of DeepSeek"},
         {"### Response", "the format of Alpaca"}}};
    for (const auto& [mark, name] : marks)
        if (jinja.find(mark) != jinja.npos) return name;
    return "an unknown format";
}

// Text or, in a list of named templates, the one named "default".
std::optional<std::string> template_in_json(const JsonFile& json) {
    if (!json.has("chat_template")) return {};
    if (!json.is_array("chat_template")) return json.text("chat_template");
    for (const JsonFile& one : json.objects("chat_template"))
        if (one.text("name") == "default") return one.text("template");
    json.reject("chat_template", "has no template named default");
}

}  // namespace

ChatTemplate recognize_chat_template(const std::string& jinja, const std::string& source) {
    std::vector<std::string> tokens = jinja_tokens(jinja);
    const std::string default_system_prompt = take_default_system_prompt(tokens);
    for (const KnownTemplate& known : known_templates) {
        if (known.fingerprint != fingerprint(tokens)) continue;
        ChatTemplate chat_template = known.chat_template;
        chat_template.default_system_prompt = default_system_prompt;
        return chat_template;
    }
    throw FileError(source + ": chat_template is " + resemblance(jinja) +
                    ", not one of the known templates of ChatML, Llama 3, Gemma and Qwen3");
}

std::optional<ChatTemplate> find_chat_template(const std::string& model_path) {
    if (is_gguf(model_path)) {
        const Gguf file(model_path);
        const std::string key = "tokenizer.chat_template";
        if (!file.has(key)) return {};
        return recognize_chat_template(file.text(key), model_path);
    }
    if (const std::string file = model_path + "/chat_template.jinja"; is_file(file))
        return recognize_chat_template(read_text(file), file);
    const std::string file = model_path + "/tokenizer_config.json";
    if (!is_file(file)) return {};
    const std::optional<std::string> jinja = template_in_json(JsonFile(file));
    if (!jinja) return {};
    return recognize_chat_template(*jinja, file);
}

ChatTemplate chat_template_of(const std::string& model, const std::string& adapter) {
    for (const std::string& path : {adapter, model})
        if (!path.empty())
            if (const auto found = find_chat_template(path)) return *found;
    return chat_template_named("chatml");
}

}  // namespace llm::models
