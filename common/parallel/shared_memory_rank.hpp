// The collective functions of ranks that share the memory of a process.
#pragma once

#include <vector>

#include "common/parallel/communicator.hpp"

namespace llm {

// What a rank passes to a collective function: the bytes of numbers of this size.
struct Passed {
    std::span<const std::byte> bytes;
    std::size_t number_size = 1;
};

// Sums are added in the order of the ranks, so that each rank computes the same bits. Throws
// ValueError if the ranks pass different sizes or types.
class SharedMemoryRank : public Communicator {
 protected:
    using Communicator::Communicator;

    // Waits until all ranks have called it. Returns what each passed, which stays as it is
    // until this rank calls end_exchange.
    virtual std::vector<Passed> exchange(Passed own) = 0;
    virtual void end_exchange() = 0;
    // The group of these ranks of this group. All ranks call it, each for its color.
    virtual std::unique_ptr<Communicator> join(std::size_t color,
                                               const std::vector<std::size_t>& members) = 0;

 private:
    void broadcast_bytes(Bytes values, std::size_t root) override;
    void all_reduce_numbers(Numbers values) override;
    void reduce_scatter_numbers(Numbers values) override;
    void all_gather_numbers(Numbers values) override;
    std::unique_ptr<Communicator> split_group(std::size_t color) override;
    std::vector<Passed> exchange_equal_sizes(Passed own);
    template <class Number>
    void add_over_ranks(std::span<Number> own, Part part);
};

}  // namespace llm
