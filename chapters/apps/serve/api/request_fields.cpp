#include "chapters/apps/serve/api/request_fields.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "chapters/apps/serve/api/api_error.hpp"
#include "common/output/show.hpp"

namespace llm::serve {
namespace {

using nlohmann::json;

// The beginning of a value, for an error message. (dump of a deep value would be recursive; the
// parser has limited the depth.)
std::string brief_json(const json& value) {
    const std::string text = value.dump(-1, ' ', true);
    return text.size() <= 60 ? text : text.substr(0, 60) + "...";
}

}  // namespace

RequestFields::RequestFields(const json& object, std::string inside)
    : object_(object), inside_(std::move(inside)) {
    if (!object.is_object()) throw invalid_request(inside_ + " must be an object", inside_);
}

std::string RequestFields::full_name(const std::string& name) const {
    return inside_.empty() ? name : inside_ + "." + name;
}

const json* RequestFields::find(const std::string& name) {
    read_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string RequestFields::text(const std::string& name) {
    const json* value = find(name);
    if (!value) throw invalid_request(full_name(name) + " is required", full_name(name));
    if (!value->is_string())
        throw invalid_request(full_name(name) + " must be a string", full_name(name));
    return value->get<std::string>();
}

bool RequestFields::flag_or(const std::string& name, bool otherwise) {
    const json* value = find(name);
    if (!value) return otherwise;
    if (!value->is_boolean())
        throw invalid_request(full_name(name) + " must be true or false", full_name(name));
    return value->get<bool>();
}

double RequestFields::number_or(const std::string& name, double low, double high,
                                double otherwise) {
    const json* value = find(name);
    if (!value) return otherwise;
    const double number = value->is_number() ? value->get<double>() : low - 1;
    if (!(number >= low && number <= high))
        throw invalid_request(full_name(name) + " must be a number from " + brief(low) +
                                  " to " + brief(high) + ", not " + brief_json(*value),
                              full_name(name));
    return number;
}

std::optional<std::int64_t> RequestFields::integer(const std::string& name, std::int64_t low,
                                                   std::int64_t high) {
    const json* value = find(name);
    if (!value) return {};
    // An unsigned number above 2^63 - 1 would wrap around.
    const bool is_int64 =
        value->is_number_integer() && (!value->is_number_unsigned() ||
                                       value->get<std::uint64_t>() <= std::uint64_t(INT64_MAX));
    if (!is_int64 || value->get<std::int64_t>() < low || value->get<std::int64_t>() > high)
        throw invalid_request(full_name(name) + " must be an integer from " +
                                  std::to_string(low) + " to " + std::to_string(high) +
                                  ", not " + brief_json(*value),
                              full_name(name));
    return value->get<std::int64_t>();
}

std::vector<std::string> RequestFields::texts(const std::string& name) {
    const json* value = find(name);
    if (!value) return {};
    if (value->is_string()) return {value->get<std::string>()};
    const auto is_string = [](const json& each) { return each.is_string(); };
    if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_string))
        throw invalid_request(full_name(name) + " must be a string or an array of strings",
                              full_name(name));
    return value->get<std::vector<std::string>>();
}

void RequestFields::allow_only(const std::string& name, std::initializer_list<json> neutral) {
    const json* value = find(name);
    if (!value || std::find(neutral.begin(), neutral.end(), *value) != neutral.end()) return;
    throw invalid_request(full_name(name) + " is not supported: " + brief_json(*value),
                          full_name(name), "unsupported_parameter");
}

void RequestFields::allow_label(const std::string& name) {
    const json* value = find(name);
    if (value && !value->is_string())
        throw invalid_request(full_name(name) + " must be a string", full_name(name));
}

void RequestFields::reject_unread() const {
    for (const auto& [name, value] : object_.items())
        if (!read_.contains(name))
            throw invalid_request("unknown parameter: " + full_name(name), full_name(name),
                                  "unknown_parameter");
}

}  // namespace llm::serve
