#include "chapters/14_fine_tuning/chat_template.hpp"

#include <array>

namespace llm {
namespace {

struct FormatNames {
    ChatFormat format;
    std::string title, name;
    std::vector<std::string> special_tokens;  // the first one ends a message
};
const std::array formats = {
    FormatNames{ChatFormat::chatml, "ChatML", "chatml", {"<|im_end|>", "<|im_start|>"}},
    FormatNames{ChatFormat::llama3,
                "Llama 3",
                "llama3",
                {"<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"}},
    FormatNames{ChatFormat::gemma, "Gemma", "gemma", {"<end_of_turn>", "<start_of_turn>"}},
    FormatNames{ChatFormat::gemma3, "Gemma 3", "gemma3", {"<end_of_turn>", "<start_of_turn>"}},
    FormatNames{ChatFormat::qwen3, "Qwen3", "qwen3", {"<|im_end|>", "<|im_start|>"}}};

const FormatNames& names_of(ChatFormat format) {
    for (const FormatNames& names : formats)
        if (names.format == format) return names;
    throw std::logic_error("a format without names");
}

}  // namespace

std::string to_text(ChatFormat format) { return names_of(format).title; }

std::vector<std::string> chat_template_names() {
    std::vector<std::string> names;
    for (const FormatNames& format : formats) names.push_back(format.name);
    return names;
}

ChatTemplate chat_template_named(const std::string& name) {
    for (const FormatNames& format : formats)
        if (format.name == name) return {format.format, "", false, false};
    throw ValueError("there is no chat template " + name);
}

Id end_of_turn_id(ChatFormat format, const Tokenizer& tokenizer) {
    const FormatNames& names = names_of(format);
    const auto id_of = [&](const std::string& token) -> Id {
        for (const auto* added : {&tokenizer.added_tokens, &tokenizer.normalized_added_tokens})
            for (const AddedToken& one : *added)
                if (one.content == token) return one.id;
        require(false, "the tokenizer has no special token {}, which the format {} needs",
                token, names.title);
        return -1;
    };
    for (const std::string& token : names.special_tokens) id_of(token);
    return id_of(names.special_tokens[0]);
}

std::string bos_token_text(const Tokenizer& tokenizer) {
    const std::vector<Id>& prefix = tokenizer.prefix_tokens;
    const std::optional<Id> bos = prefix.empty() ? tokenizer.bos_token_id : prefix.front();
    for (const auto* added : {&tokenizer.added_tokens, &tokenizer.normalized_added_tokens})
        for (const AddedToken& token : *added)
            if (token.id == bos) return token.content;
    return "";
}

}  // namespace llm
