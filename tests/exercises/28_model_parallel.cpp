#include "chapters/28_model_parallel/exercise.hpp"

#include <algorithm>
#include <cmath>

#include "common/parallel/thread_ranks.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

Config divided_config() {
    Config config = mini_llm_config();
    config.hidden_size = 64;
    config.num_hidden_layers = 1;
    config.num_attention_heads = 8;
    config.num_key_value_heads = 2;
    config.head_dim = 8;
    config.intermediate_size = 160;
    config.vocab_size = 12;
    return config;
}

// What rank 1 of 4 sends in the forward pass of the layer, for a sequence of 20 tokens.
Id numbers_sent(bool sequence_parallel) {
    Generator generator(1);
    const Model model = make_model(divided_config(), generator);
    std::uint64_t bytes = 0;
    run_ranks(4, [&](Communicator& ranks) {
        const TensorParallelModel part =
            tensor_parallel_part(model, {&ranks, sequence_parallel, 20});
        const std::size_t own_len = sequence_parallel ? 5 : 20;
        const Tensor3 states = xt::zeros<Real>({std::size_t{1}, own_len, std::size_t{64}});
        const AttentionInputs inputs = causal_attention_inputs(model.config, 1, 20);
        const std::uint64_t before = ranks.num_bytes_sent();
        layers_forward(part.layers, states, inputs);
        if (ranks.rank() == 1) bytes = ranks.num_bytes_sent() - before;
    });
    return static_cast<Id>(bytes / sizeof(Real));
}

Matrix random_matrix(std::size_t num_rows, std::size_t num_columns, std::uint32_t seed) {
    Generator generator(seed);
    return randn({num_rows, num_columns}, generator);
}

// The schedule of the lesson, as text and as a drawing.
std::string text_of(const StageSchedule& schedule) {
    std::string text;
    for (const auto& [pass, micro_batch] : schedule)
        text += (text.empty() ? "" : " ") + std::string(pass == Pass::forward ? "F" : "B") +
                std::to_string(micro_batch);
    return text;
}
std::vector<StageSchedule> schedules_of_lesson(std::size_t m, std::size_t p) {
    std::vector<StageSchedule> schedules;
    for (std::size_t stage = 0; stage < p; ++stage)
        schedules.push_back(one_forward_one_backward_schedule(m, p, stage));
    return schedules;
}
std::vector<std::string> drawing_of_lesson(std::size_t m, std::size_t p) {
    std::vector<std::string> rows(p, std::string(2 * (m + p - 1), '.'));
    const std::vector<std::vector<TimedAction>> times =
        run_times(schedules_of_lesson(m, p), 1, 1);
    for (std::size_t stage = 0; stage < p; ++stage)
        for (const auto& [action, begin, end] : times[stage])
            rows[stage].at(std::size_t(begin)) = static_cast<char>(
                (action.pass == Pass::forward ? '0' : 'a') + int(action.micro_batch));
    return rows;
}

// Attention of the queries to all keys that they see, by chapter 05.
Matrix whole_attention(const Matrix& queries, const IdVector& positions,
                       const KeyBlock& block) {
    Matrix mask = xt::zeros<Real>({queries.shape(0), block.keys.shape(0)});
    for (const auto& [t, s] : every_index(queries.shape(0), block.keys.shape(0)))
        if (block.positions(s) > positions(t)) mask(t, s) = -infinity;
    return attention(queries, block.keys, block.values, mask).context;
}

// 8 keys at positions 0 to 7, or those at some positions.
KeyBlock keys_at(const IdVector& positions) {
    const Matrix keys = random_matrix(8, 4, 2), values = random_matrix(8, 4, 3);
    KeyBlock block{Matrix(std::array{positions.size(), std::size_t{4}}),
                   Matrix(std::array{positions.size(), std::size_t{4}}), positions};
    for (const auto& [s, d] : every_index(positions.size(), 4)) {
        const auto position = static_cast<std::size_t>(positions(s));
        block.keys(s, d) = 3 * keys(position, d);  // so that scores differ
        block.values(s, d) = values(position, d);
    }
    return block;
}

// The queries of exercise 28.5, (3, 4), and what they have of the keys at some positions.
const Matrix query = {{2, 0, 0, 0}};  // D = 4, so a score is half of the product
Matrix three_queries() { return random_matrix(3, 4, 1); }
AttentionState attend(const IdVector& positions, const IdVector& keys) {
    return attend_to_keys(three_queries(), positions, keys_at(keys));
}
const IdVector all_positions = {0, 1, 2, 3, 4, 5, 6, 7};

void check_state(const AttentionState& state, const AttentionState& expected) {
    CHECK_CLOSE(state.max, expected.max, 1e-6);
    CHECK_CLOSE(state.sum, expected.sum, 1e-5);
    CHECK_CLOSE(state.output, expected.output, 1e-5);
}

void check_one_block() {
    const KeyBlock two{
        {{0, 5, 5, 5}, {Real(std::log(3)), 5, 5, 5}}, {{1, 0, 0, 8}, {0, 1, 0, 8}}, {0, 1}};
    {
        INFO("step 1: scores log 1 and log 3, relative to the larger one");
        check_state(attend_to_keys(query, {1}, two),
                    {{Real(std::log(3))}, {Real(4) / 3}, {{Real(1) / 3, 1, 0, Real(32) / 3}}});
    }
    {
        INFO("step 1: the softmax is 1/4 and 3/4, the log-sum-exp log 4");
        const auto [context, log_sum_exp] = finish(attend_to_keys(query, {1}, two));
        CHECK_CLOSE(context, (Matrix{{Real(0.25), Real(0.75), 0, 8}}), 1e-6);
        CHECK_CLOSE(log_sum_exp, (Vector{Real(std::log(4))}), 1e-6);
    }
    {
        INFO("step 1: a query at position 0 does not see the key at position 1");
        check_state(attend_to_keys(query, {0}, two), {{0}, {1}, {{1, 0, 0, 8}}});
    }
}

void check_two_blocks() {
    const IdVector last = {7, 7, 7};
    {
        INFO("step 2: a state of keys 0 to 4 and one of keys 5 to 7 is one of keys 0 to 7");
        const AttentionState a = attend(last, {0, 1, 2, 3, 4}), b = attend(last, {5, 6, 7});
        const AttentionState all = attend(last, all_positions);
        check_state(merge_states(a, b), all);
        check_state(merge_states(b, a), all);
    }
    {
        INFO("step 2: scores of 200 and of -200, whose exponential is infinite or 0");
        const KeyBlock high{{{200, 0, 0, 0}}, {{1, 2, 3, 4}}, {0}};
        const KeyBlock low{{{-200, 0, 0, 0}}, {{5, 6, 7, 8}}, {0}};
        const AttentionState of_high = attend_to_keys(query, {0}, high);
        const AttentionState of_low = attend_to_keys(query, {0}, low);
        for (const auto& [context, log_sum_exp] :
             {finish(merge_states(of_high, of_low)), finish(merge_states(of_low, of_high))}) {
            CHECK_CLOSE(context, (Matrix{{1, 2, 3, 4}}), 1e-6);
            CHECK_CLOSE(log_sum_exp, (Vector{200}), 1e-6);
        }
    }
}

void check_hidden_blocks() {
    const Matrix zeros = xt::zeros<Real>({3, 4});
    const AttentionState early = attend({2, 5, 7}, {0, 1}), hidden = attend({0, 1, 2}, {6, 3});
    {
        INFO("step 3: queries at positions 0, 1 and 2 see none of the keys at 6 and 3");
        check_state(hidden, {{-infinity, -infinity, -infinity}, {0, 0, 0}, zeros});
    }
    {
        INFO("step 3: without keys, the result is 0, and its log-sum-exp -inf");
        CHECK_CLOSE(finish(hidden).context, zeros, 0);
        CHECK_CLOSE(finish(hidden).log_sum_exp, hidden.max, 0);
    }
    {
        INFO("step 3: such a block changes nothing, merged before or after another");
        check_state(merge_states(hidden, early), early);
        check_state(merge_states(early, hidden), early);
        CHECK_CLOSE(finish(merge_states(hidden, hidden)).context, zeros, 0);
    }
}

void check_blocks_in_any_order() {
    // Zigzag chunks of three ranks. The query at position 2 sees none of the last block.
    const Matrix queries = three_queries();
    const IdVector positions = {2, 5, 7};
    const std::vector<KeyBlock> blocks = {keys_at({0, 7}), keys_at({1, 2, 6}),
                                          keys_at({3, 4, 5})};
    const Matrix context = whole_attention(queries, positions, keys_at(all_positions));
    const Vector log_sum_exp = finish(attend(positions, all_positions)).log_sum_exp;
    std::vector<std::size_t> order = {0, 1, 2};
    do {
        INFO("step 4: blocks in the order " << order[0] << ", " << order[1] << ", "
                                            << order[2]);
        const BlockAttention result = attend_to_blocks(
            queries, positions, {blocks[order[0]], blocks[order[1]], blocks[order[2]]});
        CHECK_CLOSE(result.context, context, 1e-5);
        CHECK_CLOSE(result.log_sum_exp, log_sum_exp, 1e-5);
    } while (std::next_permutation(order.begin(), order.end()));
    INFO("step 4: one block of all keys");
    CHECK_CLOSE(attend_to_blocks(queries, positions, {keys_at(all_positions)}).context, context,
                1e-5);
}

}  // namespace

TEST_CASE("28.1 predict: time lost in a pipeline, and micro-batches that a stage keeps") {
    const std::vector<StageSchedule> one = schedules_of_lesson(12, 4);
    const Id percent = static_cast<Id>(std::lround(100 * bubble(run_times(one, 1, 2))));
    INFO("counted in the schedules of the lesson");
    CHECK(predicted_pipeline() ==
          (IdVector{percent, static_cast<Id>(most_in_flight(gpipe_schedule(12))),
                    static_cast<Id>(most_in_flight(one[0]))}));
}

TEST_CASE("28.2 predict: what a rank of four has of a layer, and sends") {
    IdVector expected = {0, 0, 0, numbers_sent(false), numbers_sent(true)};
    run_ranks(4, [&](Communicator& ranks) {
        if (ranks.rank() != 1) return;
        std::size_t i = 0;
        for (const std::string name : {"self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj"})
            expected(i++) = static_cast<Id>(
                slice_of(divided_config(), "model.layers.0." + name + ".weight", {&ranks})
                    .part.size);
    });
    INFO("slices of rank 1, and numbers that it sent in the forward pass of a layer");
    CHECK(predicted_slices() == expected);
}

TEST_CASE("28.3 find the bug: tokens that are written too often") {
    const IdVector targets = {7, 0, 4, 4, 2};
    for (const std::size_t num_ranks : {1, 2, 3}) {
        CAPTURE(num_ranks);
        const Matrix logits = random_matrix(5, 8, 4);
        Vector log_sum_exp(std::array<std::size_t, 1>{5});
        for (std::size_t row = 0; row < 5; ++row) {
            double sum = 0;
            for (std::size_t v = 0; v < 8; ++v) sum += std::exp(double(logits(row, v)));
            log_sum_exp(row) = static_cast<Real>(std::log(sum));
        }
        std::vector<double> losses(num_ranks);
        Matrix gradient = xt::zeros<Real>({5, 8});
        run_ranks(num_ranks, [&](Communicator& ranks) {
            const Part own = part_of(8, num_ranks, ranks.rank());
            Matrix own_logits(std::array{std::size_t{5}, own.size});
            for (const auto& [row, v] : every_index(5, own.size))
                own_logits(row, v) = logits(row, own.begin + v);
            const auto [loss, own_gradient] =
                cross_entropy_of_part(ranks, own_logits, log_sum_exp, targets, own);
            losses[ranks.rank()] = loss;
            for (const auto& [row, v] : every_index(5, own.size))
                gradient(row, own.begin + v) = own_gradient(row, v);
        });
        for (const double loss : losses) {
            INFO("the loss of one process, on each rank");
            CHECK(loss == doctest::Approx(cross_entropy(logits, targets)));
        }
        INFO("5 targets (rows), 8 tokens (columns): the gradients of all ranks side by side");
        CHECK_CLOSE(gradient, cross_entropy_backward(logits, targets), 1e-6);
    }
}

TEST_CASE("28.4 write the schedule one forward, one backward") {
    const auto warmups = [](std::size_t m) {  // of the stages of 4
        std::vector<std::size_t> result;
        for (std::size_t stage = 0; stage < 4; ++stage)
            result.push_back(num_warmup_micro_batches(m, 4, stage));
        return result;
    };
    {
        INFO("step 1: stages 0, 1, 2 and 3 of 4, first with 9 micro-batches, then with 2");
        CHECK(warmups(9) == std::vector<std::size_t>{3, 2, 1, 0});
        CHECK(warmups(2) == std::vector<std::size_t>{2, 2, 1, 0});
    }
    {
        INFO("step 2: 3 micro-batches on the last of 3 stages, the middle and the first one");
        CHECK(schedule_of_stage(3, 3, 2) == "F0 B0 F1 B1 F2 B2");
        CHECK(schedule_of_stage(3, 3, 1) == "F0 F1 B0 F2 B1 B2");
        CHECK(schedule_of_stage(3, 3, 0) == "F0 F1 F2 B0 B1 B2");
    }
    for (std::size_t p = 1; p <= 5; ++p)
        for (std::size_t m = 1; m <= 12; ++m)
            for (std::size_t stage = 0; stage < p; ++stage) {
                INFO("step 2: m = " << m << " micro-batches, stage " << stage
                                    << " of p = " << p);
                REQUIRE(schedule_of_stage(m, p, stage) ==
                        text_of(one_forward_one_backward_schedule(m, p, stage)));
            }
    {
        INFO("step 3: 3 micro-batches, 2 stages");
        const std::vector<std::string> rows = pipeline_timeline(3, 2);
        REQUIRE(rows.size() == 2);
        CHECK(rows[0] == "01.a2b.c");
        CHECK(rows[1] == ".0a1b2c.");
    }
    for (std::size_t p = 1; p <= 5; ++p)
        for (std::size_t m = 1; m <= 10; ++m) {
            INFO("step 3: m = " << m << " micro-batches, p = " << p
                                << " stages; 2 (m + p - 1) ticks");
            REQUIRE(pipeline_timeline(m, p) == drawing_of_lesson(m, p));
        }
}

TEST_CASE("28.5 write the merge of ring attention") {
    check_one_block();
    check_two_blocks();
    check_hidden_blocks();
    check_blocks_in_any_order();
}
