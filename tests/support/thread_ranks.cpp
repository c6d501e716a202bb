#include "common/parallel/thread_ranks.hpp"

#include <doctest/doctest.h>

#include "common/parallel/ranks_in_turn.hpp"
#include "tests/support/ranks.hpp"

namespace llm {

void for_ranks(const std::function<void(Communicator&)>& body) {
    for (const std::size_t num_ranks : {1u, 2u, 3u, 4u, 7u}) {
        CAPTURE(num_ranks);
        run_ranks(num_ranks, body);
        run_ranks_in_turn(num_ranks, body);
    }
}

}  // namespace llm
