// Ranks of one process: what ends a run.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "common/parallel/ranks_in_turn.hpp"
#include "common/parallel/thread_ranks.hpp"
#include "common/tensors/shape.hpp"

using namespace llm;

namespace {

constexpr std::array both = {run_ranks, run_ranks_in_turn};

TEST_CASE("run_ranks: each rank runs once") {
    std::vector<std::atomic<int>> calls(5);
    run_ranks(5, [&](Communicator& world) {
        CHECK(world.size() == 5);
        ++calls[world.rank()];
    });
    for (const std::atomic<int>& count : calls) CHECK(count == 1);
    for (const auto run : both)
        CHECK_THROWS_WITH_AS(run(0, [](Communicator&) {}), "run_ranks: 0 ranks", ValueError);
}

TEST_CASE("run_ranks_in_turn: a call that waits begins anew, and what it sent is sent once") {
    std::vector<int> calls(2);
    std::vector<float> received(3);
    run_ranks_in_turn(2, [&](Communicator& world) {
        ++calls[world.rank()];
        for (float i = 0; i < 3; ++i) {
            std::vector<float> message = {i};
            if (world.rank() == 0) world.receive<float>(message, 1);
            if (world.rank() == 1) world.send<float>(std::as_const(message), 0);
            if (world.rank() == 0) received[std::size_t(i)] += message[0];
        }
    });
    // Rank 0 waits for each message; after the second and third, it adds those before again.
    CHECK(calls == std::vector<int>{4, 4});
    CHECK(received == std::vector<float>{0, 2 * 1, 1 * 2});
}

TEST_CASE("run_ranks: two ranks that first send and then receive are a deadlock") {
    const auto send_first = [](Communicator& world) {
        std::vector<float> message(1);
        world.send<float>(std::as_const(message), 1 - world.rank());
        world.receive<float>(message, 1 - world.rank());
    };
    for (const auto run : both)
        CHECK_THROWS_WITH(
            run(2, send_first),
            "deadlock: rank 0 waits until rank 1 receives its message, rank 1 waits "
            "until rank 0 receives its message");
}

TEST_CASE("run_ranks: a rank that ends early leaves the others waiting, which is an error") {
    const auto uneven = [](Communicator& world) {
        const std::size_t num_batches = world.rank() == 0 ? 2 : 3;
        for (std::size_t batch = 0; batch < num_batches; ++batch) {
            std::vector<float> gradient(4);
            world.all_reduce(gradient);
        }
    };
    for (const auto run : both)
        CHECK_THROWS_WITH(
            run(3, uneven),
            "deadlock: rank 0 has ended, rank 1 waits for all ranks of a group of 3, "
            "rank 2 waits for all ranks of a group of 3");
    const auto late = [](Communicator& world) {  // when the others wait already
        if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        if (world.rank() > 0) world.barrier();
    };
    for (const auto run : both)
        CHECK_THROWS_WITH(
            run(2, late),
            "deadlock: rank 0 has ended, rank 1 waits for all ranks of a group of 2");
    const auto in_part_of_part = [](Communicator& world) {
        const std::unique_ptr<Communicator> part = world.split(world.rank() / 2)->split(0);
        if (world.rank() == 2) part->barrier();
    };
    for (const auto run : both)
        CHECK_THROWS_WITH(run(4, in_part_of_part),
                          "deadlock: rank 0 has ended, rank 1 has ended, rank 2 waits for all "
                          "ranks of a group of 2, rank 3 has ended");
    const auto from_nobody = [](Communicator& world) {
        std::vector<float> message(1);
        if (world.rank() == 1) world.receive<float>(message, 0);
    };
    for (const auto run : both)
        CHECK_THROWS_WITH(run(2, from_nobody),
                          "deadlock: rank 0 has ended, rank 1 waits for a message from rank 0");
}

TEST_CASE("run_ranks: an exception of one rank ends the others, and is thrown") {
    std::atomic<int> num_after_barrier = 0;
    const auto fail = [&](Communicator& world) {
        if (world.rank() == 1) throw std::domain_error("the loss is NaN");
        world.barrier();
        ++num_after_barrier;
    };
    for (const auto run : both)
        CHECK_THROWS_WITH_AS(run(4, fail), "the loss is NaN", std::domain_error);
    CHECK(num_after_barrier == 0);
}

TEST_CASE("run_ranks: messages and vectors of other lengths are errors that name the ranks") {
    const auto long_message = [](Communicator& world) {
        std::vector<float> message(world.rank() == 0 ? 3 : 2);
        if (world.rank() == 0)
            world.send<float>(std::as_const(message), 1);
        else
            world.receive<float>(message, 0);
    };
    for (const auto run : both)
        CHECK_THROWS_WITH_AS(run(2, long_message),
                             "rank 1 expects 8 bytes from rank 0, which sent 12", ValueError);
    const auto other_numbers = [](Communicator& world) {  // of as many bytes
        std::vector<float> floats(2);
        std::vector<double> doubles(1);
        world.all_reduce(world.rank() == 0 ? Numbers(floats) : Numbers(doubles));
    };
    for (const auto run : both) CHECK_THROWS_AS(run(2, other_numbers), ValueError);
    const auto long_vector = [](Communicator& world) {
        std::vector<double> values(world.rank() == 0 ? 3 : 2);
        world.all_reduce(values);
    };
    for (const auto run : both) CHECK_THROWS_AS(run(2, long_vector), ValueError);
}

}  // namespace
