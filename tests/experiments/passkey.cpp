// The texts of the passkey test, and how its answers are counted.
#include <cmath>

#include "chapters/17_long_context/rope_extension.hpp"
#include "chapters/experiments/passkey.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

namespace {

bool is_value(Id id) { return id < Id(num_passkey_values); }
bool is_key(Id id) { return !is_value(id) && id < Id(num_passkey_values + num_passkey_keys); }

// Where this id is first in row b.
std::size_t first_position(const ResponseBatch& batch, std::size_t b, Id id) {
    std::size_t t = 0;
    while (batch.input_ids(b, t) != id) ++t;
    return t;
}

Model passkey_model() {
    Config config = small_config();
    config.vocab_size = passkey_vocab_size;
    config.max_position_embeddings = 32;
    config.tie_word_embeddings = true;
    Generator generator(3);
    return make_model_for_training(config, generator);
}

}  // namespace

TEST_CASE("passkey_batch: each key stands once before its value, and is asked for at the end") {
    Generator generator(1);
    constexpr std::size_t T = 29, num_pairs = 3;
    const ResponseBatch batch = passkey_batch(40, T, num_pairs, generator);
    for (std::size_t b = 0; b < 40; ++b) {
        std::vector<Id> asked;
        for (std::size_t t = 0; t < T; ++t) {
            if (t + 1 < T) REQUIRE(batch.targets(b, t) == batch.input_ids(b, t + 1));
            REQUIRE(batch.response_mask(b, t) == (t >= T - 5 && (T - 1 - t) % 2 == 0 ? 1 : 0));
            if (batch.response_mask(b, t) == 0) continue;
            const Id key = batch.input_ids(b, t);
            CHECK(is_key(key));
            CHECK(is_value(batch.targets(b, t)));
            CHECK(std::count(asked.begin(), asked.end(), key) == 0);
            asked.push_back(key);
            const std::size_t first = first_position(batch, b, key);
            CHECK(first < T - 5);
            CHECK(batch.input_ids(b, first + 1) == batch.targets(b, t));
        }
        CHECK(asked.size() == num_pairs);
    }
    CHECK_THROWS_WITH_AS(passkey_batch(1, 18, 5, generator),
                         "passkey_batch: 5 pairs in 18 tokens", ValueError);
    CHECK_THROWS_WITH_AS(passkey_batch(1, 90, 9, generator),
                         "passkey_batch: 9 pairs in 90 tokens", ValueError);
}

TEST_CASE("passkey_test: the depth is where the pair stands") {
    Generator generator(2);
    constexpr std::size_t T = 23;  // 20 words, a pair, and the key again
    for (const auto& [depth, position] : {std::pair{0.0, 0u}, {0.25, 5u}, {1.0, 20u}}) {
        const ResponseBatch batch = passkey_test(8, T, depth, generator);
        for (std::size_t b = 0; b < 8; ++b) {
            const Id key = batch.input_ids(b, T - 1);
            CHECK(is_key(key));
            CHECK(first_position(batch, b, key) == position);
            CHECK(batch.input_ids(b, position + 1) == batch.targets(b, T - 1));
            for (std::size_t t = 0; t < T; ++t)
                CHECK(batch.response_mask(b, t) == (t + 1 == T ? 1 : 0));
        }
    }
    CHECK_THROWS_WITH_AS(passkey_test(1, 2, 0, generator), "passkey_test: 1 pairs in 2 tokens",
                         ValueError);
}

TEST_CASE("passkey_accuracy counts the rows whose last logit is largest at the value") {
    const Model model = passkey_model();
    const PatternDecoder decoder = make_pattern_decoder(model, false);
    Generator generator(4);
    ResponseBatch batch = passkey_test(5, 30, 0.5, generator);
    const Tensor3 logits = model(batch.input_ids);
    for (std::size_t b = 0; b < 5; ++b) {
        const Vector row = xt::view(logits, b, 29, xt::all());
        const auto best = std::max_element(row.begin(), row.end()) - row.begin();
        batch.targets(b, 29) = static_cast<Id>(b < 2 ? best : (best + 1) % 30);
    }
    const RotaryTable table = extended_rotary_table(model.config, RopeExtension::none, 1);
    CHECK(passkey_accuracy(decoder, table, batch) == doctest::Approx(0.4));

    // With a longer table, sequences may be longer than those of training.
    const RotaryTable longer = extended_rotary_table(model.config, RopeExtension::yarn, 2);
    const double accuracy =
        passkey_accuracy(decoder, longer, passkey_test(3, 60, 0.5, generator));
    CHECK(accuracy >= 0);
    CHECK(accuracy <= 1);
}

TEST_CASE("train_on_passkeys lowers the loss of the values") {
    Model model = passkey_model();
    TrainingArguments args;
    args.batch_size = 8;
    args.seq_len = 24;
    args.lr_schedule = {Real(0.01), Real(0.001), 2, 40};
    const std::vector<Real> losses = train_on_passkeys(model, args);
    REQUIRE(losses.size() == 40);
    CHECK(double(losses[0]) ==
          doctest::Approx(std::log(double(passkey_vocab_size))).epsilon(0.03));
    CHECK(losses[39] < std::log(Real(passkey_vocab_size)) - Real(0.4));  // at least: a value
}
