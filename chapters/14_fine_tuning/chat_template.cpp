#include "chapters/14_fine_tuning/chat_template.hpp"

#include <algorithm>
#include <array>

#include "common/files/unicode.hpp"

namespace llm {
namespace {

void check_messages(const ChatFormat& format, const std::vector<Message>& messages,
                    const RenderOptions& options) {
    require(!messages.empty(), "a conversation needs a message");
    require(format.has_tools || options.tools.empty(),
            "tools are not implemented for the chat template {}", format.title);
    static const std::array roles = {"system", "user", "assistant", "tool"};
    for (const Message& message : messages) {
        const std::string& role = message.role;
        require(std::find(roles.begin(), roles.end(), role) != roles.end(),
                "a message has the role system, user, assistant or tool, not '{}'", role);
        require(format.has_tools || (role != "tool" && message.tool_calls.empty()),
                "tool calls are not implemented for the chat template {}", format.title);
    }
}

}  // namespace

Rendering& Rendering::literal(const std::string& text) {
    if (!text.empty()) parts.push_back({text, true});
    return *this;
}
Rendering& Rendering::content(const std::string& text) {
    if (!text.empty()) parts.push_back({text, false});
    return *this;
}

std::vector<RenderedPart> render_conversation(const ChatTemplate& chat_template,
                                              const std::vector<Message>& messages,
                                              const RenderOptions& options) {
    check_messages(*chat_template.format, messages, options);
    Rendering out;
    chat_template.format->render(chat_template, messages, options, out);
    return out.parts;
}

std::string rendered_text(const std::vector<RenderedPart>& parts) {
    std::string text;
    for (const RenderedPart& part : parts) text += part.text;
    return text;
}

Id end_of_turn_id(const ChatFormat& format, const Tokenizer& tokenizer) {
    const auto id_of = [&](const std::string& token) -> Id {
        for (const auto* added : {&tokenizer.added_tokens, &tokenizer.normalized_added_tokens})
            for (const AddedToken& one : *added)
                if (one.content == token) return one.id;
        require(false, "the tokenizer has no special token {}, which the format {} needs",
                token, format.title);
        return -1;
    };
    for (const std::string& token : format.special_tokens) id_of(token);
    return id_of(format.special_tokens[0]);
}

std::string bos_token_text(const Tokenizer& tokenizer) {
    const std::vector<Id>& prefix = tokenizer.prefix_tokens;
    const std::optional<Id> bos = prefix.empty() ? tokenizer.bos_token_id : prefix.front();
    for (const auto* added : {&tokenizer.added_tokens, &tokenizer.normalized_added_tokens})
        for (const AddedToken& token : *added)
            if (token.id == bos) return token.content;
    return "";
}

namespace {

// The added tokens of a tokenizer: those that are recognized only where the template writes
// them, and those that are recognized in messages, too.
struct AddedTokensByPlace {
    std::vector<AddedToken> in_template, everywhere;
};

// Other added tokens than special ones, such as "\n\n" and "<table>" in Gemma, are ordinary
// text: they are recognized in messages, too, unless the template writes them.
AddedTokensByPlace added_tokens_by_place(const Tokenizer& tokenizer,
                                         const std::vector<RenderedPart>& parts) {
    const auto template_writes = [&](const AddedToken& token) {
        return std::any_of(parts.begin(), parts.end(), [&](const RenderedPart& part) {
            return part.from_template && part.text.find(token.content) != std::string::npos;
        });
    };
    const auto is_special = [&](const AddedToken& token) {
        const bool is_white_space = white_space_end(token.content, 0) == token.content.size();
        return tokenizer.all_special_ids.contains(token.id) ||
               (!is_white_space && template_writes(token));
    };
    AddedTokensByPlace result;
    for (const auto* tokens : {&tokenizer.added_tokens, &tokenizer.normalized_added_tokens})
        for (const AddedToken& token : *tokens)
            (is_special(token) ? result.in_template : result.everywhere).push_back(token);
    return result;
}

// Splits the template's own parts at special tokens. Text between two of them is one segment,
// as in tokenizer.encode: "user\n" and the message are split into words together.
std::vector<Segment> split_at_special_tokens(const std::vector<AddedToken>& special_tokens,
                                             const std::vector<RenderedPart>& parts) {
    std::vector<Segment> segments;
    const auto append = [&](const std::string& text) {
        if (segments.empty() || segments.back().id) segments.push_back({""});
        segments.back().text += text;
    };
    for (const RenderedPart& part : parts) {
        if (!part.from_template) {
            append(part.text);
            continue;
        }
        for (const Segment& segment : split_at_added_tokens(special_tokens, part.text))
            if (segment.id)
                segments.push_back(segment);
            else
                append(segment.text);
    }
    return segments;
}

// Encodes text between special tokens, in which none is recognized, and appends its ids.
void append_ids_of_text(const Tokenizer& tokenizer, const std::vector<AddedToken>& added_tokens,
                        const std::string& text, bool at_start, std::vector<Id>& ids) {
    check_utf8(text);
    for (const Segment& part : split_at_added_tokens(added_tokens, text)) {
        if (part.id) {
            ids.push_back(*part.id);
        } else {
            for (const std::string& word :
                 tokenizer.pre_tokenize(tokenizer.normalize(part.text), at_start))
                for (const Id id : tokenizer.encode_word(word)) ids.push_back(id);
        }
        at_start = false;
    }
}

}  // namespace

std::vector<Id> encode_conversation(const Tokenizer& tokenizer,
                                    const std::vector<RenderedPart>& parts) {
    const AddedTokensByPlace added = added_tokens_by_place(tokenizer, parts);
    const std::vector<Segment> segments = split_at_special_tokens(added.in_template, parts);
    std::vector<Id> ids;
    for (std::size_t i = 0; i < segments.size(); ++i)
        if (segments[i].id)
            ids.push_back(*segments[i].id);
        else
            append_ids_of_text(tokenizer, added.everywhere, segments[i].text, i == 0, ids);
    return ids;
}

}  // namespace llm
