// Chapter 15, file 4 of 10: memory for the weights of a model.
#pragma once

#include <memory>
#include <vector>

#include "chapters/15_fast/weight_matrix.hpp"

namespace llm {

// Memory for the weights of a model, in blocks of 8 MB, which get huge pages: a decode step
// reads it faster than many separate matrices of one or two megabytes.
class WeightMemory {
 public:
    // Copies matrices that read the same input into this memory, and fuses those that follow
    // one another and have the same kernels: their rows become one matrix, in the
    // layout that the kernels multiply. Throws ValueError if
    // the numbers of input features differ.
    std::vector<WeightMatrix> fuse(const std::vector<WeightMatrix>& matrices);

 private:
    std::shared_ptr<std::byte> block_;
    std::size_t block_size_ = 0, used_ = 0;

    std::shared_ptr<std::byte> allocate(std::size_t num_bytes);
};

}  // namespace llm
