#include <cmath>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/files/json_file.hpp"
#include "common/files/json_text.hpp"

namespace llm {
namespace {

using nlohmann::ordered_json;

// JSON has no infinities and NaN: they become strings. NaN has a sign, which means nothing.
ordered_json json_of(double number) {
    if (std::isnan(number)) return "nan";
    return std::isfinite(number) ? ordered_json(number)
                                 : ordered_json(fmt::format("{}", number));
}
ordered_json json_of(const std::vector<double>& numbers) {
    ordered_json array = ordered_json::array();
    for (const double number : numbers) array.push_back(json_of(number));
    return array;
}
ordered_json json_of(const std::vector<std::vector<double>>& rows) {
    ordered_json array = ordered_json::array();
    for (const std::vector<double>& row : rows) array.push_back(json_of(row));
    return array;
}
ordered_json json_of(const std::vector<std::pair<std::string, std::size_t>>& ids) {
    ordered_json object = ordered_json::object();
    for (const auto& [name, id] : ids) object[name] = id;
    return object;
}
ordered_json json_of(const auto& other) { return other; }

ordered_json json_of(const JsonMembers& members) {
    ordered_json json = ordered_json::object();
    for (const auto& [key, value] : members)
        json[ordered_json::json_pointer(pointer_to(key))] =
            std::visit([](const auto& held) { return json_of(held); }, value);
    return json;
}

}  // namespace

NamedJsonValue::NamedJsonValue(std::string name_, JsonValue value_)
    : name(std::move(name_)), value(std::move(value_)) {}
NamedJsonValue::NamedJsonValue(const NamedJsonValue&) = default;
NamedJsonValue::NamedJsonValue(NamedJsonValue&&) noexcept = default;
NamedJsonValue& NamedJsonValue::operator=(const NamedJsonValue&) = default;
NamedJsonValue& NamedJsonValue::operator=(NamedJsonValue&&) noexcept = default;
NamedJsonValue::~NamedJsonValue() = default;

std::string json_line(const JsonMembers& members) {
    return json_of(members).dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void write_json(const std::filesystem::path& file, const JsonMembers& members) {
    write_text_file(file, json_of(members).dump(2) + "\n");
}

}  // namespace llm
