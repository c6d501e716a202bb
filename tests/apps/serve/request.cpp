// Requests as OpenAI's API defines them: each field is used, or rejected by name.
#include "chapters/23_structured_output/schema/json_schema.hpp"
#include "chapters/apps/serve/api/request_fields.hpp"
#include "chapters/models/chat/chat_formats.hpp"
#include "tests/support/serve_helpers.hpp"

using namespace llm;
using namespace llm::serve;

namespace {

// A body of the endpoint with more fields: R"("n": 2)".
std::string body_with(const std::string& fields, bool chat = false) {
    const std::string prompt =
        chat ? R"("messages": [{"role": "user", "content": "Hi"}])" : R"("prompt": "Hi")";
    return R"({"model": "bytes", )" + prompt + (fields.empty() ? "" : ", " + fields) + "}";
}

CompletionRequest parse(const std::string& fields) {
    return parse_completion_request(body_with(fields), byte_model());
}

std::string completion_error(const std::string& fields) {
    return error_of(body_with(fields), false, byte_model());
}
std::string chat_error(const std::string& fields) {
    return error_of(body_with(fields, true), true, chat_model());
}

}  // namespace

TEST_CASE("every field that is supported reaches the request") {
    const CompletionRequest request = parse(
        R"("n": 2, "max_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": 3,
           "min_p": 0.125, "repetition_penalty": 1.5, "seed": 5, "stop": ["a", "bc"],
           "stream": true, "stream_options": {"include_usage": true}, "logprobs": 4)");
    CHECK_FALSE(request.chat);
    CHECK(request.prompts == std::vector<std::vector<Id>>{{byte_id('H'), byte_id('i')}});
    CHECK(request.n == 2);
    CHECK(request.max_new_tokens == 7);
    CHECK(request.sampling.temperature == Real(0.5));
    CHECK(request.sampling.top_p == Real(0.25));
    CHECK(request.sampling.top_k == 3);
    CHECK(request.sampling.min_p == Real(0.125));
    CHECK(request.sampling.repetition_penalty == Real(1.5));
    CHECK(request.seed == 5u);
    CHECK(request.stop == std::vector<std::string>{"a", "bc"});
    CHECK(request.stream);
    CHECK(request.include_usage);
    CHECK(request.top_logprobs == 4u);
}

TEST_CASE("absent fields and null have OpenAI's defaults") {
    for (const std::string fields :
         {"", R"("n": null, "stop": null, "stream": null, "seed": null, "logprobs": null)"}) {
        const CompletionRequest request = parse(fields);
        CHECK(request.n == 1);
        CHECK(request.max_new_tokens == 16);
        CHECK(request.sampling.temperature == 1);
        CHECK_FALSE(request.seed.has_value());
        CHECK(request.stop.empty());
        CHECK_FALSE(request.stream);
        CHECK_FALSE(request.top_logprobs.has_value());
    }
}

TEST_CASE("neutral values of what is not supported are accepted") {
    for (const std::string fields :
         {R"("frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {})",
          R"("best_of": 1, "echo": false, "suffix": "", "user": "me")",
          R"("tools": [], "tool_choice": "none", "response_format": {"type": "text"})"})
        CHECK(completion_error(fields) == "accepted");
    CHECK(chat_error(R"("parallel_tool_calls": true, "store": false, "modalities": ["text"],
                        "service_tier": "auto", "top_logprobs": null)") == "accepted");
}

TEST_CASE("everything else is rejected with the name of the field") {
    const auto rejects = [](const std::string& fields, const std::string& message) {
        CHECK(completion_error(fields) == message);
    };
    const std::string unsupported = " unsupported_parameter: ";
    for (const std::string field : {"frequency_penalty", "presence_penalty"})
        rejects('"' + field + R"(": 2.5)",
                "400 " + field + " : " + field + " must be a number from -2 to 2, not 2.5");
    rejects(R"("logit_bias": [])",
            "400 logit_bias : logit_bias must be an object of at most 1024 tokens");
    for (const std::string key : {"259", "a", "-1", "1.0", "", "99999999999"})
        rejects("\"logit_bias\": {\"" + key + "\": 1}",
                "400 logit_bias : logit_bias: " + key + " is no token");
    for (const std::string bias : {"101", "-100.5", "\"1\"", "true"})
        rejects("\"logit_bias\": {\"5\": " + bias + "}",
                "400 logit_bias : logit_bias: a bias must be a number from -100 to 100, not " +
                    bias);
    rejects(R"("response_format": {"type": "xml"})",
            "400 response_format : response_format.type must be text, "
            "json_object or json_schema");
    rejects(R"("response_format": {"type": "json_schema"})",
            "400 response_format : response_format.json_schema is missing");
    rejects(R"("tools": [{}])", "400 tools" + unsupported + "tools is not supported: [{}]");
    rejects(R"("best_of": 2)", "400 best_of" + unsupported + "best_of is not supported: 2");
    rejects(R"("echo": true)", "400 echo" + unsupported + "echo is not supported: true");
    rejects(R"("temprature": 1)",
            "400 temprature unknown_parameter: unknown parameter: temprature");
    rejects(R"("n": 17)", "400 n : n must be an integer from 1 to 16, not 17");
    rejects(R"("n": 1.5)", "400 n : n must be an integer from 1 to 16, not 1.5");
    rejects(R"("n": "1")", "400 n : n must be an integer from 1 to 16, not \"1\"");
    rejects(R"("n": 18446744073709551615)",
            "400 n : n must be an integer from 1 to 16, not 18446744073709551615");
    rejects(R"("temperature": 2.5)",
            "400 temperature : temperature must be a number from 0 to 2, not 2.5");
    rejects(R"("temperature": 1e-9)",
            "400 temperature : temperature must be 0, or from 0.01 to 2");
    rejects(R"("top_p": true)", "400 top_p : top_p must be a number from 0 to 1, not true");
    rejects(R"("stream": 1)", "400 stream : stream must be true or false");
    rejects(R"("stream_options": {})",
            "400 stream_options : stream_options is only allowed with stream: true");
    rejects(
        R"("stream": true, "stream_options": {"usage": true})",
        "400 stream_options.usage unknown_parameter: unknown parameter: stream_options.usage");
    rejects(R"("stop": [1])", "400 stop : stop must be a string or an array of strings");
    rejects(R"("stop": [""])", "400 stop : a stop string must have from 1 to 1000 bytes");
    rejects(R"("stop": ["1", "2", "3", "4", "5"])",
            "400 stop : stop must have at most 4 strings");
    rejects(R"("logprobs": 6)",
            "400 logprobs : logprobs must be an integer from 0 to 5, not 6");
    rejects(R"("user": 5)", "400 user : user must be a string");
}

TEST_CASE("a body that is no JSON object, or too deep, is rejected") {
    const auto rejects = [](const std::string& body, const std::string& message) {
        CHECK(error_of(body, false, byte_model()) == "400  : the body: " + message);
    };
    rejects("", "not valid JSON at column 1");
    rejects("[1]", "not a JSON object");
    rejects(R"({"model": "bytes", "model": "x"})", "an object has the key model twice");
    rejects("{\"model\": \"\xff\"}", "not valid JSON at column 12");
    rejects(R"({"n": 1e999})", "a number is too large");
    std::string deep(100'000, '[');
    rejects("{\"prompt\": " + deep, "nested more than 128 deep");
    rejects("{\"prompt\": " + deep + std::string(deep.size(), ']') + "}",
            "nested more than 128 deep");
}

TEST_CASE("another model is not found, and a model is required") {
    CHECK(error_of(R"({"model": "gpt", "prompt": "Hi"})", false, byte_model()) ==
          "404 model model_not_found: the model gpt does not exist; this server has bytes");
    CHECK(error_of(R"({"prompt": "Hi"})", false, byte_model()) ==
          "400 model : model is required");
}

TEST_CASE("a prompt is a text, tokens, or several of these") {
    const auto prompts = [](const std::string& json) {
        return parse_completion_request(R"({"model": "bytes", "prompt": )" + json + "}",
                                        byte_model())
            .prompts;
    };
    CHECK(prompts(R"([3, 258])") == std::vector<std::vector<Id>>{{3, 258}});
    CHECK(prompts(R"(["H", "i"])") ==
          std::vector<std::vector<Id>>{{byte_id('H')}, {byte_id('i')}});
    CHECK(prompts(R"([[3], "H"])") == std::vector<std::vector<Id>>{{3}, {byte_id('H')}});
    for (const std::string json : {"[]", "{}", "5", "[[]]", "[null]", "[3, 259]", "[3, -1]",
                                   "[3, 1.5]", "[3, \"H\"]", "[[[3]]]", "true"})
        CHECK_THROWS_AS(prompts(json), ApiError);
}

TEST_CASE("lengths: max_tokens is limited by the context, and missing ones fill it") {
    CHECK(parse(R"("max_tokens": 198)").max_new_tokens == 198);
    CHECK(completion_error(R"("max_tokens": 199)") ==
          "400 prompt context_length_exceeded: the context has 200 tokens; the prompt has 2, "
          "and max_tokens asks for 199 more");
    CHECK(completion_error(R"("max_tokens": 0)").starts_with("400 max_tokens : "));
    const std::string long_prompt =
        R"({"model": "bytes", "prompt": ")" + std::string(151, 'a') + "\"}";
    CHECK(error_of(long_prompt, false, byte_model()) ==
          "400 prompt context_length_exceeded: the prompt has 151 tokens, at most 150 are "
          "allowed");
}

TEST_CASE("messages become the tokens of the chat template") {
    const ApiModel model = chat_model();
    const std::string text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    for (const std::string content : {R"("Hi")", R"([{"type": "text", "text": "Hi"}])"}) {
        const CompletionRequest request = parse_chat_request(
            R"({"model": "bytes", "messages": [{"role": "user", "content": )" + content + "}]}",
            model);
        CHECK(request.prompts.at(0) == model.tokenizer.encode(text));
        CHECK(request.max_new_tokens == model.context_length - request.prompts[0].size());
    }
    CHECK(chat_error(R"("logprobs": true, "top_logprobs": 20)") == "accepted");
    CHECK(chat_error(R"("top_logprobs": 0)") == "accepted");
    CHECK(chat_error(R"("top_logprobs": 2)") ==
          "400 top_logprobs : top_logprobs needs logprobs: true");
    CHECK(chat_error(R"("max_tokens": 2, "max_completion_tokens": 2)")
              .starts_with("400 max_tokens : "));
    CHECK(chat_error(R"("reasoning_effort": "low")")
              .starts_with("400 reasoning_effort unsupported_parameter: "));
}

TEST_CASE("messages that are wrong are rejected with their place") {
    const auto error = [](const std::string& messages) {
        return error_of(R"({"model": "bytes", "messages": )" + messages + "}", true,
                        chat_model());
    };
    CHECK(error("[]").starts_with("400 messages : "));
    CHECK(error("[1]") == "400 messages[0] : messages[0] must be an object");
    CHECK(error(R"([{"role": "user"}])") ==
          "400 messages[0].content : messages[0].content is required");
    CHECK(
        error(R"([{"role": "robot", "content": "5"}])").starts_with("400 messages[0].role : "));
    CHECK(error(R"([{"role": "tool", "content": "5"}])") ==
          "400 messages[0].tool_call_id : messages[0].tool_call_id is required");
    for (const std::string field :
         {R"("audio": {"id": "a"})", R"("images": ["a"])", R"("prefix": true)",
          R"("function_call": {"name": "f"})", R"("partial": true)"}) {
        const std::string name = "messages[0]." + field.substr(1, field.find('"', 1) - 1);
        CHECK(error(R"([{"role": "user", "content": "a", )" + field + "}]")
                  .starts_with("400 " + name + " unsupported_parameter: "));
    }
    CHECK(error(R"([{"role": "assistant"}])") == "accepted");
    CHECK(error(R"([{"role": "user", "content": [{"type": "image_url"}]}])") ==
          "400 messages[0].content[0] unsupported_parameter: messages[0].content[0] of type "
          "image_url is not supported");
    CHECK(error_of(body_with("", true), true, byte_model()) ==
          "400  : the model bytes has no chat template; /v1/completions continues texts");
}

TEST_CASE("a response_format becomes a grammar, whose errors have the path of the schema") {
    CHECK_FALSE(parse(R"("response_format": {"type": "text"})").grammar);
    CHECK(parse(R"("response_format": {"type": "json_object"})").grammar);
    const auto schema = [](const std::string& text) {
        return R"("response_format": {"type": "json_schema", "json_schema": {"name": "x", )" +
               text + "}}";
    };
    CHECK(parse(schema(R"("strict": true, "schema": {"type": "integer"})")).grammar);
    const std::string begin = "400 response_format : response_format";
    CHECK(completion_error(schema(R"("strict": true)")) ==
          begin + ".json_schema.schema is missing");
    CHECK(completion_error(schema(R"("color": 1)")) ==
          begin + ".json_schema.color is not supported");
    const std::string unknown = completion_error(
        schema(R"("schema": {"type": "object", "properties": {"a": {"not": {"const": 1}}}})"));
    CHECK(unknown.find(begin + ".json_schema.schema: ") == 0);
    CHECK(unknown.find("#/properties/a") != std::string::npos);
    CHECK(
        completion_error(R"("response_format": {"type": "json_object", "schema": {"type": 5}})")
            .starts_with(begin + ".schema: json_schema: #/type"));
    const auto any = parse(R"("response_format": {"type": "json_object"})").grammar;
    const auto pair =
        parse(R"("response_format": {"type": "json_object", "schema": {"enum": ["a"]}})")
            .grammar;
    CHECK(pair->rules().size() != any->rules().size());
    // A client that wants no guarantee says so.
    const std::string unenforced = R"("schema": {"type": "array", "uniqueItems": true})";
    CHECK(completion_error(schema(R"("strict": false, )" + unenforced)) == "accepted");
    for (const std::string strict : {"", R"("strict": true, )", R"("strict": null, )"})
        CHECK(completion_error(schema(strict + unenforced)).starts_with(begin));
    CHECK(completion_error(schema(R"("strict": 1, "schema": {})")) ==
          begin + ".json_schema.strict must be true or false");
}

TEST_CASE("a grammar that cannot begin is an error of the request") {
    std::string many = R"({"const": "a"})";
    for (int i = 0; i < 600; ++i)
        many += R"(, {"type": "string", "minLength": )" + to_text(i) + "}";
    CHECK(completion_error(R"("response_format": {"type": "json_schema", "json_schema":
              {"schema": {"anyOf": [)" +
                           many + "]}}}")
              .starts_with("400 response_format : response_format: grammar: too ambiguous"));
    // A vocabulary without "{".
    ApiModel model = byte_model();
    TokenTrie trie = *model.trie;
    std::erase_if(trie.nodes, [](const TrieNode& node) { return node.byte == '{'; });
    model.trie = std::make_shared<const TokenTrie>(trie);
    CHECK(error_of(body_with(R"("response_format": {"type": "json_object"})"), false, model) ==
          "400 response_format : response_format: token_mask: after 0 tokens, no token of the "
          "vocabulary fits the grammar");
}

TEST_CASE("the grammar of a request is kept for the next one") {
    GrammarCache cache;
    int num_made = 0;
    const auto get = [&](const std::string& key) {
        return cache.get(key, [&] {
            ++num_made;
            return std::make_shared<const Grammar>(json_object_grammar());
        });
    };
    const auto first = get("a");
    CHECK(get("a") == first);
    CHECK(get("b") != first);
    for (int i = 0; i < 14; ++i) get(to_text(i));
    CHECK(get("a") == first);  // used again, so that it is not the oldest
    get("c");
    CHECK(num_made == 17);
    CHECK(get("a") == first);
    get("b");
    CHECK(num_made == 18);
    CHECK(get(std::string(70'000, 'x')) != get(std::string(70'000, 'x')));
    CHECK_THROWS_AS(
        cache.get("d", []() -> std::shared_ptr<const Grammar> { throw ValueError(""); }),
        ValueError);
    get("d");
    CHECK(num_made == 21);

    // What the grammar depends on is in the key.
    const ApiModel model = chat_model();
    const auto grammar = [&](const std::string& fields) {
        return parse_chat_request(body_with(fields, true), model).grammar;
    };
    const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
    std::set<std::shared_ptr<const Grammar>> grammars;
    for (const std::string choice :
         {"", R"(, "tool_choice": "required")", R"(, "parallel_tool_calls": false)",
          R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})"}) {
        CHECK(grammars.insert(grammar(tools + choice)).second);
        CHECK(grammars.contains(grammar(tools + choice)));
    }
}

TEST_CASE("messages come back with what clients store in them") {
    const auto prompt = [](const std::string& message) {
        return parse_chat_request(R"({"model": "bytes", "messages": [)" + message + "]}",
                                  chat_model())
            .prompts.at(0);
    };
    const auto with = [&](const std::string& role, const std::string& fields) {
        return prompt(R"({"role": ")" + role + R"(", "content": "a")" + fields + "}");
    };
    for (const std::string role : {"user", "system", "assistant"})
        for (const std::string fields :
             {R"(, "name": "anna")", R"(, "id": "m1", "created_at": 5, "metadata": {"a": 1})",
              R"(, "refusal": null, "annotations": [{"type": "x"}], "audio": null)",
              R"(, "parsed": {"a": 1}, "tool_calls": [], "function_call": null)",
              R"(, "reasoning": "I think", "reasoning_details": [], "cache_control": {})",
              R"(, "reasoning_content": "I think", "prefix": false)"}) {
            INFO(role << fields);
            CHECK(with(role, fields) == with(role, ""));
        }
    CHECK(with("developer", "") == with("system", ""));
    for (const std::string content : {"null", "\"\"", "[]"})
        CHECK(prompt(R"({"role": "assistant", "content": )" + content + "}") ==
              prompt(R"({"role": "assistant"})"));
    CHECK(prompt(R"({"role": "assistant", "content": [{"type": "refusal", "refusal": "a"},
                     {"type": "output_text", "text": "b", "annotations": []}]})") ==
          prompt(R"({"role": "assistant", "content": "ab"})"));
}

TEST_CASE("Qwen3's template gets the reasoning of an answer, and whether it may think") {
    ApiModel model = chat_model();
    model.chat_template = models::chat_template_named("qwen3");
    const auto prompt = [&](const std::string& messages, const std::string& fields = "") {
        return parse_chat_request(
                   R"({"model": "bytes", "messages": [)" + messages + "]" + fields + "}", model)
            .prompts.at(0);
    };
    CHECK(prompt(R"({"role": "assistant", "content": "b", "reasoning_content": "a"})") ==
          prompt(R"({"role": "assistant", "content": "<think>\na\n</think>\n\nb"})"));
    const std::string user = R"({"role": "user", "content": "a"})";
    const auto thinks = prompt(user), silent = prompt(user, R"(, "reasoning_effort": "none")");
    CHECK(silent.size() > thinks.size());  // an empty <think></think>
    CHECK(prompt(user, R"(, "chat_template_kwargs": {"enable_thinking": false})") == silent);
    CHECK(prompt(user, R"(, "chat_template_kwargs": {"enable_thinking": true})") == thinks);
    CHECK(prompt(user, R"(, "chat_template_kwargs": {}, "reasoning_effort": "none")") ==
          silent);
    CHECK(chat_error(R"("chat_template_kwargs": {"a": 1})")
              .starts_with("400 chat_template_kwargs.a unknown_parameter: "));
}

TEST_CASE("penalties and biases change the logits of tokens") {
    const LogitChanges changes =
        parse(
            R"("frequency_penalty": 0.5, "presence_penalty": 2, "logit_bias": {"1": -100, "3": 4})")
            .logit_changes;
    const std::vector<Id> new_ids = {2, 3, 2};
    const Vector logits = {1, 2, 3, 4, 5};
    CHECK_CLOSE(changed_logits(changes, logits, new_ids), Vector({1, -98, 0, 5.5, 5}), 1e-6);
    CHECK_FALSE(parse(R"("frequency_penalty": 0, "logit_bias": {})").logit_changes.any());
    CHECK(parse(R"("top_k": -1)").sampling.top_k == 0);
}

TEST_CASE("2,000 damaged bodies are accepted or rejected as ApiError") {
    const std::vector<std::string> bodies = {
        body_with(R"("n": 2, "max_tokens": 7, "temperature": 0.5, "stop": ["a", "bc"],
                     "stream": true, "stream_options": {"include_usage": true})"),
        body_with(R"("response_format": {"type": "json_schema", "json_schema": {"name": "a",
                     "schema": {"type": "object", "properties": {"b": {"type": "integer"}},
                                "required": ["b"]}}})",
                  true),
        body_with(R"("tool_choice": "required", "tools": [{"type": "function", "function": {
                     "name": "f", "parameters": {"type": "object", "properties": {}}}}])",
                  true)};
    const std::string bytes = "\"{}[],:0-9.eE \\u\x80\xff\n";
    Generator generator(5);
    std::size_t num_accepted = 0;
    for (int i = 0; i < 2000; ++i) {
        const bool chat = i % 3 > 0;
        std::string body = bodies[i % 3];
        for (std::uint32_t k = 0; k <= generator.next_32_bits() % 3; ++k) {
            const std::size_t place = generator.next_32_bits() % body.size();
            const std::size_t count = generator.next_32_bits() % 9;
            switch (generator.next_32_bits() % 4) {
                case 0:
                    body[place] = bytes[generator.next_32_bits() % bytes.size()];
                    break;
                case 1:
                    body.erase(place, count);
                    break;
                case 2:
                    body.insert(place, body.substr(place, count));
                    break;
                case 3:
                    body.resize(place + 1);
                    break;
            }
        }
        CAPTURE(body);
        std::string result;
        CHECK_NOTHROW(result = error_of(body, chat, chat_model()));
        CHECK(
            (result == "accepted" || result.starts_with("400 ") || result.starts_with("404 ")));
        num_accepted += result == "accepted";
    }
    CHECK(num_accepted > 50);
    CHECK(num_accepted < 1000);
}
