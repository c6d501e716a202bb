// What the values of HTTP's headers mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace llm::serve {

// With ASCII letters in lower case.
std::string lower_case(std::string text);

// application/json in any case, with or without parameters such as charset.
bool is_json_type(const std::string& content_type);

// The KEY of "Bearer KEY", whose scheme may have any case; empty if there is none.
std::string bearer_key(const std::string& authorization);

// Can clients send it as a key? Visible ASCII without %, because httplib decodes %41 in
// headers.
bool is_valid_key(const std::string& key);

// Compares every byte, so that the time does not tell how many bytes of a key are right.
bool equal_in_constant_time(const std::string& a, const std::string& b);

// The name in a Host header: lower case, without port and final dot. Empty if it is malformed.
std::string host_name(const std::string& host);

// SCHEME://HOST or SCHEME://HOST:PORT in lower case, as browsers send it.
bool is_origin(const std::string& origin);

// A Content-Length: digits alone. What exceeds 64 bits gives the largest number.
std::optional<std::uint64_t> parse_length(const std::string& text);

}  // namespace llm::serve
