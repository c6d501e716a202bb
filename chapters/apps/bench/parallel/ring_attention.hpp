// Ring attention on ranks against the attention of one process.
#pragma once

#include "common/parallel/communicator.hpp"

namespace llm {

// Of one attention layer of the default model of ./learn train, with a sequence of 4,096
// tokens: prints the milliseconds of forward and backward pass, chapter 12's if there is one
// rank, chapter 28's if there are more; and what a rank has at once of scores, keys and values.
void time_long_attention(Communicator& ranks);

}  // namespace llm
