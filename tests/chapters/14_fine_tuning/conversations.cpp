// Conversations and preferences in files and as tokens; answers, and how many are correct.
#include "chapters/11_generation/generation.hpp"
#include "chapters/14_fine_tuning/answers.hpp"
#include "common/files/mapped_file.hpp"
#include "tests/support/files.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;

namespace {

// Each byte is a token; the special tokens are 300 and 301.
Tokenizer two_token_tokenizer() {
    Tokenizer tokenizer = byte_tokenizer();
    tokenizer.token_bytes.resize(302);
    tokenizer.added_tokens = {{"<|im_start|>", 300}, {"<|im_end|>", 301}};
    for (const AddedToken& token : tokenizer.added_tokens)
        tokenizer.token_bytes[std::size_t(token.id)] = token.content;
    return tokenizer;
}

// A model with random weights, which often ends its answers.
Model chat_model() {
    Config config = small_config();
    config.vocab_size = 302;
    config.max_position_embeddings = 128;
    config.tie_word_embeddings = false;
    Generator generator(3);
    Model model = make_model(validate_model(config), generator);
    for (std::size_t c = 0; c < config.hidden_size; ++c) (*model.lm_head)(301, c) *= Real(1.9);
    return model;
}

std::string written(const Scratch& scratch, const std::string& text) {
    const std::string file = scratch.folder / "lines.jsonl";
    overwrite(file, text);
    return file;
}

const std::string asked = R"({"role": "user", "content": "1+1"})";
const std::string answered = R"({"role": "assistant", "content": "2"})";

std::string conversation_error(const std::string& text) try {
    read_conversations(written(Scratch(), text));
    return "it was read";
} catch (const FileError& error) {
    return error.what();
}

std::string preference_error(const std::string& text) try {
    read_preferences(written(Scratch(), text));
    return "it was read";
} catch (const FileError& error) {
    return error.what();
}

}  // namespace

TEST_CASE("Conversations: a line each, with or without a task") {
    const Scratch scratch;
    const auto conversations = read_conversations(
        written(scratch, "{\"task\": \"sum\", \"messages\": [" + asked + "," + answered +
                             "]}\n\n{\"messages\": [" + asked + "," + answered + "," + asked +
                             "," + answered + "]}"));
    REQUIRE(conversations.size() == 2);
    CHECK(conversations[0].task == "sum");
    CHECK(conversations[0].messages[0].role == "user");
    CHECK(conversations[0].messages[1].content == "2");
    CHECK(conversations[1].task.empty());
    CHECK(conversations[1].messages.size() == 4);
    const AskedQuestion question = question_of(conversations[1]);
    CHECK(question.messages.size() == 3);
    CHECK(question.answer == "2");
    CHECK(question_of({{{"user", "a"}, {"assistant", "b"}, {"user", "c"}}, "t"}).answer == "b");
}

TEST_CASE("Conversations that cannot be trained on are rejected with the number of the line") {
    const std::string good = "{\"messages\": [" + asked + "," + answered + "]}\n";
    CHECK(mentions(conversation_error(good + "x\n"), "line 2"));
    CHECK(mentions(conversation_error(good + "{\"messages\": [" + asked + "]}"),
                   "line 2: messages has no message of the assistant"));
    CHECK(mentions(conversation_error("{\"messages\": [" + answered + "]}"),
                   "messages begins with a message of the assistant"));
    const std::string untrained = R"({"role": "assistant", "content": "2", "weight": )";
    CHECK(mentions(conversation_error("{\"messages\": [" + asked + ", " + untrained + "0}]}"),
                   "messages has no message of the assistant to train"));
    CHECK(mentions(conversation_error("{\"messages\": [" + asked + ", " + untrained + "0.5}]}"),
                   "weight is neither 0 nor 1"));
    CHECK(mentions(conversation_error("{\"text\": \"abc\"}"), "messages"));
    CHECK(mentions(conversation_error("{\"messages\": [{\"role\": \"user\"}]}"), "content"));
}

TEST_CASE(
    "A key of a line that nothing reads is rejected with its number, but for descriptions") {
    const std::string start = R"({"messages": [)" + asked + ", " + answered + "]";
    CHECK(mentions(conversation_error(start + "}\n" + start + R"(, "weight": 0.5})"),
                   "line 2: weight 0.5 is not supported: nothing reads it"));
    CHECK(mentions(conversation_error(start + R"(, "tools": [{"type": "function"}]})"),
                   "line 1: tools a list is not supported"));
    for (const std::string key : {"tool_calls", "reasoning_content", "name"})
        CHECK(mentions(
            conversation_error(R"({"messages": [)" + asked +
                               R"(, {"role": "assistant", "content": "", ")" + key +
                               R"(": ["x"]}]})"),
            "line 1: messages.1." + key + " a list is not supported: nothing reads it"));
    CHECK(conversation_error(start + R"(, "id": 7, "source": "x", "weight": null})") ==
          "it was read");
    const std::string pair = R"({"prompt": [)" + asked + R"(], "chosen": [)" + answered +
                             R"(], "rejected": [)" + answered + "]";
    CHECK(mentions(preference_error(pair + R"(, "margin": 2})"), "line 1: margin 2 is not"));
    CHECK(preference_error(pair + R"(, "id": "a"})") == "it was read");

    const Scratch scratch;
    const std::string file = written(scratch, start + "}\n\n" + start + "}");
    CHECK(read_conversations(file)[1].source == file + ", line 3");
}

TEST_CASE("Preferences are read as they were written") {
    const Scratch scratch;
    const std::string file = scratch.folder / "pairs.jsonl";
    write_preferences(file, {{{{"system", "S"}, {"user", "1+1"}}, "2", "3"},
                             {{{"user", "\"ä\"\n"}}, "a", "b"}});
    const std::vector<Preference> preferences = read_preferences(file);
    REQUIRE(preferences.size() == 2);
    CHECK(preferences[0].prompt[0].role == "system");
    CHECK(preferences[0].prompt[1].content == "1+1");
    CHECK(preferences[0].chosen == "2");
    CHECK(preferences[0].rejected == "3");
    CHECK(preferences[1].prompt[0].content == "\"ä\"\n");
    CHECK(mentions(content(file), "\"chosen\":[{\"role\":\"assistant\",\"content\":\"2\"}]"));

    const std::string start = "{\"prompt\": [" + asked + "], \"chosen\": [" + answered + "], ";
    CHECK(mentions(preference_error(start + "\"rejected\": [" + asked + "]}"),
                   "line 1: rejected is not one message of the assistant"));
    CHECK(mentions(preference_error(start + "\"rejected\": []}"), "rejected"));
    CHECK(mentions(preference_error(start + "\"rejected\": \"2\"}"), "rejected"));
    CHECK(mentions(preference_error("{\"prompt\": [], \"chosen\": [], \"rejected\": []}"),
                   "prompt has no messages"));
}

TEST_CASE("A response is what the assistant wrote, with the token that ends it") {
    const Tokenizer tokenizer = two_token_tokenizer();
    const ChatEncoder encoder{tokenizer, ChatTemplate{}};
    CHECK(encoder.end_of_turn() == 301);
    const auto [prompt_ids, response_ids] = encoder.completion({{"user", "1+1"}}, "2");
    CHECK(tokenizer.decode(prompt_ids) ==
          "<|im_start|>user\n1+1<|im_end|>\n<|im_start|>assistant\n");
    CHECK(response_ids.size() == 2);
    CHECK(tokenizer.decode(response_ids) == "2<|im_end|>");
    CHECK(encoder.prompt_ids({{"user", "1+1"}}) == prompt_ids);
    CHECK(encoder.completion({{"user", "1+1"}}, "").response_ids == std::vector<Id>{301});

    // Special tokens in an answer are text.
    const auto quoted = encoder.completion({{"user", "1"}}, "<|im_end|>x").response_ids;
    CHECK(std::count(quoted.begin(), quoted.end(), 301) == 1);
    CHECK(tokenizer.decode(quoted) == "<|im_end|>x<|im_end|>");
}

TEST_CASE("Each answer of a conversation is a completion of all that precedes it") {
    const Tokenizer tokenizer = two_token_tokenizer();
    const ChatEncoder encoder{tokenizer, ChatTemplate{}};
    const std::vector<Message> messages{
        {"user", "1"}, {"assistant", "2"}, {"user", "3"}, {"assistant", "4"}, {"user", "5"}};
    const std::vector<Completion> completions = encoder.completions(messages);
    REQUIRE(completions.size() == 2);
    CHECK(tokenizer.decode(completions[0].response_ids) == "2<|im_end|>");
    CHECK(tokenizer.decode(completions[1].response_ids) == "4<|im_end|>");
    CHECK(tokenizer.decode(completions[1].prompt_ids) ==
          "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
          "<|im_start|>user\n3<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("A message of weight 0 is part of the prompt, and no answer to learn") {
    const Scratch scratch;
    const auto conversation = read_conversations(written(
        scratch, R"({"messages": [)" + asked +
                     R"(, {"role": "assistant", "content": "3", "weight": 0}, )" + asked +
                     R"(, {"role": "assistant", "content": "2", "weight": 1}]})"))[0];
    const Tokenizer tokenizer = two_token_tokenizer();
    const ChatEncoder encoder{tokenizer, ChatTemplate{}};
    const std::vector<Completion> completions = encoder.completions(conversation.messages);
    REQUIRE(completions.size() == 1);
    CHECK(tokenizer.decode(completions[0].response_ids) == "2<|im_end|>");
    CHECK(mentions(tokenizer.decode(completions[0].prompt_ids), "assistant\n3<|im_end|>"));
}

TEST_CASE("answers_of: greedy answers are those of generate, whatever else is asked") {
    const Tokenizer tokenizer = two_token_tokenizer();
    const ChatEncoder encoder{tokenizer, ChatTemplate{}};
    const Model model = chat_model();
    std::vector<AskedQuestion> questions;
    for (const char* text : {"a", "bc", "def", "0", "x y", "?", "12", "a"})
        questions.push_back({{{"user", text}}, "", ""});
    Generator generator(1);
    const AnswerConfig greedy{0, 12};
    const auto answers = answers_of(model, encoder, questions, greedy, generator);
    REQUIRE(answers.size() == 8);
    std::size_t num_finished = 0;
    for (std::size_t i = 0; i < 8; ++i) {
        GenerationConfig config;
        config.sampling.temperature = 0;
        config.max_new_tokens = 12;
        config.eos_token_ids = {301};
        const auto ids =
            generate(model, encoder.prompt_ids(questions[i].messages), config, generator).ids;
        CHECK(answers[i] == (ids.size() < 12 ? tokenizer.decode(ids) : ""));
        num_finished += ids.size() < 12;
    }
    CHECK(num_finished > 0);
    CHECK(num_finished < 8);
    CHECK(answers[0] == answers[7]);

    Generator one(5), same(5);
    const auto sampled = answers_of(model, encoder, questions, {1, 60}, one);
    CHECK(sampled == answers_of(model, encoder, questions, {1, 60}, same));
    CHECK(sampled[0] != sampled[7]);
}

TEST_CASE("answers_of: an answer that fills the context has not ended, and is empty") {
    const Tokenizer tokenizer = two_token_tokenizer();
    const ChatEncoder encoder{tokenizer, ChatTemplate{}};
    Model model = chat_model();
    const AskedQuestion question{{{"user", "a"}}, "", ""};
    const std::size_t prompt_len = encoder.prompt_ids(question.messages).size();
    model.config.max_position_embeddings = prompt_len + 2;
    GenerationConfig config;
    config.sampling.temperature = 0;
    config.max_new_tokens = 50;
    config.eos_token_ids = {301};
    Generator generator(1);
    REQUIRE(generate(model, encoder.prompt_ids(question.messages), config, generator).reason ==
            StopReason::last_position);
    CHECK(answers_of(model, encoder, {question}, {0, 50}, generator) ==
          std::vector<std::string>{""});
}

TEST_CASE("score_answers counts exact answers by task") {
    const std::vector<AskedQuestion> questions{
        {{}, "2", "sum"}, {{}, "3", "sum"}, {{}, "x", "spell"}, {{}, "4", "sum"}};
    const auto scores = score_answers(questions, {"2", "4", " x\n", ""});
    REQUIRE(scores.size() == 2);
    CHECK(scores.at("sum").num_correct == 1);
    CHECK(scores.at("sum").num_questions == 3);
    CHECK(scores.at("spell").num_correct == 1);
}
