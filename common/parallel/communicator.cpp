#include "common/parallel/communicator.hpp"

#include <algorithm>

#include "common/tensors/shape.hpp"

namespace llm {

Part part_of(std::size_t count, std::size_t num_parts, std::size_t index) {
    require(index < num_parts, "part_of: part {} of {}", index, num_parts);
    const std::size_t size = count / num_parts, num_longer = count % num_parts;
    return {index * size + std::min(index, num_longer), size + (index < num_longer ? 1 : 0)};
}

void Communicator::all_reduce(Numbers values) {
    count_all_reduce(values);
    all_reduce_numbers(values);
}

std::unique_ptr<PendingReduction> Communicator::start_all_reduce(Numbers values) {
    count_all_reduce(values);
    return start_all_reduce_numbers(values);
}

void Communicator::reduce_scatter(Numbers values) {
    count(&BytesSent::reduce_scatter, bytes_without_part(values, rank_));
    reduce_scatter_numbers(values);
}

void Communicator::all_gather(Numbers values) {
    count(&BytesSent::all_gather, bytes_without_part(values, (rank_ + 1) % size_));
    all_gather_numbers(values);
}

std::unique_ptr<Communicator> Communicator::split(std::size_t color) {
    std::unique_ptr<Communicator> part = split_group(color);
    part->counter_->parent = counter_;
    return part;
}

std::unique_ptr<PendingReduction> Communicator::start_all_reduce_numbers(Numbers values) {
    all_reduce_numbers(values);
    return std::make_unique<PendingReduction>();
}

void Communicator::check_rank(std::size_t other) const {
    require(other < size_, "rank {} of a group of {}", other, size_);
}

void Communicator::count(std::uint64_t BytesSent::*kind, std::uint64_t num_bytes) {
    for (Counter* counter = counter_.get(); counter; counter = counter->parent.get())
        counter->sent.*kind += num_bytes;
}

void Communicator::count_all_reduce(const Numbers& values) {
    count(&BytesSent::all_reduce,
          bytes_without_part(values, rank_) + bytes_without_part(values, (rank_ + 1) % size_));
}

std::uint64_t Communicator::bytes_without_part(const Numbers& values,
                                               std::size_t of_rank) const {
    return std::visit(
        [&]<class Number>(std::span<Number> all) {
            const Part part = part_of(all.size(), size_, of_rank);
            return std::uint64_t{sizeof(Number)} * (all.size() - part.size);
        },
        values);
}

}  // namespace llm
