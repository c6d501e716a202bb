// Open Responses: items become messages, and the parts of an answer become items and events.
#include "chapters/apps/serve/api/responses.hpp"
#include "tests/support/serve_helpers.hpp"

using namespace llm;
using namespace llm::serve;

namespace {

std::string body_of(const std::string& fields) {
    return R"({"model": "bytes", )" + fields + "}";
}

CompletionRequest parse_items(const std::string& fields) {
    ApiModel model = chat_model();
    model.context_length = 5000;
    model.max_prompt_tokens = 4000;
    return parse_responses_request(body_of(fields), model);
}

std::vector<Id> items_prompt(const std::string& fields) {
    return parse_items(fields).prompts.at(0);
}

// The prompt of the same conversation in /v1/chat/completions.
std::vector<Id> chat_prompt(const std::string& messages) {
    ApiModel model = chat_model();
    model.context_length = 5000;
    model.max_prompt_tokens = 4000;
    return parse_chat_request(body_of("\"messages\": " + messages), model).prompts.at(0);
}

std::string items_error(const std::string& fields) try {
    parse_items(fields);
    return "accepted";
} catch (const ApiError& error) {
    return std::to_string(error.status) + " " + error.what();
}

// The types of events, in their order; each must be valid JSON with its number.
std::vector<std::string> types_of(const std::string& events, std::size_t& number) {
    std::vector<std::string> types;
    for (std::size_t at = 0; at < events.size() && events.substr(at) != sse_done;) {
        const std::size_t line = events.find("\ndata: ", at), end = events.find("\n\n", at);
        const Json data = parse_json(events.substr(line + 7, end - line - 7), "event");
        types.push_back(*data.find("type")->as<std::string>());
        CHECK(events.substr(at, line - at) == "event: " + types.back());
        CHECK(*data.find("sequence_number") == Json(number++));
        at = end + 2;
    }
    return types;
}

const ResponseHead items_head{true, "resp_7-3", "bytes", 5, false};

}  // namespace

TEST_CASE("responses: input becomes the messages of a chat") {
    const std::string hi = R"([{"role": "user", "content": "Hi"}])";
    CHECK(items_prompt(R"("input": "Hi")") == chat_prompt(hi));
    CHECK(items_prompt("\"input\": " + hi) == chat_prompt(hi));
    CHECK(items_prompt(R"("input": [{"type": "message", "role": "user", "id": "msg_1",
                     "content": [{"type": "input_text", "text": "Hi"}]}])") == chat_prompt(hi));
    CHECK(items_prompt(R"("instructions": "Be brief", "input": "Hi")") ==
          chat_prompt(R"([{"role": "system", "content": "Be brief"},
                          {"role": "user", "content": "Hi"}])"));
}

TEST_CASE("responses: calls belong to the answer before them, and results to calls") {
    const std::string call =
        R"({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_1"})";
    const std::string result =
        R"({"type": "function_call_output", "call_id": "c1", "output": "5"})";
    const std::string chat_call =
        R"("tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]})";
    const std::string chat_result = R"({"role": "tool", "tool_call_id": "c1", "content": "5"})";
    const std::string user = R"({"role": "user", "content": "1?"}, )";
    CHECK(items_prompt("\"input\": [" + user + R"({"type": "reasoning", "summary": []}, )" +
                       call + ", " + result + "]") ==
          chat_prompt("[" + user + R"({"role": "assistant", )" + chat_call + ", " +
                      chat_result + "]"));
    const std::string text = R"({"role": "assistant", "content": [)"
                             R"({"type": "output_text", "text": "Wait", "annotations": []}])";
    CHECK(items_prompt("\"input\": [" + user + text + "}, " + call + ", " + result + "]") ==
          chat_prompt("[" + user + R"({"role": "assistant", "content": "Wait", )" + chat_call +
                      ", " + chat_result + "]"));
    CHECK(items_error("\"input\": [" + user + call + "]")
              .starts_with("400 messages: the call c1"));
}

TEST_CASE("responses: settings, tools and formats reach the request") {
    const CompletionRequest request = parse_items(
        R"("input": "Hi", "max_output_tokens": 7, "temperature": 0.5, "top_p": 0.25,
           "stream": true, "store": true, "metadata": {"a": "b"}, "truncation": "auto",
           "text": {"format": {"type": "json_schema", "name": "x", "strict": true,
                    "schema": {"const": 1}}})");
    CHECK(request.max_new_tokens == 7);
    CHECK(request.sampling.temperature == Real(0.5));
    CHECK(request.sampling.top_p == Real(0.25));
    CHECK(request.stream);
    REQUIRE(request.grammar);
    CHECK(is_complete(advance(*request.grammar, start_state(*request.grammar), "1")));
    const std::string tool =
        R"("input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": {}}])";
    CHECK(parse_items(tool).tools.size() == 1);
    CHECK(parse_items(tool + R"(, "tool_choice": {"type": "function", "name": "f"})").grammar);
    CHECK(items_error(tool + R"(, "tool_choice": {"type": "function", "name": "g"})") ==
          "400 tool_choice.function.name: there is no tool g");
    for (const std::string wrong :
         {R"("previous_response_id": "resp_1")", R"("background": true)", R"("color": 1)",
          R"("include": ["x"])", R"("text": {"color": 1})", R"("max_output_tokens": 0)",
          R"("input": [{"type": "item_reference", "id": "a"}])", R"("input": 5)"}) {
        const std::string hi = wrong.starts_with("\"input") ? "" : R"("input": "Hi", )";
        CHECK_MESSAGE(items_error(hi + wrong).starts_with("400 "), wrong);
    }
    CHECK(items_error(R"("temperature": 1)") == "400 input is required");
}

TEST_CASE("responses: the events of a text add up to the response") {
    ResponseItems items(items_head, body_of(R"("input": "Hi", "temperature": 0.5)"));
    std::size_t number = 0;
    using Types = std::vector<std::string>;
    CHECK(types_of(items.begin(), number) == Types{"response.created", "response.in_progress"});
    CHECK(types_of(items.add({0, "Yes"}), number) == Types{"response.output_item.added",
                                                           "response.content_part.added",
                                                           "response.output_text.delta"});
    CHECK(types_of(items.add({0, "!", {}, "stop"}), number) ==
          Types{"response.output_text.delta"});
    CHECK(types_of(items.finish({3, 2}), number) ==
          Types{"response.output_text.done", "response.content_part.done",
                "response.output_item.done", "response.completed"});
    const Json response = parse_json(items.response_json(), "response");
    CHECK(*response.find("status") == Json("completed"));
    CHECK(*response.find("temperature") == Json(0.5));
    const Json& message = response.find("output")->as<JsonArray>()->at(0);
    CHECK(*message.find("id") == Json("msg_7-3-0"));
    CHECK(*message.find("status") == Json("completed"));
    CHECK(*message.find("content")->as<JsonArray>()->at(0).find("text") == Json("Yes!"));
    CHECK(*response.find("usage")->find("total_tokens") == Json(5));
}

TEST_CASE("responses: calls are items of their own") {
    ResponseItems items(items_head, body_of(R"("input": "Hi")"));
    items.add({0, "Wait"});
    items.add({0, "", {}, "", {{0, "f", ""}, {0, "", "{\"a\""}}});
    items.add({0, "", {}, "", {{0, "", ": 1}"}, {1, "g", ""}}});
    items.add({0, "", {}, "tool_calls", {{1, "", "{}"}}});
    CHECK(items.finish({3, 2}).find("response.completed") != std::string::npos);
    const Json response = parse_json(items.response_json(), "response");
    const JsonArray& output = *response.find("output")->as<JsonArray>();
    REQUIRE(output.size() == 3);
    CHECK(*output[1].find("arguments") == Json("{\"a\": 1}"));
    CHECK(*output[1].find("call_id") == Json("call_7-3-1"));
    CHECK(*output[2].find("name") == Json("g"));
    CHECK(*output[2].find("arguments") == Json("{}"));
    for (const Json& item : output) CHECK(*item.find("status") == Json("completed"));
}

TEST_CASE("responses: a text after a call is a message of its own") {
    ResponseItems items(items_head, body_of(R"("input": "Hi")"));
    items.add({0, "", {}, "", {{0, "f", ""}, {0, "", "{}"}}});
    items.add({0, "Done", {}, "stop"});
    items.finish({3, 2});
    const Json response = parse_json(items.response_json(), "response");
    const JsonArray& output = *response.find("output")->as<JsonArray>();
    REQUIRE(output.size() == 2);
    CHECK(*output[0].find("status") == Json("completed"));
    CHECK(*output[1].find("type") == Json("message"));
}

TEST_CASE("responses: answers that are cut, empty, or fail") {
    ResponseItems cut(items_head, body_of(R"("input": "Hi")"));
    cut.add({0, "Ye", {}, "length"});
    CHECK(cut.finish({3, 2}).find("event: response.incomplete\n") != std::string::npos);
    CHECK(cut.response_json().find(R"("incomplete_details":{"reason":"max_output_tokens"})") !=
          std::string::npos);
    ResponseItems empty(items_head, body_of(R"("input": "Hi")"));
    empty.add({0, "", {}, "stop"});
    empty.finish({3, 1});
    const Json response = parse_json(empty.response_json(), "response");
    CHECK(response.find("output")->as<JsonArray>()->size() == 1);
    ResponseItems failed(items_head, body_of(R"("input": "Hi")"));
    CHECK(failed.fail(ApiError(503, "server_error", "no"))
              .find(R"("error":{"code":"server_error","message":"no"})") != std::string::npos);
    CHECK(failed.response_json().find(R"("status":"failed")") != std::string::npos);
}
