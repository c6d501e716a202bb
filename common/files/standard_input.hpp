// Reading a text from standard input.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

namespace llm {

// Reads standard input to its end, without the last line feed, which shells and editors append.
// Throws TextError if it has more than 16384 bytes, or is not text (UTF-8 without zero bytes).
std::string read_standard_input();

// The same for any stream.
std::string read_stream(std::istream& input);

// Reads one line of standard input, without its line end; nothing at the end of the input. In
// a terminal, the prompt is shown first. Throws Interrupted if a signal arrives meanwhile and
// an InterruptHandler exists (common/system/interrupt.hpp).
std::optional<std::string> read_line(const std::string& prompt);

// Whether standard input and output both are a terminal.
bool is_interactive();

}  // namespace llm
