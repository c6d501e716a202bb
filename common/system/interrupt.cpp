#include "common/system/interrupt.hpp"

#include <csignal>

namespace llm {
namespace {

volatile std::sig_atomic_t signal_seen = 0;
auto current_mode = InterruptHandler::Mode::throw_exception;

void set_flag(int signal) {
    signal_seen = signal;
    std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptHandler::InterruptHandler(Mode mode) {
    current_mode = mode;
    reset();
}

void InterruptHandler::reset() {
    signal_seen = 0;
    std::signal(SIGINT, set_flag);
    std::signal(SIGTERM, set_flag);
    if (current_mode == Mode::set_flag) std::signal(SIGUSR1, set_flag);
}

InterruptHandler::~InterruptHandler() {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    if (current_mode == Mode::set_flag) std::signal(SIGUSR1, SIG_DFL);
    signal_seen = 0;
}

bool InterruptHandler::interrupted() { return signal_seen != 0; }
bool InterruptHandler::terminated() { return signal_seen == SIGTERM; }

void InterruptHandler::throw_if_interrupted() {
    if (interrupted() && current_mode == Mode::throw_exception) throw Interrupted();
}

}  // namespace llm
