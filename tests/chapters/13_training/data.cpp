#include <set>

#include "tests/support/training.hpp"

using namespace llm;

TEST_CASE("random_batch: targets are the inputs one token later, from random positions") {
    const std::vector<Id> tokens = {0, 1, 2, 3, 4, 5, 6};
    Generator generator(1);
    std::set<Id> starts;
    for (int i = 0; i < 200; ++i) {
        const Batch batch = random_batch(tokens, 2, 4, generator);
        for (const auto& [b, t] : every_index(2, 4)) {
            CHECK(batch.targets(b, t) == batch.input_ids(b, t) + 1);
            CHECK(batch.input_ids(b, t) == batch.input_ids(b, 0) + static_cast<Id>(t));
        }
        starts.insert(batch.input_ids(0, 0));
    }
    CHECK(starts == std::set<Id>{0, 1, 2});
    CHECK_THROWS_AS(random_batch(tokens, 2, 7, generator), ValueError);
}

TEST_CASE("batch_at: the sequences that start at the given positions") {
    const std::vector<Id> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
    const Batch batch = batch_at(tokens, {4, 0}, 3);
    CHECK_CLOSE(batch.input_ids, (IdMatrix{{5, 9, 2}, {3, 1, 4}}), 0);
    CHECK_CLOSE(batch.targets, (IdMatrix{{9, 2, 6}, {1, 4, 1}}), 0);
    CHECK_THROWS_WITH_AS(batch_at(tokens, {5}, 3),
                         "training: a sequence of 3 tokens at 5 does not fit into 8 tokens",
                         ValueError);
}

TEST_CASE("train_validation_split: every tenth of a hundred pieces is held out") {
    std::vector<Id> tokens(1000);
    for (std::size_t i = 0; i < 1000; ++i) tokens[i] = static_cast<Id>(i);
    const Dataset dataset = train_validation_split(tokens, 99);
    CHECK(dataset.train.size() == 900);
    CHECK(dataset.validation.size() == 100);
    for (const Id id : dataset.validation) CHECK(id % 100 >= 90);
    for (const Id id : dataset.train) CHECK(id % 100 < 90);
    CHECK_THROWS_AS(train_validation_split(tokens, 100), ValueError);
}

namespace {

// The mean of -ln p over sequences with these numbers, token by token.
double loss_by_hand(const Model& model, const std::vector<Id>& tokens, std::size_t seq_len,
                    const std::vector<std::size_t>& sequences) {
    double sum = 0;
    for (const std::size_t number : sequences) {
        const std::size_t start = number * seq_len;
        IdMatrix input_ids = xt::zeros<Id>({std::size_t(1), seq_len});
        std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(start), seq_len,
                    input_ids.begin());
        const Tensor3 logits = model(input_ids);
        for (std::size_t t = 0; t < seq_len; ++t) {
            double sum_of_exp = 0;
            for (std::size_t v = 0; v < logits.shape(2); ++v)
                sum_of_exp += std::exp(double(logits(0, t, v)));
            const auto next = static_cast<std::size_t>(tokens[start + t + 1]);
            sum += std::log(sum_of_exp) - double(logits(0, t, next));
        }
    }
    return sum / double(sequences.size() * seq_len);
}

}  // namespace

TEST_CASE("evaluate: the mean of -ln p over batches that are evenly spaced over the text") {
    const Model model = fixture_model();
    const TrainingArguments args = small_arguments(5);  // B = 3, T = 5
    const auto check = [&](std::size_t num_tokens, std::size_t max_batches,
                           const std::vector<std::size_t>& sequences) {
        const std::vector<Id> tokens = square_tokens(num_tokens);
        CHECK(evaluate_loss(model, tokens, args, max_batches) ==
              doctest::Approx(loss_by_hand(model, tokens, 5, sequences)).epsilon(1e-6));
    };
    check(70, 20, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});  // too short for a fifth batch
    check(70, 2, {0, 1, 2, 6, 7, 8});                       // batches 0 and 2 of these 4
    check(31, 20, {0, 1, 2, 3, 4, 5});  // 2 batches, and the target of the last token
    check(30, 20, {0, 1, 2});           // without that target
    check(12, 20, {0, 1});              // a short text: a batch of 2 sequences
    check(10, 20, {0});                 // one token is missing for a second sequence
    check(6, 20, {0});
    CHECK_THROWS_WITH_AS(evaluate_loss(model, square_tokens(5), args, 20),
                         "training: 5 tokens are too few to evaluate with 5", ValueError);
}
