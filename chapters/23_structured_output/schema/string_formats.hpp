// Chapter 23, schema: the formats of strings that a grammar can enforce.
#pragma once

#include <optional>
#include <string>

namespace llm {

// A pattern of date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri and
// others; none for formats that are not known, which restrict nothing (JSON Schema 2020-12,
// 7.2.1). Not all texts of a format match, but whatever matches has the format. Sources: RFC
// 3339, RFC 4122, RFC 3986; ajv-formats.
std::optional<std::string> pattern_of_format(const std::string& format);

}  // namespace llm
