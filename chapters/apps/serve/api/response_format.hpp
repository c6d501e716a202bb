// The response_format of a request: the grammar that its answer must follow.
#pragma once

#include <memory>
#include <string_view>

#include "chapters/21_serving/constrained/grammar.hpp"

namespace llm::serve {

// The grammar of {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema":
// ...}}; none for {"type": "text"}. Properties have the order of the body, a JSON object that
// has a response_format. Throws ApiError 400, which names what is wrong or not supported.
std::shared_ptr<const Grammar> grammar_of_response_format(std::string_view body);

}  // namespace llm::serve
