// Ctrl-C as a flag that a long computation can check.
#pragma once

#include <stdexcept>

namespace llm {

// Thrown by InterruptHandler::throw_if_interrupted.
struct Interrupted : std::runtime_error {
    Interrupted() : std::runtime_error("interrupted") {}
};

// While an object of this type exists, the first Ctrl-C (SIGINT) or SIGTERM sets a flag; a
// second one ends the program. Afterwards signals end the program at once, as usual.
class InterruptHandler {
 public:
    // Whether throw_if_interrupted throws. The ranks of a group must not stop in the middle of
    // a step, one without the others: they ask interrupted(), and agree. They also have SIGUSR1
    // as a signal, which mpirun passes on.
    enum class Mode { throw_exception, set_flag };

    explicit InterruptHandler(Mode mode = Mode::throw_exception);
    ~InterruptHandler();
    InterruptHandler(const InterruptHandler&) = delete;
    InterruptHandler& operator=(const InterruptHandler&) = delete;

    // Whether a signal has arrived. False if no object of this type exists. terminated: whether
    // it was SIGTERM.
    static bool interrupted();
    static bool terminated();
    static void throw_if_interrupted();

    // Forgets a signal that has arrived: the next one only sets the flag again.
    void reset();
};

}  // namespace llm
