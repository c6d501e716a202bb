// Parses JSON text.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace llm {

// A JSON object. Throws FileError, which begins with the name of the source: with the position
// if the text is no JSON, and with the key if an object has it twice; also if values are nested
// more than 128 deep, or if a number is too large for a double.
nlohmann::json parse_json_object(std::string_view text, const std::string& source);

// Any JSON value, with the members of objects in the order of the text. Throws FileError as
// above.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& source);

// The pointer (RFC 6901) to a key such as "rope_scaling.factor".
std::string pointer_to(const std::string& key);

}  // namespace llm
