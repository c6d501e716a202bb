#include "common/parallel/communicator.hpp"

#include <algorithm>

#include "common/tensors/shape.hpp"

namespace llm {

Part part_of(std::size_t count, std::size_t num_parts, std::size_t index) {
    require(index < num_parts, "part_of: part {} of {}", index, num_parts);
    const std::size_t size = count / num_parts, num_longer = count % num_parts;
    return {index * size + std::min(index, num_longer), size + (index < num_longer ? 1 : 0)};
}

std::unique_ptr<PendingReduction> Communicator::start_all_reduce(Numbers values) {
    all_reduce(values);
    return std::make_unique<PendingReduction>();
}

void Communicator::check_rank(std::size_t other) const {
    require(other < size_, "rank {} of a group of {}", other, size_);
}

}  // namespace llm
