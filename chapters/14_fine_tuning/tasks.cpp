#include "chapters/14_fine_tuning/tasks.hpp"

#include "common/numbers/hash.hpp"

namespace llm {

bool is_held_out(const Question& question, unsigned percent) {
    // The low bits of FNV-1a of similar texts are alike; the high ones are mixed better.
    return (fnv1a(question.prompt) >> 32) % 100 < percent;
}

double exact_match_reward(const Question& question, const std::string& text) {
    const std::string spaces = " \t\r\n";
    const std::size_t first = text.find_first_not_of(spaces);
    if (first == text.npos) return 0;
    const std::size_t last = text.find_last_not_of(spaces);
    return text.substr(first, last - first + 1) == question.answer ? 1 : 0;
}

}  // namespace llm
