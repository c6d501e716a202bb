// The response_format of a request: the grammar that its answer must follow.
#pragma once

#include <memory>

#include "chapters/23_structured_output/grammar.hpp"
#include "common/files/json.hpp"

namespace llm::serve {

// The grammar of {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema":
// ...}}; none for {"type": "text"}. Properties have the order of the schema. Throws ApiError
// 400, which names what is wrong or not supported.
std::shared_ptr<const Grammar> grammar_of_response_format(const Json& format);

}  // namespace llm::serve
