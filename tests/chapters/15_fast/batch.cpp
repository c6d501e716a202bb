#include "common/numbers/statistics.hpp"
#include "tests/support/fast_helpers.hpp"

using namespace llm;

namespace {

constexpr std::size_t page_size = 4;

// A sequence whose pages are scattered over the memory.
struct Sequence {
    std::vector<Id> ids;
    std::vector<std::size_t> pages;
    std::size_t seq_len = 0;

    SequenceTokens next(std::size_t count, std::optional<LogitsToKeep> keep) const {
        return {std::span(ids).subspan(seq_len, count), seq_len, {pages, page_size}, keep};
    }
};

// Lengths of 11, 18 and 40 tokens; page p of the memory belongs to sequence p % 3, backward.
std::vector<Sequence> three_sequences() {
    std::vector<Sequence> sequences;
    for (const std::size_t length : {11u, 18u, 40u}) {
        Sequence sequence{some_ids(length), {}};
        for (Id& id : sequence.ids) id = (id + Id(length)) % 131;
        for (std::size_t page = 0; page * page_size < length; ++page)
            sequence.pages.push_back(3 * (9 - page) + sequences.size());
        sequences.push_back(sequence);
    }
    return sequences;
}

// Takes steps of these numbers of tokens of each sequence, and compares the logits of all
// tokens with those of each sequence alone.
double largest_difference_of_steps(const FastModel& model,
                                   const std::vector<std::array<std::size_t, 3>>& steps,
                                   DType cache_dtype = DType::float32) {
    std::vector<Sequence> sequences = three_sequences();
    KVMemory memory = make_kv_memory(model.config, 30 * page_size, cache_dtype);
    Workspace workspace = make_workspace(model.config, 40);
    std::vector<RunState> alone;
    for (const Sequence& sequence : sequences)
        alone.push_back(make_run_state(model, sequence.ids.size(), cache_dtype));
    double largest = 0;  // relative to the largest logit
    for (const std::array<std::size_t, 3>& counts : steps) {
        std::vector<SequenceTokens> batch;
        for (std::size_t i = 0; i < 3; ++i)
            if (counts[i] > 0) batch.push_back(sequences[i].next(counts[i], LogitsToKeep::all));
        const Matrix logits = matrix_of(compute_logits(model, batch, memory, workspace));
        std::size_t row = 0;
        for (std::size_t i = 0; i < 3; ++i) {
            if (counts[i] == 0) continue;
            const SequenceTokens tokens = sequences[i].next(counts[i], LogitsToKeep::all);
            const Matrix expected =
                matrix_of(compute_logits(model, tokens.new_ids, alone[i], LogitsToKeep::all));
            const Matrix actual = xt::view(logits, xt::range(row, row + counts[i]));
            const double scale = std::max(1.0, double(xt::amax(xt::abs(expected))()));
            largest = std::max(largest, largest_difference(actual, expected) / scale);
            row += counts[i];
            sequences[i].seq_len += counts[i];
        }
        CHECK(row == logits.shape(0));
    }
    return largest;
}

}  // namespace

TEST_CASE("a batch gives the logits of each sequence alone, a few tokens at a time") {
    for (const char* name : {"GQA", "Qwen 3", "biases"})
        for (const DType dtype : weight_dtypes) {
            const FastModel fast = make_fast_model(model_named(name), dtype);
            const double largest = largest_difference_of_steps(
                fast, {{3, 0, 5}, {1, 1, 1}, {0, 5, 2}, {1, 2, 1}, {1, 1, 1}, {2, 4, 7}});
            INFO(name);
            CHECK(largest < 1e-5);
        }
}

TEST_CASE("a batch gives the logits of each sequence alone, many tokens at a time") {
    for (const char* name : {"GQA", "Qwen 3"})
        for (const DType cache_dtype : {DType::float32, DType::float16}) {
            const FastModel fast = make_fast_model(model_named(name), DType::float32);
            const double largest = largest_difference_of_steps(
                fast, {{1, 9, 30}, {1, 1, 1}, {1, 7, 2}, {7, 1, 7}}, cache_dtype);
            INFO(name);
            // A difference of 1e-7 can round a key or value to the next float16, 5e-4 away.
            CHECK(largest < (cache_dtype == DType::float32 ? 1e-6 : 1e-4));
        }
}

TEST_CASE("scattered pages give the logits of one page") {
    for (const DType cache_dtype : {DType::float32, DType::float16}) {
        const FastModel fast = make_fast_model(model_named("GQA"), DType::bfloat16);
        const Sequence sequence = three_sequences()[2];
        KVMemory memory = make_kv_memory(fast.config, 30 * page_size, cache_dtype);
        Workspace workspace = make_workspace(fast.config, 40);
        RunState state = make_run_state(fast, 40, cache_dtype);
        for (const std::size_t count : {5u, 1u, 16u, 1u, 2u, 1u}) {
            const std::span<const Id> new_ids =
                std::span(sequence.ids).subspan(state.seq_len, count);
            const SequenceTokens tokens{new_ids, state.seq_len, {sequence.pages, page_size}};
            const Matrix paged =
                matrix_of(compute_logits(fast, {&tokens, 1}, memory, workspace));
            CHECK_CLOSE(paged, matrix_of(compute_logits(fast, new_ids, state)), 1e-5);
        }
    }
}

TEST_CASE("each sequence of a batch keeps the logits of all tokens, of its last one or none") {
    const FastModel fast = make_fast_model(model_named("GQA"), DType::float32);
    const std::vector<Sequence> sequences = three_sequences();
    KVMemory memory = make_kv_memory(fast.config, 30 * page_size);
    Workspace workspace = make_workspace(fast.config, 40);
    for (const std::size_t count : {3u, 9u}) {
        const auto logits_of = [&](std::array<std::optional<LogitsToKeep>, 3> keep) {
            std::vector<SequenceTokens> batch;
            for (std::size_t i = 0; i < 3; ++i)
                batch.push_back(sequences[i].next(count, keep[i]));
            return matrix_of(compute_logits(fast, batch, memory, workspace));
        };
        using enum LogitsToKeep;
        const Matrix every = logits_of({all, all, all});
        const Matrix some = logits_of({last, all, last});
        REQUIRE(some.shape(0) == count + 2);
        for (std::size_t row = 0; row < count + 2; ++row) {
            const std::size_t from = row == 0       ? count - 1
                                     : row <= count ? count + row - 1
                                                    : 3 * count - 1;
            CHECK_CLOSE(Vector(xt::row(some, std::ptrdiff_t(row))),
                        Vector(xt::row(every, std::ptrdiff_t(from))), 1e-5);
        }
        const Matrix one = logits_of({std::nullopt, std::nullopt, last});
        REQUIRE(one.shape(0) == 1);
        CHECK_CLOSE(Vector(xt::row(one, 0)),
                    Vector(xt::row(every, std::ptrdiff_t(3 * count - 1))), 1e-5);
        CHECK(logits_of({std::nullopt, std::nullopt, std::nullopt}).shape(0) == 0);
    }
}

TEST_CASE("a batch that does not fit is rejected, and nothing is stored") {
    const FastModel fast = make_fast_model(model_named("GQA"), DType::float32);
    KVMemory memory = make_kv_memory(fast.config, 12);
    Workspace workspace = make_workspace(fast.config, 10);
    const std::vector<Id> ids = {1, 2, 3, 4, 5};
    const std::vector<std::size_t> pages = {2, 0, 1}, missing = {1, 3};
    const SequenceTokens good{ids, 0, {pages, 4}};
    const auto reject = [&](const SequenceTokens& bad, const char* message) {
        const std::array<SequenceTokens, 2> batch = {good, bad};
        CHECK_THROWS_WITH_AS(compute_logits(fast, batch, memory, workspace), message,
                             ValueError);
        CHECK(memory.keys == xt::zeros_like(memory.keys));
    };
    reject({{}, 0, {pages, 4}}, "fast model: no tokens are given");
    reject({ids, 6, {pages, 4}}, "cache: 5 tokens after 6 others exceed 10 positions");
    reject({ids, 0, {std::span(pages).first(1), 4}},
           "cache: 5 tokens after 0 others exceed 4 positions");
    reject({ids, 0, {missing, 4}}, "cache: page 3 of 4 slots is not in a memory of 12 slots");
    const std::vector<Id> unknown = {131};
    reject({unknown, 0, {pages, 4}}, "model: there is no token 131 in a vocabulary of 131");
    CHECK_THROWS_WITH_AS(compute_logits(fast, SequenceBatch{}, memory, workspace),
                         "fast model: no sequences are given", ValueError);
    CHECK_THROWS_WITH_AS(make_kv_memory(fast.config, 0),
                         "fast model: a cache needs at least one slot", ValueError);
}

TEST_CASE(
    "hidden states: given embeddings replace those of the ids, the last ones are copied") {
    Generator generator(1);
    const Model model = make_test_model(odd_config(), generator);
    const FastModel fast = make_fast_model(model, DType::float32);
    for (const std::size_t count : {3u, 20u}) {  // a decode step, and a prefill
        const std::vector<Id> ids = some_ids(count);
        const std::vector<Id> others(count, 7);
        const Tensor3 embeddings = model.embed(one_sequence(ids));  // (1, T, C)
        const Matrix inputs_embeds = xt::view(embeddings, 0);       // (T, C)
        FastSequence sequence(fast, make_run_state(fast, 44));
        sequence.keep_hidden_states();
        const Matrix logits =
            matrix_of(sequence.compute(others, LogitsToKeep::all, view_of(inputs_embeds)));
        CHECK_CLOSE(logits, logits_of(model, ids), 1e-5);

        // They are those after the final norm: the head gives the logits.
        const Tensor3 last = xt::expand_dims(sequence.last_hidden_states, 0);  // (1, P, C)
        const Tensor3 kept = xt::view(last, xt::all(), xt::range(0, count), xt::all());
        CHECK_CLOSE(lm_head(model.head(), kept), model(one_sequence(ids)), 1e-5);

        // Tokens after them: their rows follow, also if only the last logits are kept.
        sequence.compute(ids, LogitsToKeep::last);
        std::vector<Id> both = ids;
        both.insert(both.end(), ids.begin(), ids.end());
        const Tensor3 all = xt::expand_dims(sequence.last_hidden_states, 0);  // (1, P, C)
        const Tensor3 of_both = xt::view(all, xt::all(), xt::range(0, 2 * count), xt::all());
        CHECK_CLOSE(lm_head(model.head(), of_both), model(one_sequence(both)), 1e-5);

        // Views of another shape are rejected.
        const Matrix wrong = xt::zeros<Real>({count, std::size_t{3}});
        CHECK_THROWS_WITH_AS(
            compute_logits(fast, ids, sequence.state, LogitsToKeep::last, {view_of(wrong), {}}),
            ("fast model: hidden states of (" + to_text(count) + ", 3) for " + to_text(count) +
             " tokens of 70 features")
                .c_str(),
            ValueError);
    }
}
