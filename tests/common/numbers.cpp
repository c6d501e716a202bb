#include "common/numbers/ceil_div.hpp"
#include "common/numbers/interpolation.hpp"
#include "common/numbers/random.hpp"
#include "common/numbers/statistics.hpp"
#include "tests/support/check.hpp"

using namespace llm;

TEST_CASE("random numbers equal PyTorch's for any sequence of calls") {
    Generator generator(1234);
    CHECK_CLOSE(randn({3}, generator), fixture<1>("random/randn_3"), 1e-6);
    CHECK_CLOSE(randn({2}, generator), fixture<1>("random/randn_2_after_3"), 1e-6);
    CHECK_CLOSE(randn({16}, generator), fixture<1>("random/randn_16"), 1e-6);
    CHECK_CLOSE(randn({5, 7}, generator), fixture<2>("random/randn_5_by_7"), 1e-6);
    CHECK_CLOSE(rand({3, 4}, generator), fixture<2>("random/rand_3_by_4"), 0);
    CHECK_CLOSE(uniform({6}, -2.5f, 0.5f, generator), fixture<1>("random/uniform_6"), 1e-6);
    CHECK(randint(-3, 100, {9}, generator) == id_fixture<1>("random/randint_9"));
    CHECK_CLOSE(randn({3, 6}, generator), fixture<2>("random/embedding_3_by_6"), 1e-6);
}

TEST_CASE("ceil_div rounds a quotient up") {
    for (std::size_t number = 0; number < 20; ++number)
        for (std::size_t size = 1; size < 9; ++size) {
            const std::size_t parts = ceil_div(number, size);
            CHECK(parts * size >= number);
            CHECK((parts == 0 || (parts - 1) * size < number));
        }
    CHECK(ceil_div(std::uint64_t(1) << 40, 3) == 366503875926);
}

TEST_CASE("the largest seed gives PyTorch's random numbers") {
    Generator generator(4294967295);
    CHECK_CLOSE(randn({4, 4}, generator), fixture<2>("random/randn_last_seed"), 1e-6);
}

TEST_CASE("a generator goes on from its state, also between the two values of a normal pair") {
    Generator generator(3), other(4);
    generator.next_normal();  // keeps a spare value
    other.set_state(generator.state());
    for (int i = 0; i < 3; ++i) CHECK(other.next_normal() == generator.next_normal());
    CHECK(other.next_32_bits() == generator.next_32_bits());
    other.next_normal();
    other.set_state(generator.state());
    CHECK(other.next_normal() == generator.next_normal());
    CHECK_THROWS_WITH_AS(other.set_state("12 x"), "Generator: '12 x' is not a state",
                         ValueError);
}

TEST_CASE("randint rejects an empty range") {
    Generator generator(1);
    CHECK_THROWS_WITH(randint(5, 5, {2}, generator), "randint: the range [5, 5) is empty");
}

TEST_CASE("cubic_weights are those of PyTorch's bicubic interpolation") {
    for (const std::size_t to : {3, 5, 8}) {
        INFO(to);
        CHECK_CLOSE(cubic_weights(5, to),
                    fixture<2>("27_vision/cubic_5_to_" + std::to_string(to)), 1e-6);
    }
    const Matrix identity = xt::eye<Real>(5);
    CHECK_CLOSE(cubic_weights(5, 5), identity, 0);
    CHECK_CLOSE(cubic_weights(1, 2), (Matrix{{1}, {1}}), 1e-6);
}

TEST_CASE("mean_of, root_mean_square and largest_difference are computed over all elements") {
    CHECK(mean_of(Matrix{{-1, 5, 2}, {5, 7, 0}}) == doctest::Approx(3));
    CHECK(root_mean_square(Matrix{{-1, 5}, {5, 7}}) == doctest::Approx(5));
    CHECK(largest_difference(Vector{1, 2, 3}, Vector{1, 4, 2}) == 2);
    CHECK_THROWS_AS(largest_difference(Vector{1}, Vector{1, 2}), ValueError);
}
