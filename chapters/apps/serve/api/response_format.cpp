#include "chapters/apps/serve/api/response_format.hpp"

#include <algorithm>

#include "chapters/23_structured_output/schema/json_schema.hpp"
#include "chapters/apps/serve/api/api_error.hpp"
#include "common/files/json.hpp"
#include "common/tensors/shape.hpp"

namespace llm::serve {
namespace {

ApiError wrong(const std::string& what) {
    return invalid_request("response_format" + what, "response_format");
}

// Rejects members of an object other than these.
void check_members(const Json& object, const std::string& path,
                   std::initializer_list<std::string_view> names) {
    const JsonObject* members = object.as<JsonObject>();
    if (!members) throw wrong(path + " must be an object");
    for (const auto& [key, value] : *members)
        if (std::find(names.begin(), names.end(), key) == names.end())
            throw wrong(path + "." + key + " is not supported");
}

// The grammar of the schema in an object. An answer follows it, unless "strict" is false.
std::shared_ptr<const Grammar> grammar_of_schema(const Json& object, const std::string& path) {
    const Json* schema = object.find("schema");
    if (!schema) throw wrong(path + ".schema is missing");
    const Json* strict = object.find("strict");
    if (strict && !strict->as<bool>() && !strict->as<std::nullptr_t>())
        throw wrong(path + ".strict must be true or false");
    const bool may_differ = strict && *strict == Json(false);
    try {
        return std::make_shared<Grammar>(json_schema_grammar(
            *schema, {may_differ ? Unenforced::ignored : Unenforced::rejected}));
    } catch (const ValueError& error) {
        throw wrong(path + ".schema: " + error.what());
    }
}

}  // namespace

std::shared_ptr<const Grammar> grammar_of_response_format(const Json& format) {
    check_members(format, "", {"type", "json_schema", "schema"});
    const Json* type = format.find("type");
    const std::string* name = type ? type->as<std::string>() : nullptr;
    if (name && *name == "text") return nullptr;
    if (name && *name == "json_object")  // with a schema: llama.cpp, Together
        return format.find("schema") ? grammar_of_schema(format, "")
                                     : std::make_shared<Grammar>(json_object_grammar());
    if (!name || *name != "json_schema")
        throw wrong(".type must be text, json_object or json_schema");
    const Json* described = format.find("json_schema");
    if (!described) throw wrong(".json_schema is missing");
    check_members(*described, ".json_schema", {"name", "description", "schema", "strict"});
    return grammar_of_schema(*described, ".json_schema");
}

}  // namespace llm::serve
