// Ctrl-C as a question that a long run can ask, instead of its end.
#pragma once

namespace llm {

// From now on Ctrl-C (or a request to terminate) is only remembered; a second one ends the
// program as ever.
void catch_interrupts();
bool interrupted();

}  // namespace llm
