#include "common/files/json_file.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

namespace llm {
namespace {

std::string_view text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

double number_in(const Json& value, const std::string& key, const JsonFile& from) {
    const std::optional<double> number = value.number();
    if (!number) from.reject(key, "must be a number, not " + shortened(value));
    return *number;
}

std::int64_t id_in(const Json& value, const std::string& key, const JsonFile& from) {
    const auto* number = value.as<std::int64_t>();
    if (!number || *number < 0 || *number > 0x7FFFFFFF)
        from.reject(key,
                    "must hold whole numbers from 0 to 2147483647, not " + shortened(value));
    return *number;
}

// Whether a value that nothing reads can be a setting.
bool is_setting(const Json& value) {
    const auto* truth = value.as<bool>();
    const auto* list = value.as<JsonArray>();
    const auto* object = value.as<JsonObject>();
    return !(value.as<std::nullptr_t>() || (truth && !*truth) || (list && list->empty()) ||
             (object && object->empty()));
}

}  // namespace

std::string shortened(const Json& value) {
    if (value.as<JsonArray>()) return "a list";
    if (value.as<JsonObject>()) return "an object";
    return brief_json(value);
}

struct JsonFile::Content {
    std::shared_ptr<const Json> file;
    const Json* object;  // of the file
    mutable std::set<std::string> read = {};
    mutable std::vector<std::string> remarks = {};

    // The value, which may be null; nullptr if there is none.
    const Json* find_any(const std::string& key) const {
        read.insert(key);
        const Json* value = object;
        for (std::size_t begin = 0, end = 0; value && end != std::string::npos;
             begin = end + 1) {
            end = key.find('.', begin);
            value = value->find(key.substr(begin, end - begin));
        }
        return value;
    }
    const Json* find(const std::string& key) const {
        const Json* value = find_any(key);
        return value && !value->as<std::nullptr_t>() ? value : nullptr;
    }
    const Json& find_or_reject(const std::string& key, const JsonFile& from) const {
        const Json* value = find(key);
        if (!value) from.reject(key, "is missing");
        return *value;
    }
    template <class T>
    const T& as(const std::string& key, const JsonFile& from, const char* what) const {
        const Json& value = find_or_reject(key, from);
        if (!value.as<T>()) from.reject(key, what);
        return *value.as<T>();
    }
    const JsonArray& list(const std::string& key, const JsonFile& from) const {
        return as<JsonArray>(key, from, "must be a list");
    }
    const JsonObject& members(const std::string& key, const JsonFile& from) const {
        return as<JsonObject>(key, from, "must be an object");
    }
};

JsonFile::JsonFile(const std::filesystem::path& file)
    : JsonFile(file, text_of(MappedFile(file))) {}

JsonFile::JsonFile(const std::filesystem::path& file, std::string_view text) : path_(file) {
    if (text.size() > 100'000'000) reject("too large for a JSON file");
    const auto json = std::make_shared<const Json>(parse_json(text, path_.string()));
    if (!json->as<JsonObject>()) reject("not a JSON object");
    content_ = std::make_shared<Content>(Content{json, json.get()});
}

JsonFile JsonFile::made_of(const std::filesystem::path& file, JsonObject object,
                           const std::string& inside) {
    JsonFile result;
    result.path_ = file;
    result.inside_ = inside;
    const auto json = std::make_shared<const Json>(std::move(object));
    result.content_ = std::make_shared<Content>(Content{json, json.get()});
    return result;
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
    throw UnsupportedValue(fmt::format("{}: {} {} is not supported; supported: {}",
                                       path_.string(), full_key(key), value, supported),
                           key);
}
void JsonFile::reject_unread_value(const std::string& key, const Json& value) const {
    throw UnsupportedValue(fmt::format("{}: {} {} is not supported: nothing reads it",
                                       path_.string(), full_key(key), shortened(value)),
                           key);
}
void JsonFile::reject_value(const std::string& key, const std::string& value,
                            const std::vector<std::string>& supported) const {
    reject_value(key, value, fmt::format("{}", fmt::join(supported, ", ")));
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
    const Json* value = content_->find_any(key);
    return value && value->as<std::nullptr_t>();
}

void JsonFile::ignore(const std::string& key) const { content_->read.insert(key); }

JsonFile JsonFile::unread_copy() const {
    JsonFile copy = *this;
    copy.content_ = std::make_shared<Content>(Content{content_->file, content_->object});
    return copy;
}

void JsonFile::remark(const std::string& text) const { content_->remarks.push_back(text); }
const std::vector<std::string>& JsonFile::remarks() const { return content_->remarks; }

bool JsonFile::was_read(const std::string& key) const { return content_->read.contains(key); }

std::vector<JsonMember> JsonFile::unread() const {
    const std::set<std::string>& read = content_->read;
    std::vector<JsonMember> result;
    const std::function<void(const std::string&, const Json&)> add = [&](const std::string& key,
                                                                         const Json& value) {
        const auto member = read.upper_bound(key + ".");
        const bool by_member = member != read.end() && member->starts_with(key + ".");
        if (const auto* object = value.as<JsonObject>(); by_member && object) {
            for (const auto& [name, inner] : *object) add(key + "." + name, inner);
            return;
        }
        if (!read.contains(key)) result.emplace_back(key, value);
    };
    for (const auto& [key, value] : members()) add(key, value);
    return result;
}

void JsonFile::reject_unread(const std::set<std::string>& may_be_unread) const {
    for (const auto& [key, value] : unread())
        if (is_setting(value) && !may_be_unread.contains(key)) reject_unread_value(key, value);
}

bool JsonFile::is_text(const std::string& key) const {
    return has(key) && content_->find(key)->as<std::string>();
}

bool JsonFile::is_object(const std::string& key) const {
    return has(key) && content_->find(key)->as<JsonObject>();
}

bool JsonFile::is_array(const std::string& key) const {
    return has(key) && content_->find(key)->as<JsonArray>();
}

std::size_t JsonFile::size(const std::string& key) const {
    const Json& value = content_->find_or_reject(key, *this);
    const auto* number = value.as<std::int64_t>();
    if (!number || *number < 1 || *number > 1 << 24)
        reject(key, "must be a whole number from 1 to 16777216, not " + shortened(value));
    return static_cast<std::size_t>(*number);
}

double JsonFile::number(const std::string& key) const {
    return number_in(content_->find_or_reject(key, *this), key, *this);
}

bool JsonFile::boolean(const std::string& key) const {
    const Json& value = content_->find_or_reject(key, *this);
    if (!value.as<bool>()) reject(key, "must be true or false, not " + shortened(value));
    return *value.as<bool>();
}

std::string JsonFile::text(const std::string& key) const {
    const Json& value = content_->find_or_reject(key, *this);
    if (!value.as<std::string>()) reject(key, "must be a text, not " + shortened(value));
    return *value.as<std::string>();
}

const JsonObject& JsonFile::members() const { return *content_->object->as<JsonObject>(); }

const Json& JsonFile::value(const std::string& key) const {
    return content_->find_or_reject(key, *this);
}

std::map<std::string, std::string> JsonFile::texts(const std::string& key) const {
    if (!is_object(key)) reject(key, "must be an object");
    std::map<std::string, std::string> texts;
    for (const auto& [name, member] : content_->members(key, *this)) {
        const auto* text = member.as<std::string>();
        if (!text) reject(fmt::format("{} of {} must be a text", name, key));
        texts.emplace(name, *text);
    }
    return texts;
}

JsonFile JsonFile::inner(const std::string& key, const Content& content) const {
    JsonFile part = *this;
    part.inside_ = full_key(key);
    part.content_ = std::make_shared<Content>(content);
    return part;
}

JsonFile JsonFile::object(const std::string& key) const {
    content_->members(key, *this);
    return inner(key, {content_->file, content_->find(key)});
}

std::vector<JsonFile> JsonFile::objects(const std::string& key) const {
    std::vector<JsonFile> parts;
    for (const Json& element : content_->list(key, *this)) {
        const std::string name = fmt::format("{}.{}", key, parts.size());
        if (!element.as<JsonObject>()) reject(name, "must be an object");
        parts.push_back(inner(name, {content_->file, &element}));
    }
    return parts;
}

std::vector<std::pair<std::string, std::int64_t>> JsonFile::ids_by_name(
    const std::string& key) const {
    std::vector<std::pair<std::string, std::int64_t>> ids;
    for (const auto& [name, member] : content_->members(key, *this))
        ids.emplace_back(name, id_in(member, key, *this));
    std::sort(ids.begin(), ids.end());
    return ids;
}

std::vector<std::int64_t> JsonFile::ids(const std::string& key) const {
    const Json& value = content_->find_or_reject(key, *this);
    if (!value.as<JsonArray>()) return {id_in(value, key, *this)};
    std::vector<std::int64_t> numbers;
    for (const Json& element : *value.as<JsonArray>())
        numbers.push_back(id_in(element, key, *this));
    return numbers;
}

std::vector<double> JsonFile::numbers(const std::string& key) const {
    std::vector<double> numbers;
    for (const Json& element : content_->list(key, *this))
        numbers.push_back(number_in(element, key, *this));
    return numbers;
}

std::vector<std::vector<std::string>> JsonFile::text_lists(const std::string& key) const {
    std::vector<std::vector<std::string>> lists;
    for (const Json& element : content_->list(key, *this)) {
        lists.emplace_back();
        const auto* list = element.as<JsonArray>();
        for (const Json& text : list ? *list : JsonArray{element}) {
            if (!text.as<std::string>()) reject(key, "must hold texts, not " + shortened(text));
            lists.back().push_back(*text.as<std::string>());
        }
    }
    return lists;
}

}  // namespace llm
