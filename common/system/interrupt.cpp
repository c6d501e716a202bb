#include "common/system/interrupt.hpp"

#include <csignal>

namespace llm {
namespace {

volatile std::sig_atomic_t signal_seen = 0;

void set_flag(int signal) {
    signal_seen = signal;
    std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptHandler::InterruptHandler() { reset(); }

void InterruptHandler::reset() {
    signal_seen = 0;
    std::signal(SIGINT, set_flag);
    std::signal(SIGTERM, set_flag);
}

InterruptHandler::~InterruptHandler() {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    signal_seen = 0;
}

bool InterruptHandler::interrupted() { return signal_seen != 0; }
bool InterruptHandler::terminated() { return signal_seen == SIGTERM; }

void InterruptHandler::throw_if_interrupted() {
    if (interrupted()) throw Interrupted();
}

}  // namespace llm
