// A parallel loop over blocks of rows, such as the tokens of a prefill.
#pragma once

#include <algorithm>

#include "common/numbers/ceil_div.hpp"
#include "common/system/parallel.hpp"

namespace llm {

// The largest number of tokens that a thread multiplies by a weight matrix at once.
inline constexpr std::size_t max_block_size = 256;

// Calls function(begin, size, thread) for blocks of `count` tokens: one per thread, or several
// if a block would exceed max_block_size.
template <class Function>
void for_blocks(std::size_t count, const Function& function) {
    const std::size_t in_one_round = num_threads() * max_block_size;
    const std::size_t num_rounds = ceil_div(count, in_one_round);
    const std::size_t num_blocks = std::min(count, num_rounds * num_threads());
    parallel_for(num_blocks, [&](std::size_t block, std::size_t thread) {
        const std::size_t begin = block * count / num_blocks;
        function(begin, (block + 1) * count / num_blocks - begin, thread);
    });
}

}  // namespace llm
