#include "chapters/24_parallel/ring.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "common/parallel/thread_ranks.hpp"
#include "common/tensors/shape.hpp"

using namespace llm;

namespace {

// Numbers of different sizes, whose sum depends on the order of the additions.
std::vector<Real> numbers_of(std::size_t rank, std::size_t count) {
    std::vector<Real> values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = std::sin(Real(i + 977 * rank)) * std::pow(Real(10), Real(i % 5));
    return values;
}

// The sum of number i, added in the order in which its part goes around the ring.
Real ring_sum(std::size_t i, std::size_t part, std::size_t num_ranks, std::size_t count) {
    Real sum = numbers_of((part + 1) % num_ranks, count)[i];
    for (std::size_t step = 2; step <= num_ranks; ++step)
        sum += numbers_of((part + step) % num_ranks, count)[i];
    return sum;
}

bool same_bits(std::span<const Real> a, std::span<const Real> b) {
    if (a.size() != b.size()) return false;
    return a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST_CASE("ring_all_reduce: the sums, added in the order of the ranks after the part's own") {
    for (const std::size_t num_ranks : {1, 2, 3, 4, 5})
        for (const std::size_t count : {0, 1, 3, 4, 37}) {
            std::vector<Real> expected(count);
            for (std::size_t part = 0; part < num_ranks; ++part) {
                const auto [begin, size] = part_of(count, num_ranks, part);
                for (std::size_t i = begin; i < begin + size; ++i)
                    expected[i] = ring_sum(i, part, num_ranks, count);
            }
            run_ranks(num_ranks, [&](Communicator& ranks) {
                std::vector<Real> values = numbers_of(ranks.rank(), count);
                ring_all_reduce(ranks, values);
                CHECK(same_bits(values, expected));
            });
        }
}

TEST_CASE("ring_reduce_scatter gives each rank its part, ring_all_gather all parts") {
    run_ranks(3, [](Communicator& ranks) {
        const std::size_t rank = ranks.rank();
        std::vector<Real> values = {1, 2, 3, 4, 5, 6, 7};
        for (Real& value : values) value *= Real(rank + 1);  // the sums are 6 times these
        ring_reduce_scatter(ranks, values);
        const auto [begin, size] = part_of(7, 3, rank);
        for (std::size_t i = begin; i < begin + size; ++i)
            CHECK(values[i] == Real(6 * (i + 1)));
        for (std::size_t i = 0; i < 7; ++i)
            if (i < begin || i >= begin + size) values[i] = -1;
        ring_all_gather(ranks, values);
        for (std::size_t i = 0; i < 7; ++i) CHECK(values[i] == Real(6 * (i + 1)));
    });
}

TEST_CASE("ring_numbers_sent: 2 (n - 1)/n N, as counted, also if n does not divide N") {
    CHECK(ring_numbers_sent(12, 4, 0) == 2 * 3 * 12 / 4);
    CHECK(ring_numbers_sent(12, 1, 0) == 0);
    for (const std::size_t num_ranks : {1, 2, 3, 4, 5})
        for (const std::size_t count : {1, 12, 37})
            run_ranks(num_ranks, [&](Communicator& ranks) {
                std::vector<Real> values(count);
                ring_all_reduce(ranks, values);
                CHECK(ranks.num_bytes_sent() ==
                      sizeof(Real) * ring_numbers_sent(count, num_ranks, ranks.rank()));
            });
}

TEST_CASE("reduce_at_root: the same sums, and rank 0 sends n - 1 times as much") {
    run_ranks(4, [](Communicator& ranks) {
        std::vector<Real> values(10, Real(ranks.rank() + 1));
        reduce_at_root(ranks, values);
        CHECK(values == std::vector<Real>(10, 10));
        CHECK(ranks.num_bytes_sent() == sizeof(Real) * (ranks.rank() == 0 ? 30 : 10));
    });
}

TEST_CASE("the ring passes NaN of one rank to all") {
    run_ranks(3, [](Communicator& ranks) {
        std::vector<Real> values(5, 1);
        if (ranks.rank() == 2) values[1] = std::numeric_limits<Real>::quiet_NaN();
        ring_all_reduce(ranks, values);
        for (std::size_t i = 0; i < 5; ++i) CHECK(std::isnan(values[i]) == (i == 1));
    });
}

}  // namespace
