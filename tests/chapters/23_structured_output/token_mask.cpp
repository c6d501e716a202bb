#include "chapters/23_structured_output/token_mask.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/23_structured_output/schema/json_schema.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/check.hpp"
#include "tests/support/fixture_tokenizer.hpp"
#include "tests/support/grammar_helpers.hpp"

using namespace llm;

namespace {

using GrammarPointer = std::shared_ptr<const Grammar>;

GrammarPointer shared_grammar(const Json& schema) {
    return std::make_shared<const Grammar>(json_schema_grammar(schema));
}
GrammarPointer literal_grammar(const std::string& text) {
    GrammarRules rules;
    const RuleIndex root = rules.add("text", {literal(text)});
    return std::make_shared<const Grammar>(std::move(rules), root);
}
std::shared_ptr<const TokenTrie> trie_of(const Tokenizer& tokenizer) {
    return std::make_shared<const TokenTrie>(make_token_trie(tokenizer));
}

// A vocabulary of these texts, and the special tokens <eos> and <bos> after them.
Tokenizer tiny_tokenizer(const std::vector<std::string>& texts) {
    Tokenizer tokenizer;
    tokenizer.token_bytes = texts;
    for (const std::string name : {"<eos>", "<bos>"}) tokenizer.token_bytes.push_back(name);
    tokenizer.eos_token_ids = {Id(texts.size())};
    tokenizer.all_special_ids = {Id(texts.size()), Id(texts.size()) + 1};
    return tokenizer;
}

std::vector<Id> allowed_ids(const std::vector<bool>& allowed) {
    std::vector<Id> ids;
    for (std::size_t id = 0; id < allowed.size(); ++id)
        if (allowed[id]) ids.push_back(Id(id));
    return ids;
}

std::vector<Id> literal_allowed(const Tokenizer& tokenizer, const std::string& text,
                                const std::vector<Id>& tokens,
                                TextStart start = TextStart::after_prompt) {
    TokenConstraint constraint(trie_of(tokenizer), literal_grammar(text), start);
    constraint.set_tokens(tokens);
    return allowed_ids(constraint.allowed_tokens());
}

// The mask by definition: each token's bytes, one by one, from the state of the whole text.
std::vector<bool> brute_force(const TokenTrie& trie, const Grammar& grammar,
                              const std::string& text) {
    const GrammarState state = advance(grammar, start_state(grammar), text);
    std::vector<bool> allowed(trie.vocab_size(), false);
    for (const Id id : trie.ids)
        allowed[std::size_t(id)] = !is_rejected(advance(grammar, state, trie.bytes_of(id)));
    for (const Id id : trie.eos_token_ids) allowed[std::size_t(id)] = is_complete(state);
    return allowed;
}

// One of the allowed tokens. After 60 tokens those that end something come first.
Id random_token(const std::vector<bool>& allowed, const TokenTrie& trie, std::size_t num_tokens,
                RandomJson& random) {
    std::vector<Id> ids = allowed_ids(allowed), closing;
    for (const Id id : ids)
        if (const std::string& bytes = trie.bytes_of(id);
            bytes.empty() || bytes == "\"" || bytes == "]" || bytes == "}" || bytes == "n")
            closing.push_back(id);
    if (!closing.empty() && (num_tokens > 60 || random.below(6) == 0)) ids = closing;
    return ids[random.below(static_cast<std::uint32_t>(ids.size()))];
}

// A text of tokens, without EOS. Each mask is passed to `look`.
std::vector<Id> sample_tokens(TokenConstraint& constraint, const TokenTrie& trie,
                              RandomJson& random,
                              const std::function<void(const std::vector<bool>&)>& look) {
    while (true) {
        const std::vector<bool> allowed = constraint.allowed_tokens();
        look(allowed);
        const Id id = random_token(allowed, trie, constraint.tokens().size(), random);
        if (trie.bytes_of(id).empty()) return constraint.tokens();
        constraint.accept(id);
    }
}

// A text cut into random tokens, or into the longest ones.
std::vector<Id> split_into_tokens(const std::string& text, const TokenTrie& trie, bool longest,
                                  RandomJson& random) {
    std::vector<Id> ids;
    for (std::size_t at = 0; at < text.size(); at += trie.bytes_of(ids.back()).size()) {
        std::vector<Id> fitting;  // sorted by their bytes, so that the last one is the longest
        for (const Id id : trie.ids)
            if (text.compare(at, trie.bytes_of(id).size(), trie.bytes_of(id)) == 0)
                fitting.push_back(id);
        ids.push_back(longest ? fitting.back()
                              : fitting[random.below(std::uint32_t(fitting.size()))]);
    }
    return ids;
}

}  // namespace

TEST_CASE("the trie holds each token once, in depth-first order, and skips subtrees") {
    const TokenTrie trie = make_token_trie(tiny_tokenizer({"b", "ab", "", "a", "abc", "b"}));
    REQUIRE(trie.nodes.size() == 4);  // a, ab, abc, b
    CHECK(trie.nodes[0].subtree_end == 3);
    CHECK(trie.nodes[2].depth == 3);
    CHECK(trie.ids == std::vector<Id>{3, 1, 4, 0, 5});
    CHECK(trie.ids_at(trie.nodes[3]).size() == 2);
    Tokenizer wrong = byte_tokenizer();
    wrong.eos_token_ids = {300};
    CHECK_THROWS_AS(make_token_trie(wrong), ValueError);
}

TEST_CASE("a token is allowed if all its bytes fit, and EOS exactly at the end") {
    const Tokenizer tokenizer = tiny_tokenizer({"a", "ab", "abc", "b", "bc", "", "<eos>"});
    CHECK(literal_allowed(tokenizer, "abc", {}) == std::vector<Id>{0, 1, 2});
    CHECK(literal_allowed(tokenizer, "abc", {0}) == std::vector<Id>{3, 4});
    CHECK(literal_allowed(tokenizer, "abc", {2}) == std::vector<Id>{7});
    CHECK(literal_allowed(tokenizer, "<eos>", {}) ==
          std::vector<Id>{6});  // the text of a token
    CHECK_THROWS_WITH_AS(
        literal_allowed(tokenizer, "abcd", {2}),
        "token_mask: after 1 tokens, no token of the vocabulary fits the grammar", ValueError);
    CHECK_THROWS_WITH_AS(literal_allowed(tokenizer, "abc", {3}),
                         "token_mask: token 3 does not fit the grammar after 0 tokens",
                         ValueError);
    Tokenizer endless = tokenizer;
    endless.eos_token_ids.clear();
    CHECK_THROWS_WITH_AS(literal_allowed(endless, "abc", {2}),
                         "token_mask: after 1 tokens the text is complete, but the vocabulary "
                         "has no EOS token",
                         ValueError);
    for (const Id id : {5, 7, 8, 9, -1})
        CHECK_THROWS_AS(literal_allowed(tokenizer, "abc", {0, id}), ValueError);
}

TEST_CASE("tokens that cut a character are allowed where the next one can complete it") {
    // "é" is C3 A9, "è" is C3 A8, "語" is E8 AA 9E.
    const Tokenizer tokenizer = tiny_tokenizer(
        {"\xc3", "\xa9", "\xa8", "x\xc3", "\xa9!", "\xe8\xaa", "\x9e", "\xc3\xa9", "\xaa\x9e"});
    CHECK(literal_allowed(tokenizer, "é!", {}) == std::vector<Id>{0, 7});
    CHECK(literal_allowed(tokenizer, "é!", {0}) == std::vector<Id>{1, 4});
    CHECK(literal_allowed(tokenizer, "xé", {}) == std::vector<Id>{3});
    CHECK(literal_allowed(tokenizer, "語", {5}) == std::vector<Id>{6});
    // In any string: after C3 all continuation bytes, but no second lead byte.
    TokenConstraint any(trie_of(tiny_tokenizer({"\"", "\xc3", "\xa9", "\xe8\xaa", "a"})),
                        shared_grammar(json(R"({"type": "string"})")));
    for (const Id cut : {1, 3}) {
        any.set_tokens({0, cut});
        CHECK(allowed_ids(any.allowed_tokens()) == std::vector<Id>{2});
    }
}

TEST_CASE("a space at the start of a decoded text costs nothing, and only there") {
    Tokenizer tokenizer = tiny_tokenizer({" ", " a", "a", "b", "  a"});
    tokenizer.strip_leading_space = true;
    const TextStart own = TextStart::own_text;
    CHECK(literal_allowed(tokenizer, "ab", {}) == std::vector<Id>{2});
    CHECK(literal_allowed(tokenizer, "ab", {}, own) == std::vector<Id>{0, 1, 2});
    CHECK(literal_allowed(tokenizer, "ab", {0}, own) == std::vector<Id>{2});
    CHECK(literal_allowed(tokenizer, "ab", {1}, own) == std::vector<Id>{3});
    CHECK(literal_allowed(tokenizer, " a", {}, own) == std::vector<Id>{0, 4});
    tokenizer.strip_leading_space = false;
    CHECK(literal_allowed(tokenizer, "ab", {}, own) == std::vector<Id>{2});
}

TEST_CASE("uniform samples under the mask satisfy their schema, and masks equal brute force") {
    for (const std::string kind : {"qwen", "llama2", "gpt2"}) {
        Tokenizer tokenizer = fixture_tokenizer(kind);
        if (tokenizer.eos_token_ids.empty())
            tokenizer.eos_token_ids = {*tokenizer.all_special_ids.begin()};
        const auto trie = trie_of(tokenizer);
        RandomJson random{Generator(21)};
        for (int trial = 0; trial < 60; ++trial) {
            const Json schema = random.schema();
            INFO(kind << ": " << json_text(schema));
            const GrammarPointer grammar = shared_grammar(schema);
            const TextStart start =
                trial % 2 == 0 ? TextStart::own_text : TextStart::after_prompt;
            TokenConstraint constraint(trie, grammar, start);
            const auto compare = [&](const std::vector<bool>& allowed) {
                // The brute force knows no space that is dropped at the start.
                const std::vector<Id>& so_far = constraint.tokens();
                if (random.below(8) > 0 || start == TextStart::after_prompt || so_far.empty())
                    return;
                REQUIRE(allowed ==
                        brute_force(*trie, *grammar, tokenizer.decode_bytes(so_far)));
            };
            const std::vector<Id> ids = sample_tokens(constraint, *trie, random, compare);
            std::vector<Id> both = tokenizer.encode("a");
            const std::size_t prompt_size = tokenizer.decode_bytes(both).size();
            both.insert(both.end(), ids.begin(), ids.end());
            const std::string text = start == TextStart::own_text
                                         ? tokenizer.decode(ids)
                                         : tokenizer.decode(both).substr(prompt_size);
            INFO(text);
            REQUIRE(satisfies(json(text), schema, schema));
        }
    }
}

TEST_CASE("every tokenization of a value of the schema is allowed, token by token") {
    const Tokenizer tokenizer = fixture_tokenizer("qwen");
    const auto trie = trie_of(tokenizer);
    RandomJson random{Generator(31)};
    for (int trial = 0; trial < 100; ++trial) {
        const Json schema = random.schema();
        const std::string text = json_text(random.value(schema, schema));
        INFO(json_text(schema) << ": " << text);
        TokenConstraint constraint(trie, shared_grammar(schema));
        for (const std::vector<Id>& ids :
             {split_into_tokens(text, *trie, true, random),
              split_into_tokens(text, *trie, false, random),
              split_into_tokens(text, *trie, false, random), tokenizer.encode(text)}) {
            constraint.set_tokens({});
            for (const Id id : ids) {
                REQUIRE(constraint.allowed_tokens()[std::size_t(id)]);
                constraint.accept(id);
            }
            REQUIRE(constraint.is_complete());
        }
    }
}

TEST_CASE("tokens that are withdrawn leave no trace") {
    const auto trie = trie_of(byte_tokenizer());
    const GrammarPointer grammar = shared_grammar(json(R"({"enum": ["abc", "abd", "xyz"]})"));
    TokenConstraint constraint(trie, grammar), fresh(trie, grammar);
    const auto ids = [](const std::string& text) {
        const std::vector<Id> all = byte_tokenizer().encode(text);
        return std::vector<Id>(all.begin() + 1, all.end());
    };
    for (const std::string text : {"\"abc", "\"ab", "\"x", "", "\"xyz\"", "\"ab"}) {
        constraint.set_tokens(ids(text));
        fresh = TokenConstraint(trie, grammar);
        fresh.set_tokens(ids(text));
        CHECK_MESSAGE(constraint.allowed_tokens() == fresh.allowed_tokens(), text);
    }
}

TEST_CASE("a long text forgets its states, and its masks stay the same") {
    const auto trie = trie_of(tiny_tokenizer({"a", "aaaa", "b", "\""}));
    const GrammarPointer grammar =
        shared_grammar(json(R"({"type": "string", "maxLength": 20000})"));
    TokenConstraint constraint(trie, grammar);
    constraint.accept(3);
    for (int i = 0; i < 20000; ++i) {
        if (i % 1000 == 0 || i > 19990) {
            const std::vector<Id> expected =
                i <= 19996 ? std::vector<Id>{0, 1, 2, 3} : std::vector<Id>{0, 2, 3};
            REQUIRE(allowed_ids(constraint.allowed_tokens()) == expected);
        }
        constraint.accept(0);
    }
    CHECK(allowed_ids(constraint.allowed_tokens()) == std::vector<Id>{3});
}

TEST_CASE("apply_mask gives rejected tokens -inf, and checks the size") {
    const Vector masked = apply_mask({1, 2, 3}, {true, false, true});
    CHECK(masked == Vector{1, -infinity, 3});
    CHECK_THROWS_WITH_AS(apply_mask({1, 2}, {true}),
                         "apply_mask: expected 1 logits, one for each token, got 2",
                         ValueError);
}

TEST_CASE("the shipped model writes JSON of a schema, greedily and sampled") {
    const Model model = models::load_model(asset("wordnet"));
    const Tokenizer tokenizer = models::load_tokenizer_of_model(asset("wordnet"), "", 1024);
    const Json schema = json(R"({"type": "object", "properties": {
        "word": {"type": "string", "maxLength": 12}, "kind": {"enum": ["noun", "verb"]},
        "meanings": {"type": "integer"}}, "required": ["word", "kind", "meanings"]})");
    const auto trie = trie_of(tokenizer);
    for (const Real temperature : {Real(0), Real(1), Real(2)}) {
        GenerationConfig config;
        config.sampling.temperature = temperature;
        config.eos_token_ids = tokenizer.eos_token_ids;
        config.max_new_tokens = 120;
        config.logits_processor =
            constrained_logits(std::make_shared<TokenConstraint>(trie, shared_grammar(schema)));
        Generator generator(4);
        const GeneratedTokens result =
            generate(model, tokenizer.encode("A dog is"), config, generator);
        const std::string text = tokenizer.decode(result.ids);
        INFO(text);
        CHECK(result.reason == StopReason::eos_token);
        CHECK(satisfies(json(text), schema, schema));
    }
}

TEST_CASE("a vocabulary without braces cannot write an object, and says so") {
    const Tokenizer tokenizer = models::load_tokenizer_of_model(asset("king_james"), "", 1024);
    TokenConstraint constraint(trie_of(tokenizer),
                               std::make_shared<const Grammar>(json_object_grammar()));
    CHECK_THROWS_AS(constraint.allowed_tokens(), ValueError);
}
