// /v1/embeddings: requests, vectors and answers as OpenAI's API defines them.
#include <atomic>
#include <limits>

#include "chapters/apps/serve/api/embeddings.hpp"
#include "chapters/apps/serve/loop/embedding_loop.hpp"
#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "tests/support/published_encoders.hpp"
#include "tests/support/serve_helpers.hpp"

using namespace llm;
using namespace llm::serve;

namespace {

// An encoder of the fixtures, without a tokenizer of its own: texts are bytes, of which the
// vocabulary has the first.
models::FastEncoder fast_encoder(const std::string& name) {
    return models::make_fast_encoder(models::load_encoder(fixture_path("models/" + name)));
}
const models::FastEncoder& bert() {
    static const models::FastEncoder encoder = fast_encoder("bert");
    return encoder;
}
const Tokenizer& tokenizer_of_bert() {
    static const Tokenizer tokenizer = [] {
        Tokenizer bytes = byte_tokenizer();
        bytes.prefix_tokens = {1};
        bytes.suffix_tokens = {2};
        return bytes;
    }();
    return tokenizer;
}

EmbeddingModel embedding_model() { return {"bert", tokenizer_of_bert(), 31, 24, 16}; }

std::string body(const std::string& input, const std::string& more = "") {
    return R"({"model": "bert", "input": )" + input + (more.empty() ? "" : ", " + more) + "}";
}
EmbeddingRequest parse_embedding(const std::string& input, const std::string& more = "") {
    return parse_embedding_request(body(input, more), embedding_model());
}
std::string embedding_error(const std::string& input, const std::string& more = "") {
    try {
        parse_embedding(input, more);
        return "accepted";
    } catch (const ApiError& error) {
        return std::to_string(error.status) + " " + error.param + " " + error.code + ": " +
               error.what();
    }
}

// The three texts of the fixtures' batch, and the mean of PyTorch's vectors of each, which has
// length 1. The first text is a pair there, so it is left out.
std::vector<std::vector<Id>> fixture_texts() {
    const IdMatrix ids = id_fixture<2>("25_encoders/input_ids");
    std::vector<std::vector<Id>> texts(2);
    for (const auto& [text, length] : {std::pair{std::size_t{1}, 7}, {std::size_t{2}, 4}})
        for (std::size_t t = 0; t < std::size_t(length); ++t)
            texts[text - 1].push_back(ids(text, t));
    return texts;
}
Matrix expected_vectors(const std::string& name) {
    const Tensor3 states = fixture<3>("25_encoders/" + name + "_last_hidden_state");
    const std::vector<std::vector<Id>> texts = fixture_texts();
    Matrix vectors = xt::zeros<Real>({texts.size(), states.shape(2)});
    for (std::size_t n = 0; n < texts.size(); ++n) {
        for (std::size_t t = 0; t < texts[n].size(); ++t)
            for (std::size_t c = 0; c < states.shape(2); ++c)
                vectors(n, c) += states(n + 1, t, c);
        double sum = 0;
        for (std::size_t c = 0; c < states.shape(2); ++c)
            sum += double(vectors(n, c)) * double(vectors(n, c));
        for (std::size_t c = 0; c < states.shape(2); ++c) vectors(n, c) /= Real(std::sqrt(sum));
    }
    return vectors;
}

bool always() { return true; }

}  // namespace

TEST_CASE("input is a text, texts, tokens, or lists of tokens") {
    using Texts = std::vector<std::vector<Id>>;
    // Special tokens belong to a text; the tokens of a client stay as they are.
    const auto id = [](char byte) { return byte_id(byte); };
    CHECK(parse_embedding("\"\\u0001\\u0005\"").texts == Texts{{1, id(1), id(5), 2}});
    CHECK(parse_embedding(R"(["\u0001", "\u0002\u0003"])").texts ==
          Texts{{1, id(1), 2}, {1, id(2), id(3), 2}});
    CHECK(parse_embedding("[7, 30, 0]").texts == Texts{{7, 30, 0}});
    CHECK(parse_embedding("[[7, 30], [5]]").texts == Texts{{7, 30}, {5}});
    CHECK(parse_embedding("[[7, 30], [5]]").num_tokens() == 3);
}

TEST_CASE("the format of vectors and their dimensions are those of the request") {
    CHECK_FALSE(parse_embedding("[7]").base64);
    CHECK(parse_embedding("[7]").dimensions == 24);
    CHECK_FALSE(parse_embedding("[7]", R"("encoding_format": "float")").base64);
    CHECK_FALSE(parse_embedding("[7]", R"("encoding_format": null)").base64);
    CHECK(parse_embedding("[7]", R"("encoding_format": "base64", "user": "me")").base64);
    CHECK(parse_embedding("[7]", R"("dimensions": 24)").dimensions == 24);
    EmbeddingModel model = embedding_model();
    model.matryoshka = true;
    CHECK(parse_embedding_request(body("[7]", R"("dimensions": 5)"), model).dimensions == 5);
}

TEST_CASE("what /v1/embeddings does not accept is rejected with the name of the field") {
    const std::string type =
        "400 input : input must be a string, an array of tokens, or an array of these";
    for (const std::string input : {"5", "{}", "[[]]", "[true]", "[[\"a\"]]"})
        CHECK(embedding_error(input) == type);
    CHECK(embedding_error("null") == "400 input : input is required");
    CHECK(embedding_error("\"\"") == "400 input : input must not be an empty string");
    CHECK(embedding_error(R"(["a", ""])") == "400 input : input must not be an empty string");
    CHECK(embedding_error("[]") == "400 input : input must be an array of 1 to 2048 inputs");
    std::string many = "[\"a\"";
    for (int i = 0; i < 2048; ++i) many += ",\"a\"";
    CHECK(embedding_error(many + "]") ==
          "400 input : input must be an array of 1 to 2048 inputs");
    for (const std::string ids : {"[31]", "[-1]", "[1.5]", "[5, \"a\"]"})
        CHECK(embedding_error(ids) ==
              "400 input : input has a token that is not in the vocabulary of 31");
    CHECK(embedding_error("[[1], [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]]") ==
          "400 input context_length_exceeded: input[1] has 17 tokens, at most 16 are allowed; "
          "texts are not truncated");
    CHECK(embedding_error("[1]", R"("encoding_format": "hex")") ==
          "400 encoding_format : encoding_format must be float or base64, not hex");
    CHECK(embedding_error("[1]", R"("dimensions": 25)") ==
          "400 dimensions : dimensions must be an integer from 1 to 24, not 25");
    CHECK(embedding_error("[1]", R"("dimensions": 5)") ==
          "400 dimensions unsupported_parameter: dimensions must be 24: the beginning of a "
          "vector is only useful if the model was trained for it (Matryoshka); the server's "
          "option --matryoshka says so");
    CHECK(embedding_error("[1]", R"("truncate": true)") ==
          "400 truncate unknown_parameter: unknown parameter: truncate");
    CHECK_THROWS_WITH(
        parse_embedding_request(R"({"model": "other", "input": [1]})", embedding_model()),
        "the model other does not exist; this server has bert");
}

TEST_CASE("base64: the examples of RFC 4648, section 10") {
    for (const auto& [bytes, text] : {std::pair{"", ""},
                                      {"f", "Zg=="},
                                      {"fo", "Zm8="},
                                      {"foo", "Zm9v"},
                                      {"foob", "Zm9vYg=="},
                                      {"fooba", "Zm9vYmE="},
                                      {"foobar", "Zm9vYmFy"}})
        CHECK(base64(bytes) == text);
    CHECK(base64("\xff\xfe\xfd") == "//79");
}

TEST_CASE("an answer of /v1/embeddings has OpenAI's members") {
    Matrix vectors = {{Real(0.6), Real(-0.8)}, {1, 0}};
    const std::string rest = R"("model":"bert","usage":{"prompt_tokens":3,"total_tokens":3}})";
    EmbeddingRequest request{{{1, 2}, {3}}, 2, false};
    CHECK(embeddings_json(embedding_model(), request, vectors) ==
          R"({"object":"list","data":[)"
          R"({"object":"embedding","index":0,"embedding":[0.6,-0.8]},)"
          R"({"object":"embedding","index":1,"embedding":[1,0]}],)" +
              rest);
    // The bytes of 1.0 are 00 00 80 3f, the lowest first.
    request.base64 = true;
    CHECK(mentions(embeddings_json(embedding_model(), request, vectors),
                   R"("index":1,"embedding":"AACAPwAAAAA="})"));
    // One dimension, of length 1 again.
    request.dimensions = 1;
    request.base64 = false;
    CHECK(mentions(embeddings_json(embedding_model(), request, vectors),
                   R"("index":0,"embedding":[1]})"));
    vectors(0, 1) = std::numeric_limits<Real>::quiet_NaN();
    CHECK_THROWS_WITH(embeddings_json(embedding_model(), request, vectors),
                      "a vector has a number that is not finite");
}

TEST_CASE("batches have texts of similar length, each text once, and not too many tokens") {
    const std::vector<std::vector<Id>> texts = {
        {1, 1, 1, 1, 1}, {1, 1}, {1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1}};
    using Batches = std::vector<std::vector<std::size_t>>;
    CHECK(batches_by_length(texts, 5) == Batches{{2, 1, 4}, {0}, {3}});
    CHECK(batches_by_length(texts, 4) == Batches{{2, 1}, {4}, {0}, {3}});
    CHECK(batches_by_length(texts, 100) == Batches{{2, 1, 4, 0, 3}});
    CHECK(batches_by_length({}, 5).empty());
}

TEST_CASE("the vectors of /v1/embeddings equal PyTorch's, whatever the batches") {
    for (const std::string name : {"bert", "modernbert"}) {
        const models::FastEncoder encoder = fast_encoder(name);
        for (const std::size_t max_tokens : {1, 11, 512}) {
            Metrics metrics;
            EmbeddingLoop loop(encoder, Pooling::mean, max_tokens, 1, metrics);
            const auto vectors = loop.embed(fixture_texts(), always);
            REQUIRE(vectors.has_value());
            CHECK_CLOSE(*vectors, expected_vectors(name), 2e-5);
            CHECK(mentions(metrics.text(), "llm_prompt_tokens_total 11\n"));
            CHECK(loop.num_open() == 0);
        }
    }
}

TEST_CASE("the first token's vector instead of the mean, if the model says so") {
    Metrics metrics;
    EmbeddingLoop loop(bert(), Pooling::cls, 4, 1, metrics);
    const auto vectors = loop.embed({{7, 8, 9}}, always);
    const Tensor3 states =
        models::encode(models::load_encoder(fixture_path("models/bert")), pad({{7, 8, 9}}, 5))
            .last_hidden_state;
    const Matrix first = xt::view(states, xt::all(), 0);
    CHECK_CLOSE(vectors.value(), l2_normalize(first), 1e-6);
}

TEST_CASE("a client that goes away, and a server that stops, end a request of embeddings") {
    Metrics metrics;
    EmbeddingLoop loop(bert(), Pooling::mean, 4, 1, metrics);
    int asked = 0;
    const auto once = [&] { return ++asked < 2; };
    CHECK_FALSE(loop.embed(fixture_texts(), once).has_value());  // before its second batch
    CHECK(loop.num_open() == 0);
    const auto stop = [&] {
        loop.stop_accepting();
        return true;
    };
    CHECK(loop.embed(fixture_texts(), stop).has_value());  // it was accepted before
    CHECK_THROWS_WITH(loop.embed(fixture_texts(), always), "the server is shutting down");
    EmbeddingLoop other(bert(), Pooling::mean, 4, 1, metrics);
    std::atomic<bool> is_canceled = false;
    const auto cancel = [&] {
        is_canceled = true;
        return true;
    };
    std::thread canceling([&] {
        while (!is_canceled) std::this_thread::yield();
        other.cancel_all();
    });
    // So many batches take longer than the other thread.
    CHECK_THROWS_WITH(other.embed(std::vector<std::vector<Id>>(20'000, {7, 8, 9}), cancel),
                      "the server is shutting down");
    canceling.join();
}

TEST_CASE("requests of embeddings take turns, and too many are rejected") {
    Metrics metrics;
    EmbeddingLoop loop(bert(), Pooling::mean, 4, 1, metrics);
    const auto prompt_tokens = [&] {
        const std::string text = metrics.text(), name = "\nllm_prompt_tokens_total ";
        return std::stoul(text.substr(text.find(name) + name.size()));
    };
    std::atomic<bool> waits = false;
    std::thread other;
    std::size_t tokens_before_end = 0;  // of the short request
    const auto keep_on = [&] {
        if (!other.joinable()) {
            other = std::thread([&] { loop.embed({{7}}, [&] { return waits = true; }); });
            while (!waits) std::this_thread::yield();
            CHECK_THROWS_AS(loop.embed({{7}}, always), ServerBusy);  // a third one
        } else if (loop.num_open() == 1 && tokens_before_end == 0) {
            tokens_before_end = prompt_tokens();
        }
        return true;
    };
    CHECK(loop.embed(std::vector<std::vector<Id>>(40, {7, 8, 9}), keep_on).has_value());
    other.join();
    // One batch before it and at most one after it, of the 40 batches of the long request.
    CHECK(tokens_before_end >= 4);
    CHECK(tokens_before_end <= 7);
    CHECK(prompt_tokens() == 121);
    CHECK(loop.num_open() == 0);
}
