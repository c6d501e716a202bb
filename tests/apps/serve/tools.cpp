// Tools over HTTP: requests, conversations with calls and results, and the calls of answers.
#include "chapters/23_structured_output/tool_calls.hpp"
#include "chapters/apps/serve/text/tool_call_text.hpp"
#include "chapters/models/chat/chat_formats.hpp"
#include "common/files/json.hpp"
#include "tests/support/grammar_helpers.hpp"
#include "tests/support/rendered_call.hpp"
#include "tests/support/serve_helpers.hpp"

using namespace llm;
using namespace llm::models;
using namespace llm::serve;

namespace {

const std::string calculator_json =
    R"({"type": "function", "function": {"name": "calculator", "description": "Sums",
        "strict": true, "parameters": {"type": "object",
        "properties": {"expression": {"type": "string"}, "digits": {"enum": [1, 2]}},
        "required": ["expression"], "additionalProperties": false}}})";
const std::string clock_json = R"({"type": "function", "function": {"name": "clock"}})";

std::string tools_body(const std::string& fields) {
    return R"({"model": "bytes", "messages": [{"role": "user", "content": "Hi"}], )" + fields +
           "}";
}
std::string two_tools(const std::string& fields) {
    return tools_body("\"tools\": [" + calculator_json + ", " + clock_json + "]" +
                      (fields.empty() ? "" : ", " + fields));
}
// A context that is large enough for all tools.
ApiModel large_chat_model() {
    ApiModel model = chat_model();
    model.context_length = 5000;
    model.max_prompt_tokens = 4000;
    return model;
}
CompletionRequest parse_tools(const std::string& fields) {
    return parse_chat_request(two_tools(fields), large_chat_model());
}
std::string tools_error(const std::string& fields) {
    return error_of(tools_body(fields), true, large_chat_model());
}
// The error of the definition of one tool, whose function has these fields.
std::string function_error(const std::string& fields) {
    return tools_error(R"("tools": [{"type": "function", "function": {)" + fields + "}}]");
}
std::string messages_error(const std::string& messages) {
    return error_of(R"({"model": "bytes", "messages": [{"role": "user", "content": "Hi"}, )" +
                        messages + "]}",
                    true, large_chat_model());
}
std::string answer_with_call(const std::string& call) {
    return R"({"role": "assistant", "content": null, "tool_calls": [)" + call + "]}";
}
std::string call_of(const std::string& arguments, const std::string& id = "call_1") {
    return R"({"id": ")" + id +
           R"(", "type": "function", "function": {"name": "calculator", "arguments": )" +
           json_text({arguments}) + "}}";
}

std::string sum_call() { return rendered_call({"calculator", R"({"expression": "1 + 1"})"}); }
std::string clock_call() { return rendered_call({"clock", "{}"}); }

// What arrives as one text, as a line each: content, "NAME(" at the beginning of a call, and
// pieces of arguments.
std::string lines_of_parts(const ToolCallText::Parts& parts) {
    std::string lines = parts.content.empty() ? "" : "content " + parts.content + "\n";
    for (const ToolCallPart& part : parts.calls)
        lines += std::to_string(part.index) + " " +
                 (part.name.empty() ? part.arguments : part.name + "(") + "\n";
    return lines;
}

// The answer when all its pieces are together.
Choice whole_answer(const std::string& text, std::size_t piece_size) {
    ToolCallText calls;
    Choice whole;
    const auto add = [&](const ToolCallText::Parts& parts) {
        append(whole, {0, parts.content, {}, "", parts.calls});
    };
    for (std::size_t at = 0; at < text.size(); at += piece_size)
        add(calls.put(text.substr(at, piece_size)));
    add(calls.finish());
    return whole;
}

}  // namespace

TEST_CASE("tools become definitions for the template, and a grammar for the answer") {
    const std::string call =
        rendered_call({"calculator", R"({"expression": "1", "digits": 2})"});
    const CompletionRequest automatic = parse_tools("");
    REQUIRE(automatic.tools.size() == 2);
    CHECK(automatic.tools[0] ==
          R"({"type": "function", "function": {"name": "calculator", "description": "Sums", )"
          R"("strict": true, "parameters": {"type": "object", "properties": )"
          R"({"expression": {"type": "string"}, "digits": {"enum": [1, 2]}}, )"
          R"("required": ["expression"], "additionalProperties": false}}})");
    for (const std::string& text :
         {std::string("Hello"), call, "x" + call + "\n" + clock_call()})
        CHECK_MESSAGE(matches(*automatic.grammar, text), text);
    CHECK(matches(*parse_tools(R"("tool_choice": "auto")").grammar, "Hello"));

    const CompletionRequest required = parse_tools(R"("tool_choice": "required")");
    CHECK_FALSE(matches(*required.grammar, "Hello"));
    CHECK(matches(*required.grammar, call + "\n" + clock_call()));
    const CompletionRequest one =
        parse_tools(R"("tool_choice": "required", "parallel_tool_calls": false)");
    CHECK_FALSE(matches(*one.grammar, call + "\n" + clock_call()));
    CHECK(matches(*one.grammar, clock_call()));

    const CompletionRequest named =
        parse_tools(R"("tool_choice": {"type": "function", "function": {"name": "clock"}})");
    CHECK(named.tools.size() == 2);
    CHECK(matches(*named.grammar, clock_call()));
    CHECK_FALSE(matches(*named.grammar, clock_call() + "\n" + clock_call()));
    CHECK_FALSE(matches(*named.grammar, call));

    const CompletionRequest none = parse_tools(R"("tool_choice": "none")");
    CHECK(none.tools.empty());
    CHECK_FALSE(none.grammar);
}

TEST_CASE("a template with a place for tools shows them, ChatML alone does not") {
    ApiModel model = large_chat_model();
    const auto num_tokens = [&](const std::string& body) {
        return parse_chat_request(body, model).prompts.at(0).size();
    };
    CHECK(num_tokens(two_tools("")) == num_tokens(tools_body(R"("n": 1)")));
    model.chat_template->tools_in_system_message = true;
    CHECK(num_tokens(two_tools("")) > num_tokens(tools_body(R"("n": 1)")) + 500);
    model.chat_template = models::chat_template_named("gemma");
    CHECK(error_of(two_tools(""), true, model) ==
          "400 tools unsupported_parameter: tools are not supported with the chat template "
          "Gemma of this model");
}

TEST_CASE("what is wrong with tools is rejected with the name of the field") {
    const std::string schema = R"("name": "f", "parameters": )";
    const std::string path = "tools[0].function.parameters";
    CHECK(tools_error(R"("tools": {})") == "400 tools : tools must be an array");
    CHECK(tools_error(R"("tools": [5])") == "400 tools[0] : tools[0] must be an object");
    CHECK(tools_error(R"("tools": [{"type": "custom"}])") ==
          "400 tools[0].type unsupported_parameter: tools[0].type must be function");
    CHECK(tools_error(R"("tools": [{"type": "function"}])") ==
          "400 tools[0].function : tools[0].function is required");
    CHECK(function_error("") ==
          "400 tools[0].function.name : tools[0].function.name is required");
    for (const std::string& name : {std::string(), std::string(65, 'a'), std::string("a b"),
                                    std::string("é"), std::string("a\\\"")})
        CHECK(function_error("\"name\": \"" + name + "\"") ==
              "400 tools[0].function.name : tools[0].function.name must have from 1 to 64 "
              "characters, each a letter, a digit, \"_\" or \"-\"");
    CHECK(function_error("\"name\": \"" + std::string(60, 'a') + "Z_-9\"") == "accepted");
    CHECK(function_error(R"("name": "f", "color": 1)") ==
          "400 tools[0].function.color unknown_parameter: unknown parameter: "
          "tools[0].function.color");
    CHECK(function_error(R"("name": "f", "strict": 1)")
              .starts_with("400 tools[0].function.strict : "));
    const std::string error = "400 " + path + " : " + path + ": json_schema: #";
    CHECK(function_error(schema + "5") == error + ": expected a schema, got 5");
    CHECK(function_error(schema + R"({"type": "string"})") == error + ": no type is allowed");
    CHECK(function_error(schema + R"({"$ref": "#"})") == error + ": the schema names itself");
    for (const std::string parameters :
         {R"({"properties": {"a": {"pattern": "x"}}})", "{}", "null", R"({"type": "object"})",
          R"({"$ref": "#/definitions/f", "definitions": {"f": {"properties": {}}}})"})
        CHECK(function_error(schema + parameters) == "accepted");
    // What no grammar enforces is a description, unless the tool is strict.
    const std::string unenforced = R"({"properties": {"a": {"not": {"const": 1}}}})";
    CHECK(function_error(schema + unenforced) == "accepted");
    CHECK(function_error(R"("strict": false, )" + schema + unenforced) == "accepted");
    CHECK(function_error(R"("strict": true, )" + schema + unenforced) ==
          error + "/properties/a: the keyword not is not supported");
    CHECK(function_error(schema + R"({"type": "object", "required": ["a"],
                                      "properties": {"a": {"$ref": "#"}}})")
              .starts_with("400 tools : tools: grammar: rule '#"));
    CHECK(tools_error("\"tools\": [" + clock_json + ", " + clock_json + "]") ==
          "400 tools[1].function.name : tools[1].function.name is used twice: clock");
    std::string many = clock_json;
    for (int i = 0; i < 128; ++i) many += ", " + clock_json;
    CHECK(tools_error("\"tools\": [" + many + "]") ==
          "400 tools : tools must have at most 128 elements");
}

TEST_CASE("what is wrong with tool_choice and its companions is rejected") {
    const auto error = [](const std::string& fields) {
        return error_of(two_tools(fields), true, large_chat_model());
    };
    CHECK(error(R"("tool_choice": {"type": "function", "function": {"name": "shell"}})") ==
          "400 tool_choice.function.name : tool_choice.function.name: there is no tool shell");
    CHECK(error(R"("tool_choice": {"type": "allowed_tools"})")
              .starts_with("400 tool_choice.type unsupported_parameter: "));
    for (const std::string choice : {R"("any")", "5", "[]", "true"})
        CHECK(error("\"tool_choice\": " + choice) ==
              "400 tool_choice : tool_choice must be none, auto, required or an object");
    CHECK(tools_error(R"("tool_choice": "required")") ==
          "400 tool_choice : tool_choice needs tools");
    CHECK(tools_error(R"("tools": [], "tool_choice": {"type": "function"})") ==
          "400 tool_choice : tool_choice needs tools");
    CHECK(tools_error(R"("tools": [], "tool_choice": "auto")") == "accepted");
    CHECK(error(R"("parallel_tool_calls": 1)").starts_with("400 parallel_tool_calls : "));
    CHECK(error(R"("response_format": {"type": "json_object"})")
              .starts_with("400 response_format unsupported_parameter: "));
    CHECK(error(R"("tool_choice": "none", "response_format": {"type": "json_object"})") ==
          "accepted");
    CHECK(error(R"("functions": [{}])").starts_with("400 functions unsupported_parameter: "));
}

TEST_CASE("calls and results become tokens of the template") {
    ApiModel model = large_chat_model();
    const std::string body =
        R"({"model": "bytes", "messages": [{"role": "user", "content": "1 + 1?"}, )" +
        answer_with_call(call_of(R"({"expression":"1 + 1"})")) +
        R"(, {"role": "tool", "tool_call_id": "call_1", "content": "2"}]})";
    const auto prompt = [&] {
        std::string text;
        const CompletionRequest request = parse_chat_request(body, model);
        for (const Id id : request.prompts.at(0))
            text += id == 0   ? "<|im_start|>"
                    : id == 1 ? "<|im_end|>"
                              : std::string(1, char(id - 3));
        return text;
    };
    const std::string expected =
        "<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": "
        "\"calculator\", \"arguments\": {\"expression\":\"1 + 1\"}}\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n2\n</"
        "tool_response><|im_end|>\n<|im_start|>assistant\n";
    CHECK(prompt() == expected);
    model.chat_template->tools_in_system_message = true;  // Qwen 2.5
    std::string spaced = expected;
    spaced.insert(spaced.find("\":\"1") + 2, " ");
    CHECK(prompt() == spaced);
}

TEST_CASE("calls and results in messages are checked") {
    const std::string sum = R"({"expression": "1 + 1"})";
    const std::string result = R"({"role": "tool", "tool_call_id": "call_1", "content": "2"})";
    const std::string answer = answer_with_call(call_of(sum));
    CHECK(messages_error(answer + ", " + result) == "accepted");
    CHECK(messages_error(answer_with_call(call_of(sum) + ", " + call_of(sum, "b")) +
                         R"(, {"role": "tool", "tool_call_id": "b", "content": "2"}, )" +
                         result) == "accepted");
    CHECK(messages_error(answer) == "400 messages : messages: the call call_1 has no result");
    CHECK(messages_error(answer + R"(, {"role": "user", "content": "?"}, )" + result) ==
          "400 messages[2] : messages[2]: the call call_1 has no result");
    CHECK(messages_error(result) ==
          "400 messages[1].tool_call_id : messages[1].tool_call_id "
          "belongs to no call of the last answer");
    CHECK(messages_error(answer + ", " + result + ", " + result)
              .starts_with("400 messages[3].tool_call_id : "));
    CHECK(messages_error(answer + R"(, {"role": "tool", "tool_call_id": "call_1"})") ==
          "400 messages[2].content : messages[2].content is required");
    CHECK(messages_error(answer_with_call(call_of(sum) + ", " + call_of(sum))) ==
          "400 messages[1].tool_calls[1].id : messages[1].tool_calls[1].id is used twice");
    CHECK(messages_error(answer_with_call(call_of("{"))) ==
          "400 messages[1].tool_calls[0].function.arguments : "
          "messages[1].tool_calls[0].function.arguments: not valid JSON at column 2");
    CHECK(messages_error(answer_with_call(call_of("[1]"))) ==
          "400 messages[1].tool_calls[0].function.arguments : "
          "messages[1].tool_calls[0].function.arguments must be a JSON object");
    for (const std::string stored :
         {R"("index": 0)", R"("parsed": 1)"})  // and in the function, and of the result
        CHECK(messages_error(
                  R"({"role": "assistant", "tool_calls": [{"id": "call_1", )" + stored +
                  R"(, "function": {"name": "f", "arguments": "", "parsed_arguments": {}}}]}, )"
                  R"({"role": "tool", "tool_call_id": "call_1", "name": "f", "status": "ok", )"
                  R"("content": [{"type": "text", "text": "2", "cache_control": {}}]})") ==
              "accepted");
    CHECK(messages_error(R"({"role": "assistant", "content": null})") == "accepted");
    CHECK(messages_error(R"({"role": "user", "content": "a", "tool_calls": [)" + call_of(sum) +
                         "]}")
              .starts_with("400 messages[1].tool_calls unsupported_parameter: "));
}

TEST_CASE("no byte of a call becomes content, wherever the text is cut") {
    const std::string sum = R"({"expression": "1 + 1"})";
    for (const std::string before : {"", "Let me see.", "a < b <tool_", "x\n", "\n\n", "<"})
        for (std::size_t size = 1; size < 130; ++size) {
            const Choice whole =
                whole_answer(before + "\n" + sum_call() + "\n" + clock_call() + "\n", size);
            INFO(before << ", pieces of " << size);
            REQUIRE(whole.text == before);
            REQUIRE(whole.calls.size() == 2);
            CHECK(whole.calls[0].name == "calculator");
            CHECK(whole.calls[0].arguments == sum);
            CHECK(whole.calls[1].index == 1);
            CHECK(whole.calls[1].name == "clock");
            CHECK(whole.calls[1].arguments == "{}");
            CHECK(whole_answer(before, size).text == before);
        }
    const std::string quoted = R"({"a": "</tool_call> <tool_call>"})";
    CHECK(whole_answer(rendered_call({"f", quoted}), 1).calls.at(0).arguments == quoted);
    CHECK(whole_answer("5 <tool_call>", 3).text == "5 ");
    CHECK(whole_answer("<tool_call>\n{\"name\": \"f", 3).calls.empty());
}

TEST_CASE("a call arrives in pieces, first its name") {
    ToolCallText calls;
    const auto put = [&](const std::string& text) { return lines_of_parts(calls.put(text)); };
    CHECK(put("Yes <tool_") == "content Yes \n");
    CHECK(put("call>\n{\"name\": \"f\", \"argu") == "");
    CHECK(put("ments\": {\"a\"") == "0 f(\n0 {\"a\"\n");
    CHECK(put(": {}") == "0 : {}\n");
    CHECK(put("}}") == "0 }\n");  // the second one is that of the call
    CHECK(calls.num_complete() == 0);
    CHECK(put("\n</tool_call>") == "");
    CHECK(calls.num_complete() == 1);
    CHECK(put("\n<tool_call>\n{\"name\": \"g\", \"arguments\": {") == "1 g(\n1 {\n");
    CHECK(lines_of_parts(calls.finish()) == "");
    CHECK(calls.num_complete() == 1);
}

TEST_CASE("a call that is cut has no markup in its arguments, and its tag is no content") {
    const std::string arguments = R"({"a": "}]\\\"}\n</tool_call>", "b": [{}, "{"]})";
    const std::string answer = "Yes\n" + rendered_call({"f", arguments});
    const std::size_t begin = answer.find(arguments);
    for (std::size_t size = 4; size <= answer.size(); ++size)
        for (const std::size_t piece : {1, 7, 1000}) {
            ToolCallText calls;
            Choice whole;
            for (std::size_t at = 0; at < size; at += piece) {
                const auto parts = calls.put(answer.substr(at, std::min(piece, size - at)));
                append(whole, {0, parts.content, {}, "", parts.calls});
            }
            const auto last = calls.finish(true);
            append(whole, {0, last.content, {}, "", last.calls});
            INFO(answer.substr(0, size));
            CHECK(whole.text == "Yes");
            const std::size_t count = size > begin ? size - begin : 0;
            if (whole.calls.empty())
                CHECK(count == 0);
            else
                CHECK(whole.calls[0].arguments == arguments.substr(0, count));
            CHECK(calls.num_complete() == (size == answer.size() ? 1 : 0));
        }
}

TEST_CASE("stop strings end the text before a call, and not the call") {
    const Tokenizer tokenizer = byte_tokenizer();
    const BadWords none;
    const auto stopped = [&](const std::string& text, const std::string& stop) {
        AnswerText answer(tokenizer, {}, {stop}, none, tool_call_begin);
        std::string all;
        for (const char byte : text) all += answer.put(byte_id(byte));
        all += answer.finish();
        return all + (answer.finish_reason().empty() ? "" : "|");
    };
    CHECK(stopped("a b" + sum_call(), "b") == "a |");
    CHECK(stopped("a b" + sum_call(), "name") == "a b" + sum_call());
    CHECK(stopped("a" + sum_call(), "\n") == "a" + sum_call());
    CHECK(stopped("a" + sum_call(), "<") == "a" + sum_call());
    CHECK(stopped("a <b", "<") == "a |");
    CHECK(stopped("a <tool_calls", "tool") == "a <|");
    CHECK(stopped("a <tool", "<") == "a |");
    CHECK(stopped("a" + sum_call(), "a<tool") == "|");
}

TEST_CASE("the JSON of an answer with calls, whole and in chunks") {
    const ResponseHead head{true, "chatcmpl-7-3", "m", 5, false};
    const std::vector<ToolCallPart> parts = {{0, "f", ""}, {0, "", "{\"a\""}, {0, "", ": 1}"}};
    Choice whole;
    append(whole, {0, "", {}, "", parts});
    whole.finish_reason = "tool_calls";
    const std::string message =
        R"("message":{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"call_7-3-0-0",)"
        R"("type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},"logprobs":null,)"
        R"("finish_reason":"tool_calls"})";
    CHECK(response_json(head, {whole}, {3, 2}).find(message) != std::string::npos);
    whole.text = "Yes";
    CHECK(response_json(head, {whole}, {3, 2}).find(R"("content":"Yes")") != std::string::npos);

    const std::vector<std::string> chunks =
        chunks_json(head, {1, "Yes", {}, "tool_calls", parts});
    REQUIRE(chunks.size() == 4);
    const std::vector<std::string> deltas = {
        R"("delta":{"content":"Yes"},"logprobs":null,"finish_reason":null})",
        R"("delta":{"tool_calls":[{"index":0,"id":"call_7-3-1-0","type":"function","function":{"name":"f","arguments":""}}]},)"
        R"("logprobs":null,"finish_reason":null})",
        R"("delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]},"logprobs":null,"finish_reason":null})",
        R"("delta":{"tool_calls":[{"index":0,"function":{"arguments":": 1}"}}]},"logprobs":null,"finish_reason":"tool_calls"})"};
    for (std::size_t i = 0; i < 4; ++i)
        CHECK_MESSAGE(chunks[i].find(deltas[i]) != std::string::npos, chunks[i]);
}

TEST_CASE("a completion with a required call ends with it, or with the limit") {
    Metrics metrics;
    ApiModel model = large_chat_model();
    EngineLoop loop(random_model(), {{4, 16}, 60, 4}, 100, metrics);
    const auto run = [&](std::size_t max_new_tokens) {
        CompletionRequest request = parse_chat_request(
            two_tools(R"("n": 2, "seed": 3, "temperature": 2, "parallel_tool_calls": false,
                "stop": ["\n", "name"], "logprobs": true,
                "tool_choice": {"type": "function", "function": {"name": "clock"}})"),
            model);
        request.prompts = {{byte_id('H'), byte_id('i')}};
        request.max_new_tokens = max_new_tokens;
        Completion completion(model, request, loop, Clock::now() + std::chrono::seconds(60));
        std::vector<Choice> wholes(2);
        while (!completion.has_ended())
            if (const auto part = completion.next_part(Clock::now() + std::chrono::seconds(60)))
                append(wholes[part->index], *part);
        for (const Choice& whole : wholes) CHECK(whole.text == "");
        CHECK(wholes[0].tokens.size() + wholes[1].tokens.size() ==
              completion.usage().completion_tokens);
        return wholes;
    };
    for (const Choice& whole : run(100)) {
        CHECK(whole.finish_reason == "tool_calls");
        REQUIRE(whole.calls.size() == 1);
        CHECK(whole.calls[0].name == "clock");
        CHECK(whole.calls[0].arguments == "{}");
        CHECK(whole.tokens.size() == clock_call().size());
    }
    for (const Choice& whole : run(clock_call().size() - 5)) {
        CHECK(whole.finish_reason == "length");
        CHECK(whole.calls.size() == 1);
    }
    for (const std::size_t limit : {5, 20})  // in the tag, and before the name
        for (const Choice& whole : run(limit)) CHECK(whole.calls.empty());
}
