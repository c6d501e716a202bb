// Ring attention on ranks against the attention of one process.
#pragma once

#include "common/output/show.hpp"
#include "common/parallel/communicator.hpp"

namespace llm {

// Of one attention layer of the default model of ./learn train, with a sequence of 4,096
// tokens: the milliseconds of forward and backward pass, chapter 12's if there is one rank,
// chapter 28's if there are more; and the bytes that a rank has at once of scores, keys and
// values.
TableRow long_attention_row(Communicator& ranks);

}  // namespace llm
