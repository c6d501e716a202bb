// A language model that answers from passages.
#include "chapters/apps/ask/answer.hpp"
#include "tests/support/files.hpp"

using namespace llm;
using namespace llm::ask;

namespace {

const chat::ChatModel& with_template() {
    static const chat::ChatModel model =
        chat::load_chat_model({.model_path = asset("wordnet_calculator")});
    return model;
}
const chat::ChatModel& without_template() {
    static const chat::ChatModel model =
        chat::load_chat_model({.model_path = asset("king_james")});
    return model;
}

std::string text_of(const chat::ChatModel& model, const std::vector<Id>& ids) {
    return model.tokenizer.decode(ids);
}

}  // namespace

TEST_CASE("The prompt has the passages before the question, without them, only the question") {
    CHECK(prompt_of("Why?", "") == "Why?");
    CHECK(prompt_of("Why?", "Because.") ==
          "Answer the question with this text. If the text does not answer it, say so.\n\n"
          "Because.\n\nWhy?");
}

TEST_CASE("Passages are cut to what fits, and the question is not") {
    std::string passages = "one";
    for (int n = 0; n < 500; ++n) passages += " two three";
    for (const chat::ChatModel* model : {&with_template(), &without_template()}) {
        const std::vector<Id> ids = encode_question(*model, "Why is it so?", passages, 256, 56);
        CHECK(ids.size() <= 200);
        CHECK(ids.size() > 190);
        CHECK(mentions(text_of(*model, ids), "Why is it so?"));
        CHECK(mentions(text_of(*model, ids), "one two three two"));
    }
}

TEST_CASE("A model with a chat template reads a message of the user") {
    const std::vector<Id> ids = encode_question(with_template(), "Why?", "", 256, 56);
    CHECK(mentions(text_of(with_template(), ids), "user\nWhy?"));
    CHECK(text_of(without_template(),
                  encode_question(without_template(), "Why?", "", 256, 56)) == "Why?\n");
}

TEST_CASE("A question that does not fit is rejected with both sizes") {
    std::string question = "one";
    for (int n = 0; n < 300; ++n) question += " two";
    const std::vector<Id> ids = encode_question(without_template(), question, "", 4096, 10);
    CHECK_THROWS_WITH(
        encode_question(without_template(), question, "x", 100, 10),
        ("the question has " + std::to_string(ids.size()) + " tokens, the context only 100")
            .c_str());
}

TEST_CASE("A question may fill the context but for one token") {
    const std::vector<Id> ids = encode_question(without_template(), "one two", "", 4096, 10);
    CHECK(encode_question(without_template(), "one two", "x", ids.size() + 1, 1) == ids);
    CHECK_THROWS_AS(encode_question(without_template(), "one two", "x", ids.size(), 1),
                    ValueError);
}

TEST_CASE("The answer is what was streamed, and at most as long as allowed") {
    std::string streamed;
    const std::string answer =
        answer_question(with_template(), "What is a river?", "", {.max_new_tokens = 12},
                        [&](const std::string& text) { streamed += text; });
    CHECK(!answer.empty());
    CHECK(streamed == answer);
    CHECK(with_template().tokenizer.encode(answer).size() <= 14);
}

TEST_CASE("An answer has at most half as many tokens as there are positions") {
    std::size_t count = 0;
    answer_question(without_template(), "And the", "",
                    {.max_new_tokens = 100, .context_length = 40},
                    [&](const std::string&) { ++count; });
    CHECK(count == 20);
}

TEST_CASE("An answer contains a number only as a word of its own") {
    CHECK(contains_words("It is 12.", "12"));
    CHECK_FALSE(contains_words("It is 128.", "12"));
    CHECK(contains_words("At most 8,192 tokens", "8,192"));
    CHECK_FALSE(contains_words("8 or 192", "8,192 tokens"));
    CHECK(contains_words("OLMo 2: Res-post-norm", "res-post-norm"));
    CHECK_FALSE(contains_words("anything", ""));
}
