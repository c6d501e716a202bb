// Ranks that are threads of this process, for tests and demos.
#pragma once

#include <functional>

#include "common/parallel/communicator.hpp"

namespace llm {

// Calls body once for each rank, all at the same time, and returns when all calls have
// returned. If a call throws, the calls that wait for messages end, and the first exception is
// rethrown. If all ranks wait for one another, or for a rank whose call has returned, throws
// std::runtime_error that says what each waits for. `send` waits until the message is received,
// however short it is.
void run_ranks(std::size_t num_ranks, const std::function<void(Communicator&)>& body);

}  // namespace llm
