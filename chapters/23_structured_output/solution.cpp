#include "chapters/23_structured_output/exercise.hpp"

namespace exercise {

// Exercise 23.1 — a value begins with a space, a minus or a digit (7} also ends the object).
// After a 1, more digits or the end; after a 0 the end only: JSON has no number 01.
IdVector predicted_tokens() { return {5, 4, 1}; }

// Exercise 23.2 — the mask leaves the first token as it was. Of all texts, 0.8 · 0.25 = 0.2 are
// ax and 0.2 are bx.
Vector predicted_probabilities() { return {Real(0.8), Real(0.5)}; }

// Exercise 23.3 — a quote may end the string only between characters: within one, the bytes
// that are missing come first.
std::optional<StringState> next_state(StringState state, unsigned char byte) {
    if (state.ended || byte < 0x20) return std::nullopt;
    if (state.num_missing > 0) {
        if (byte < 0x80 || byte > 0xBF) return std::nullopt;
        --state.num_missing;
        return state;
    }
    if (byte == '"') {
        state.ended = true;
        return state;
    }
    if (byte < 0x80) return state;

    // The first byte of a character says how many follow.
    if (byte < 0xC2 || byte > 0xF4) return std::nullopt;
    state.num_missing = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    return state;
}

// Exercise 23.4 — from the end: the states from which a text can end after no more symbol,
// after at most one, and so on. The last symbol may lead to those with one symbol less.
std::vector<bool> allowed_in_time(const Automaton& automaton, int state,
                                  std::size_t max_symbols) {
    const auto& next = automaton.next;
    std::vector<bool> allowed(next[std::size_t(state)].size(), false);
    if (max_symbols == 0) return allowed;
    std::vector<bool> can_end = automaton.is_final;  // by state
    for (std::size_t n = 1; n < max_symbols; ++n) {
        const std::vector<bool> sooner = can_end;
        for (std::size_t s = 0; s < next.size(); ++s)
            for (const int after : next[s])
                if (after >= 0 && sooner[std::size_t(after)]) can_end[s] = true;
        if (can_end == sooner) break;
    }
    for (std::size_t a = 0; a < allowed.size(); ++a) {
        const int after = next[std::size_t(state)][a];
        allowed[a] = after >= 0 && can_end[std::size_t(after)];
    }
    return allowed;
}

// Exercise 23.5 — the probability of a first token, times that of its allowed continuations.
Vector conditioned(const Vector& first, const Matrix& second,
                   const std::vector<std::vector<bool>>& allowed) {
    Vector result = first;  // (V)
    Real sum = 0;
    for (std::size_t a = 0; a < first.size(); ++a) {
        Real allowed_after = 0;
        for (std::size_t b = 0; b < first.size(); ++b)
            if (allowed[a][b]) allowed_after += second(a, b);
        result(a) *= allowed_after;
        sum += result(a);
    }
    for (Real& probability : result) probability /= sum;
    return result;
}

}  // namespace exercise
