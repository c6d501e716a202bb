#include "chapters/apps/serve/api/request_fields.hpp"

#include <algorithm>

#include "chapters/apps/serve/api/api_error.hpp"
#include "common/output/show.hpp"

namespace llm::serve {

RequestFields::RequestFields(const Json& object, std::string inside)
    : object_(object.as<JsonObject>()), inside_(std::move(inside)) {
    if (!object_) throw invalid_request(inside_ + " must be an object", inside_);
}

std::string RequestFields::full_name(const std::string& name) const {
    return inside_.empty() ? name : inside_ + "." + name;
}

const Json* RequestFields::find(const std::string& name) {
    read_.insert(name);
    for (const auto& [key, value] : *object_)
        if (key == name) return value.as<std::nullptr_t>() ? nullptr : &value;
    return nullptr;
}

std::string RequestFields::text(const std::string& name) {
    const Json* value = find(name);
    if (!value) throw invalid_request(full_name(name) + " is required", full_name(name));
    const std::string* text = value->as<std::string>();
    if (!text) throw invalid_request(full_name(name) + " must be a string", full_name(name));
    return *text;
}

bool RequestFields::flag_or(const std::string& name, bool otherwise) {
    const Json* value = find(name);
    if (!value) return otherwise;
    const bool* flag = value->as<bool>();
    if (!flag)
        throw invalid_request(full_name(name) + " must be true or false", full_name(name));
    return *flag;
}

double RequestFields::number_or(const std::string& name, double low, double high,
                                double otherwise) {
    const Json* value = find(name);
    if (!value) return otherwise;
    const std::optional<double> number = value->number();
    if (!number || !(*number >= low && *number <= high))
        throw invalid_request(full_name(name) + " must be a number from " + brief(low) +
                                  " to " + brief(high) + ", not " + brief_json(*value),
                              full_name(name));
    return *number;
}

std::optional<std::int64_t> RequestFields::integer(const std::string& name, std::int64_t low,
                                                   std::int64_t high) {
    const Json* value = find(name);
    if (!value) return {};
    const std::int64_t* integer = value->as<std::int64_t>();
    if (!integer || *integer < low || *integer > high)
        throw invalid_request(full_name(name) + " must be an integer from " +
                                  std::to_string(low) + " to " + std::to_string(high) +
                                  ", not " + brief_json(*value),
                              full_name(name));
    return *integer;
}

std::vector<std::string> RequestFields::texts(const std::string& name) {
    const Json* value = find(name);
    if (!value) return {};
    if (const std::string* text = value->as<std::string>()) return {*text};
    const auto is_text = [](const Json& each) { return each.as<std::string>() != nullptr; };
    const JsonArray* list = value->as<JsonArray>();
    if (!list || !std::all_of(list->begin(), list->end(), is_text))
        throw invalid_request(full_name(name) + " must be a string or an array of strings",
                              full_name(name));
    std::vector<std::string> texts;
    for (const Json& each : *list) texts.push_back(*each.as<std::string>());
    return texts;
}

void RequestFields::allow_only(const std::string& name, std::initializer_list<Json> neutral) {
    const Json* value = find(name);
    if (value && std::find(neutral.begin(), neutral.end(), *value) == neutral.end())
        throw invalid_request(full_name(name) + " is not supported: " + brief_json(*value),
                              full_name(name), "unsupported_parameter");
}

void RequestFields::allow_label(const std::string& name) {
    if (find(name)) text(name);
}

void RequestFields::reject_unread() const {
    for (const auto& [name, value] : *object_)
        if (!read_.contains(name))
            throw invalid_request("unknown parameter: " + full_name(name), full_name(name),
                                  "unknown_parameter");
}

}  // namespace llm::serve
