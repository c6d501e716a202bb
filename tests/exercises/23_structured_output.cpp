#include "chapters/23_structured_output/exercise.hpp"

#include <algorithm>

#include "chapters/23_structured_output/schema/json_schema.hpp"
#include "chapters/23_structured_output/token_mask.hpp"
#include "common/files/json.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"

using namespace exercise;

namespace {

// How many of the nine tokens may come next.
Id num_allowed(const std::vector<Id>& ids) {
    Tokenizer tokenizer;
    tokenizer.token_bytes = {R"({"age":)", " ", "-", "0", "1", "7}", ".5", "}", ","};
    const Json schema = parse_json(
        R"({"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]})",
        "schema");
    TokenConstraint constraint(std::make_shared<const TokenTrie>(make_token_trie(tokenizer)),
                               std::make_shared<const Grammar>(json_schema_grammar(schema)));
    constraint.set_tokens(ids);
    const std::vector<bool> allowed = constraint.allowed_tokens();
    return std::ranges::count(allowed, true);
}

// Whether the bytes end a string, and no byte before the last one does.
bool ends_string(const std::string& bytes) {
    StringState state;
    for (const char byte : bytes) {
        const auto next = next_state(state, static_cast<unsigned char>(byte));
        if (!next) return false;
        state = *next;
    }
    return state.ended;
}

// Whether a text of at most so many symbols leads from the state to a final one: all are tried.
bool ends_in_time(const Automaton& automaton, int state, std::size_t max_symbols) {
    if (state < 0) return false;
    if (automaton.is_final[std::size_t(state)]) return true;
    if (max_symbols == 0) return false;
    return std::ranges::any_of(automaton.next[std::size_t(state)], [&](int after) {
        return ends_in_time(automaton, after, max_symbols - 1);
    });
}

Automaton random_automaton(std::size_t num_states, Generator& generator) {
    Automaton automaton{std::vector(num_states, std::vector<int>(3)),
                        std::vector<bool>(num_states)};
    for (std::size_t s = 0; s < num_states; ++s) {
        automaton.is_final[s] = generator.next_32_bits() % 4 == 0;
        for (int& after : automaton.next[s])
            after = int(generator.next_32_bits() % (num_states + 2)) - 2;
        for (int& after : automaton.next[s]) after = std::max(after, -1);
    }
    return automaton;
}

}  // namespace

TEST_CASE("23.1 predict: the tokens that may come next") {
    INFO("may an integer begin with it, go on with it, or end with it?");
    CHECK(predicted_tokens() ==
          IdVector{num_allowed({0}), num_allowed({0, 4}), num_allowed({0, 3})});
}

TEST_CASE("23.2 predict: masked, and conditioned") {
    const Real a = Real(0.8), ax = a * Real(0.25), bx = 1 - a;
    INFO("both first tokens can go on with an x: does the mask change their probabilities?");
    CHECK_CLOSE(predicted_probabilities(), (Vector{a, ax / (ax + bx)}), 1e-5);
}

TEST_CASE("23.3 find the bug: not valid UTF-8") {
    CHECK(ends_string("cafe\""));
    CHECK(ends_string("caf\xc3\xa9\""));
    CHECK(ends_string("\xe8\xaa\x9e\xf0\x9f\x98\x80\""));
    CHECK_FALSE(ends_string("cafe"));
    CHECK_FALSE(ends_string("a\"b\""));
    CHECK_FALSE(ends_string("a\n\""));
    CHECK_FALSE(ends_string("\xa9\""));
    INFO("a string cannot end in the middle of a character");
    CHECK_FALSE(ends_string("caf\xc3\""));
    CHECK_FALSE(ends_string("\xe8\xaa\""));
    CHECK_FALSE(ends_string("\xf0\x9f\x98\""));
}

TEST_CASE("23.4 write allowed_in_time") {
    // A list of ones: 0 begins, 1 after [ or a comma, 2 after an item, 3 after ]. Symbols: [ 1
    // , ]
    const Automaton list{{{1, -1, -1, -1}, {-1, 2, -1, -1}, {-1, -1, 1, 3}, {-1, -1, -1, -1}},
                         {false, false, false, true}};
    INFO("[1 may go on with a comma if three symbols are left, and must end if two are");
    REQUIRE(allowed_in_time(list, 2, 3) == std::vector<bool>{false, false, true, true});
    REQUIRE(allowed_in_time(list, 2, 2) == std::vector<bool>{false, false, false, true});
    REQUIRE(allowed_in_time(list, 2, 1) == std::vector<bool>{false, false, false, true});
    REQUIRE(allowed_in_time(list, 2, 0) == std::vector<bool>(4, false));
    INFO("[1] needs three symbols: with two, none may begin it");
    REQUIRE(allowed_in_time(list, 0, 3) == std::vector<bool>{true, false, false, false});
    REQUIRE(allowed_in_time(list, 0, 2) == std::vector<bool>(4, false));
    for (std::uint32_t seed = 0; seed < 200; ++seed) {
        Generator generator(seed);
        const Automaton automaton = random_automaton(2 + seed % 5, generator);
        for (std::size_t max_symbols = 0; max_symbols < 6; ++max_symbols)
            for (std::size_t state = 0; state < automaton.next.size(); ++state) {
                const auto allowed = allowed_in_time(automaton, int(state), max_symbols);
                REQUIRE(allowed.size() == 3);
                for (std::size_t a = 0; a < 3; ++a) {
                    CAPTURE(seed);
                    CAPTURE(state);
                    CAPTURE(a);
                    CAPTURE(max_symbols);
                    REQUIRE(allowed[a] == (max_symbols > 0 &&
                                           ends_in_time(automaton, automaton.next[state][a],
                                                        max_symbols - 1)));
                }
            }
    }
}

TEST_CASE("23.5 write conditioned") {
    const Vector first = {0.5, 0.3, 0.2};
    const Matrix second = {{0.1, 0.9, 0}, {0.5, 0.25, 0.25}, {0.2, 0.2, 0.6}};
    const std::vector<std::vector<bool>> allowed = {
        {true, false, true}, {true, true, false}, {false, false, false}};
    INFO("0.5 · 0.1 and 0.3 · 0.75 of all pairs are allowed, and nothing after token 2");
    CHECK_CLOSE(conditioned(first, second, allowed),
                (Vector{Real(0.05 / 0.275), Real(0.225 / 0.275), 0}), 1e-6);
    const std::vector<std::vector<bool>> all(3, std::vector<bool>(3, true));
    INFO("if every pair is allowed, it is the model's own distribution");
    CHECK_CLOSE(conditioned(first, second, all), first, 1e-6);
}
