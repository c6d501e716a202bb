// Messages between ranks, which are threads here and processes in test_mpi.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common/tensors/shape.hpp"
#include "tests/support/ranks.hpp"

using namespace llm;

namespace {

// Different on each rank and at each index; the sums of up to 8 ranks are exact.
template <class Number>
std::vector<Number> numbers_of_rank(std::size_t rank, std::size_t count) {
    std::vector<Number> numbers(count);
    for (std::size_t i = 0; i < count; ++i)
        numbers[i] = static_cast<Number>(100 * rank + i) / 4;
    return numbers;
}
template <class Number>
std::vector<Number> sum_of_ranks(std::size_t num_ranks, std::size_t count) {
    std::vector<Number> sums(count);
    for (std::size_t rank = 0; rank < num_ranks; ++rank) {
        const std::vector<Number> numbers = numbers_of_rank<Number>(rank, count);
        for (std::size_t i = 0; i < count; ++i) sums[i] += numbers[i];
    }
    return sums;
}

constexpr std::array<std::size_t, 5> counts = {0, 1, 2, 11, 10007};

TEST_CASE("part_of: the parts follow one another, and the first ones are longer by one") {
    CHECK(part_of(11, 3, 0).begin == 0);
    CHECK(part_of(11, 3, 0).size == 4);
    CHECK(part_of(11, 3, 1).begin == 4);
    CHECK(part_of(11, 3, 1).size == 4);
    CHECK(part_of(11, 3, 2).begin == 8);
    CHECK(part_of(11, 3, 2).size == 3);
    CHECK(part_of(1, 3, 1).begin == 1);
    CHECK(part_of(1, 3, 1).size == 0);
    CHECK_THROWS_WITH_AS(part_of(11, 3, 3), "part_of: part 3 of 3", ValueError);
}

TEST_CASE("messages arrive in the order in which they were sent, and are counted in bytes") {
    for_ranks([](Communicator& world) {
        const std::size_t last = world.size() - 1;
        if (last == 0) return;
        const std::uint64_t before = world.num_bytes_sent();
        for (const std::size_t count : counts) {
            if (world.rank() == 0) {
                world.send<float>(numbers_of_rank<float>(3, count), last);
                world.send<double>(numbers_of_rank<double>(4, 5), last);
            } else if (world.rank() == last) {
                std::vector<float> numbers(count);
                std::vector<double> more(5);
                world.receive<float>(numbers, 0);
                world.receive<double>(more, 0);
                CHECK(numbers == numbers_of_rank<float>(3, count));
                CHECK(more == numbers_of_rank<double>(4, 5));
            }
        }
        const std::uint64_t sent = world.num_bytes_sent() - before;
        CHECK(sent == (world.rank() == 0 ? 4 * (1 + 2 + 11 + 10007) + 5 * 5 * 8 : 0));
    });
}

TEST_CASE("send_receive: all ranks of a ring send and receive at once") {
    for_ranks([](Communicator& world) {
        const std::size_t next = (world.rank() + 1) % world.size();
        const std::size_t previous = (world.rank() + world.size() - 1) % world.size();
        for (const std::size_t count : counts) {
            std::vector<float> received(count);
            const std::uint64_t before = world.num_bytes_sent();
            world.send_receive<float>(numbers_of_rank<float>(world.rank(), count), next,
                                      received, previous);
            CHECK(received == numbers_of_rank<float>(previous, count));
            CHECK(world.num_bytes_sent() - before == 4 * count);
        }
    });
}

// How many bytes of the kinds were sent after `before`.
std::vector<std::uint64_t> sent_after(const BytesSent& before, const BytesSent& after) {
    return {after.messages - before.messages, after.broadcast - before.broadcast,
            after.all_reduce - before.all_reduce, after.reduce_scatter - before.reduce_scatter,
            after.all_gather - before.all_gather};
}

TEST_CASE("bytes of collective functions: what a ring sends, by function and transport alike") {
    for_ranks([](Communicator& world) {
        const std::size_t n = world.size(), rank = world.rank(), next = (rank + 1) % n;
        for (const std::size_t count : {std::size_t(1), std::size_t(11)}) {
            std::vector<double> values(count);
            const std::uint64_t own = 8 * part_of(count, n, rank).size;
            const std::uint64_t of_next = 8 * part_of(count, n, next).size;
            const std::uint64_t all = 8 * count;
            using Sent = std::vector<std::uint64_t>;
            BytesSent before = world.bytes_sent();
            const auto check = [&](const Sent& expected) {
                CHECK(sent_after(before, world.bytes_sent()) == expected);
                before = world.bytes_sent();
            };
            world.reduce_scatter(values);
            check({0, 0, 0, all - own, 0});
            world.all_gather(values);
            check({0, 0, 0, 0, all - of_next});
            world.all_reduce(values);
            check({0, 0, 2 * all - own - of_next, 0, 0});
            world.start_all_reduce(values)->wait();
            check({0, 0, 2 * all - own - of_next, 0, 0});
            world.broadcast<double>(values, n - 1);
            check({0, next == n - 1 ? 0 : all, 0, 0, 0});
        }
    });
}

TEST_CASE("bytes sent in a group are also counted in the group that it was split from") {
    for_ranks([](Communicator& world) {
        const BytesSent before = world.bytes_sent();
        const auto half = world.split(world.rank() % 2);
        const auto alone = half->split(half->rank());
        std::vector<float> values(6);
        half->all_gather(values);
        alone->send_receive<float>(values, 0, std::span(values), 0);
        const std::uint64_t gathered =
            4 * (6 - part_of(6, half->size(), (half->rank() + 1) % half->size()).size);
        CHECK(alone->bytes_sent().messages == 24);
        CHECK(alone->bytes_sent().collectives() == 0);
        CHECK(half->bytes_sent().messages == 24);
        CHECK(half->bytes_sent().collectives() == gathered);
        CHECK(sent_after(before, world.bytes_sent()) ==
              std::vector<std::uint64_t>{24, 0, 0, 0, gathered});
    });
}

TEST_CASE("broadcast: the values of the root are on all ranks") {
    for_ranks([](Communicator& world) {
        for (std::size_t root = 0; root < world.size(); ++root)
            for (const std::size_t count : counts) {
                std::vector<double> values = numbers_of_rank<double>(world.rank(), count);
                world.broadcast<double>(values, root);
                CHECK(values == numbers_of_rank<double>(root, count));
            }
    });
}

template <class Number>
void check_reductions(Communicator& world) {
    for (const std::size_t count : counts) {
        const std::vector<Number> own = numbers_of_rank<Number>(world.rank(), count);
        const std::vector<Number> sums = sum_of_ranks<Number>(world.size(), count);
        std::vector<Number> reduced = own;
        world.all_reduce(reduced);
        CHECK(reduced == sums);

        // A reduce-scatter gives each rank its part; the all-gather after it, all parts.
        std::vector<Number> scattered = own;
        world.reduce_scatter(scattered);
        const auto [begin, size] = part_of(count, world.size(), world.rank());
        for (std::size_t i = 0; i < count; ++i)
            if (scattered[i] != (i >= begin && i < begin + size ? sums[i] : own[i]))
                FAIL_CHECK("number ", i, " of ", count);
        world.all_gather(scattered);
        CHECK(scattered == sums);
    }
}

TEST_CASE("all_reduce, reduce_scatter and all_gather: the sums over the ranks, of any length") {
    for_ranks([](Communicator& world) {
        check_reductions<float>(world);
        check_reductions<double>(world);
    });
}

TEST_CASE("start_all_reduce: several at once, and the sums after wait") {
    for_ranks([](Communicator& world) {
        std::vector<std::vector<float>> values;
        std::vector<std::unique_ptr<PendingReduction>> pending;
        for (const std::size_t count : counts)
            values.push_back(numbers_of_rank<float>(world.rank(), count));
        for (std::vector<float>& numbers : values)
            pending.push_back(world.start_all_reduce(numbers));
        for (int i = 0; i < 3; ++i)
            for (const auto& reduction : pending) reduction->progress();
        for (const auto& reduction : pending) reduction->wait();
        for (std::size_t i = 0; i < counts.size(); ++i)
            CHECK(values[i] == sum_of_ranks<float>(world.size(), counts[i]));
    });
}

TEST_CASE("all_reduce: each rank has the same bits, and NaN of one rank on all") {
    for_ranks([](Communicator& world) {
        std::vector<float> values(1001);
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = std::sin(static_cast<float>(i + 7919 * world.rank())) *
                        std::pow(10.0f, static_cast<float>(i % 7));
        world.all_reduce(values);
        std::vector<float> of_first = values;
        world.broadcast<float>(of_first, 0);
        CHECK(values == of_first);

        std::vector<float> gradient(3, 1);
        if (world.rank() + 1 == world.size())
            gradient[1] = std::numeric_limits<float>::quiet_NaN();
        world.all_reduce(gradient);
        CHECK(gradient[0] == static_cast<float>(world.size()));
        CHECK(std::isnan(gradient[1]));
    });
}

TEST_CASE("split: the ranks of a color are a group, in the order of their ranks") {
    for_ranks([](Communicator& world) {
        const std::size_t color = world.rank() % 2;
        const std::unique_ptr<Communicator> part = world.split(color);
        CHECK(part->size() == (world.size() + 1 - color) / 2);
        CHECK(part->rank() == world.rank() / 2);
        std::vector<float> values = {static_cast<float>(world.rank())};
        part->all_reduce(values);
        float sum = 0;
        for (std::size_t rank = color; rank < world.size(); rank += 2)
            sum += static_cast<float>(rank);
        CHECK(values[0] == sum);

        // The same colors once more, for other groups.
        const std::unique_ptr<Communicator> pair = world.split(world.rank() / 2);
        CHECK(pair->size() == std::min<std::size_t>(2, world.size() - world.rank() / 2 * 2));
        CHECK(pair->rank() == world.rank() % 2);

        // Messages in the group of all do not reach the other groups.
        world.barrier();
        const std::unique_ptr<Communicator> alone = part->split(part->rank());
        CHECK(alone->size() == 1);
        alone->all_reduce(values);
        CHECK(values[0] == sum);
    });
}

TEST_CASE("barrier: no rank goes on before the last one has come") {
    for_ranks([](Communicator& world) {
        // Each rank tells the first one after the barrier what it did before it.
        std::vector<double> entered(world.size());
        entered[world.rank()] = 1;
        world.barrier();
        world.all_reduce(entered);
        CHECK(std::accumulate(entered.begin(), entered.end(), 0.0) ==
              static_cast<double>(world.size()));
    });
}

TEST_CASE("a message of another length is an error, and can be received afterwards") {
    for_ranks([](Communicator& world) {
        const std::size_t last = world.size() - 1;
        if (last == 0) return;
        const std::vector<float> message = {1, 2, 3};
        for (int i = 0; i < 2 && world.rank() == 0; ++i) world.send<float>(message, last);
        if (world.rank() != last) return;
        std::vector<float> received(2);
        const std::string error =
            "rank " + std::to_string(last) + " expects 8 bytes from rank 0, which sent 12";
        CHECK_THROWS_WITH_AS(world.receive<float>(received, 0), error.c_str(), ValueError);
        received.resize(3);
        for (int i = 0; i < 2; ++i) world.receive<float>(received, 0);
        CHECK(received == message);
    });
}

TEST_CASE("a rank that does not exist is an error") {
    for_ranks([](Communicator& world) {
        const std::vector<float> message(1);
        std::vector<float> values(1);
        const std::size_t size = world.size();
        const std::string error =
            "rank " + std::to_string(size) + " of a group of " + std::to_string(size);
        CHECK_THROWS_WITH_AS(world.send<float>(message, size), error.c_str(), ValueError);
        CHECK_THROWS_WITH_AS(world.receive<float>(values, size), error.c_str(), ValueError);
        CHECK_THROWS_WITH_AS(world.send_receive<float>(message, 0, values, size), error.c_str(),
                             ValueError);
        CHECK_THROWS_WITH_AS(world.broadcast<float>(values, size), error.c_str(), ValueError);
    });
}

}  // namespace
