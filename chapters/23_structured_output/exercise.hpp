// Chapter 23, exercises. Write your answers into exercise.cpp; ./learn exercise 23 checks them.
#pragma once

#include <optional>
#include <vector>

#include "common/tensors/tensor.hpp"

namespace exercise {

using namespace llm;

IdVector predicted_tokens();       // (3)
Vector predicted_probabilities();  // (2)

// A JSON string that is being written, after its first quote.
struct StringState {
    std::size_t num_missing = 0;  // bytes that the last character still needs
    bool ended = false;
};

// The state after one more byte; none if no string goes on with it. There are no escapes here:
// a backslash is a character like others.
std::optional<StringState> next_state(StringState state, unsigned char byte);

// next[s][a] is the state after symbol a in state s, -1 if the symbol is not allowed there. A
// text may end in the states that are final.
struct Automaton {
    std::vector<std::vector<int>> next;
    std::vector<bool> is_final;
};

// The symbols that may come next in a state, if the text must end after at most max_symbols
// more: those of which the text can still reach its end in time.
std::vector<bool> allowed_in_time(const Automaton& automaton, int state,
                                  std::size_t max_symbols);

// The distribution of the first of two tokens, given that the pair is allowed.
Vector conditioned(const Vector& first,   // (V) -> (V)
                   const Matrix& second,  // (V, V): row a is the distribution after token a
                   const std::vector<std::vector<bool>>& allowed);  // V × V

}  // namespace exercise
