#include "common/parallel/mpi_ranks.hpp"

#include "tests/support/ranks.hpp"

namespace llm {

void for_ranks(const std::function<void(Communicator&)>& body) {
    static MpiRanks ranks;  // until the program ends
    body(ranks.world());
}

}  // namespace llm
