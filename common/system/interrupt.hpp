// Ctrl-C as a flag that a long computation can check.
#pragma once

namespace llm {

// While an object of this type exists, the first Ctrl-C (SIGINT) or SIGTERM sets a flag; a
// second one ends the program. Afterwards signals end the program at once, as usual.
class InterruptHandler {
 public:
    InterruptHandler();
    ~InterruptHandler();
    InterruptHandler(const InterruptHandler&) = delete;
    InterruptHandler& operator=(const InterruptHandler&) = delete;

    static bool interrupted();
};

}  // namespace llm
