#include "chapters/24_parallel/exercise.hpp"

#include <cmath>

#include "chapters/24_parallel/ring.hpp"
#include "common/parallel/thread_ranks.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

// Different on each rank and at each index; sums of up to 8 ranks are exact.
std::vector<Real> values_of_rank(std::size_t rank, std::size_t count) {
    std::vector<Real> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = Real(100 * rank + i);
    return values;
}
std::vector<Real> sums_of_ranks(std::size_t num_ranks, std::size_t count) {
    std::vector<Real> sums(count);
    for (std::size_t rank = 0; rank < num_ranks; ++rank)
        for (std::size_t i = 0; i < count; ++i) sums[i] += values_of_rank(rank, count)[i];
    return sums;
}

// What a rank sends in one of the lesson's functions.
template <class Function>
Id bytes_of(const Function& function) {
    std::uint64_t bytes = 0;
    run_ranks(5, [&](Communicator& ranks) {
        std::vector<Real> values(1000);
        function(ranks, std::span(values));
        if (ranks.rank() == 0) bytes = ranks.num_bytes_sent();
    });
    return static_cast<Id>(bytes);
}

}  // namespace

TEST_CASE("24.1 predict: bytes of a step") {
    const Id scatter = bytes_of(ring_reduce_scatter), gather = bytes_of(ring_all_gather);
    INFO("each of the two halves of an all-reduce sends 4 of 5 parts");
    CHECK(predicted_bytes() ==
          (IdVector{bytes_of(ring_all_reduce), scatter + gather, gather + gather + scatter}));
}

TEST_CASE("24.2 predict: bytes that a rank keeps") {
    const Id all = 1'000'000, shard = static_cast<Id>(part_of(1'000'000, 4, 0).size);
    INFO("4 bytes for parameters, 4 for gradients, 8 for moving averages");
    CHECK(predicted_kept() ==
          (IdVector{16 * all, 8 * all + 8 * shard, 4 * all + 12 * shard, 16 * shard}));
}

TEST_CASE("24.3 find the bug: a norm that grows with the number of ranks") {
    std::vector<Real> whole = {3, -1, 2, 5, -4, 1}, norm_weights = {6, -2};
    double sum_of_squares = 0;
    for (const std::vector<Real>* list : {&whole, &norm_weights})
        for (const Real g : *list) sum_of_squares += double(g * g);
    for (const std::size_t num_ranks : {1, 2, 3}) {
        CAPTURE(num_ranks);
        INFO("each element of the gradient counts once");
        run_ranks(num_ranks, [&](Communicator& ranks) {
            const Part part = part_of(whole.size(), num_ranks, ranks.rank());
            const std::vector<Parameter> shard = shard_of({{"w", {6}, whole}}, part);
            CHECK(norm_on_ranks(ranks, shard, {{"norm", {2}, norm_weights}}) ==
                  doctest::Approx(std::sqrt(sum_of_squares)));
        });
    }
}

TEST_CASE("24.4 write mean_over_ranks") {
    const std::vector<Vector> losses = {{1, 2, 30}, {4, 50}, {60}};
    const std::vector<IdVector> targets = {{7, 0, -100}, {3, -100}, {-100}};
    run_ranks(3, [&](Communicator& ranks) {
        INFO("the losses 1, 2 and 4; rank 2 has no token with a target");
        const double mean = mean_over_ranks(ranks, losses[ranks.rank()], targets[ranks.rank()]);
        CHECK(mean == doctest::Approx(7.0 / 3));
    });
}

TEST_CASE("24.5 write an all-reduce by halving and doubling") {
    for (const std::size_t num_ranks : {1, 2, 4, 8})
        for (const std::size_t count : {8, 19, 3}) {
            CAPTURE(num_ranks);
            CAPTURE(count);
            const std::vector<Real> sums = sums_of_ranks(num_ranks, count);
            run_ranks(num_ranks, [&](Communicator& ranks) {
                const auto [begin, size] = part_of(count, num_ranks, ranks.rank());
                std::vector<Real> values = values_of_rank(ranks.rank(), count);
                INFO("first step: rank r has the sums of part r");
                halving_reduce_scatter(ranks, values);
                for (std::size_t i = begin; i < begin + size; ++i)
                    REQUIRE(values[i] == sums[i]);

                std::vector<Real> own(count);
                std::copy_n(sums.begin() + std::ptrdiff_t(begin), size,
                            own.begin() + std::ptrdiff_t(begin));
                doubling_all_gather(ranks, own);
                const bool is_gathered = own == sums;
                REQUIRE_MESSAGE(is_gathered, "second step: each rank has all parts");

                std::vector<Real> all = values_of_rank(ranks.rank(), count);
                const std::uint64_t before = ranks.num_bytes_sent();
                halving_all_reduce(ranks, all);
                const bool is_reduced = all == sums;
                REQUIRE_MESSAGE(is_reduced, "third step: the sums, on each rank");
                const std::uint64_t sent = ranks.num_bytes_sent() - before;
                if (count % num_ranks == 0)
                    CHECK_MESSAGE(sent == sizeof(Real) * ring_numbers_sent(count, num_ranks, 0),
                                  "as many bytes as in a ring");
            });
        }
    run_ranks(3, [](Communicator& ranks) {
        std::vector<Real> values(3);
        CHECK_THROWS_AS(halving_all_reduce(ranks, values), ValueError);
    });
}
