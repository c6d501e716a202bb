// The text of answers: UTF-8, stop strings and bad words; and the JSON that carries it.
#include "common/files/unicode.hpp"
#include "common/numbers/hash.hpp"
#include "tests/support/serve_helpers.hpp"

using namespace llm;
using namespace llm::models;
using namespace llm::serve;

namespace {

struct Streamed {
    std::vector<std::string> parts;  // of each token, then the rest
    std::string reason;
    std::string text() const {
        return std::accumulate(parts.begin(), parts.end(), std::string());
    }
};

// Each byte is a token.
Streamed stream(const std::string& bytes, const std::vector<std::string>& stop = {},
                const BadWords& bad_words = {}) {
    const Tokenizer tokenizer = byte_tokenizer();
    AnswerText answer(tokenizer, {}, stop, bad_words);
    Streamed streamed;
    for (const char byte : bytes) {
        streamed.parts.push_back(answer.put(byte_id(byte)));
        if (!answer.finish_reason().empty()) break;
    }
    if (answer.finish_reason().empty()) streamed.parts.push_back(answer.finish());
    streamed.reason = answer.finish_reason();
    return streamed;
}

}  // namespace

TEST_CASE("a character that several tokens spell is sent as a whole") {
    const Streamed streamed = stream("aé€😀");
    CHECK(streamed.parts ==
          std::vector<std::string>{"a", "", "é", "", "", "€", "", "", "", "😀", ""});
    CHECK(stream("a\xf0\x9f").parts == std::vector<std::string>{"a", "", "", "\uFFFD"});
    CHECK(stream("a\xe2z").text() == "a\uFFFDz");
    CHECK(stream("\xe0\x80z").parts ==  // an overlong form: wrong before it ends
          std::vector<std::string>{"", "\uFFFD\uFFFD", "z", ""});
    CHECK(stream("\x80\xff").text() == "\uFFFD\uFFFD");
}

TEST_CASE("a stop string across tokens ends the text before it, and no part of it is sent") {
    const Streamed streamed = stream("one two three", {"two"});
    CHECK(streamed.text() == "one ");
    CHECK(streamed.reason == "stop");
    CHECK(streamed.parts == std::vector<std::string>{"o", "n", "e", " ", "", "", ""});
    CHECK(stream("one", {"two"}).reason.empty());
    CHECK(stream("one tw", {"two"}).text() == "one tw");  // held back, then sent
    CHECK(stream("ttwo", {"two"}).text() == "t");
    CHECK(stream("ababac", {"abac"}).text() == "ab");
    CHECK(stream("x€y", {"€"}).text() == "x");
    CHECK(stream("abc", {"c", "bc"}).text() == "a");  // the first one in the text
}

TEST_CASE("every stop string is found as in the whole text, for random texts") {
    Generator generator(9);
    for (int trial = 0; trial < 2000; ++trial) {
        std::string text, stop;
        for (int i = 0; i < 12; ++i) text += char('a' + generator.next_32_bits() % 2);
        for (unsigned i = 0; i < 1 + generator.next_32_bits() % 4; ++i)
            stop += char('a' + generator.next_32_bits() % 2);
        const Streamed streamed = stream(text, {stop});
        CHECK(streamed.text() == text.substr(0, text.find(stop)));
        CHECK(streamed.reason == (text.find(stop) == std::string::npos ? "" : "stop"));
    }
}

TEST_CASE("a bad word is never sent, not even a part of it") {
    const BadWords words = {fnv1a("foobar")};
    const Streamed streamed = stream("It is foobar, yes", {}, words);
    CHECK(streamed.text() == "It is ");
    CHECK(streamed.reason == "content_filter");
    CHECK(stream("spelled f-o-o-b-a-r.", {}, words).text() == "spelled ");
    CHECK(stream("foobars are fine", {}, words).text() == "foobars are fine");
    CHECK(stream("foobar", {}, words).text().empty());
}

TEST_CASE("server-sent events and errors have OpenAI's form") {
    CHECK(sse_event("{}") == "data: {}\n\n");
    CHECK(
        error_json(ApiError(404, "invalid_request_error", "no \"m\"", "model", "not_found")) ==
        R"({"error":{"message":"no \"m\"","type":"invalid_request_error","param":"model","code":"not_found"}})");
    CHECK(
        error_json(invalid_request("\xff")) ==
        "{\"error\":{\"message\":\"\uFFFD\",\"type\":\"invalid_request_error\",\"param\":null,"
        "\"code\":null}}");
}

TEST_CASE("the JSON of chats, completions and chunks") {
    const ResponseHead chat{true, "id", "m", 5, false}, text{false, "id", "m", 5, true};
    CHECK(
        response_json(chat, {{0, "Hi", {}, "stop"}}, {3, 2}) ==
        R"({"id":"id","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,)"
        R"("message":{"role":"assistant","content":"Hi","refusal":null},"logprobs":null,)"
        R"("finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}})");
    CHECK(chunks_json(chat, {1, "a\nb"}).at(0) ==
          R"({"id":"id","object":"chat.completion.chunk","created":5,"model":"m","choices":[)"
          R"({"index":1,"delta":{"content":"a\nb"},"logprobs":null,"finish_reason":null}]})");
    // With include_usage, each chunk has the key, and only the last one a value.
    ResponseHead counted = chat;
    counted.include_usage = true;
    const std::string no_usage = R"("model":"m","usage":null,"choices":[)";
    CHECK(chunks_json(counted, {1, "a"}).at(0).find(no_usage) != std::string::npos);
    CHECK(role_chunk_json(counted, 0).find(no_usage) != std::string::npos);
    CHECK(usage_chunk_json(counted, {3, 2}).find(R"("choices":[])") != std::string::npos);
    CHECK(usage_chunk_json(counted, {3, 2}).find(R"("usage":{"prompt_tokens":3,)") !=
          std::string::npos);
    CHECK(response_json(counted, {}, {3, 2}).find("null") == std::string::npos);
    const TokenDetails token{{"a", -0.5}, {{"\xff", -1}, {"b", -infinity}}, 7};
    CHECK(
        chunks_json(text, {0, "a", {token}, "length"}).at(0) ==
        "{\"id\":\"id\",\"object\":\"text_completion\",\"created\":5,\"model\":\"m\","
        "\"choices\":[{"
        "\"index\":0,\"text\":\"a\",\"logprobs\":{\"tokens\":[\"a\"],\"token_logprobs\":[-0.5],"
        "\"top_logprobs\":[{\"\uFFFD\":-1.0,\"b\":-9999.0}],\"text_offset\":[7]},"
        "\"finish_reason\":\"length\"}]}");
}

TEST_CASE("metrics: cumulative buckets, sums and counts, in the format of Prometheus") {
    Metrics metrics;
    metrics.set_state({2, 3, 5, 8, 1});
    metrics.add_prompt(7);
    metrics.add_first_token(0.02);
    metrics.add_next_token(0.001);
    metrics.add_next_token(100);
    metrics.add_response(200);
    metrics.add_response(429);
    const std::string lines = metrics.text();
    for (const std::string line :
         {"llm_requests_running 2", "llm_requests_waiting 3", "llm_pages_used 5",
          "llm_pages_total 8", "llm_preemptions_total 1", "llm_prompt_tokens_total 7",
          "llm_generated_tokens_total 3", "llm_http_responses_total{status=\"429\"} 1",
          "# TYPE llm_time_between_tokens_seconds histogram",
          "llm_time_to_first_token_seconds_bucket{le=\"0.01\"} 0",
          "llm_time_to_first_token_seconds_bucket{le=\"0.025\"} 1",
          "llm_time_between_tokens_seconds_bucket{le=\"0.001\"} 1",
          "llm_time_between_tokens_seconds_bucket{le=\"2.5\"} 1",
          "llm_time_between_tokens_seconds_bucket{le=\"+Inf\"} 2",
          "llm_time_between_tokens_seconds_sum 100.001",
          "llm_time_between_tokens_seconds_count 2"})
        CHECK_MESSAGE(lines.find("\n" + line + "\n") != std::string::npos, line);
    // Each line is a comment, or a name, perhaps with labels, and a number.
    for (const std::string& line : lines_of(lines))
        CHECK_MESSAGE((line.starts_with("# ") || line.starts_with("llm_")), line);
}
