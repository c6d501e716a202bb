#include "chapters/23_structured_output/schema/schema_document.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/tensors/shape.hpp"

namespace llm {
namespace {

const Json* find_in(const SchemaPart& part, const std::string& keyword) {
    return part.done.contains(keyword) ? nullptr : part.schema->find(keyword);
}

const std::string* find_text(const Json& object, const char* key) {
    const Json* value = object.find(key);
    return value ? value->as<std::string>() : nullptr;
}

// A reference by a base URI: "item.json" beside "https://a.b/c.json" is
// "https://a.b/item.json". Source: RFC 3986, section 5.2, without "." and "..".
std::string absolute(const std::string& base, const std::string& reference) {
    if (reference.empty()) return base;
    const std::size_t scheme = reference.find(':');
    if (scheme != reference.npos && scheme < reference.find('/')) return reference;
    const std::size_t authority = base.find("://");
    const std::size_t path =
        authority == base.npos ? 0 : std::min(base.find('/', authority + 3), base.size());
    if (reference.starts_with('/')) return base.substr(0, path) + reference;
    const std::size_t last = base.rfind('/');
    return (last == base.npos ? "" : base.substr(0, last + 1)) + reference;
}

// A part of a JSON pointer in a URI: %25 is "%", then ~1 is "/" and ~0 is "~" (RFC 6901).
std::string unescaped(const std::string& part) {
    std::string bytes;
    for (std::size_t i = 0; i < part.size(); ++i) {
        const std::string code = part.substr(i, 3);
        const bool is_escape = code.size() == 3 && code[0] == '%' &&
                               code.find_first_not_of("0123456789abcdefABCDEF", 1) == code.npos;
        bytes +=
            is_escape ? static_cast<char>(std::stoi(code.substr(1), nullptr, 16)) : part[i];
        if (is_escape) i += 2;
    }
    std::string name;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool is_escape = bytes[i] == '~' && i + 1 < bytes.size() &&
                               (bytes[i + 1] == '0' || bytes[i + 1] == '1');
        name += !is_escape ? bytes[i] : bytes[i + 1] == '0' ? '~' : '/';
        if (is_escape) ++i;
    }
    return name;
}

// What a JSON pointer ("/properties/a") leads to; nullptr: nothing.
const Json* at_pointer(const Json* value, const std::string& pointer) {
    for (std::size_t begin = 1; value && begin <= pointer.size();) {
        const std::size_t end = std::min(pointer.find('/', begin), pointer.size());
        const std::string name = unescaped(pointer.substr(begin, end - begin));
        begin = end + 1;
        const JsonArray* list = value->as<JsonArray>();
        if (!list) {
            value = value->find(name);
            continue;
        }
        const bool is_index = !name.empty() && name.size() < 7 &&
                              name.find_first_not_of("0123456789") == name.npos;
        const std::size_t i = is_index ? std::stoul(name) : list->size();
        value = i < list->size() ? &(*list)[i] : nullptr;
    }
    return value;
}

}  // namespace

SchemaPart member(const SchemaPart& part, const std::string& keyword) {
    return {part.schema->find(keyword), part.path + "/" + keyword};
}

const Json* SchemaParts::find(const std::string& keyword) const {
    for (const SchemaPart& part : parts)
        if (const Json* value = find_in(part, keyword)) return value;
    return nullptr;
}

std::vector<SchemaPart> SchemaParts::all(const std::string& keyword) const {
    std::vector<SchemaPart> values;
    for (const SchemaPart& part : parts)
        if (find_in(part, keyword)) values.push_back(member(part, keyword));
    return values;
}

template <class T>
const T& expect(const SchemaPart& value, const char* what) {
    const T* found = value.schema->as<T>();
    if (!found)  // only then is the value written, which may be the whole document
        require(false, "json_schema: {}: expected {}, got {}", value.path,
                std::string_view(what), json_text(*value.schema).substr(0, 40));
    return *found;
}
template const JsonArray& expect(const SchemaPart&, const char*);
template const JsonObject& expect(const SchemaPart&, const char*);
template const std::string& expect(const SchemaPart&, const char*);
template const bool& expect(const SchemaPart&, const char*);

std::vector<std::size_t> counts(const SchemaParts& schema, const char* keyword) {
    std::vector<std::size_t> counts;
    for (const SchemaPart& value : schema.all(keyword)) {
        const std::optional<double> number = value.schema->number();
        require(number && *number == std::floor(*number) && std::abs(*number) < 9.2e18,
                "json_schema: {}: expected an integer, got {}", value.path,
                json_text(*value.schema).substr(0, 40));
        require(*number >= 0, "json_schema: {}: expected at least 0, got {}", value.path,
                json_text(*value.schema));
        counts.push_back(static_cast<std::size_t>(*number));
    }
    return counts;
}

std::optional<std::size_t> largest_count(const SchemaParts& schema, const char* keyword) {
    std::optional<std::size_t> largest;
    for (const std::size_t each : counts(schema, keyword))
        largest = std::max(largest.value_or(0), each);
    return largest;
}
std::optional<std::size_t> smallest_count(const SchemaParts& schema, const char* keyword) {
    std::optional<std::size_t> smallest;
    for (const std::size_t each : counts(schema, keyword))
        smallest = std::min(smallest.value_or(each), each);
    return smallest;
}

SchemaDocument::SchemaDocument(const Json& root) : root_(root) {
    schemas_[""] = &root;
    index(root, "");
}

// Finds the names of schemas, with the base URI of the place where they stand.
void SchemaDocument::index(const Json& value, std::string base) {
    if (const JsonArray* list = value.as<JsonArray>())
        for (const Json& element : *list) index(element, base);
    const JsonObject* object = value.as<JsonObject>();
    if (!object) return;
    for (const char* keyword : {"$id", "id"})  // "id" in draft 4
        if (const std::string* id = find_text(value, keyword)) {
            const std::size_t fragment = std::min(id->find('#'), id->size());
            if (fragment > 0) base = absolute(base, id->substr(0, fragment));
            // "#name" is an anchor in draft 6.
            schemas_.emplace(base + (fragment + 1 < id->size() ? id->substr(fragment) : ""),
                             &value);
            break;
        }
    for (const char* keyword : {"$anchor", "$dynamicAnchor"})
        if (const std::string* anchor = find_text(value, keyword))
            schemas_.emplace(base + "#" + *anchor, &value);
    base_of_[&value] = base;
    for (const auto& [key, inner] : *object)
        if (key != "const" && key != "enum" && key != "default" && key != "examples")
            index(inner, base);
}

const Json& SchemaDocument::resolve(const std::string& reference,
                                    const SchemaPart& from) const {
    const std::size_t hash = std::min(reference.find('#'), reference.size());
    const auto base = base_of_.find(from.schema);
    const std::string uri =
        absolute(base == base_of_.end() ? "" : base->second, reference.substr(0, hash));
    const std::string fragment =
        hash < reference.size() ? unescaped(reference.substr(hash + 1)) : "";
    const bool is_pointer = fragment.empty() || fragment[0] == '/';
    const auto found = schemas_.find(is_pointer ? uri : uri + "#" + fragment);
    const Json* schema = found == schemas_.end() ? nullptr : found->second;
    if (schema && is_pointer && !fragment.empty())
        schema = at_pointer(schema, reference.substr(hash + 1));
    require(schema != nullptr, "json_schema: {}: there is no schema {}", from.path, reference);
    return *schema;
}

SchemaParts SchemaDocument::with_references(std::vector<SchemaPart> parts) const {
    SchemaParts result;
    const auto is_known = [&](const SchemaPart& part) {
        return std::any_of(result.parts.begin(), result.parts.end(), [&](const SchemaPart& p) {
            return p.schema == part.schema && p.done == part.done;
        });
    };
    // Which part names each one; the given ones name themselves.
    std::vector<std::size_t> named_by(parts.size());
    std::iota(named_by.begin(), named_by.end(), 0);
    const auto add = [&](const Json& schema, const std::string& path, std::size_t by) {
        for (std::size_t k = by;; k = named_by[k]) {
            require(parts[k].schema != &schema, "json_schema: {}: the schema names itself",
                    path);
            if (named_by[k] == k) break;
        }
        parts.push_back({&schema, path});
        named_by.push_back(by);
    };
    for (std::size_t i = 0; i < parts.size(); ++i) {
        SchemaPart part = parts[i];  // a copy: parts grows
        if (const bool* truth = part.schema->as<bool>()) {
            result.never |= !*truth;
            continue;
        }
        if (expect<JsonObject>(part, "a schema").empty()) continue;
        for (const char* keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
            if (!part.schema->find(keyword) || !part.done.insert(keyword).second) continue;
            const SchemaPart value = member(part, keyword);
            const std::string& name = expect<std::string>(value, "text");
            add(resolve(name, {part.schema, value.path}), name, i);
        }
        if (part.schema->find("allOf") && part.done.insert("allOf").second) {
            const SchemaPart all = member(part, "allOf");
            const JsonArray& list = expect<JsonArray>(all, "a list of schemas");
            for (std::size_t k = 0; k < list.size(); ++k)
                add(list[k], all.path + "/" + to_text(k), i);
        }
        if (const Json* negated = part.schema->find("not"))
            result.never |= *negated == Json(true) || *negated == Json(JsonObject{});
        if (!is_known(part)) result.parts.push_back(part);
    }
    return result;
}

}  // namespace llm
