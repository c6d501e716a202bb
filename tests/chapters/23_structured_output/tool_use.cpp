#include "chapters/23_structured_output/tool_use.hpp"
#include "chapters/11_generation/generation.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "tests/support/check.hpp"
#include "tests/support/grammar_helpers.hpp"
#include "tests/support/rendered_call.hpp"

using namespace llm;

namespace {

std::string sum_call() {
    return rendered_call({"calculator", R"({"expression": "345 + 218"})"});
}

// The texts among these tokens that may follow some of them; "EOS" for the end.
using TokenTexts = std::vector<std::string>;
TokenTexts texts_after(const TokenTexts& vocabulary, const std::vector<Id>& ids,
                       const ToolUse& use = {}) {
    Tokenizer tokenizer;
    tokenizer.token_bytes = vocabulary;
    tokenizer.token_bytes.push_back("EOS");
    tokenizer.eos_token_ids = {Id(vocabulary.size())};
    const auto logits = tool_use_logits(make_tool_trie(tokenizer, tokenizer.eos_token_ids),
                                        {calculator_tool()}, use);
    const Vector masked = logits(Vector({vocabulary.size() + 1}, 1), ids);
    TokenTexts allowed;
    for (std::size_t id = 0; id < masked.size(); ++id)
        if (masked(id) > -infinity) allowed.push_back(tokenizer.token_bytes[id]);
    return allowed;
}

}  // namespace

TEST_CASE("any text without a tag is an answer, and so are calls after it") {
    const Grammar grammar = tool_use_grammar({calculator_tool()});
    for (const std::string text :
         {"", "345 + 218 = 563", "<", "a < b", "<tool_call", "<tool_call <tool", "<<tool_cal",
          "</tool_call>", "\xff\n{}"})
        CHECK_MESSAGE(matches(grammar, text), text);
    for (const std::string before : {"", "Let me see.\n", "<", "<tool_<", "<tool_call"}) {
        CHECK(matches(grammar, before + sum_call()));
        CHECK(matches(grammar, before + sum_call() + "\n" + sum_call() + "\n" + sum_call()));
        CHECK(matches(grammar, before + sum_call() + "\n"));
        CHECK_FALSE(matches(grammar, before + sum_call() + "x"));
        CHECK_FALSE(matches(grammar, before + sum_call() + sum_call()));
        CHECK_FALSE(matches(grammar, before + "<tool_call>"));
        CHECK_FALSE(matches(grammar, before + "<tool_call>x"));
        CHECK_FALSE(matches(grammar, before + rendered_call({"clock", "{}"})));
        CHECK_FALSE(matches(grammar, before + rendered_call({"calculator", "{}"})));
    }
}

TEST_CASE("a required call comes first, and without parallel calls it is the only one") {
    const Grammar required = tool_use_grammar({calculator_tool()}, {true, true});
    CHECK(matches(required, sum_call()));
    CHECK(matches(required, sum_call() + "\n" + sum_call()));
    CHECK_FALSE(matches(required, ""));
    CHECK_FALSE(matches(required, "x" + sum_call()));
    const Grammar one = tool_use_grammar({calculator_tool()}, {true, false});
    CHECK(matches(one, sum_call()));
    CHECK_FALSE(matches(one, sum_call() + "\n" + sum_call()));
    const Grammar at_most_one = tool_use_grammar({calculator_tool()}, {false, false});
    CHECK(matches(at_most_one, "No."));
    CHECK(matches(at_most_one, "x" + sum_call()));
    CHECK_FALSE(matches(at_most_one, "x" + sum_call() + "\n" + sum_call()));
    CHECK_THROWS_WITH_AS(tool_use_grammar({}), "tool call: there are no tools", ValueError);
}

TEST_CASE("random texts of parts of the tag: the grammar holds exactly after a whole one") {
    const Grammar grammar = tool_use_grammar({calculator_tool()});
    const TokenTexts parts = {"<",          "<tool", "_call",      ">",
                              "tool_call>", "x",     "<tool_call", "\n"};
    Generator generator(5);
    std::size_t num_tags = 0;
    for (int trial = 0; trial < 3000; ++trial) {
        std::string text;
        for (int i = 0; i < 6; ++i) text += parts[generator.next_32_bits() % parts.size()];
        const std::size_t tag = text.find("<tool_call>");
        const GrammarState state = advance(grammar, start_state(grammar), text);
        INFO(text);
        if (tag == text.npos) {
            REQUIRE(is_complete(state));
            REQUIRE(allowed_bytes(grammar, state).all());
        } else {
            ++num_tags;
            const std::string rest = text.substr(tag + 11);
            REQUIRE(is_rejected(state) == (rest != "" && rest != "\n"));
            REQUIRE_FALSE(is_complete(state));
        }
    }
    CHECK(num_tags > 100);
}

TEST_CASE("tokens may cut the tag anywhere, or hold it between other text") {
    const TokenTexts vocabulary = {"x",
                                   "<",
                                   "tool_",
                                   "call",
                                   ">",
                                   ">\n{\"",
                                   ">x",
                                   "a<tool_call",
                                   "b<tool_call>",
                                   "c<tool_call>\n",
                                   "d<tool_call>\n}",
                                   "\n",
                                   "<tool_call>",
                                   "e<tool_call>\n{\"name"};
    const TokenTexts free = {"x",
                             "<",
                             "tool_",
                             "call",
                             ">",
                             ">\n{\"",
                             ">x",
                             "a<tool_call",
                             "b<tool_call>",
                             "c<tool_call>\n",
                             "\n",
                             "<tool_call>",
                             "e<tool_call>\n{\"name",
                             "EOS"};
    // Of the tokens with a whole tag, only the one that goes on with "}" is never allowed.
    CHECK(texts_after(vocabulary, {}) == free);
    CHECK(texts_after(vocabulary, {0}) == free);
    CHECK(texts_after(vocabulary, {1}) == free);
    CHECK(texts_after(vocabulary, {1, 2}) == free);
    // "<tool_call" before ">": the end of the tag, and then only what the grammar allows.
    TokenTexts at_end = free;
    at_end.erase(at_end.begin() + 6);  // ">x"
    CHECK(texts_after(vocabulary, {1, 2, 3}) == at_end);
    CHECK(texts_after(vocabulary, {0, 7}) == at_end);
    CHECK(texts_after(vocabulary, {7, 0}) == free);  // "a<tool_callx"
    for (const std::vector<Id>& ids :
         {std::vector<Id>{1, 2, 3, 4}, {7, 4}, {8}, {0, 12}, {0, 1, 12}})
        CHECK(texts_after(vocabulary, ids) == TokenTexts{"\n"});
    CHECK(texts_after(vocabulary, {}, {true, true}) == TokenTexts{"<", "<tool_call>"});
}

TEST_CASE("after a call comes another one, or the end") {
    const TokenTexts vocabulary = {"<tool_call>", sum_call().substr(11), "\n", "x",
                                   "<",           "\n<tool_call>"};
    CHECK(texts_after(vocabulary, {3, 0, 1}) == TokenTexts{"\n", "\n<tool_call>", "EOS"});
    CHECK(texts_after(vocabulary, {0, 1, 2}) == TokenTexts{"<tool_call>", "<", "EOS"});
    CHECK(texts_after(vocabulary, {0, 1, 5, 1, 2, 0}) ==
          TokenTexts{sum_call().substr(11), "\n"});
    CHECK(texts_after(vocabulary, {3, 0, 1}, {false, false}) == TokenTexts{"EOS"});
}

TEST_CASE("tokens that are withdrawn switch the grammar off again") {
    Tokenizer tokenizer = byte_tokenizer();
    const auto logits = tool_use_logits(make_tool_trie(tokenizer, tokenizer.eos_token_ids),
                                        {calculator_tool()});
    const auto num_allowed = [&](std::string text) {
        std::vector<Id> ids;
        for (const char byte : text) ids.push_back(Id(static_cast<unsigned char>(byte)) + 3);
        const Vector masked = logits(Vector({259}, 1), ids);
        return std::count_if(masked.begin(), masked.end(), [](Real x) { return x == 1; });
    };
    for (int round = 0; round < 2; ++round) {
        CHECK(num_allowed("x <tool_call>") == 1);   // "\n"
        CHECK(num_allowed("x <tool_call") == 259);  // all tokens
        CHECK(num_allowed("x <tool_call>\n{") == 1);
        CHECK(num_allowed("") == 259);
    }
}

TEST_CASE("tags that are special tokens of the vocabulary become text") {
    Tokenizer tokenizer = byte_tokenizer();
    tokenizer.token_bytes.push_back(tool_call_begin);
    tokenizer.token_bytes.push_back(tool_call_end);
    tokenizer.added_tokens = {{tool_call_begin, 259}, {tool_call_end, 260}};
    tokenizer.all_special_ids.insert({259, 260});
    CHECK(make_token_trie(tokenizer).bytes_of(259).empty());
    CHECK(tokenizer.decode({byte_tokenizer().encode("x").back(), 259}) == "x");
    const std::shared_ptr<const TokenTrie> trie = make_tool_trie(tokenizer, {'x' + 3});
    CHECK(trie->bytes_of(259) == tool_call_begin);
    CHECK(trie->bytes_of(260) == tool_call_end);
    CHECK(trie->eos_token_ids == std::vector<Id>{'x' + 3});
    CHECK(trie->bytes_of('x' + 3).empty());
    CHECK(tokenizer.decode({byte_tokenizer().encode("x").back(), 259}) == "x<tool_call>");
    CHECK(tokenizer.all_special_ids.contains(2));
}

TEST_CASE("the shipped model: free text stays as it was, and a required call can be read") {
    const Model model = models::load_model(asset("wordnet"));
    Tokenizer tokenizer = models::load_tokenizer_of_model(asset("wordnet"), "", 1024);
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.eos_token_ids = tokenizer.eos_token_ids;
    config.max_new_tokens = 220;  // the expression may have 100 bytes
    const auto run = [&] {
        Generator generator(4);
        return generate(model, tokenizer.encode("A dog is"), config, generator);
    };
    const std::vector<Id> free = run().ids;
    config.logits_processor = tool_use_logits(
        make_tool_trie(tokenizer, tokenizer.eos_token_ids), {calculator_tool()});
    CHECK(run().ids == free);
    config.logits_processor = tool_use_logits(
        make_tool_trie(tokenizer, tokenizer.eos_token_ids), {calculator_tool()}, {true, false});
    const GeneratedTokens forced = run();
    CHECK(forced.reason == StopReason::eos_token);
    const ParsedAnswer answer = parse_tool_calls(tokenizer.decode(forced.ids));
    REQUIRE(answer.tool_calls.size() == 1);
    CHECK(answer.tool_calls[0].name == "calculator");
    CHECK(answer.content == "");
}
