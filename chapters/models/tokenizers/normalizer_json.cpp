#include "chapters/models/tokenizers/normalizer_json.hpp"

#include "chapters/models/tokenizers/precompiled_charsmap.hpp"
#include "chapters/models/tokenizers/wordpiece_json.hpp"
#include "common/files/regex.hpp"
#include "common/files/unicode.hpp"
#include "common/files/unicode_properties.hpp"

namespace llm::models {
namespace {

// Removes all marks, also those that take space of their own. Source: Hugging Face tokenizers,
// normalizers/strip.rs.
std::string without_marks(const std::string& text) {
    std::string result;
    for (const std::string& character : characters(text))
        if (!general_category(character).starts_with('M')) result += character;
    return result;
}

Normalizer read_replace(const JsonFile& json) try {
    const std::string content = json.text("content");
    if (!json.has("pattern.Regex"))
        return replace_normalizer(read_pattern(json, "String"), content);
    return {"Replace",
            [pattern = Pattern(read_pattern(json, "Regex")), content](const std::string& text) {
                return pattern.replace_all(text, content);
            }};
} catch (const TextError& error) {
    json.reject(std::string("pattern.Regex: ") + error.what());
}

// Removes white space at the ends of a text.
Normalizer read_strip(const JsonFile& json) {
    const bool left = json.boolean("strip_left"), right = json.boolean("strip_right");
    return {"Strip", [left, right](const std::string& text) {
                const std::size_t begin = left ? white_space_end(text, 0) : 0;
                const std::size_t end =
                    right ? white_space_begin(text, text.size()) : text.size();
                return begin < end ? text.substr(begin, end - begin) : "";
            }};
}

Normalizer read_precompiled(const JsonFile& json) try {
    return {"Precompiled",
            read_precompiled_charsmap(base64_decoded(json.text("precompiled_charsmap")))};
} catch (const TextError& error) {
    json.reject(std::string("precompiled_charsmap: ") + error.what());
}

}  // namespace

std::string read_pattern(const JsonFile& json, const std::string& kind) {
    if (!json.has("pattern." + kind))
        json.reject("a pattern that is no " + kind + " is not supported");
    const std::string text = json.text("pattern." + kind);
    if (text.empty()) json.reject("pattern." + kind, "must not be empty");
    return text;
}

Normalizer read_normalizer(const JsonFile& json) {
    const std::string type = json.text("type");
    if (type == "NFC") return nfc_normalizer();
    if (type == "NFD") return {type, decomposed};
    if (type == "NFKD") return {type, compatibility_decomposed};
    if (type == "StripAccents") return {type, without_marks};
    if (type == "Lowercase") return {type, lower_case};
    if (type == "BertNormalizer") return read_bert_normalizer(json);
    if (type == "Prepend") return prepend_normalizer(json.text("prepend"));
    if (type == "Replace") return read_replace(json);
    if (type == "Strip") return read_strip(json);
    if (type == "Precompiled") return read_precompiled(json);
    json.reject("type", type + " is not supported");
}

}  // namespace llm::models
