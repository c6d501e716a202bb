#include "chapters/23_structured_output/demo/constrained.hpp"

#include <algorithm>
#include <cmath>

#include "chapters/11_generation/generation.hpp"
#include "chapters/23_structured_output/json_rules.hpp"
#include "chapters/23_structured_output/schema/json_schema.hpp"
#include "chapters/23_structured_output/token_mask.hpp"
#include "chapters/23_structured_output/tool_calls.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tokenizers/special_tokens.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/output/plot.hpp"
#include "common/output/show.hpp"

namespace llm {
namespace {

// The shipped model of chapter 14, whose vocabulary has all bytes.
const std::string model_name = "wordnet";

std::shared_ptr<const Grammar> grammar_of_schema(const std::string& schema) {
    return std::make_shared<const Grammar>(json_schema_grammar(parse_json(schema, "schema")));
}

Tokenizer shipped_tokenizer() {
    return models::load_tokenizer_of_model(asset(model_name), "", 1024);
}

std::shared_ptr<const TokenTrie> shared_trie(const Tokenizer& tokenizer) {
    return std::make_shared<const TokenTrie>(make_token_trie(tokenizer));
}

// The first allowed tokens: at most `count`, then "...".
std::string some_tokens(const Tokenizer& tokenizer, const std::vector<bool>& allowed,
                        std::size_t count) {
    std::string texts;
    for (std::size_t id = 0; id < allowed.size(); ++id) {
        if (!allowed[id]) continue;
        if (count-- == 0) return texts + " ...";
        texts += (texts.empty() ? "" : "  ") + tokenizer.token_text(Id(id));
    }
    return texts;
}

// What stands before the mask, the number of allowed tokens, and the first of them.
TableRow mask_row(const std::string& text, const Tokenizer& tokenizer,
                  const std::vector<bool>& allowed) {
    const auto count = std::count(allowed.begin(), allowed.end(), true);
    return {text, to_text(count), some_tokens(tokenizer, allowed, 7)};
}

}  // namespace

void allowed_by_schema(const std::string& schema, const std::string& text) {
    const Tokenizer tokenizer = shipped_tokenizer();
    TokenConstraint constraint(shared_trie(tokenizer), grammar_of_schema(schema));
    std::vector<bool> allowed = constraint.allowed_tokens();
    std::vector<TableRow> rows = {mask_row("(start)", tokenizer, allowed)};
    for (const Id id : text.empty() ? std::vector<Id>{} : tokenizer.encode(text)) {
        const std::string token = tokenizer.token_text(id);
        require(allowed[std::size_t(id)], "--text: the token '{}' is not allowed after '{}'",
                token, tokenizer.decode(constraint.tokens()));
        constraint.accept(id);
        allowed = constraint.allowed_tokens();
        rows.push_back(mask_row(token, tokenizer, allowed));
    }
    step("Your schema: which of 1,024 tokens may follow each token of your text");
    show_table({"token", "tokens", "allowed after it, the first ones by id"}, rows);
}

void allowed_by_state() {
    step("What may come next: 1,024 tokens, after each part of an object");
    const Tokenizer tokenizer = shipped_tokenizer();
    const std::shared_ptr<const Grammar> grammar = grammar_of_schema(
        R"({"type": "object", "properties": {"name": {"type": "string"},
            "age": {"type": "integer"}}, "required": ["name"]})");
    const std::shared_ptr<const TokenTrie> trie = shared_trie(tokenizer);
    std::vector<TableRow> rows;
    for (const std::string text :
         {"", "{", "{\"name", "{\"name\":", "{\"name\": \"", "{\"name\": \"Ada",
          "{\"name\": \"Ada\\", "{\"name\": \"Ada\"", "{\"name\": \"Ada\",\"age\": 0",
          "{\"name\": \"Ada\",\"age\": 36}"}) {
        TokenConstraint constraint(trie, grammar);
        if (!text.empty()) constraint.set_tokens(tokenizer.encode(text));
        rows.push_back(mask_row(text, tokenizer, constraint.allowed_tokens()));
    }
    show_table({"text so far", "tokens", "allowed, the first ones by id"}, rows);
}

void cut_character() {
    step("Tokens that cut a character: the mask is over bytes");
    Tokenizer tokenizer;
    tokenizer.token_bytes = {"\"", "a", "é", "\xc3", "\xa9", "\xa9\"", "\xe8\xaa", "</s>"};
    tokenizer.eos_token_ids = {7};
    tokenizer.all_special_ids = {7};
    TokenConstraint constraint(shared_trie(tokenizer),
                               grammar_of_schema(R"({"type": "string"})"));
    std::vector<TableRow> rows;
    for (std::size_t id = 0; id < tokenizer.vocab_size(); ++id)
        rows.push_back({tokenizer.token_text(Id(id))});
    const std::vector<std::vector<Id>> texts = {{}, {0}, {0, 3}, {0, 6}, {0, 3, 5}};
    for (const std::vector<Id>& ids : texts) {
        constraint.set_tokens(ids);
        const std::vector<bool> allowed = constraint.allowed_tokens();
        for (std::size_t id = 0; id < allowed.size(); ++id)
            rows[id].push_back(allowed[id] ? "yes" : "-");
    }
    show_table({"token", "at the start", "after \"", "after \"\\xc3", "after \"\\xe8\\xaa",
                "after \"é\""},
               rows);
}

void masked_probabilities(Generator& generator) {
    step("Masking each token is not conditioning on the whole text");
    // A model of two tokens: its first one is a or b, its second one x or y.
    const Matrix first = {{0.9, 0.1}};
    const Matrix second = {{0.01, 0.99}, {0.9, 0.1}};
    show("first", first, {"start"}, {"a", "b"});
    show("second", second, {"a", "b"}, {"x", "y"});
    say("The grammar: the text ends in x. Both first tokens are allowed, then only x.");
    const Real ax = first(0, 0) * second(0, 0), bx = first(0, 1) * second(1, 0);
    const Matrix texts = {
        {ax, bx}, {first(0, 0), first(0, 1)}, {ax / (ax + bx), bx / (ax + bx)}};
    const std::vector<std::string> rows = {"the model", "masked", "conditioned"};
    show("texts", texts, rows, {"ax", "bx"});
    BarChart chart{"Texts that end in x", "probability", {"ax", "bx"}, {}, 1.4};
    for (std::size_t i = 0; i < rows.size(); ++i)
        chart.series.push_back({rows[i], {texts(i, 0), texts(i, 1)}});
    plot("conditioning", {chart});

    // The same by sampling: under the mask only the first token is left to chance.
    const auto chance = [&](const Matrix& table, std::size_t row) {
        return sample_from(Vector(xt::row(table, std::ptrdiff_t(row))), generator);
    };
    std::array<std::uint64_t, 2> masked{}, conditioned{};
    for (int n = 0; n < 10'000; ++n) ++masked[std::size_t(chance(first, 0))];
    std::uint64_t num_sampled = 0;
    while (conditioned[0] + conditioned[1] < 10'000) {
        const auto token = std::size_t(chance(first, 0));
        ++num_sampled;
        if (chance(second, token) == 0) ++conditioned[token];
    }
    show_table({"10,000 texts", "ax", "bx", "sampled"},
               {{"masked", with_commas(masked[0]), with_commas(masked[1]), "10,000"},
                {"until it ends in x", with_commas(conditioned[0]), with_commas(conditioned[1]),
                 with_commas(num_sampled)}});
}

namespace {

// A probability, or its power of ten.
std::string probability_text(Real probability) {
    if (probability > Real(0.01)) return fixed(probability, 2);
    return "10^" + to_text(std::lround(std::log10(probability)));
}

// One of these texts.
std::shared_ptr<const Grammar> grammar_of_texts(const std::vector<std::string>& texts) {
    GrammarRules rules;
    const RuleIndex root = add_literals(rules, "texts", texts);
    return std::make_shared<const Grammar>(std::move(rules), root);
}

// The name of a grammar, how probable its tokens are at first, and the greedy text.
TableRow greedy_row(const Model& model, const Tokenizer& tokenizer, const std::string& name,
                    const std::shared_ptr<const Grammar>& grammar) {
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.eos_token_ids = tokenizer.eos_token_ids;
    config.max_new_tokens = grammar ? 30 : 3;
    Real first_mass = 1;
    if (grammar) {
        const auto constraint =
            std::make_shared<TokenConstraint>(shared_trie(tokenizer), grammar);
        config.logits_processor = [&, constraint](const Vector& logits,
                                                  std::span<const Id> new_ids) {
            const Vector masked = constrained_logits(constraint)(logits, new_ids);
            if (!new_ids.empty()) return masked;
            const Vector probabilities = softmax(logits);
            first_mass = 0;
            for (std::size_t id = 0; id < masked.size(); ++id)
                if (masked(id) > -infinity) first_mass += probabilities(id);
            return masked;
        };
    }
    Generator generator(0);
    const std::vector<Id> prompt = tokenizer.encode("12 + 30 =");
    const std::string text = tokenizer.decode(generate(model, prompt, config, generator).ids);
    return {name, probability_text(first_mass), replaced(escaped(text), " ", "▁")};
}

}  // namespace

void constrained_model() {
    step("The shipped model after \"12 + 30 =\", greedily, with four grammars");
    const Model model = models::load_model(asset(model_name));
    const Tokenizer tokenizer = shipped_tokenizer();
    const auto row = [&](const std::string& name, std::shared_ptr<const Grammar> grammar) {
        return greedy_row(model, tokenizer, name, grammar);
    };
    const std::string object = R"({"type": "object", "required": ["sum"],
                                   "properties": {"sum": )";
    show_table(
        {"grammar", "allowed at first", "text"},
        {row("none", nullptr),
         row("\" 41\" or \" 42\" or \" 43\"", grammar_of_texts({" 41", " 42", " 43"})),
         row("\"41\" or \"42\" or \"43\"", grammar_of_texts({"41", "42", "43"})),
         row("sum: 40, 41, 42 or 43",
             grammar_of_schema(object + R"({"enum": [40, 41, 42, 43]}}})")),
         row("sum: an integer", grammar_of_schema(object + R"({"type": "integer"}}})"))});
}

void tool_call() {
    step("A tool call: found in the text, run in this program");
    const std::string text =
        "<tool_call>\n{\"name\": \"calculator\", \"arguments\": "
        "{\"expression\": \"(12 + 30) / 4\"}}\n</tool_call>";
    const ToolCall call = parse_tool_calls(text).tool_calls.at(0);
    show("name", call.name);
    show("arguments", call.arguments);
    show("result", run_tool(call));
    RenderOptions options;
    options.add_generation_prompt = false;
    show("message", escaped(rendered_text(render_conversation(
                        ChatTemplate{}, {{"tool", run_tool(call)}}, options))));
    for (const std::string expression : {"1 / 0", "12 +", "system(1)"})
        show(expression,
             run_tool({"calculator", json_text({JsonObject{{"expression", {expression}}}})}));
}

}  // namespace llm
