#include "chapters/apps/serve/api/token_fields.hpp"

#include "chapters/apps/serve/api/api_error.hpp"

namespace llm::serve {
namespace {

// The array, if it is one of tokens.
const JsonArray* find_ids(const Json& value) {
    const JsonArray* array = value.as<JsonArray>();
    return array && !array->empty() && array->front().number() ? array : nullptr;
}

std::vector<Id> ids_of(const JsonArray& array, const TokenField& field) {
    std::vector<Id> ids;
    for (const Json& each : array) {
        const std::int64_t* id = each.as<std::int64_t>();
        if (!id || *id < 0 || std::uint64_t(*id) >= field.vocab_size)
            throw invalid_request(field.name +
                                      " has a token that is not in the vocabulary of " +
                                      std::to_string(field.vocab_size),
                                  field.name);
        ids.push_back(Id(*id));
    }
    return ids;
}

std::vector<Id> encode_one(const Json& value, const TokenField& field) {
    if (const std::string* text = value.as<std::string>()) return field.encode(*text);
    if (const JsonArray* ids = find_ids(value)) return ids_of(*ids, field);
    throw invalid_request(
        field.name + " must be a string, an array of tokens, or an array of these", field.name);
}

}  // namespace

std::vector<std::vector<Id>> read_tokens(RequestFields& fields, const TokenField& field) {
    const Json* value = fields.find(field.name);
    if (!value) throw invalid_request(field.name + " is required", field.name);
    const JsonArray* array = value->as<JsonArray>();
    if (!array || find_ids(*value)) return {encode_one(*value, field)};
    if (array->empty() || array->size() > field.max_count)
        throw invalid_request(field.name + " must be an array of 1 to " +
                                  std::to_string(field.max_count) + " " + field.name + "s",
                              field.name);
    std::vector<std::vector<Id>> all;
    for (const Json& each : *array) all.push_back(encode_one(each, field));
    return all;
}

}  // namespace llm::serve
