// The behavior of an exercise that is not solved yet.
#pragma once

#include <stdexcept>
#include <string>

namespace llm {

struct NotImplemented : std::logic_error {
    using std::logic_error::logic_error;
};

// A placeholder for your code. Throws NotImplemented.
[[noreturn]] inline void TODO(const std::string& function) {
    throw NotImplemented(function + " is not written yet");
}

}  // namespace llm
