// Ranks that take turns in one thread: for the website, which has no threads.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "common/parallel/communicator.hpp"

namespace llm {

// As run_ranks, but a call of body is left with an exception where it would wait, and begins
// anew later: what it sent is not sent again, and what it received is read from a log. So body
// must do the same each time it is called, up to that place, and must not catch all exceptions.
// Print after the run. The website's run_ranks is this function.
void run_ranks_in_turn(std::size_t num_ranks, const std::function<void(Communicator&)>& body);

// What each rank waits for, as the text of an error; a rank that has ended has no reason.
std::string deadlock_message(std::span<const std::string> reasons);

}  // namespace llm
