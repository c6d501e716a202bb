#include "chapters/models/llama/unread_settings.hpp"

#include <algorithm>
#include <array>

#include "chapters/models/llama/settings_lists.hpp"
#include "common/output/show.hpp"

namespace llm::models {

SettingsPolicy& settings_policy() {
    static SettingsPolicy policy;
    return policy;
}

void note_once(const JsonFile& json, const std::string& text) {
    static std::set<std::string> printed;
    const std::string line = one_short_line("note: " + json.path().string() + ": " + text);
    if (printed.insert(line).second) note(line);
}

namespace {

// Whether auto_map names a modeling file, not only a configuration or a tokenizer.
bool has_own_code(const JsonFile& json) {
    if (!json.is_object("auto_map")) return false;
    const JsonObject& classes = *json.value("auto_map").as<JsonObject>();
    return std::any_of(classes.begin(), classes.end(), [](const JsonMember& member) {
        return member.key.starts_with("AutoModel");
    });
}

bool is_bookkeeping(const std::string& key) {
    const std::string top = key.substr(0, key.find('.'));
    return top.starts_with('_') || top.ends_with("_token_id") || top.ends_with("_token_ids") ||
           top.ends_with("_token_index") || top.ends_with("_pdrop") ||
           top.find("dropout") != top.npos || bookkeeping_settings.contains(top) ||
           bookkeeping_settings.contains(key);
}

// Whether a setting is the number or the size of parts that a model may lack: 0 is none of
// them.
bool counts_parts(const std::string& name) {
    if (name.starts_with("num_") || name.starts_with("n_")) return true;
    for (const char* end : {"_size", "_rank", "_layers", "_experts", "_dim", "_window"})
        if (name.ends_with(end)) return true;
    return false;
}

bool has_no_effect(const JsonFile& json, const std::string& key, const Json& value) {
    const std::string name = key.substr(key.rfind('.') + 1);
    if (const auto neutral = neutral_values.find(name); neutral != neutral_values.end())
        return value == neutral->second || value.as<std::nullptr_t>();
    const bool empty = value == Json(nullptr) || value == Json(false) || value == Json("") ||
                       value == Json(JsonArray{}) || value == Json(JsonObject{});
    if (empty || (value == Json(0) && counts_parts(name))) return true;
    for (const std::set<std::string>& names : spellings) {
        if (!names.contains(name)) continue;
        const std::string inside = key.substr(0, key.size() - name.size());
        const std::array places = {inside, std::string("rope_parameters.")};
        return std::any_of(names.begin(), names.end(), [&](const std::string& other) {
            return std::any_of(places.begin(), places.end(), [&](const std::string& place) {
                return json.was_read(place + other) && json.has(place + other) &&
                       json.value(place + other) == value;
            });
        });
    }
    return false;
}

}  // namespace

void check_unread_settings(const JsonFile& json) {
    // Without a model_type, a file may be of any model.
    const bool own_code = has_own_code(json) || !json.has("model_type");
    std::string noted;
    for (const auto& [key, value] : json.unread()) {
        const std::string name = key.substr(key.rfind('.') + 1);
        if (is_bookkeeping(key) || has_no_effect(json, key, value)) continue;
        if (own_code || settings_policy().strict || published_settings.contains(name))
            json.reject_unread_value(key, value);
        noted += (noted.empty() ? "" : ", ") + key + " " + shortened(value);
    }
    for (const std::string& text : json.remarks()) note_once(json, text);
    if (!noted.empty()) note_once(json, "ignored: " + noted);
}

}  // namespace llm::models
