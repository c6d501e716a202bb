#include "common/parallel/shared_memory_rank.hpp"

#include <algorithm>
#include <cstring>

#include "common/tensors/shape.hpp"

namespace llm {

void SharedMemoryRank::all_reduce_numbers(Numbers values) {
    std::visit([&](auto own) { add_over_ranks(own, {0, own.size()}); }, values);
}

void SharedMemoryRank::reduce_scatter_numbers(Numbers values) {
    std::visit([&](auto own) { add_over_ranks(own, part_of(own.size(), size(), rank())); },
               values);
}

void SharedMemoryRank::all_gather_numbers(Numbers values) {
    std::visit(
        [&]<class Number>(std::span<Number> own) {
            const std::vector<Passed> passed =
                exchange_equal_sizes({std::as_bytes(own), sizeof(Number)});
            for (std::size_t other = 0; other < size(); ++other) {
                const auto [begin, count] = part_of(own.size(), size(), other);
                if (other != rank() && count > 0)
                    std::memcpy(own.data() + begin,
                                &passed[other].bytes[begin * sizeof(Number)],
                                count * sizeof(Number));
            }
            end_exchange();
        },
        values);
}

std::unique_ptr<Communicator> SharedMemoryRank::split_group(std::size_t color) {
    const std::vector<Passed> passed = exchange({std::as_bytes(std::span(&color, 1))});
    std::vector<std::size_t> members;
    for (std::size_t other = 0; other < size(); ++other)
        if (std::memcmp(passed[other].bytes.data(), &color, sizeof(color)) == 0)
            members.push_back(other);
    end_exchange();
    return join(color, members);
}

void SharedMemoryRank::broadcast_bytes(Bytes values, std::size_t root) {
    const ConstBytes source = exchange_equal_sizes({values})[root].bytes;
    if (rank() != root) std::copy(source.begin(), source.end(), values.begin());
    end_exchange();
}

std::vector<Passed> SharedMemoryRank::exchange_equal_sizes(Passed own) {
    const std::vector<Passed> passed = exchange(own);
    for (std::size_t other = 0; other < size(); ++other) {
        const auto& [bytes, number_size] = passed[other];
        require(bytes.size() == own.bytes.size() && number_size == own.number_size,
                "a collective function of {} bytes in numbers of {} on rank {}, of {} in "
                "numbers of {} on rank {}",
                own.bytes.size(), own.number_size, rank(), bytes.size(), number_size, other);
    }
    return passed;
}

// Replaces a part of the numbers with its sums over all ranks.
template <class Number>
void SharedMemoryRank::add_over_ranks(std::span<Number> own, Part part) {
    const std::vector<Passed> passed =
        exchange_equal_sizes({std::as_bytes(own), sizeof(Number)});
    std::vector<Number> sums(part.size, Number(0));
    for (const auto& [bytes, number_size] : passed)
        for (std::size_t i = 0; i < part.size; ++i) {
            Number number;
            std::memcpy(&number, &bytes[(part.begin + i) * sizeof(Number)], sizeof(Number));
            sums[i] += number;
        }
    end_exchange();
    std::copy(sums.begin(), sums.end(), own.data() + part.begin);
}

}  // namespace llm
