#include "chapters/28_model_parallel/expert_parallel.hpp"

#include "common/parallel/ranks_in_turn.hpp"
#include "tests/support/check.hpp"
#include "tests/support/expert_axes.hpp"

using namespace llm;
using namespace llm::parallel_tests;

namespace {

// How many values rank a has for rank b: also none, and some that it keeps.
std::size_t count_of(std::size_t a, std::size_t b) { return (2 * a + b + 1) % 4; }
// Value i of them.
Real value_of(std::size_t a, std::size_t b, std::size_t i) {
    return Real(100 * a + 10 * b + i);
}

// 6 rows for 5 experts, of which experts 1 and 3 have none: row r is (r, 10 r).
const Dispatch six_rows{{0, 1, 2, 3, 4, 5}, {0, 0, 0, 0, 0, 0}, {0, 2, 2, 5, 5, 6}};

TEST_CASE("expert parallelism on 1 to 4 ranks: the gradient of one process") {
    check_expert_parallel(1e-5);
}

void check_all_to_all(Communicator& ranks) {
    const std::size_t n = ranks.size(), rank = ranks.rank();
    std::vector<std::size_t> sent, received;
    std::vector<Real> values, expected;
    std::size_t num_sent_away = 0;
    for (std::size_t r = 0; r < n; ++r) {
        sent.push_back(count_of(rank, r));
        received.push_back(count_of(r, rank));
        if (r != rank) num_sent_away += sent.back();
        for (std::size_t i = 0; i < sent.back(); ++i) values.push_back(value_of(rank, r, i));
        for (std::size_t i = 0; i < received.back(); ++i)
            expected.push_back(value_of(r, rank, i));
    }
    const std::uint64_t before = ranks.num_bytes_sent();
    CHECK(all_to_all<Real>(ranks, values, sent, received) == expected);
    CHECK(ranks.num_bytes_sent() - before == num_sent_away * sizeof(Real));
}

TEST_CASE("all_to_all: each rank gets what each rank has for it, in the order of the ranks") {
    for (const std::size_t n : {1, 2, 3, 4, 7}) {
        CAPTURE(n);
        run_ranks(n, check_all_to_all);
        run_ranks_in_turn(n, check_all_to_all);
    }
}

TEST_CASE("all_to_all names counts that do not fit the ranks, the values or each other") {
    run_ranks(2, [](Communicator& ranks) {
        const std::vector<Real> values = {1, 2, 3};
        CHECK_THROWS_WITH_AS(all_to_all<Real>(ranks, values, {3}, {1, 2}),
                             "all_to_all: counts for 1 ranks and from 2, but there are 2",
                             ValueError);
        CHECK_THROWS_WITH_AS(all_to_all<Real>(ranks, values, {1, 2}, {3}),
                             "all_to_all: counts for 2 ranks and from 1, but there are 2",
                             ValueError);
        CHECK_THROWS_WITH_AS(all_to_all<Real>(ranks, values, {1, 1}, {1, 1}),
                             "all_to_all: 2 values to send, but there are 3", ValueError);
        if (ranks.rank() == 0)
            CHECK_THROWS_WITH_AS(all_to_all<Real>(ranks, values, {1, 2}, {2, 1}),
                                 "all_to_all: rank 0 keeps 1 values, and expects 2",
                                 ValueError);
    });
}

TEST_CASE("rows reach the rank of their expert, sorted by expert and rank, and come back") {
    // Rank 0 has experts 0 to 2, rank 1 has 3 and 4. Of rank 1, the rows are 100 larger.
    run_ranks(2, [](Communicator& ranks) {
        Matrix rows(std::array<std::size_t, 2>{6, 2});
        for (std::size_t row = 0; row < 6; ++row) {
            rows(row, 0) = Real(row + 100 * ranks.rank());
            rows(row, 1) = 10 * rows(row, 0);
        }
        const ExpertExchange exchange = plan_exchange(ranks, six_rows);
        CHECK(exchange.sent == std::vector<std::size_t>{5, 1});
        const std::size_t from_each = ranks.rank() == 0 ? 5 : 1;
        CHECK(exchange.received == std::vector<std::size_t>{from_each, from_each});
        const Matrix of_experts = dispatch_rows(ranks, exchange, rows);
        if (ranks.rank() == 0) {
            CHECK(exchange.dispatch.first_row == std::vector<std::size_t>{0, 4, 4, 10});
            const std::vector<Real> first = {0, 1, 100, 101, 2, 3, 4, 102, 103, 104};
            for (std::size_t row = 0; row < first.size(); ++row)
                CHECK(of_experts(row, 0) == first[row]);
        } else {
            CHECK(exchange.dispatch.first_row == std::vector<std::size_t>{0, 0, 2});
            CHECK_CLOSE(of_experts, (Matrix{{5, 50}, {105, 1050}}), 0);
        }
        CHECK_CLOSE(combine_rows(ranks, exchange, of_experts), rows, 0);
    });
}

TEST_CASE("more ranks than experts: the last ranks have none, and the outputs are the same") {
    MoeDecoder model = expert_model(expert_cases()[1]);
    const Batch batch = square_batch(7, 4);
    set_capacity_factor(model, 0.8);  // of a rank's own tokens, and in training alone
    run_ranks(7, [&](Communicator& ranks) {
        const IdMatrix own = sequences_of_rank(batch, ranks).batch.input_ids;
        const ExpertParallelDecoder part = expert_parallel_part(model, ranks);
        CHECK(std::get<MixtureOfExperts>(part.layers[0].mlp.part).experts.size() ==
              (ranks.rank() < 5 ? 1 : 0));
        CHECK_CLOSE(part(own), model(own), 1e-5);
        CHECK_CLOSE(model_forward(part, own).output, model_forward(model, own).output, 1e-5);
    });
}

TEST_CASE(
    "the load is a mean over the tokens of all ranks, also if they have unequal numbers") {
    run_ranks(2, [](Communicator& ranks) {
        MoeActivations saved;
        saved.router_logits = Matrix(std::array<std::size_t, 2>{1, 3});
        saved.routed.experts = ranks.rank() == 0 ? IdMatrix{{0}, {0}, {1}} : IdMatrix{{2}};
        CHECK_CLOSE(expert_load(ranks, saved), (Vector{0.5, 0.25, 0.25}), 1e-7);
    });
}

}  // namespace
