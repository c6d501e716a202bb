// The text of a chat template in one canonical form. Chat templates are programs in the
// language Jinja, which this project does not run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace llm::models {

// The tokens of a Jinja template in a canonical form: two templates that differ only in what
// does not change their output have the same tokens. Spaces inside of tags and those that
// Hugging Face's settings (trim_blocks, lstrip_blocks) and "-" remove, comments, kinds of
// quotation marks and escape sequences disappear; message['role'] becomes message.role; text
// between tags becomes an expression. Source: the documentation of Jinja, "Whitespace Control".
std::vector<std::string> jinja_tokens(const std::string& source);

// The FNV-1a hash, 64 bits, of the tokens.
std::uint64_t fingerprint(const std::vector<std::string>& tokens);

}  // namespace llm::models
