#include "common/files/json_file.hpp"

#include <cmath>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/files/json_text.hpp"

namespace llm {
namespace {

std::string_view text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// A value in an error message: one line.
std::string shortened(const nlohmann::json& value) {
    if (value.is_array()) return "a list";  // dump() would recurse to any depth
    if (value.is_object()) return "an object";
    return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

double number_in(const nlohmann::json& value, const std::string& key, const JsonFile& from) {
    if (!value.is_number() || !std::isfinite(value.get<double>()))
        from.reject(key, "must be a number, not " + shortened(value));
    return value.get<double>();
}

std::int64_t id_in(const nlohmann::json& value, const std::string& key, const JsonFile& from) {
    const bool whole = value.is_number_integer();
    const std::int64_t number = whole ? value.get<std::int64_t>() : -1;
    if (number < 0 || number > 0x7FFFFFFF)
        from.reject(key,
                    "must hold whole numbers from 0 to 2147483647, not " + shortened(value));
    return number;
}

}  // namespace

struct JsonFile::Content {
    std::shared_ptr<const nlohmann::json> file;
    const nlohmann::json* object;  // of the file
    mutable std::set<std::string> read = {};

    const nlohmann::json* find(const std::string& key) const {
        read.insert(key);
        const nlohmann::json::json_pointer pointer(pointer_to(key));
        if (!object->contains(pointer) || object->at(pointer).is_null()) return nullptr;
        return &object->at(pointer);
    }
    const nlohmann::json* find_or_reject(const std::string& key, const JsonFile& from) const {
        const nlohmann::json* value = find(key);
        if (!value) from.reject(key, "is missing");
        return value;
    }
    const nlohmann::json& list(const std::string& key, const JsonFile& from) const {
        const nlohmann::json* value = find_or_reject(key, from);
        if (!value->is_array()) from.reject(key, "must be a list");
        return *value;
    }
};

JsonFile::JsonFile(const std::filesystem::path& file)
    : JsonFile(file, text_of(MappedFile(file))) {}

JsonFile::JsonFile(const std::filesystem::path& file, std::string_view text) : path_(file) {
    if (text.size() > 100'000'000) reject("too large for a JSON file");
    const auto json =
        std::make_shared<const nlohmann::json>(parse_json_object(text, path_.string()));
    content_ = std::make_shared<Content>(Content{json, json.get()});
}

void JsonFile::reject(const std::string& reason) const {
    const std::string object = inside_.empty() ? "" : inside_ + ": ";
    throw FileError(fmt::format("{}: {}{}", path_.string(), object, reason));
}

void JsonFile::reject(const std::string& key, const std::string& problem) const {
    throw FileError(fmt::format("{}: {} {}", path_.string(), full_key(key), problem));
}

void JsonFile::reject_value(const std::string& key, const std::string& value,
                            const std::string& supported) const {
    reject(key, value + " is not supported; supported: " + supported);
}
void JsonFile::reject_value(const std::string& key, const std::string& value,
                            const std::vector<std::string>& supported) const {
    reject_value(key, value, fmt::format("{}", fmt::join(supported, ", ")));
}

std::size_t JsonFile::size_or(const std::string& key, std::size_t otherwise) const {
    return has(key) ? size(key) : otherwise;
}

bool JsonFile::boolean_or(const std::string& key, bool otherwise) const {
    return has(key) ? boolean(key) : otherwise;
}

bool JsonFile::truth_or(const std::string& key, bool otherwise) const {
    const bool is_number = has(key) && content_->find(key)->is_number();
    return is_number ? number(key) != 0 : boolean_or(key, otherwise);
}

double JsonFile::positive_or(const std::string& key, double otherwise) const {
    const double value = has(key) ? number(key) : otherwise;
    if (!(value > 0)) reject(key + " must be above 0");
    return value;
}

std::string JsonFile::full_key(const std::string& key) const {
    return inside_.empty() ? key : inside_ + "." + key;
}

bool JsonFile::has(const std::string& key) const { return content_->find(key) != nullptr; }

bool JsonFile::is_null(const std::string& key) const {
    content_->read.insert(key);
    const nlohmann::json::json_pointer pointer(pointer_to(key));
    return content_->object->contains(pointer) && content_->object->at(pointer).is_null();
}

void JsonFile::ignore(const std::string& key) const { content_->read.insert(key); }

void JsonFile::reject_unread(const std::set<std::string>& may_be_unread) const {
    const std::set<std::string>& read = content_->read;
    const std::function<void(const std::string&, const nlohmann::json&)> check =
        [&](const std::string& key, const nlohmann::json& value) {
            // Of an object of which single members were asked for, each one is checked.
            const auto member = read.upper_bound(key + ".");
            const bool by_member = member != read.end() && member->starts_with(key + ".");
            if (by_member && value.is_object()) {
                for (const auto& [name, inner] : value.items()) check(key + "." + name, inner);
                return;
            }
            const bool is_setting = !(value.is_null() || value == false ||
                                      (value.is_structured() && value.empty()));
            if (is_setting && !read.contains(key) && !may_be_unread.contains(key))
                reject(key, shortened(value) + " is not supported: nothing reads it");
        };
    for (const auto& [key, value] : content_->object->items()) check(key, value);
}

bool JsonFile::is_text(const std::string& key) const {
    return has(key) && content_->find(key)->is_string();
}

bool JsonFile::is_object(const std::string& key) const {
    return has(key) && content_->find(key)->is_object();
}

bool JsonFile::is_array(const std::string& key) const {
    return has(key) && content_->find(key)->is_array();
}

std::size_t JsonFile::size(const std::string& key) const {
    const nlohmann::json* value = content_->find_or_reject(key, *this);
    const bool whole = value->is_number_integer();
    const std::int64_t number = whole ? value->get<std::int64_t>() : 0;
    if (!whole || number < 1 || number > 1 << 24)
        reject(key, "must be a whole number from 1 to 16777216, not " + shortened(*value));
    return static_cast<std::size_t>(number);
}

double JsonFile::number(const std::string& key) const {
    return number_in(*content_->find_or_reject(key, *this), key, *this);
}

bool JsonFile::boolean(const std::string& key) const {
    const nlohmann::json* value = content_->find_or_reject(key, *this);
    if (!value->is_boolean()) reject(key, "must be true or false, not " + shortened(*value));
    return value->get<bool>();
}

std::string JsonFile::text(const std::string& key) const {
    const nlohmann::json* value = content_->find_or_reject(key, *this);
    if (!value->is_string()) reject(key, "must be a text, not " + shortened(*value));
    return value->get<std::string>();
}

std::map<std::string, std::string> JsonFile::texts(const std::string& key) const {
    const nlohmann::json* value = content_->find(key);
    if (!value || !value->is_object()) reject(key, "must be an object");
    std::map<std::string, std::string> members;
    for (const auto& [name, member] : value->items()) {
        if (!member.is_string()) reject(fmt::format("{} of {} must be a text", name, key));
        members.emplace(name, member.get<std::string>());
    }
    return members;
}

JsonFile JsonFile::inner(const std::string& key, const Content& content) const {
    JsonFile part = *this;
    part.inside_ = full_key(key);
    part.content_ = std::make_shared<Content>(content);
    return part;
}

JsonFile JsonFile::object(const std::string& key) const {
    const nlohmann::json* value = content_->find_or_reject(key, *this);
    if (!value->is_object()) reject(key, "must be an object");
    return inner(key, {content_->file, value});
}

std::vector<JsonFile> JsonFile::objects(const std::string& key) const {
    std::vector<JsonFile> parts;
    for (const nlohmann::json& element : content_->list(key, *this)) {
        const std::string name = fmt::format("{}.{}", key, parts.size());
        if (!element.is_object()) reject(name, "must be an object");
        parts.push_back(inner(name, {content_->file, &element}));
    }
    return parts;
}

std::vector<std::pair<std::string, std::int64_t>> JsonFile::ids_by_name(
    const std::string& key) const {
    const nlohmann::json* value = content_->find_or_reject(key, *this);
    if (!value->is_object()) reject(key, "must be an object");
    std::vector<std::pair<std::string, std::int64_t>> members;
    for (const auto& [name, member] : value->items())
        members.emplace_back(name, id_in(member, key, *this));
    return members;
}

std::vector<std::int64_t> JsonFile::ids(const std::string& key) const {
    const nlohmann::json* value = content_->find_or_reject(key, *this);
    if (!value->is_array()) return {id_in(*value, key, *this)};
    std::vector<std::int64_t> numbers;
    for (const nlohmann::json& element : *value) numbers.push_back(id_in(element, key, *this));
    return numbers;
}

std::vector<double> JsonFile::numbers(const std::string& key) const {
    std::vector<double> numbers;
    for (const nlohmann::json& element : content_->list(key, *this))
        numbers.push_back(number_in(element, key, *this));
    return numbers;
}

std::vector<std::vector<std::string>> JsonFile::text_lists(const std::string& key) const {
    std::vector<std::vector<std::string>> lists;
    for (const nlohmann::json& element : content_->list(key, *this)) {
        const bool is_list = element.is_array();
        lists.emplace_back();
        for (const nlohmann::json& text :
             is_list ? element : nlohmann::json::array({element})) {
            if (!text.is_string()) reject(key, "must hold texts, not " + shortened(text));
            lists.back().push_back(text.get<std::string>());
        }
    }
    return lists;
}

}  // namespace llm
