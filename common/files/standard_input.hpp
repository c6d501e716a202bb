// Reading a text from standard input.
#pragma once

#include <iosfwd>
#include <string>

namespace llm {

// Reads standard input to its end, without the last line feed, which shells and editors append.
// Throws TextError if it has more than 16384 bytes, or is not text (UTF-8 without zero bytes).
std::string read_standard_input();

// The same for any stream.
std::string read_stream(std::istream& input);

}  // namespace llm
