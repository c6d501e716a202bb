// The loss by position: by hand, and as parts of the mean loss of chapter 12.
#include <cmath>

#include "chapters/04_rope/rope_scaling.hpp"
#include "chapters/12_gradients/loss.hpp"
#include "chapters/17_long_context/loss_by_position.hpp"
#include "tests/support/check.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

TEST_CASE("loss_by_position by hand: one mean per position, over the batch") {
    // Probabilities 1/4 and 3/4 are logits 0 and ln 3.
    const Real ln3 = Real(std::log(3.0));
    const Tensor3 logits = {{{0, ln3}, {0, 0}, {0, ln3}}, {{0, ln3}, {0, 0}, {ln3, 0}}};
    const Vector losses = loss_by_position(logits, {{0, 1, 1}, {1, 0, 1}});
    const double quarter = std::log(4.0), three_quarters = std::log(4.0 / 3);
    CHECK_CLOSE(losses,
                (Vector{Real((quarter + three_quarters) / 2), Real(std::log(2.0)),
                        Real((three_quarters + quarter) / 2)}),
                1e-6);
    CHECK_CLOSE(loss_by_position({{{0, ln3}, {0, ln3}}}, {{0, 1}}),
                (Vector{Real(quarter), Real(three_quarters)}), 1e-6);
}

TEST_CASE("with its own rotary table, the mean over the positions is the model's loss") {
    const Config config = small_config();
    Generator generator(2);
    Model model = make_model(config, generator);
    const IdMatrix inputs = {{1, 2, 8, 0, 5}, {7, 7, 3, 4, 6}, {0, 1, 2, 3, 4}};
    const IdMatrix targets = {{2, 8, 0, 5, 3}, {7, 3, 4, 6, 0}, {8, 1, 0, 2, 2}};
    const Vector losses = loss_by_position(model, model.rotary_table(5), inputs, targets);
    CHECK(xt::mean<Real>(losses)() ==
          doctest::Approx(cross_entropy(model(inputs), targets)).epsilon(1e-5));

    // Another table is used, and it may be longer than the context.
    const Vector slow = interpolate_positions(inverse_frequencies(4, config.rope_theta), 4);
    const RotaryTable scaled = make_rotary_table(slow, 80);
    CHECK(difference(loss_by_position(model, scaled, inputs, targets), losses, 1e-4) != "");
    const IdMatrix longer = xt::ones<Id>({1, 70});
    model.config.max_position_embeddings = 128;
    CHECK(loss_by_position(model, scaled, longer, longer).size() == 70);
    CHECK_THROWS_WITH_AS(loss_by_position(model, model.rotary_table(5), longer, longer),
                         "attention: kv_len 70 exceeds the 5 positions of the rotary table",
                         ValueError);
}

TEST_CASE("loss_by_part: the means of the parts of the positions, over adjacent sequences") {
    Generator generator(2);
    const Model model = make_model(small_config(), generator);
    const RotaryTable table = model.rotary_table(12);
    std::vector<Id> tokens(25);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Id>(i * 5 % 17);
    const auto row = [&](std::size_t begin) {
        IdMatrix ids(std::array{std::size_t{1}, std::size_t{12}});
        std::copy_n(tokens.begin() + std::ptrdiff_t(begin), 12, ids.begin());
        return ids;
    };
    const Vector losses = (loss_by_position(model, table, row(0), row(1)) +
                           loss_by_position(model, table, row(12), row(13))) /
                          Real(2);
    const std::vector<double> parts = loss_by_part(model, table, tokens, 4, 9);
    REQUIRE(parts.size() == 3);
    for (std::size_t part = 0; part < 3; ++part) {
        double sum = 0;
        for (std::size_t t = 4 * part; t < 4 * part + 4; ++t) sum += double(losses(t));
        CHECK(parts[part] == doctest::Approx(sum / 4).epsilon(1e-5));
    }
    CHECK(loss_by_part(model, table, tokens, 4, 1) != parts);
    CHECK_THROWS_WITH_AS(loss_by_part(model, table, tokens, 5, 9),
                         "loss_by_part: parts of 5 and 25 tokens do not match 12 positions",
                         ValueError);
    CHECK_THROWS_AS(loss_by_part(model, table, {1, 2, 3}, 4, 9), ValueError);
}
