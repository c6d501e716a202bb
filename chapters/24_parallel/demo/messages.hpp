// Chapter 24, demo: the ring, the order of its additions, and its bytes.
#pragma once

#include <cstddef>

namespace llm {

void two_ranks();
void around_the_ring(std::size_t num_ranks);
void bytes_sent();
void order_of_additions();
void rank_that_leaves_early(std::size_t num_ranks);
void maximum_of_nan();

}  // namespace llm
