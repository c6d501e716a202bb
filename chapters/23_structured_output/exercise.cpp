#include "chapters/23_structured_output/exercise.hpp"

#include "common/system/exercise.hpp"

namespace exercise {

// Exercise 23.1 — predict: an object has one property, "age", an integer that is required. The
// vocabulary has nine tokens: {"age": and a space, then - 0 1 7} .5 } and a comma. How many of
// them may come next after {"age": and after {"age":1 and after {"age":0?
IdVector predicted_tokens() {
    TODO("predicted_tokens");
    // return {?, ?, ?};
}

// Exercise 23.2 — predict: a model writes a with probability 0.8 and b with 0.2; then x with
// 0.25 after a and always after b, and otherwise y. A grammar allows the texts that end in x.
// How probable is ax if each token is masked? And how probable is it, given that a text ends in
// x?
Vector predicted_probabilities() {
    TODO("predicted_probabilities");
    // return {?, ?};
}

// Exercise 23.3 — find the bug. Answers in English can always be read. Some in French or in
// Japanese make the reader stop: the text is not valid UTF-8.
std::optional<StringState> next_state(StringState state, unsigned char byte) {
    if (state.ended || byte < 0x20) return std::nullopt;
    if (byte == '"') {
        state.ended = true;
        return state;
    }
    if (state.num_missing > 0) {
        if (byte < 0x80 || byte > 0xBF) return std::nullopt;
        --state.num_missing;
        return state;
    }
    if (byte < 0x80) return state;

    // The first byte of a character says how many follow.
    if (byte < 0xC2 || byte > 0xF4) return std::nullopt;
    state.num_missing = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    return state;
}

// Exercise 23.4 — write allowed_in_time: a text that max_new_tokens cuts off is no JSON. A mask
// that knows how many symbols are left never lets it come to that.
std::vector<bool> allowed_in_time([[maybe_unused]] const Automaton& automaton,
                                  [[maybe_unused]] int state,
                                  [[maybe_unused]] std::size_t max_symbols) {
    TODO("allowed_in_time");
}

// Exercise 23.5 — write conditioned: what a mask at each step does not compute. Text is two
// tokens long; the model is first (V), then second (V, V).
Vector conditioned([[maybe_unused]] const Vector& first, [[maybe_unused]] const Matrix& second,
                   [[maybe_unused]] const std::vector<std::vector<bool>>& allowed) {
    TODO("conditioned");
}

}  // namespace exercise
