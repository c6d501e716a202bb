// A field of a request that is a text, an array of tokens, or an array of these.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "chapters/apps/serve/api/request_fields.hpp"
#include "common/tensors/tensor.hpp"

namespace llm::serve {

struct TokenField {
    std::string name;  // "prompt"
    std::size_t max_count, vocab_size;
    std::function<std::vector<Id>(const std::string& text)> encode;
};

// The tokens of each text. Tokens of the client stay as they are. Throws ApiError 400, which
// names the field, if it is missing, has another type, or too many texts.
std::vector<std::vector<Id>> read_tokens(RequestFields& fields, const TokenField& field);

}  // namespace llm::serve
