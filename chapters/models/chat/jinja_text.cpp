#include "chapters/models/chat/jinja_text.hpp"

#include <algorithm>

#include "common/numbers/hash.hpp"

namespace llm::models {
namespace {

constexpr const char* white_space = " \t\n\r\f\v";

// A tag: {{ expression }}, {% statement %} or {# comment #}.
struct Tag {
    std::size_t open, next;        // its position, and the one after it
    std::size_t begin, end;        // of its content, without {{, {%, {#, - and +
    char kind;                     // '{', '%' or '#', or '\0' at the end of the source
    char left = ' ', right = ' ';  // the sign at either side: '-', '+' or none
};

bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_';
}

bool is_name(const std::string& text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), is_word) &&
           !(text[0] >= '0' && text[0] <= '9');
}

// The position after a quoted string that begins at a position.
std::size_t end_of_string(const std::string& source, std::size_t position) {
    const char quote = source[position++];
    while (position < source.size() && source[position] != quote)
        position += source[position] == '\\' ? 2 : 1;
    return std::min(position + 1, source.size());
}

// The first tag at or after a position; at the end of the source if there is none.
Tag find_tag(const std::string& source, std::size_t position) {
    const std::size_t size = source.size();
    const std::size_t open = std::min({source.find("{{", position), source.find("{%", position),
                                       source.find("{#", position), size});
    if (open == size) return {size, size, size, size, '\0'};

    // Find the end of the tag, which is not inside of a string.
    Tag tag{open, size, open + 2, size, source[open + 1]};
    const std::string close = {tag.kind == '{' ? '}' : tag.kind, '}'};
    std::size_t end = tag.begin;
    while (end < size && source.compare(end, 2, close) != 0) {
        const bool quoted = tag.kind != '#' && (source[end] == '\'' || source[end] == '"');
        end = quoted ? end_of_string(source, end) : end + 1;
    }
    tag.end = std::min(end, size);
    tag.next = std::min(end + 2, size);

    // Read the signs that control white space.
    if (tag.begin < tag.end && (source[tag.begin] == '-' || source[tag.begin] == '+'))
        tag.left = source[tag.begin++];
    if (tag.begin < tag.end && (source[tag.end - 1] == '-' || source[tag.end - 1] == '+'))
        tag.right = source[--tag.end];
    return tag;
}

// The characters that a string in Jinja's source stands for.
std::string unescaped(const std::string& quoted) {
    std::string text;
    for (std::size_t i = 1; i + 1 < quoted.size(); ++i) {
        if (quoted[i] != '\\' || i + 2 >= quoted.size()) {
            text += quoted[i];
            continue;
        }
        const char c = quoted[++i];
        if (c != 'n' && c != 't' && c != 'r' && c != '\\' && c != '\'' && c != '"')
            text += '\\';
        text += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
    }
    return text;
}

// A literal begins with a character that no other token has.
std::string literal(const std::string& text) { return '"' + text; }

// Appends the tokens of the content of a tag: literals, words, and other characters.
void append_content(const std::string& source, const Tag& tag,
                    std::vector<std::string>& tokens) {
    for (std::size_t i = tag.begin; i < tag.end;) {
        std::size_t end = i + 1;
        if (source[i] == '\'' || source[i] == '"') {
            end = end_of_string(source, i);
            tokens.push_back(literal(unescaped(source.substr(i, end - i))));
        } else if (is_word(source[i])) {
            while (end < tag.end && is_word(source[end])) ++end;
            tokens.push_back(source.substr(i, end - i));
        } else if (std::string(white_space).find(source[i]) == std::string::npos) {
            tokens.emplace_back(1, source[i]);
        }
        i = end;

        // Write x['name'] as x.name.
        const std::size_t count = tokens.size();
        if (count >= 4 && tokens[count - 1] == "]" && tokens[count - 3] == "[" &&
            tokens[count - 2][0] == '"' && is_name(tokens[count - 2].substr(1)) &&
            (is_word(tokens[count - 4].back()) || tokens[count - 4] == "]")) {
            const std::string name = tokens[count - 2].substr(1);
            tokens.resize(count - 3);
            tokens.insert(tokens.end(), {".", name});
        }
    }
}

// The text between two tags, of which Jinja prints what remains.
std::string printed_text(std::string text, const Tag& before, const Tag& after,
                         bool at_line_start) {
    // A statement or comment removes the line feed after it; a "-" all white space.
    if (before.right == '-')
        text.erase(0, std::min(text.find_first_not_of(white_space), text.size()));
    else if ((before.kind == '%' || before.kind == '#') && before.right != '+' &&
             text.starts_with('\n')) {
        text.erase(0, 1);
        at_line_start = true;
    }

    // It removes the spaces before it if they begin a line; a "-" all white space.
    const std::size_t last = text.find_last_not_of(after.left == '-' ? white_space : " \t") + 1;
    const bool begins_line = last == 0 ? at_line_start : text[last - 1] == '\n';
    const bool statement = after.kind == '%' || after.kind == '#';
    if (after.left == '-' || (statement && after.left != '+' && begins_line)) text.resize(last);
    return text;
}

std::string with_line_feeds(std::string text) {
    for (std::size_t at = 0; (at = text.find("\r\n", at)) != text.npos;) text.erase(at, 1);
    if (text.ends_with('\n')) text.pop_back();  // Jinja: keep_trailing_newline is off
    return text;
}

}  // namespace

std::vector<std::string> jinja_tokens(const std::string& text) {
    const std::string source = with_line_feeds(text);
    std::vector<std::string> tokens;
    Tag before{0, 0, 0, 0, '\0'};
    while (before.next < source.size()) {
        const Tag tag = find_tag(source, before.next);
        const std::string printed = printed_text(
            source.substr(before.next, tag.open - before.next), before, tag, before.next == 0);
        if (!printed.empty()) tokens.insert(tokens.end(), {"{{", literal(printed), "}}"});
        if (tag.kind == '{' || tag.kind == '%') {
            tokens.push_back(tag.kind == '{' ? "{{" : "{%");
            append_content(source, tag, tokens);
            tokens.push_back(tag.kind == '{' ? "}}" : "%}");
        }
        before = tag;
    }
    return tokens;
}

std::uint64_t fingerprint(const std::vector<std::string>& tokens) {
    std::uint64_t hash = fnv1a("");
    for (const std::string& token :
         tokens)  // with a zero byte, so that "a", "b" and "ab" differ
        hash = fnv1a(std::string_view(token.c_str(), token.size() + 1), hash);
    return hash;
}

}  // namespace llm::models
