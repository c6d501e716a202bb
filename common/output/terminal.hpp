// Properties of the standard output.
#pragma once

#include <cstddef>

namespace llm {

bool colors_wanted();          // a terminal, and NO_COLOR is not set
std::size_t terminal_width();  // in characters; 120 when the output is not a terminal

}  // namespace llm
