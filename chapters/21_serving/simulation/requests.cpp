#include "chapters/21_serving/simulation/requests.hpp"

#include <charconv>
#include <string_view>

#include "common/files/unicode.hpp"
#include "common/tensors/shape.hpp"

namespace llm {
namespace {

constexpr std::size_t highest_count = 200, most_requests = 20;

// Removes a character from the front of the text. Returns false if another one stands there.
bool take(std::string_view& text, char character) {
    if (text.empty() || text.front() != character) return false;
    text.remove_prefix(1);
    return true;
}

// Removes a number from the front of the text; nothing if there is none from 1 to 200.
std::optional<std::size_t> take_count(std::string_view& text) {
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 1 || number > highest_count) return std::nullopt;
    text.remove_prefix(std::size_t(end - text.data()));
    return number;
}

// Removes numbers with a character between them: "8+5+9".
std::vector<std::size_t> take_counts(std::string_view& text, char between) {
    std::vector<std::size_t> numbers;
    do {
        const std::optional<std::size_t> number = take_count(text);
        if (!number) return {};
        numbers.push_back(*number);
    } while (take(text, between));
    return numbers;
}

SimulatedRequest parse_request(const std::string& word) {
    std::string_view rest = word;
    const std::vector<std::size_t> tokens = take_counts(rest, '+');
    std::vector<std::size_t> steps = {1};
    if (take(rest, '@')) steps = take_counts(rest, '-');
    require(rest.empty() && (tokens.size() == 2 || tokens.size() == 3) &&
                (steps.size() == 1 || steps.size() == 2),
            "--requests: '{}' is not PROMPT+NEW or SHARED+PROMPT+NEW, perhaps with @STEP or "
            "@STEP-STEP, in numbers from 1 to {}",
            word, highest_count);

    SimulatedRequest request;
    request.max_new_tokens = tokens.back();
    request.num_shared = tokens.size() == 3 ? tokens[0] : 0;
    request.prompt_len = request.num_shared + tokens[tokens.size() - 2];
    request.arrival = steps[0];
    if (steps.size() == 2) request.cancellation = steps[1];
    require(steps.size() == 1 || steps[1] > steps[0],
            "--requests: '{}' arrives before step {}, so it cannot be canceled before step {}",
            word, steps[0], steps.back());
    return request;
}

}  // namespace

std::vector<SimulatedRequest> parse_requests(const std::string& text) {
    std::vector<SimulatedRequest> requests;
    for (const std::string& word : split_at_spaces(text))
        requests.push_back(parse_request(word));
    require(!requests.empty() && requests.size() <= most_requests,
            "--requests takes 1 to {} requests, not {}", most_requests, requests.size());
    return requests;
}

}  // namespace llm
