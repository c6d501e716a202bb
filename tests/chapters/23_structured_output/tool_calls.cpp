#include "chapters/23_structured_output/tool_calls.hpp"
#include "chapters/23_structured_output/calculator.hpp"
#include "common/numbers/random.hpp"
#include "tests/support/check.hpp"
#include "tests/support/grammar_helpers.hpp"
#include "tests/support/rendered_call.hpp"

using namespace llm;

namespace {

std::string expression_error(const std::string& expression) try {
    evaluate_expression(expression);
    return "none";
} catch (const ValueError& error) {
    return error.what();
}

std::string call_error(const std::string& text) try {
    parse_tool_calls(text);
    return "none";
} catch (const ValueError& error) {
    return error.what();
}

// A random expression of integers and its value. No quotients: integers stay exact.
struct Expression {
    std::string text;
    std::int64_t value;
};
Expression random_expression(Generator& generator, int depth) {
    if (depth == 0) {
        const auto number = static_cast<std::int64_t>(generator.next_32_bits() % 20);
        return {to_text(number), number};
    }
    const Expression a = random_expression(generator, depth - 1),
                     b = random_expression(generator, depth - 1);
    switch (generator.next_32_bits() % 4) {
        case 0:
            return {"(" + a.text + " + " + b.text + ")", a.value + b.value};
        case 1:
            return {"(" + a.text + "-(" + b.text + "))", a.value - b.value};
        case 2:
            return {"(" + a.text + ") * (" + b.text + ")", a.value * b.value};
        default:
            return {"(-" + a.text + "*1 )", -a.value};
    }
}

}  // namespace

TEST_CASE("the calculator follows the rules of arithmetic") {
    CHECK(evaluate_expression("12 + 30") == 42);
    CHECK(evaluate_expression("2 + 3 * 4") == 14);
    CHECK(evaluate_expression("(2 + 3) * 4") == 20);
    CHECK(evaluate_expression("10 - 3 - 2") == 5);
    CHECK(evaluate_expression("16 / 4 / 2") == 2);
    CHECK(evaluate_expression("2 * -3") == -6);
    CHECK(evaluate_expression("--5") == 5);
    CHECK(evaluate_expression(" 1.25*4 ") == 5);
    CHECK(evaluate_expression("1.00000000000000000000000001") == 1);
}

TEST_CASE("500 random expressions have the value of their integers") {
    Generator generator(9);
    for (int trial = 0; trial < 500; ++trial) {
        const Expression expression = random_expression(generator, 1 + trial % 3);
        INFO(expression.text);
        REQUIRE(evaluate_expression(expression.text) == double(expression.value));
    }
}

TEST_CASE("results are written as a pocket calculator shows them") {
    const auto shown = [](const std::string& expression) {
        return calculator_text(evaluate_expression(expression));
    };
    CHECK(shown("12 + 30") == "42");
    CHECK(shown("0.1 + 0.2") == "0.3");
    CHECK(shown("1 / 3") == "0.333333333333");
    CHECK(shown("-7 / 2") == "-3.5");
    CHECK(shown("0 * -1") == "0");
    CHECK(shown("1 / 1000000") == "1e-06");
    CHECK(shown("99999999 * 9999999") == "999999890000001");
}

TEST_CASE("what is no expression has one clear error") {
    CHECK(expression_error("") == "calculator: expected a number at column 1");
    CHECK(expression_error("1 +") == "calculator: expected a number at column 4");
    CHECK(expression_error("1 2") == "calculator: expected an operator at column 3");
    CHECK(expression_error("(1") == "calculator: expected \")\" at column 3");
    CHECK(expression_error("1)") == "calculator: expected an operator at column 2");
    CHECK(expression_error("1.") == "calculator: expected a digit at column 3");
    CHECK(expression_error("1e5") == "calculator: expected an operator at column 2");
    CHECK(expression_error("system(1)") == "calculator: expected a number at column 1");
    CHECK(expression_error(std::string("1\0+1", 4)) ==
          "calculator: expected an operator at column 2");
    CHECK(expression_error("1 / (2 - 2)") == "calculator: division by zero");
    CHECK(expression_error("9999999999999999") == "calculator: a number is above 10^15");
    CHECK(expression_error("99999999 * 99999999") == "calculator: a number is above 10^15");
    CHECK(expression_error("1000000000 / 0.0000001") == "calculator: a number is above 10^15");
    CHECK(expression_error(std::string(100000, '(')) == "calculator: nested more than 64 deep");
    CHECK(expression_error(std::string(100000, '-')) == "calculator: nested more than 64 deep");
}

TEST_CASE("calls are found in a text, with what stands around them") {
    const ParsedAnswer answer = parse_tool_calls(
        "Let me see. <tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": "
        "\"12 + 30\"}}\n</tool_call> and\n<tool_call>{\"arguments\":{},\"name\":\"b\"}"
        "</tool_call>.");
    CHECK(answer.content == "Let me see.  and\n.");
    REQUIRE(answer.tool_calls.size() == 2);
    CHECK(answer.tool_calls[0].name == "calculator");
    CHECK(answer.tool_calls[0].arguments == R"({"expression":"12 + 30"})");
    CHECK(answer.tool_calls[1].name == "b");
    CHECK(answer.tool_calls[1].arguments == "{}");
    CHECK(parse_tool_calls("No call.").content == "No call.");
    CHECK(parse_tool_calls("").tool_calls.empty());
}

TEST_CASE("a call that cannot be read is rejected") {
    CHECK(call_error("<tool_call>{}") == "tool call: <tool_call> has no </tool_call>");
    CHECK(call_error("<tool_call>{}</tool_call>") == "tool call: expected a name, got {}");
    CHECK(call_error("<tool_call>[1]</tool_call>") == "tool call: expected a name, got [1]");
    CHECK(call_error(R"(<tool_call>{"name": "a", "arguments": "x"}</tool_call>)") ==
          R"(tool call: expected an object of arguments, got {"name": "a", "arguments": "x"})");
    CHECK(call_error(R"(<tool_call>{"name": "a", "arguments": {}, "id": 1}</tool_call>)")
              .starts_with("tool call: expected name and arguments only"));
    CHECK(call_error("<tool_call>{x}</tool_call>") == "tool call: not valid JSON at column 2");
}

TEST_CASE("the grammar of a call takes what the parser reads, for each tool") {
    const Tool weather{"weather", "", json(R"({"type": "object", "properties": {"city":
        {"enum": ["Rome"]}}, "required": ["city"]})")};
    const Grammar grammar = tool_call_grammar({calculator_tool(), weather});
    CHECK(matches(grammar, rendered_call({"calculator", R"({"expression":"1+1"})"})));
    CHECK(matches(grammar, rendered_call({"weather", R"({"city": "Rome"})"})));
    CHECK(!matches(grammar, rendered_call({"weather", R"({"expression":"1+1"})"})));
    CHECK(!matches(grammar, rendered_call({"clock", "{}"})));
    const ParsedAnswer answer = parse_tool_calls(rendered_call({"weather", "{\"a\":1}"}));
    CHECK(answer.content == "");
    CHECK(answer.tool_calls.at(0).arguments == "{\"a\":1}");
    CHECK_THROWS_WITH_AS(tool_call_grammar({}), "tool call: there are no tools", ValueError);
}

TEST_CASE("a tool runs in the program, and its errors are results for the model") {
    const auto result = [](const std::string& arguments) {
        return run_tool({"calculator", arguments});
    };
    CHECK(result(R"({"expression": "12 + 30"})") == "42");
    CHECK(result(R"({"expression": "1/0"})") == "error: calculator: division by zero");
    CHECK(result("{}") == "error: calculator: expected an expression");
    CHECK(result("{") == "error: arguments: not valid JSON at column 2");
    CHECK_THROWS_WITH_AS(run_tool({"shell", "{}"}), "tool call: there is no tool 'shell'",
                         ValueError);
}
