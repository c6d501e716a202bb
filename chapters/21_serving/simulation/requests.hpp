// Chapter 21, simulation: the requests of a simulated server, read from a line of text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace llm {

// A request of which only the numbers of tokens matter.
struct SimulatedRequest {
    std::size_t prompt_len = 0;
    std::size_t max_new_tokens = 0;
    std::size_t arrival = 1;     // the step before which it is submitted, from 1 on
    std::size_t num_shared = 0;  // first tokens of the prompt, the same in all requests
    std::optional<std::size_t> cancellation{};  // the step before which it is canceled
};

// Reads requests that are separated by spaces. "7+9" has a prompt of 7 tokens and wants 9 new
// ones; "8+5+9" begins with 8 tokens that all such requests share, before its own 5; "7+9@2"
// arrives before step 2, and "7+9@2-6" is canceled before step 6. Throws ValueError for
// anything else, for numbers that are not 1 to 200, and unless there are 1 to 20 requests.
std::vector<SimulatedRequest> parse_requests(const std::string& text);

}  // namespace llm
